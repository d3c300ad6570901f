"""A group is the same whichever of its dead records are left, and wherever live ones were moved."""

from __future__ import annotations

import random
from array import array
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.storage.group.accounting import Ledger
from headrace_raftlog.storage.group.compaction import compact, install, retire
from headrace_raftlog.storage.group.group_log import StoredGroup
from headrace_raftlog.storage.recovery.group_resolution import Resolution, count_live
from headrace_raftlog.storage.recovery.record_replay import Replay
from headrace_raftlog.storage.segment.record import Batch, encode_copy
from headrace_raftlog.storage.segment.segment import SegmentReader
from headrace_raftlog.storage.writing.snapshot_store import INSTALLED, TAKEN, SnapshotWrite
from headrace_raftlog.storage.writing.write_job import (
    WriteJob,
    append_jobs,
    base_job,
    incoming_jobs,
    state_job,
)
from headrace_simulation.memory_files import MemoryFiles

SALT = 77
GROUP = 5
PATH = "/log/0000000000000001.log"


@dataclass
class Written:
    """One record of the history."""

    data: bytes
    what: tuple[str, object]


@dataclass
class History:
    """A group that lives through a random history, and every record it ever wrote."""

    dice: random.Random
    records: list[Written] = field(default_factory=list)
    term: int = 1
    serial: int = 0

    def __post_init__(self) -> None:
        self.reader = SegmentReader(MemoryFiles(), "/log")
        self.ledger = Ledger(0)
        self.view = StoredGroup(GROUP, self.reader, self.ledger)
        self.app = b""
        self.needed: dict[tuple[str, object], int] = {}
        self.bodies: dict[int, Entry] = {}

    def write(self, job: WriteJob, *names: tuple[str, object]) -> None:
        data = b"".join(job.pieces)
        at = 0
        for name in names:
            size = 40 + int.from_bytes(data[at + 4 : at + 8], "little")
            self.needed[name] = len(self.records)
            self.records.append(Written(data[at : at + size], name))
            at += size
        assert at == len(data)

    def append(self) -> None:
        view, dice = self.view, self.dice
        lowest = max(view.snapshot_index + 1, view.last - dice.choice((0, 0, 1, 4)))
        first = dice.randint(lowest, view.last + 1)
        term = self.term if dice.random() < 0.5 or first <= view.last else view.term_at(view.last)
        self.term += 1
        known = view.term_at(first - 1)
        term = max(term - dice.choice((0, 0, 1, 2)), known, 1)  # terms may fall when replaced
        count = dice.randint(1, 3)
        entries = [Entry(first + at, term, 0, dice.randbytes(6)) for at in range(count)]
        for index in range(first, view.last + 1):
            del self.needed["entry", index]
        view.append(entries)
        state = HardState(self.term, 0, view.snapshot_index)
        view.hard_state = state
        job = append_jobs(SALT, view, state, entries, None, 1 << 20)[0]
        self.write(job, ("state", 0), *(("entry", entry.index) for entry in entries))

    def fetch(self) -> None:
        view = self.view
        index = view.snapshot_index + self.dice.randint(1, 6)
        if view.has_incoming(index):
            return
        own = index <= min(view.last, self.committed())
        body = view.entry(index) if own else Entry(index, 1, 0, self.dice.randbytes(5))
        view.add_incoming([body])
        self.bodies[index] = body
        self.write(incoming_jobs(SALT, view, [body], 1 << 20)[0], ("incoming", index))

    def committed(self) -> int:
        return self.view.snapshot_index

    def snapshot(self, kind: int) -> None:
        view, dice = self.view, self.dice
        if kind == TAKEN and view.last == view.snapshot_index:
            return
        index = (
            dice.randint(view.snapshot_index + 1, view.last)
            if kind == TAKEN
            else view.snapshot_index + dice.randint(1, 8)
        )
        keep = index <= view.last and dice.random() < 0.4
        self.term += 1
        known = [at for at in range(1, index + 1) if view.has(at) or view.has_incoming(at)]
        live = array("Q", [at for at in known if dice.random() < 0.5])
        term = view.term_at(index) if kind == TAKEN or keep else self.term
        self.app = dice.randbytes(8)
        self.serial += 1
        value = Snapshot(index, term, Membership((index,)), self.app, live)
        if kind == TAKEN:
            write = SnapshotWrite(view, value, self.serial, None, kind, 90 + 48)
            jobs = [write.next_job(SALT, view.last)]
            while not write.done:
                jobs.append(write.next_job(SALT, view.last))
            compact(view, index, term, live)
        else:
            kept = install(view, index, term, live, keep)
            write = SnapshotWrite(view, value, self.serial, None, kind, 90 + 48)
            jobs = []
            while not write.done:
                jobs.append(write.next_job(SALT, kept))
        view.snapshot = write.stored
        view.membership = value.membership
        self.forget(index, live)
        for job in jobs[:-1]:
            self.write(job, ("part", job.part))
        self.write(jobs[-1], ("snapshot", 0))

    def forget(self, index: int, live: array[int]) -> None:
        """Note which records an effective snapshot leaves needed."""
        kept = {}
        for name, at in self.needed.items():
            what, number = name
            if what in ("part", "snapshot"):
                continue
            if what == "entry" and isinstance(number, int):
                gone = number <= index and (number not in live or ("incoming", number) in kept)
                if number <= index and number in self.bodies:
                    gone = True
                if gone or number > self.view.last:
                    continue
            if (
                what == "incoming"
                and isinstance(number, int)
                and number <= index
                and number not in live
            ):
                continue
            kept[name] = at
        self.needed = kept

    def begin(self) -> None:
        fresh = StoredGroup(GROUP, self.reader, self.ledger)
        fresh.era = self.view.era + 1
        fresh.member = self.dice.randint(1, 1 << 40)
        fresh.membership = Membership((fresh.member,))
        retire(self.view)
        self.view = fresh
        self.needed = {}
        self.bodies = {}
        self.app = b""
        self.write(base_job(SALT, fresh, 0), ("base", 0))

    def step(self) -> None:
        chosen = self.dice.random()
        if chosen < 0.5:
            self.append()
        elif chosen < 0.65:
            self.snapshot(TAKEN)
        elif chosen < 0.8:
            self.snapshot(INSTALLED)
        elif chosen < 0.94:
            self.fetch()
        else:
            self.begin()

    def left(self) -> list[bytes]:
        """Every needed record, moved or not, and some dead ones, in an order GC could leave."""
        dice = self.dice
        needed = set(self.needed.values())
        share = dice.choice((0.0, 0.3, 0.9, 1.0))
        out, moved = [], []
        for at, record in enumerate(self.records):
            if at in needed and dice.random() < 0.3:
                if record.what[0] == "state":
                    view = self.view
                    moved.append(b"".join(state_job(SALT, view, view.hard_state).pieces))
                else:
                    moved.append(encode_copy(SALT, record.data, 0, len(record.data)))
                if dice.random() < 0.5:
                    continue
            if at in needed or dice.random() < share:
                out.append(record.data)
        return out + moved


def recovered(records: list[bytes]) -> Resolution:
    disk = MemoryFiles()
    batch = Batch(1, 512)
    data = bytearray(512)
    for record in records:
        batch.offsets.append(len(data))
        data.extend(record)
    disk.put(PATH, bytes(data))
    reader = SegmentReader(disk, "/log")
    reader.salt = SALT
    replay = Replay()
    replay.take(bytes(data), batch, 1, PATH)
    view = StoredGroup(GROUP, reader, Ledger(len(data)))
    resolution = Resolution(replay.groups[GROUP], view)
    resolution.run()
    return resolution


@settings(max_examples=400, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 25))
def test_any_dead_records_may_be_left_and_live_ones_moved(seed: int, steps: int) -> None:
    history = History(random.Random(seed))
    for _ in range(steps):
        history.step()
    view = history.view
    if not history.needed:
        return
    for _ in range(4):
        resolution = recovered(history.left())
        assert resolution.problem == ""
        found = resolution.view
        assert (found.snapshot_index, found.last) == (view.snapshot_index, view.last)
        assert (found.snapshot_term, found.member) == (view.snapshot_term, view.member)
        assert found.membership == view.membership
        assert (found.hard_state.term, found.era) == (view.hard_state.term, view.era)
        for index in range(view.snapshot_index + 1, view.last + 1):
            assert found.entry(index) == view.entry(index)
            assert (found.term_at(index), found.era_of(index)) == (
                view.term_at(index),
                view.era_of(index),
            )
        assert list(found.live_indexes()) == list(view.live_indexes())
        for index in view.live_indexes():
            assert found.entry(index) == history.view.recent[index]
        assert {at for at in history.bodies if at > view.snapshot_index} == {
            at for at in range(200) if found.has_incoming(at)
        }
        count_live(found)
        assert found.ledger.live == sum(
            len(history.records[at].data) for at in history.needed.values()
        )


@pytest.mark.parametrize("lost", ["entry", "snapshot part", "live entry"])
def test_missing_needed_record_is_a_problem_of_the_group(lost: str) -> None:
    history = History(random.Random(1))
    view = history.view
    entries = [Entry(index, 1, 0, b"e") for index in range(1, 9)]
    view.append(entries)
    job = append_jobs(SALT, view, None, entries, None, 1 << 20)[0]
    history.write(job, *(("entry", index) for index in range(1, 9)))
    value = Snapshot(4, 1, Membership((1,)), b"s" * 300, array("Q", [2]))
    write = SnapshotWrite(view, value, 1, None, TAKEN, 138)
    while not write.done:
        snapshot_job = write.next_job(SALT, 8)
        history.write(snapshot_job, ("any", len(history.records)))
    records = [record.data for record in history.records]
    assert recovered(records).problem == ""
    assert recovered(records[:2] + records[4:]).problem == ""  # 3 and 4 are dead
    if lost == "entry":
        del records[5]
        assert recovered(records).problem == "entry 6 of group 5 is missing before 7"
    elif lost == "live entry":
        del records[1]
        assert recovered(records).problem == "live entry 2 of group 5 is missing"
    else:
        del records[9]
        assert "part 1 of the snapshot of group 5 at entry 4" in recovered(records).problem
