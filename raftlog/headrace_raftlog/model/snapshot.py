"""The state of a group at one position of its log, without the bodies of what still matters."""

from __future__ import annotations

from array import array
from typing import final

from mypy_extensions import i64

from headrace_raftlog.model.membership import Membership


@final
class Snapshot:
    """A snapshot: the replacement of the beginning of a log."""

    def __init__(
        self,
        index: i64,
        term: i64,
        membership: Membership,
        state: bytes,
        live: array[int],
        held: array[int] | None = None,
    ) -> None:
        self.index = index  # everything up to here is contained; those entries are committed
        self.term = term  # term of the entry at `index`, 0 for index 0
        self.membership = membership  # who belonged to the group at `index`
        self.state = state  # the application's state, opaque
        # indexes up to `index` whose entries the application still reads, ascending; every other
        # entry up to `index` is dead
        self.live = live
        # dead ones, ascending, that stay in the log of the member that took this, while it runs;
        # they are its own business, stored nowhere and sent to nobody
        self.held = array("Q") if held is None else held

    def kept(self) -> array[int]:
        """Return the indexes, ascending, that the log of the member that took this keeps."""
        if not self.held:
            return self.live
        return array("Q", sorted([*self.live, *self.held]))

    def __repr__(self) -> str:
        return f"Snapshot({self.index}/t{self.term}, {len(self.state)}B, {len(self.live)} live)"


@final
class SnapshotOffer:
    """A leader's word that a member lacks entries which only a snapshot has."""

    def __init__(self, leader: i64, index: i64, term: i64) -> None:
        self.leader = leader  # member id of the leader
        # position of the snapshot that it has; it may have a newer one when asked
        self.index = index
        self.term = term  # term of the entry at `index`

    def __repr__(self) -> str:
        return f"SnapshotOffer({self.leader} has {self.index}/t{self.term})"
