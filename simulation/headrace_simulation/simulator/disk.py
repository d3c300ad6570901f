"""A disk in the abstract: it writes in order, takes time, and loses unsynced writes."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final, final

from typing_extensions import override

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.model.log import GroupLog
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.model.snapshot import Snapshot
from headrace_simulation.simulator.coverage import Coverage
from headrace_simulation.simulator.loop import Loop
from headrace_simulation.simulator.memory_log import MemoryLog
from headrace_simulation.simulator.parameters import Parameters
from headrace_simulation.simulator.store import Store

STALL: Final = 0.01  # probability that a sync takes ten times as long as it may

STATE: Final = 0
ENTRY: Final = 1
BEGIN: Final = 2
SAVE: Final = 3
INSTALL: Final = 4
INSTALL_KEEPING: Final = 5
INCOMING: Final = 6
REMOVE: Final = 7
TOKEN: Final = 8


@final
class Record:
    """One thing that is on the disk or not; for TOKEN the point up to which it counts."""

    def __init__(self, kind: int, group: int, value: object) -> None:
        self.kind = kind
        self.group = group
        self.value = value


def play(logs: dict[int, MemoryLog], removed: dict[int, bool], record: Record) -> None:
    """Apply one record to what a disk holds.

    An own snapshot that was under way becomes durable before what was written after it, so that a
    peer's snapshot may come behind a newer one; as in the log, the newer one stays.
    """
    group = record.group
    kind = record.kind
    value = record.value
    if kind == TOKEN or (group in removed and kind != REMOVE):
        return
    log = logs.get(group)
    if log is None:
        log = logs[group] = MemoryLog([])
    if kind == STATE:
        assert isinstance(value, HardState)
        log.hard_state = value
    elif kind == ENTRY:
        assert isinstance(value, Entry)
        log.append([value])
    elif kind == BEGIN:
        assert isinstance(value, tuple)
        log.begin(value[0], value[1])
    elif kind == INCOMING:
        assert isinstance(value, Entry)
        log.add_incoming([value])
    elif kind == REMOVE:
        removed[group] = True
        del logs[group]
    else:
        assert isinstance(value, Snapshot)
        if kind == SAVE:
            log.save(value)
        elif kind == INSTALL or value.index > log.snapshot_index:
            log.install(value, kind == INSTALL_KEEPING)


@final
class Disk(Store):
    """Written data of one node; it survives crashes, except for pending writes.

    Attributes:
        durable, removed, full: see `Store`.
        visible: the groups' logs as the running node sees them.
    """

    def __init__(self, loop: Loop, parameters: Parameters, coverage: Coverage) -> None:
        self.loop = loop
        self.parameters = parameters
        self.coverage = coverage
        self.durable = {}
        self.visible: dict[int, MemoryLog] = {}
        self.removed = {}
        self.full = False
        self.rotten = {}
        self._durably_removed: dict[int, bool] = {}
        self._damaged: dict[int, bool] = {}
        self._queue: list[Record] = []
        self._syncing: list[Record] = []
        self._wanted = False
        self._generation = 0
        self._syncs = 0
        self._done: Callable[[list[object]], None] | None = None
        self._failed: Callable[[], None] | None = None

    @override
    def open(self, done: Callable[[list[object]], None], failed: Callable[[], None]) -> None:
        """See `Store.open`."""
        self._done = done
        self._failed = failed
        self.visible = {group: log.copy() for group, log in self.durable.items()}
        self.removed = dict(self._durably_removed)
        for group in self._damaged:
            self.visible[group] = MemoryLog([])

    @property
    @override
    def under_way(self) -> tuple[int, int] | None:
        """See `Store.under_way`."""
        return (self._syncs, 0) if self._syncing and not self.full else None

    @override
    def set_parameters(self, parameters: Parameters) -> None:
        """See `Store.set_parameters`."""
        self.parameters = parameters

    @override
    def power_off(self) -> None:
        """See `Store.power_off`: some prefix of the unsynced writes survives."""
        rng = self.loop.rng
        records = self._syncing + self._queue
        kept = rng.choice((0, len(records), rng.randint(0, len(records))))
        if 0 < kept < len(records):
            self.coverage.note("torn write")
        for record in records[:kept]:
            self._store(record)
        self._syncing = []
        self._queue = []
        self._wanted = False
        self.full = False
        self._generation += 1
        self._done = None
        self._failed = None

    @override
    def quarantined(self) -> list[int]:
        """See `Store.quarantined`."""
        return sorted(self._damaged)

    @override
    def damage(self, group: int) -> bool:
        """See `Store.damage`."""
        if group not in self.durable:
            return False
        self._damaged[group] = True
        return True

    @override
    def wipe(self) -> None:
        """See `Store.wipe`."""
        self.durable = {}
        self._durably_removed = {}
        self._damaged = {}

    @override
    def log(self, group: int) -> GroupLog:
        """See `Store.log`."""
        return self._log(group)

    @override
    def member(self, group: int) -> int:
        """See `Store.member`."""
        log = self.visible.get(group)
        return 0 if log is None else log.member

    @override
    def hard_state(self, group: int) -> HardState:
        """See `Store.hard_state`."""
        return self._log(group).hard_state

    @override
    def membership(self, group: int) -> Membership:
        """See `Store.membership`."""
        return self._log(group).membership

    @override
    def entry(self, group: int, index: int) -> Entry:
        """See `Store.entry`."""
        return self._log(group).entry(index)

    @override
    def begin(self, group: int, member: int, membership: Membership) -> None:
        """See `Store.begin`."""
        assert group not in self.removed
        self._log(group).begin(member, membership)
        self._queue.append(Record(BEGIN, group, (member, membership)))

    @override
    def append(
        self,
        group: int,
        hard_state: HardState | None,
        entries: list[Entry],
        must_sync: bool,
        token: object,
    ) -> None:
        """See `Store.append`."""
        log = self._log(group)
        queue = self._queue
        if hard_state is not None:
            log.hard_state = hard_state
            queue.append(Record(STATE, group, hard_state))
        if entries:
            log.append(entries)
            for entry in entries:
                queue.append(Record(ENTRY, group, entry))
        if must_sync or entries or token is not None:
            self._wanted = True
        if token is not None:
            queue.append(Record(TOKEN, group, token))

    @override
    def save_snapshot(self, group: int, snapshot: Snapshot, token: object) -> None:
        """See `Store.save_snapshot`."""
        self._queue.append(Record(SAVE, group, snapshot))
        self._queue.append(Record(TOKEN, group, token))
        self._wanted = True

    @override
    def install_snapshot(self, group: int, snapshot: Snapshot, keep_suffix: bool) -> None:
        """See `Store.install_snapshot`."""
        self._log(group).install(snapshot, keep_suffix)
        kind = INSTALL_KEEPING if keep_suffix else INSTALL
        self._queue.append(Record(kind, group, snapshot))
        self._wanted = True

    @override
    def add_incoming(self, group: int, entries: list[Entry]) -> None:
        """See `Store.add_incoming`."""
        self._log(group).add_incoming(entries)
        for entry in entries:
            self._queue.append(Record(INCOMING, group, entry))
        self._wanted = True

    @override
    def missing(self, group: int, live: array[int], commit_index: int) -> list[int]:
        """See `Store.missing`."""
        return self._log(group).missing(live, commit_index)

    @override
    def read_snapshot(self, group: int) -> Snapshot | None:
        """See `Store.read_snapshot`."""
        return self._log(group).snapshot

    @override
    def entry_dead(self, group: int, index: int) -> None:
        """See `Store.entry_dead`: nothing is reclaimed here before the next snapshot."""

    @override
    def remove_group(self, group: int) -> None:
        """See `Store.remove_group`."""
        self.visible.pop(group, None)
        self.removed[group] = True
        self._damaged.pop(group, None)
        self._queue.append(Record(REMOVE, group, None))
        self._wanted = True

    @override
    def flush(self) -> None:
        """See `Store.flush`."""
        if self._wanted and not self._syncing:
            self._start()

    @override
    def collect(self) -> list[int]:
        """See `Store.collect`."""
        return []

    def _log(self, group: int) -> MemoryLog:
        log = self.visible.get(group)
        if log is None:
            log = self.visible[group] = MemoryLog([])
        return log

    def _start(self) -> None:
        self._syncing = self._queue
        self._queue = []
        self._wanted = False
        self._syncs += 1
        self.loop.after(sync_units(self.loop, self.parameters), self._finish, self._generation)

    def _finish(self, generation: int) -> None:
        if generation != self._generation:
            return
        if self.full:
            self.loop.after(sync_units(self.loop, self.parameters), self._finish, generation)
            return
        if self.loop.rng.random() < self.parameters.sync_error:
            self.coverage.note("sync error")
            assert self._failed is not None
            self._failed()
            return
        batch = self._syncing
        tokens: list[object] = []
        for record in batch:
            self._store(record)
            if record.kind == SAVE and record.group in self.visible:
                assert isinstance(record.value, Snapshot)
                self.visible[record.group].save(record.value)
            elif record.kind == TOKEN:
                tokens.append(record.value)
        self._syncing = []
        if self._wanted:
            self._start()
        assert self._done is not None
        self._done(tokens)

    def _store(self, record: Record) -> None:
        if record.kind == BEGIN:
            self._damaged.pop(record.group, None)
        play(self.durable, self._durably_removed, record)


def sync_units(loop: Loop, parameters: Parameters) -> int:
    """Draw how long a sync takes."""
    latency = parameters.disk_latency_min + int(loop.rng.random() * parameters.disk_latency_max)
    if loop.rng.random() < STALL:
        latency *= 10
    return latency
