"""One member of a golden script's group: a core, its log, and its disk, all driven by hand."""

from __future__ import annotations

from array import array
from collections import deque

from headrace_raftlog.core.raft import RaftCore
from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry, HardState
from headrace_raftlog.model.group import CoreOptions, GroupConfig
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.model.message import Message
from headrace_raftlog.model.ready import Ready
from headrace_raftlog.model.snapshot import Snapshot, SnapshotOffer
from headrace_raftlog.simulator.memory_log import MemoryLog


class ScriptedMember:
    """A host that does one step of its duties at a time.

    Args:
        core_type: the core under test.
        group: incarnation id.
        member: member id.
        founding: who founded the group; nobody for a member that waits to be admitted.
        options: tunables of its core.

    Attributes:
        core: None while the member is down.
        log: what its core sees.
        disk: what survives a crash.
        writing: Readies and installed snapshots on their way to the disk, oldest first.
        offer: the newest snapshot that it was told to fetch.
    """

    def __init__(
        self,
        core_type: type[RaftCore],
        group: int,
        member: int,
        founding: Membership,
        options: CoreOptions,
    ) -> None:
        self.core_type = core_type
        self.group = group
        self.member = member
        self.options = options
        self.core: RaftCore | None = None
        self.disk = MemoryLog([])
        self.disk.begin(member, founding)
        self.log = self.disk
        self.writing: deque[Ready | Snapshot] = deque()
        self.offer: SnapshotOffer | None = None
        self.restart()

    def live(self) -> RaftCore:
        """Return the core of a member that runs.

        Raises:
            ValueError: it is down.
        """
        if self.core is None:
            raise ValueError(f"member {self.member} is down")
        return self.core

    def begin_with(self, terms: tuple[int, ...], hard_state: HardState) -> None:
        """Start with a log of normal entries that has these terms, all durable."""
        self.disk.items = [
            Entry(index, term, ENTRY_NORMAL, b"%d/%d" % (index, term))
            for index, term in enumerate(terms, 1)
        ]
        self.disk.hard_state = hard_state
        self.restart()

    def restart(self) -> None:
        """Start with the content of the disk."""
        self.log = self.disk.copy()
        now = self.log.membership
        self.core = self.core_type(
            GroupConfig(self.group, self.member, now.voters, now.learners, now.outgoing),
            self.options,
            self.log,
            self.log.hard_state,
            self.log.snapshot_index,
            self.member,
        )

    def crash(self) -> list[str]:
        """Lose all unsynced writes; return their names."""
        lost = [_name(item) for item in self.writing]
        self.core = None
        self.offer = None
        self.writing.clear()
        return lost

    def take(self) -> Ready:
        """Take one Ready: entries become visible and are applied, writes wait."""
        core = self.live()
        ready = core.ready()
        if ready.entries:
            self.log.append(ready.entries)
        if ready.must_sync or ready.messages_after_persist:
            self.writing.append(ready)
        if ready.committed:
            core.applied(ready.committed[-1].index)
        if ready.offer is not None:
            self.offer = ready.offer
        return ready

    def oldest(self) -> Ready | Snapshot:
        """Return the next write.

        Raises:
            ValueError: nothing is.
        """
        if not self.writing:
            raise ValueError(f"member {self.member} has nothing to write")
        return self.writing[0]

    def write(self) -> list[Message]:
        """Finish the oldest write, without telling the core; return what may leave now."""
        item = self.oldest()
        self.writing.popleft()
        if isinstance(item, Snapshot):
            self.disk.install(item, self.disk.term_at(item.index) == item.term)
            return []
        if item.hard_state is not None:
            self.disk.hard_state = item.hard_state
        if item.entries:
            self.disk.append(item.entries)
        return item.messages_after_persist

    def save(self, index: int) -> None:
        """Replace the log up to `index`, which is applied, by a snapshot that is durable at once.

        Raises:
            ValueError: it is not durable here yet, so a host would not snapshot it.
        """
        core = self.live()
        if self.disk.last_index() < index:
            raise ValueError(f"{index} is not on the disk of member {self.member}")
        membership = core.membership_at(index)
        snapshot = Snapshot(index, self.log.term_at(index), membership, b"", array("Q"))
        self.log.save(snapshot)
        self.disk.save(snapshot)

    def restore(self, snapshot: Snapshot) -> bool:
        """Put a fetched snapshot in the place of the log; return False if the core refuses it."""
        keep = self.log.term_at(snapshot.index) == snapshot.term
        if not self.live().restore(snapshot.index, snapshot.term, snapshot.membership):
            return False
        self.log.install(snapshot, keep)
        self.writing.append(snapshot)
        return True


def _name(item: Ready | Snapshot) -> str:
    if isinstance(item, Snapshot):
        return f"snapshot {item.index}/t{item.term}"
    return f"ready {item.number}"
