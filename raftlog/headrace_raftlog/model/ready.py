"""Output of a core to its host: things to write, to send and to apply."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64, mypyc_attr

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.model.message import Message
from headrace_raftlog.model.snapshot import SnapshotOffer


@mypyc_attr(acyclic=True)
@final
class Ready:
    """One numbered batch of work; the host may have several under way, finished in order.

    The host makes `entries` visible in the group's log before it calls the core again, sends
    `messages` at once, writes `hard_state` and `entries` durably, then calls
    `persisted(number)` and sends `messages_after_persist`. Entries whose first index lies at or
    below the log's last index replace everything from there on.
    """

    def __init__(self, number: i64) -> None:
        # counts up by one from 1; nothing to persist still needs `persisted(number)` when
        # `messages_after_persist` is not empty
        self.number = number
        self.hard_state: HardState | None = None  # changed hard state, or None
        self.entries: list[Entry] = []  # entries to append, consecutive
        self.messages: list[Message] = []  # may leave before anything is durable
        # leave only after `hard_state` and `entries` are durable
        self.messages_after_persist: list[Message] = []
        # entries to apply now, consecutive, each durable here and committed
        self.committed: list[Entry] = []
        self.leader: i64 = 0  # member id of the leader this member knows, 0 for none
        self.role: i64 = 0  # role after this Ready
        self.term: i64 = 0  # term after this Ready
        self.must_sync = False  # whether the write needs a sync (term, vote or entries changed)
        # a snapshot to fetch from the leader, then to be given to `restore`, or None
        self.offer: SnapshotOffer | None = None
        # who belongs to the group from now on, or None while that did not change
        self.membership: Membership | None = None
        # (context, index) of reads that may be answered once `index` is applied
        self.read_states: list[tuple[int, int]] = []
        # contexts of reads that will not be answered; ask again with new ones
        self.reads_lost: list[int] = []
