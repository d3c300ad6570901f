"""The shared log against a plain dictionary, with restarts and power failures anywhere."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace_raftlog.model.entry import ENTRY_CONFIG, Entry, HardState
from headrace_raftlog.model.errors import CorruptLogError, LogWriteError
from headrace_raftlog.model.membership import NOBODY, Membership
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.storage.disk.options import LogOptions
from headrace_raftlog.storage.group.lost_entries import lost_indexes
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_raftlog.storage.recovery.recovery import Recovery
from headrace_raftlog.storage.segment.record import HEADER_BYTES
from headrace_raftlog.storage.segment.segment import SEGMENT_HEADER_BYTES, SegmentReader
from headrace_simulation.memory_files import MemoryFiles

GROUPS = st.integers(0, 3)
BLOBS = st.lists(st.binary(max_size=200), min_size=1, max_size=4)  # one job each: whole or not
PICK = st.integers(0, 2**16 - 1)  # bits choose among a few indexes
OPTIONS = st.builds(
    LogOptions,
    segment_bytes=st.sampled_from([4096, 6144, 8192]),
    cache_bytes=st.sampled_from([0, 1000, 1 << 20]),
    seal_seconds=st.just(3600.0),
    stepped=st.just(True),
)


@dataclass
class Held:
    """Expected content of one group."""

    member: int = 0
    state: HardState = field(default_factory=lambda: HardState(0, 0, 0))
    index: int = 0
    term: int = 0
    membership: Membership = NOBODY
    app: bytes | None = None
    live: dict[int, Entry] = field(default_factory=dict)
    log: list[Entry] = field(default_factory=list)
    incoming: set[int] = field(default_factory=set)
    bodies: dict[int, Entry] = field(default_factory=dict, compare=False)  # of incoming ones

    @property
    def last(self) -> int:
        return self.index + len(self.log)


def entry_of(index: int, term: int, kind: int, blob: bytes) -> Entry:
    data = Membership((1, len(blob) + 2)).encode() if kind == ENTRY_CONFIG else blob
    return Entry(index, term, kind, data)


Model = dict[int, Held]
Action = tuple[Callable[[SharedLog], object], Callable[[Model], object]]


def held_by(log: SharedLog, group: int) -> Held:
    """Return the actual content of one group."""
    view = log.group(group)
    first, last = view.first_index(), view.last_index()
    snapshot = log.read_snapshot(group)
    if snapshot is not None:
        assert (snapshot.index, snapshot.term) == (view.snapshot_index, view.snapshot_term)
        assert list(snapshot.live) == list(view.live_indexes())
        assert snapshot.membership == view.membership
    for index in range(first, last + 1):
        assert view.entry(index).index == index
    return Held(
        view.member,
        view.hard_state,
        view.snapshot_index,
        view.term_at(view.snapshot_index),
        view.membership,
        snapshot.state if snapshot is not None else None,
        {index: view.entry(index) for index in view.live_indexes()},
        view.entries(first, last + 1, 1 << 40) if last >= first else [],
        {index for index in range(1, 200) if view.has_incoming(index)},
    )


def check_served(log: SharedLog, group: int, held: Held) -> None:
    """A group of a log of which one bit is lost: an entry may be lost, or the last vote."""
    view = log.group(group)
    lost = lost_indexes(view)
    if lost:  # it stands still until a peer's body is put back
        entries = {**held.live, **{entry.index: entry for entry in held.log}}
        assert set(lost) <= set(entries)
        for index in set(entries) - set(lost):
            assert view.entry(index) == entries[index]
        return
    found = held_by(log, group)
    if found.state.term == held.state.term:
        assert found.state.vote == held.state.vote
    else:  # a vote that is lost was given in no later term
        assert (found.state.term, found.state.vote) == (held.state.term + 1, 0), (
            found.state,
            held.state,
        )
    assert found.state.commit <= held.state.commit
    assert (found.member, found.last) == (held.member, held.last)
    if found.index < held.index:  # a snapshot is lost alone while its entries are in the log
        assert found.log[held.index - found.index :] == held.log
    else:
        assert (found.index, found.app) == (held.index, held.app)
        assert (found.live, found.log) == (held.live, held.log)
        assert found.incoming <= held.incoming


def contents(log: SharedLog) -> Model:
    return {group: held_by(log, group) for group in log.groups()}


def copied(model: Model) -> Model:
    """A copy that can go its own way; entries and states never change and are shared."""
    return {
        group: replace(
            held,
            live=dict(held.live),
            log=list(held.log),
            incoming=set(held.incoming),
            bodies=dict(held.bodies),
        )
        for group, held in model.items()
    }


def chosen(candidates: list[int], pick: int) -> list[int]:
    return [index for at, index in enumerate(candidates) if pick >> (at % 16) & 1]


class LogMachine(RuleBasedStateMachine):
    """Steps that the log and a model take together."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryFiles()
        self.model: Model = {}
        self.removed: set[int] = set()
        self.term = 1
        self.opened = False
        self.tokens: list[object] = []

    @initialize(options=OPTIONS)
    def begin_log(self, options: LogOptions) -> None:
        self.open(options)

    def open(self, options: LogOptions) -> None:
        self.log = SharedLog.open("/log", options, files=self.disk)
        self.opened = True
        self.log.writer.on_durable = self.tokens.extend

    def settle(self) -> None:
        """Let everything become durable and be noted."""
        for _ in range(3):
            self.log.flush()
            self.log.step()
        self.log.flush()

    def do(self, action: Action | None) -> None:
        if action is not None:
            action[0](self.log)
            action[1](self.model)
            self.settle()

    def append(self, model: Model, group: int, back: int, blobs: list[bytes]) -> Action | None:
        if group in self.removed:
            return None
        held = model.get(group, Held())
        first = max(held.index + 1, held.last + 1 - back)
        self.term += 1
        entries = [entry_of(first + at, self.term, at % 3, blob) for at, blob in enumerate(blobs)]
        state = HardState(self.term, back, first - 1)

        def change(model: Model) -> None:
            held = model.setdefault(group, Held())
            held.state = state
            held.log = held.log[: first - 1 - held.index] + entries

        return lambda log: log.append(group, state, entries, True, "a"), change

    def begin(self, model: Model, group: int, member: int) -> Action | None:
        if group in self.removed:
            return None
        membership = Membership((1, 2, member)) if member % 2 else NOBODY

        def change(model: Model) -> None:
            model[group] = Held(member=member, membership=membership)

        return lambda log: log.begin(group, member, membership), change

    def save(self, model: Model, group: int, ahead: int, pick: int) -> Action | None:
        held = model.get(group)
        if held is None or held.last == held.index:
            return None
        index = held.index + 1 + ahead % (held.last - held.index)
        entries = {**held.live, **{e.index: e for e in held.log if e.index <= index}}
        entries.update({at: e for at, e in held.bodies.items() if at <= index})
        live = {at: entries[at] for at in chosen(sorted(entries), pick)}
        term = held.log[index - held.index - 1].term
        snapshot = Snapshot(
            index, term, Membership((1, index)), b"s" * (pick % 3000), array("Q", live)
        )

        def change(model: Model) -> None:
            held = model[group]
            held.log = held.log[index - held.index :]
            held.index, held.term, held.live = index, term, live
            held.membership, held.app = snapshot.membership, snapshot.state
            held.bodies = {at: e for at, e in held.bodies.items() if at > index}
            held.incoming = set(held.bodies)
            held.state = raised(held.state, index)

        return lambda log: log.save_snapshot(group, snapshot, "s"), change

    def fetch(self, model: Model, group: int, ahead: int, blobs: list[bytes]) -> Action | None:
        if group in self.removed:
            return None
        first = model.get(group, Held()).index + 1 + ahead
        entries = [Entry(first + 2 * at, 1, 0, blob) for at, blob in enumerate(blobs)]

        def change(model: Model) -> None:
            held = model.setdefault(group, Held())
            for entry in entries:
                held.bodies.setdefault(entry.index, entry)
            held.incoming = set(held.bodies)

        return lambda log: log.add_incoming(group, entries), change

    def install(self, model: Model, group: int, ahead: int, pick: int, keep: bool) -> Action | None:
        held = model.get(group, Held())
        if group in self.removed:
            return None
        index = max(held.index, held.state.commit) + 1 + ahead
        own = {**held.live, **{e.index: e for e in held.log if e.index <= index}}
        entries = {**own, **{at: e for at, e in held.bodies.items() if at <= index}}
        live = {at: entries[at] for at in chosen(sorted(entries), pick)}
        keep = keep and index <= held.last
        self.term += 1
        term = held.log[index - held.index - 1].term if keep else self.term
        snapshot = Snapshot(index, term, Membership((3, 5)), b"i" * (pick % 900), array("Q", live))

        def call(log: SharedLog) -> None:
            want = array("Q", range(1, index + 1))
            trusted = held.index + ahead // 2
            have = {at for at in own if at <= max(trusted, held.index)} | set(held.bodies)
            if log.group(group).snapshot_index == held.index:  # else one is not durable yet
                assert log.missing(group, want, trusted) == [at for at in want if at not in have]
            log.install_snapshot(group, snapshot, keep, "i")

        def change(model: Model) -> None:
            held = model.setdefault(group, Held())
            held.log = held.log[index - held.index :] if keep else []
            held.index, held.term, held.live = index, term, live
            held.membership, held.app = snapshot.membership, snapshot.state
            held.bodies = {at: e for at, e in held.bodies.items() if at > index}
            held.incoming = set(held.bodies)
            held.state = raised(held.state, index)

        return call, change

    @rule(group=GROUPS, back=st.integers(0, 3), blobs=BLOBS)
    def appends(self, group: int, back: int, blobs: list[bytes]) -> None:
        self.do(self.append(self.model, group, back, blobs))

    @rule(group=GROUPS, member=st.integers(1, 2**40))
    def begins(self, group: int, member: int) -> None:
        self.do(self.begin(self.model, group, member))
        self.do(self.append(self.model, group, 0, [b""]))  # a beginning alone may wait for a sync

    @rule(group=GROUPS, ahead=st.integers(0, 20), pick=PICK)
    def saves(self, group: int, ahead: int, pick: int) -> None:
        self.do(self.save(self.model, group, ahead, pick))

    @rule(group=GROUPS, ahead=st.integers(0, 5), blobs=BLOBS)
    def fetches(self, group: int, ahead: int, blobs: list[bytes]) -> None:
        self.do(self.fetch(self.model, group, ahead, blobs))

    @rule(group=GROUPS, ahead=st.integers(0, 8), pick=PICK, keep=st.booleans())
    def installs(self, group: int, ahead: int, pick: int, keep: bool) -> None:
        self.do(self.install(self.model, group, ahead, pick, keep))

    @rule(group=GROUPS, pick=PICK)
    def hints(self, group: int, pick: int) -> None:
        for index in chosen(list(range(16)), pick):
            self.log.entry_dead(group, index)

    @rule(steps=st.integers(1, 30), bytes_max=st.sampled_from([1, 500, 1 << 20]))
    def collects(self, steps: int, bytes_max: int) -> None:
        for _ in range(steps):
            assert set(self.log.collect(bytes_max)) <= set(self.model)
            self.settle()

    @precondition(lambda self: len(self.removed) < 2)
    @rule(group=GROUPS)
    def removes(self, group: int) -> None:
        self.removed.add(group)
        self.log.remove_group(group, "r")
        self.model.pop(group, None)
        self.settle()

    @rule(options=OPTIONS)
    def restarts(self, options: LogOptions) -> None:
        self.log.close()
        self.open(options)

    @rule(
        steps=st.lists(st.tuples(st.integers(0, 6), GROUPS, PICK, BLOBS), max_size=6),
        at=st.integers(1, 25),
        kept=st.lists(st.booleans(), min_size=16, max_size=16),
        names_synced=st.booleans(),
        together=st.booleans(),
        options=OPTIONS,
    )
    def loses_power(
        self,
        steps: list[tuple[int, int, int, list[bytes]]],
        at: int,
        kept: list[bool],
        names_synced: bool,
        together: bool,
        options: LogOptions,
    ) -> None:
        """Check that acknowledged writes are there, and a prefix of the others."""
        legal = [copied(self.model)]
        durable = 0
        calls = len(self.disk.calls)

        def fail(call: str, path: str) -> None:
            if len(self.disk.calls) >= calls + at:
                raise OSError(5, "power failed", path)

        self.disk.fault = fail
        for kind, group, pick, blobs in steps:
            action = self.drawn(legal[-1], kind, group, pick, blobs)
            try:
                if action is None:
                    self.log.collect(600)
                else:
                    after = copied(legal[-1])
                    action[1](after)
                    action[0](self.log)
                    legal.append(after)
                if not together:
                    self.settle()
                    if self.log.failure is None and not self.log.backlog_bytes:
                        durable = len(legal) - 1
            except LogWriteError:
                break
        if self.log.failure is None:
            self.settle()
            if self.log.failure is None:
                durable = max(durable, len(legal) - 1 if not self.log.backlog_bytes else 0)
        self.log.close()
        self.disk = self.disk.after_power_loss(
            lambda path, number, offset: kept[number % 16], names_synced=names_synced
        )
        self.open(options)
        found = contents(self.log)
        assert self.log.quarantined == {}
        assert found in legal[durable:]
        self.model = next(each for each in reversed(legal) if each == found)

    def drawn(
        self, model: Model, kind: int, group: int, pick: int, blobs: list[bytes]
    ) -> Action | None:
        if kind in (0, 1):
            return self.append(model, group, pick % 4, blobs)
        if kind == 2:
            return self.save(model, group, pick % 7, pick)
        if kind == 3:
            return self.install(model, group, pick % 9, pick, bool(pick & 1))
        if kind == 4:
            return self.fetch(model, group, pick % 5, blobs)
        if kind == 5:
            return self.begin(model, group, 1 + pick)
        return None

    @rule(where=st.integers(0, 2**32), options=OPTIONS)
    def loses_a_bit(self, where: int, options: LogOptions) -> None:
        """Damage is refused, or what it may concern is not served; everything else is."""
        self.log.close()
        disk = self.disk.after_power_loss(lambda *_: True, names_synced=False)
        names = [name for name in disk.names("/log") if name.endswith(".log")]
        path = f"/log/{names[where % len(names)]}"
        data = bytearray(disk.file(path).written)
        end = len(bytes(data).rstrip(b"\0"))
        offset = SEGMENT_HEADER_BYTES + (where >> 8) % max(1, end - SEGMENT_HEADER_BYTES)
        data[offset] ^= 1 << (where >> 4 & 7)
        disk.put(path, bytes(data))
        try:
            log = SharedLog.open("/log", options, files=disk)
        except CorruptLogError as error:
            self.refused = error
        else:
            served = {g: held for g, held in self.model.items() if g not in log.quarantined}
            assert set(log.groups()) == set(served)
            for group, held in served.items():
                check_served(log, group, held)
            log.close()
        self.open(options)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        if self.opened:
            assert contents(self.log) == self.model

    @invariant()
    def accounts_are_what_a_recovery_would_find(self) -> None:
        if self.opened:
            disk = self.disk.after_power_loss(lambda *_: True, names_synced=False)
            recovery = Recovery(disk, "/log", SegmentReader(disk, "/log"))
            recovery.run()
            table, found = self.log._table, recovery.ledger
            for group, tomb in recovery.replay.removed.items():
                if group not in table.removed:  # only the running log knows that it may go
                    found.drop(tomb.location >> 32, HEADER_BYTES)
            assert table.ledger.live == found.live
            for sequence, use in table.ledger.segments.items():
                assert use.live == found.segments[sequence].live, sequence
                assert 0 <= use.soon <= use.live

    def teardown(self) -> None:
        if self.opened:
            self.log.close()


def raised(state: HardState, commit: int) -> HardState:
    """A hard state as recovery gives it when a snapshot is ahead of it."""
    return HardState(state.term, state.vote, max(state.commit, commit))


TestSharedLogAgainstModel = LogMachine.TestCase
TestSharedLogAgainstModel.settings = settings(
    max_examples=80, stateful_step_count=30, deadline=None
)
