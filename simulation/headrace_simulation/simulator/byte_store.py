"""The real log under a simulated node, on files in memory that lose, tear and damage bytes.

Beside it stands what the abstract disk would hold. After every recovery the real log must be
what that would be after some prefix of the writes that were under way: nothing acknowledged is
missing, nothing is mixed up, and damage is noticed.
"""

from __future__ import annotations

import errno
from array import array
from collections.abc import Callable
from typing import Final, final

from typing_extensions import override

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.model.limits import WRITE_SLICE_BYTES
from headrace_raftlog.model.log import GroupLog
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.storage.disk.options import LogOptions
from headrace_raftlog.storage.group.group_log import StoredGroup
from headrace_raftlog.storage.group.lost_entries import lost_indexes
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_raftlog.storage.segment.record import HEADER_BYTES
from headrace_raftlog.storage.segment.segment import segment_name
from headrace_simulation.memory_files import MemoryFiles
from headrace_simulation.simulator.byte_comparison import equal, told
from headrace_simulation.simulator.coverage import Coverage
from headrace_simulation.simulator.disk import (
    BEGIN,
    ENTRY,
    INCOMING,
    INSTALL,
    INSTALL_KEEPING,
    REMOVE,
    SAVE,
    STATE,
    Record,
    play,
    sync_units,
)
from headrace_simulation.simulator.invariant_error import InvariantError
from headrace_simulation.simulator.loop import Loop
from headrace_simulation.simulator.memory_log import MemoryLog
from headrace_simulation.simulator.parameters import Parameters
from headrace_simulation.simulator.store import Store

DIRECTORY: Final = "log"
SEGMENT_BYTES: Final = (12 << 10, 32 << 10)  # small, so that there are several
SLICE_BYTES: Final = (512, 1 << 10, WRITE_SLICE_BYTES)  # what is longer is written in slices
COLLECT_BYTES: Final = 4 << 10  # copied at most by one step of garbage collection
COLLECTED: Final = 0.1  # probability of such a step with each sync
GROUP_AT: Final = 16  # where a record's header says whose it is
BEFORE_DAMAGE_BYTES: Final = 2 << 10  # behind a damaged record: then it is no torn end


@final
class Token:
    """Token of a record: everything of its group up to it is durable when it comes back.

    Attributes:
        group: the group.
        upto: number of its records made durable with it, counted since the start.
        saved: a snapshot of the group's own that is effective now, or None; it has no fixed
            place among the other records.
        value: the caller's token.
    """

    def __init__(self, group: int, upto: int, saved: Record | None, value: object) -> None:
        self.group = group
        self.upto = upto
        self.saved = saved
        self.value = value


@final
class ByteStore(Store):
    """A node's shared log, stepped by simulated time.

    Attributes:
        durable, removed, full: see `Store`.
        files: what the disk holds.
    """

    def __init__(self, loop: Loop, parameters: Parameters, coverage: Coverage) -> None:
        self.loop = loop
        self.parameters = parameters
        self.coverage = coverage
        self.durable = {}
        self.removed = {}
        self.full = False
        self.rotten = {}
        self.files = MemoryFiles()
        slice_bytes = loop.rng.choice(SLICE_BYTES)
        self._options = LogOptions(
            segment_bytes=loop.rng.choice(SEGMENT_BYTES),
            whole_bytes_max=slice_bytes,
            slice_bytes=slice_bytes,
            cache_bytes=1 << 10,
            spare_files=0,
            stepped=True,
        )
        self._shared: SharedLog | None = None
        self._gone: dict[int, bool] = {}  # removed in `durable`
        self._records: list[Record] = []  # under way, oldest first
        self._settled: dict[int, int] = {}  # by group, records that were under way before those
        self._firm: dict[int, int] = {}  # by group, records handed over; a beginning may wait
        self._saves: list[Record] = []  # own snapshots under way
        self._damaged: dict[int, bool] = {}  # by group; its neighbours may suffer with it
        self._tokens: list[Token] = []
        self._asked: list[int] = []
        self._wanted = False  # something waits for a sync
        self._busy = False
        self._breaks = ""  # the call that fails next
        self._generation = 0
        self._done: Callable[[list[object]], None] | None = None
        self._failed: Callable[[], None] | None = None

    @property
    def shared(self) -> SharedLog:
        """The log of a node that runs."""
        assert self._shared is not None
        return self._shared

    @override
    def open(self, done: Callable[[list[object]], None], failed: Callable[[], None]) -> None:
        """See `Store.open`."""
        self._done = done
        self._failed = failed
        self.files.fault = self._fault
        self._shared = SharedLog.open(DIRECTORY, self._options, None, self.files)
        self._shared.writer.on_durable = self._take_tokens
        self._compare()
        self.removed = dict(self._gone)
        if len(self._shared.recovery.headers) > 1:
            self.coverage.note("recoveries of several files")
        if self._shared.recovery.torn is not None:
            self.coverage.note("torn batches cut")

    @override
    def set_parameters(self, parameters: Parameters) -> None:
        """See `Store.set_parameters`."""
        self.parameters = parameters

    @override
    def power_off(self) -> None:
        """See `Store.power_off`: the process is killed, or sectors are lost as well."""
        rng = self.loop.rng
        if self._shared is not None and self._shared.failure is None and rng.random() < 0.5:
            self._shared.flush()
            self._breaks = rng.choice(("sync", "sync", "write", "rename", "sync_directory"))
            self._shared.step()
            self._breaks = ""
        if rng.random() < 0.3:
            self.files = self.files.after_power_loss(_all_survive, names_synced=False)
        else:
            self.files = self._lose_sectors()
        self._shared = None
        self._tokens = []
        self._busy = False
        self.full = False
        self._generation += 1
        self._done = None
        self._failed = None

    @override
    def quarantined(self) -> list[int]:
        """See `Store.quarantined`."""
        return sorted(self.shared.quarantined)

    @override
    def damage(self, group: int) -> bool:
        """See `Store.damage`: a bit in the header of the oldest entry, where it is no torn end.

        Nothing says then whose the record was.
        """
        if group not in self.durable or not self.durable[group].items:
            return False
        flipped = self._flip(group, 0, GROUP_AT)
        if flipped:
            self._damaged[group] = True
        return flipped

    def rot(self, group: int, index: int) -> bool:
        """Flip a bit in the body of a durable entry; False where that cannot be. Node is down."""
        if not self._flip(group, index, HEADER_BYTES):
            return False
        self.rotten.setdefault(group, set()).add(index)
        return True

    def _flip(self, group: int, index: int, byte: int) -> bool:
        """Flip a bit of an entry's record, 0: the oldest with data, where it is no torn end."""
        log = SharedLog.open(DIRECTORY, self._options, None, self.files)
        self.files = self.files.after_power_loss(_all_survive, names_synced=False)
        if not log.known(group):
            return False
        view = log.group(group)
        newest = max(one.location_of(one.last_index()) for one in map(log.group, log.groups()))
        location = view.location_of(index) if index else _oldest_blob(view)
        if location == 0 or newest - location < BEFORE_DAMAGE_BYTES:
            return False
        path = f"{DIRECTORY}/{segment_name(location >> 32)}"
        data = bytearray(self.files.file(path).written)
        data[(location & 0xFFFFFFFF) + byte] ^= 1 << self.loop.rng.randrange(8)
        self.files.put(path, bytes(data))
        return True

    def lost(self, group: int) -> list[tuple[int, int]]:
        """Return index and term, 0 up to the snapshot, of the entries that recovery found lost."""
        if not self.shared.known(group):
            return []
        view = self.shared.group(group)
        return [
            (index, int(view.term_at(index)) if index > view.snapshot_index else 0)
            for index in lost_indexes(view)
        ]

    def is_writing(self, group: int) -> bool:
        """Return whether something of a group is not known to be durable."""
        return self._waiting(group) > 0

    def _waiting(self, group: int) -> int:
        return sum(record.group == group for record in self._records)

    def held(self, group: int, index: int, term: int) -> Entry | None:
        """Return an entry of a term as another node may fetch it, None where it is not here."""
        view = self.shared.group(group) if self.shared.known(group) else None
        if view is None or index in lost_indexes(view) or not view.has(index):
            return None
        if term and index > view.snapshot_index and view.term_at(index) != term:
            return None
        entry = view.entry(index)
        return entry if term in (0, entry.term) else None

    def mend(self, group: int, entry: Entry) -> bool:
        """Put a lost entry back; False where it is there already."""
        self._wanted = True
        return self.shared.mend(group, entry)

    @override
    def wipe(self) -> None:
        """See `Store.wipe`."""
        self.files = MemoryFiles()
        self.durable = {}
        self.rotten = {}
        self._gone = {}
        self._damaged = {}
        self._records = []
        self._saves = []
        self._settled, self._firm = {}, {}

    @override
    def log(self, group: int) -> GroupLog:
        """See `Store.log`."""
        return self.shared.group(group)

    @override
    def member(self, group: int) -> int:
        """See `Store.member`."""
        shared = self._shared
        if shared is None:
            return self.durable[group].member if group in self.durable else 0
        return shared.group(group).member if shared.known(group) else 0

    @override
    def hard_state(self, group: int) -> HardState:
        """See `Store.hard_state`."""
        return self.shared.group(group).hard_state

    @override
    def membership(self, group: int) -> Membership:
        """See `Store.membership`."""
        return self.shared.group(group).membership

    @override
    def entry(self, group: int, index: int) -> Entry:
        """See `Store.entry`."""
        return self.shared.group(group).entry(index)

    @override
    def begin(self, group: int, member: int, membership: Membership) -> None:
        """See `Store.begin`."""
        self.shared.begin(group, member, membership)
        self._records.append(Record(BEGIN, group, (member, membership)))

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
        if hard_state is not None:
            self._records.append(Record(STATE, group, hard_state))
        for entry in entries:
            self._records.append(Record(ENTRY, group, entry))
        if must_sync or entries:
            self._hand_over(group)
        self._wanted = True
        mark = Token(group, self._firm.get(group, 0), None, token)
        self.shared.append(group, hard_state, entries, must_sync, mark)

    @override
    def save_snapshot(self, group: int, snapshot: Snapshot, token: object) -> None:
        """See `Store.save_snapshot`."""
        self._wanted = True
        record = Record(SAVE, group, snapshot)
        self._saves.append(record)
        self.shared.save_snapshot(group, snapshot, self._token(group, record, token))

    @override
    def install_snapshot(self, group: int, snapshot: Snapshot, keep_suffix: bool) -> None:
        """See `Store.install_snapshot`."""
        self._wanted = True
        self.shared.install_snapshot(group, snapshot, keep_suffix)
        kind = INSTALL_KEEPING if keep_suffix else INSTALL
        self._records.append(Record(kind, group, snapshot))

    @override
    def add_incoming(self, group: int, entries: list[Entry]) -> None:
        """See `Store.add_incoming`."""
        self._wanted = True
        self.shared.add_incoming(group, entries)
        for entry in entries:
            self._records.append(Record(INCOMING, group, entry))

    @override
    def missing(self, group: int, live: array[int], commit_index: int) -> list[int]:
        """See `Store.missing`."""
        return self.shared.missing(group, live, commit_index)

    @override
    def read_snapshot(self, group: int) -> Snapshot | None:
        """See `Store.read_snapshot`."""
        return self.shared.read_snapshot(group)

    @override
    def entry_dead(self, group: int, index: int) -> None:
        """See `Store.entry_dead`."""
        self.shared.entry_dead(group, index)

    @override
    def remove_group(self, group: int) -> None:
        """See `Store.remove_group`."""
        self.removed[group] = True
        self._wanted = True
        self._records.append(Record(REMOVE, group, None))
        self.shared.remove_group(group, self._token(group, None, None))

    @override
    def flush(self) -> None:
        """See `Store.flush`."""
        self.shared.flush()
        if self._wanted and not self._busy:
            self._busy = True
            self.loop.after(sync_units(self.loop, self.parameters), self._step, self._generation)

    @override
    def collect(self) -> list[int]:
        """See `Store.collect`."""
        asked, self._asked = self._asked, []
        return asked

    def _lose_sectors(self) -> MemoryFiles:
        """Return the disk after a power failure: any sector that was not synced may be lost."""
        rng = self.loop.rng
        share = rng.choice((0.0, 0.5, 0.9))
        return self.files.after_power_loss(
            lambda path, number, offset: rng.random() < share, names_synced=rng.random() < 0.5
        )

    def _token(self, group: int, saved: Record | None, value: object) -> Token:
        self._hand_over(group)
        return Token(group, self._firm[group], saved, value)

    def _hand_over(self, group: int) -> None:
        """Note that all of a group's records are handed over."""
        self._firm[group] = self._settled.get(group, 0) + self._waiting(group)

    def _fault(self, call: str, path: str) -> None:
        if call == self._breaks:
            raise OSError(errno.EIO, "injected", path)
        if self.full and call in ("write", "create"):
            raise OSError(errno.ENOSPC, "injected", path)

    def _take_tokens(self, tokens: list[object]) -> None:
        for token in tokens:
            assert isinstance(token, Token)
            self._tokens.append(token)

    def _step(self, generation: int) -> None:
        if generation != self._generation:
            return
        rng, shared = self.loop.rng, self.shared
        self._wanted = False
        if rng.random() < self.parameters.sync_error:
            self._breaks = "sync"
        shared.step()
        self._breaks = ""
        if shared.failure is not None:
            self.coverage.note("sync error")
            assert self._failed is not None
            self._failed()
            return
        tokens, self._tokens = self._tokens, []
        for token in tokens:
            self._settle(token)
        self._busy = False
        if rng.random() < COLLECTED:
            self._asked = shared.collect(COLLECT_BYTES)
            self.coverage.note("steps of garbage collection")
            shared.flush()
        if self._wanted or shared.backlog_bytes or shared.full:
            self._busy = True
            self.loop.after(sync_units(self.loop, self.parameters), self._step, generation)
        assert self._done is not None
        self._done([token.value for token in tokens if token.value is not None])

    def _settle(self, token: Token) -> None:
        count = token.upto - self._settled.get(token.group, 0)
        if count > 0:
            own = [record for record in self._records if record.group == token.group][:count]
            for record in own:
                play(self.durable, self._gone, record)
                self._records.remove(record)
            self._settled[token.group] = token.upto
        if token.saved is not None:
            self._saves.remove(token.saved)
            play(self.durable, self._gone, token.saved)

    def _compare(self) -> None:
        """Find out which of the writes under way survived; anything else is a loss."""
        shared = self.shared
        records, self._records = self._records, []
        saves, self._saves = self._saves, []
        self._settled, self._firm = {}, {}
        damaged = shared.quarantined
        self._damaged = self._damaged if damaged else {}
        groups = {*self.durable, *(record.group for record in records), *shared.groups()}
        for group in sorted(groups):
            if group in damaged:
                if not self._damaged:
                    raise InvariantError(10, f"group {group} is quarantined: {damaged[group]}")
                self.durable.pop(group, None)
                continue
            unknown = {index for index, _ in self.lost(group)} - self.rotten.get(group, set())
            if unknown:
                raise InvariantError(10, f"entries {sorted(unknown)} of group {group} are lost")
            own = [record for record in records if record.group == group]
            kept = self._explain(group, own, [save for save in saves if save.group == group])
            if kept is None:
                self.durable.pop(group, None)
            else:
                self.durable[group] = kept

    def _explain(self, group: int, records: list[Record], saves: list[Record]) -> MemoryLog | None:
        """Return the state that the real log has of a group, None when it has none."""
        shared = self.shared
        view = shared.group(group) if shared.known(group) else None
        for with_saves in (False, True) if saves else (False,):
            logs = {group: self.durable[group].copy()} if group in self.durable else {}
            gone = dict(self._gone)
            for at in range(len(records) + 1):
                if at > 0:
                    play(logs, gone, records[at - 1])
                log = logs.get(group)
                if with_saves and log is not None:
                    log = log.copy()
                    for save in saves:
                        assert isinstance(save.value, Snapshot)
                        if log.term_at(save.value.index) == save.value.term:
                            log.save(save.value)
                if equal(log, view):
                    self._gone = gone
                    return log
        known = self.durable.get(group)
        raise InvariantError(
            10,
            f"recovered group {group}: {told(view)}; durable: "
            f"{known.last_index() if known else None}, under way: {len(records)}",
        )


def _oldest_blob(view: StoredGroup) -> int:
    """Return where the oldest entry with data behind the snapshot is, 0 for nowhere."""
    for index in range(view.first_index(), view.last_index() + 1):
        if view.length_of(index):
            return view.location_of(index)
    return 0


def _all_survive(path: str, number: int, offset: int) -> bool:
    del path, number, offset
    return True
