"""Space is given back: how much, when, and at whose cost."""

from __future__ import annotations

import errno
from array import array
from collections.abc import Callable, Iterator

import pytest

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.model.limits import COLLECT_REST_STEPS, SNAPSHOT_REQUESTS_MAX
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.storage.disk.memory_files import MemoryFiles
from headrace_raftlog.storage.disk.options import LogOptions
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_raftlog.storage.segment.record import HEADER_BYTES

MEMBERS = Membership((1, 2, 3))
SEGMENT_BYTES = 16 << 10
ENTRY_BYTES = 40 + 400
SECOND = "0000000000000002.log"


class Node:
    """A log with a host that ticks, and applications that read what they are told to."""

    def __init__(
        self, disk: MemoryFiles, segment_bytes: int = SEGMENT_BYTES, spare_files: int = 0
    ) -> None:
        self.disk = disk
        options = LogOptions(
            segment_bytes=segment_bytes, cache_bytes=0, spare_files=spare_files, stepped=True
        )
        self.log = SharedLog.open("/log", options, files=disk)
        self.unread: dict[int, set[int]] = {}

    def publish(self, group: int, count: int = 1) -> None:
        """Append entries that are still to be read."""
        view = self.log.group(group)
        first = view.last_index() + 1
        entries = [Entry(first + at, 1, 0, bytes([group % 251]) * 400) for at in range(count)]
        state = HardState(1, 0, first) if first == 1 else None
        self.log.append(group, state, entries, True, None)
        self.unread.setdefault(group, set()).update(entry.index for entry in entries)

    def consume(self, group: int, index: int) -> None:
        """Read an entry for the last time."""
        self.unread[group].discard(index)
        self.log.entry_dead(group, index)

    def snapshot(self, group: int) -> None:
        index = self.log.group(group).last_index()
        live = array("Q", sorted(self.unread.get(group, ())))
        self.log.save_snapshot(group, Snapshot(index, 1, MEMBERS, b"state", live))

    def tick(self, bytes_max: int = 4096) -> list[int]:
        """Do the duties of a host's tick; return the groups that were asked for a snapshot."""
        asked = self.log.collect(bytes_max)
        for group in asked:
            self.snapshot(group)
        self.write()
        return asked

    def write(self) -> None:
        self.log.flush()
        self.log.step()
        self.log.flush()

    def segments(self) -> list[str]:
        return [name for name in self.disk.names("/log") if name.endswith(".log")]

    def used_bytes(self) -> int:
        """Everything in the directory, the segment being prepared as well."""
        return sum(len(self.disk.file(f"/log/{name}").written) for name in self.disk.names("/log"))

    def live_bytes(self) -> int:
        return ENTRY_BYTES * sum(map(len, self.unread.values()))


@pytest.fixture
def start() -> Iterator[Callable[..., Node]]:
    nodes: list[Node] = []

    def begin(disk: MemoryFiles, **options: int) -> Node:
        nodes.append(Node(disk, **options))
        return nodes[-1]

    yield begin
    for node in nodes:
        node.log.close()


@pytest.mark.parametrize("spare", [0, 2])
def test_disk_stays_within_twice_the_live_data_and_two_files_and_spare_ones(
    disk: MemoryFiles, start, spare: int
) -> None:
    """20 groups under steady load, each with a backlog, and one entry that nobody ever reads."""
    node = start(disk, spare_files=spare)
    node.publish(100)
    worst = 0.0
    for round_number in range(1500):
        group = 1 + round_number % 20
        node.publish(group, 2)
        backlog = sorted(node.unread[group])
        if len(backlog) > 12:
            node.consume(group, backlog[0])
            node.consume(group, backlog[(round_number * 7) % len(backlog)])
        node.write()
        node.tick(8192)
        bound = 2 * node.live_bytes() + (2 + spare) * SEGMENT_BYTES
        worst = max(worst, node.used_bytes() / bound)
        assert node.used_bytes() <= bound, round_number
    assert worst > 0.5  # the load was enough to come near
    assert node.log.group(100).entry(1).data == bytes([100]) * 400
    written = int(node.segments()[-1][:16]) * SEGMENT_BYTES
    assert written > 4 * node.used_bytes()  # most of what was written is gone


def test_drained_log_shrinks_to_two_files(disk: MemoryFiles, start) -> None:
    node = start(disk)
    for group in range(1, 6):
        node.publish(group, 100)
        node.write()
    assert len(node.segments()) > 10
    for group in range(1, 6):
        for index in list(node.unread[group]):
            node.consume(group, index)
    for _ in range(10 * COLLECT_REST_STEPS):
        node.tick()
    assert len(node.segments()) <= 2
    assert node.live_bytes() == 0


def test_old_entry_pins_only_itself(disk: MemoryFiles, start) -> None:
    node = start(disk)
    node.publish(1)
    for _ in range(60):
        node.publish(2, 5)
        for index in list(node.unread[2]):
            node.consume(2, index)
        node.write()
        node.tick()
    for _ in range(3 * COLLECT_REST_STEPS):
        node.tick()
    assert len(node.segments()) <= 3
    assert node.log.group(1).entry(1).data == bytes([1]) * 400
    node.log.close()
    again = start(disk)
    assert again.log.group(1).entry(1).data == bytes([1]) * 400


def test_groups_that_hold_a_file_are_asked_for_a_snapshot(disk: MemoryFiles, start) -> None:
    node = start(disk)
    node.publish(7, 60)
    node.publish(8, 60)
    node.write()
    for index in range(1, 61):
        node.consume(7, index)
    asked: set[int] = set()
    for _ in range(4):
        asked.update(node.log.collect(1 << 20))
        node.write()
    assert asked == {7}
    assert node.log.group(7).snapshot_index == 0


def test_step_asks_a_bounded_number_of_groups(disk: MemoryFiles, start) -> None:
    node = start(disk, segment_bytes=256 << 10)
    for group in range(1, 201):
        node.publish(group)
        node.consume(group, 1)
    node.publish(999, 500)
    node.write()
    for index in range(1, 501):
        node.consume(999, index)
    first = node.log.collect(1 << 20)
    assert len(first) == SNAPSHOT_REQUESTS_MAX
    second = node.log.collect(1 << 20)
    assert not set(first) & set(second)


def test_group_that_takes_no_snapshot_does_not_hold_a_file_for_ever(
    disk: MemoryFiles, start
) -> None:
    node = start(disk)
    node.publish(1, 3)
    node.publish(2, 100)
    node.write()
    first = node.segments()[0]
    for index in (1, 2, 3):
        node.consume(1, index)
    for index in range(1, 101):
        node.consume(2, index)
    node.snapshot(2)
    for _ in range(4 * COLLECT_REST_STEPS):
        node.log.collect(1 << 20)
        node.write()
    assert first not in node.segments()
    assert node.log.group(1).entry(2).data == bytes([1]) * 400


def test_step_copies_no_more_than_it_may(disk: MemoryFiles, start) -> None:
    node = start(disk)
    for _ in range(40):
        node.publish(1, 2)
        node.write()
    for index in range(1, 81):
        if index % 4:
            node.unread[1].discard(index)
    node.snapshot(1)
    node.write()
    node.write()
    for _ in range(30):
        node.log.collect(2 * ENTRY_BYTES)
        assert node.log.backlog_bytes <= 3 * ENTRY_BYTES
        node.write()
    assert list(node.log.group(1).live_indexes()) == list(range(4, 81, 4))


def test_entries_are_readable_at_every_moment_of_a_move(disk: MemoryFiles, start) -> None:
    node = start(disk)
    for _ in range(30):
        node.publish(1, 2)
    node.write()
    for index in range(1, 61):
        if index % 5:
            node.unread[1].discard(index)
    node.snapshot(1)
    node.write()
    node.write()
    view = node.log.group(1)
    before = len(node.segments())

    def read_all() -> None:
        for index in range(5, 61, 5):
            assert view.entry(index).index == index

    for _ in range(3 * COLLECT_REST_STEPS):
        node.log.collect(1000)
        read_all()
        node.log.flush()
        read_all()
        node.log.step()
        read_all()
        node.log.flush()
        read_all()
    assert len(node.segments()) < before


def test_removed_files_are_closed(disk: MemoryFiles, start) -> None:
    node = start(disk)
    node.publish(1, 100)
    node.write()
    view = node.log.group(1)
    assert len(view.entries(1, 101, 1 << 20)) == 100
    opened = len(disk._open)
    node.unread[1].clear()
    node.snapshot(1)
    for _ in range(10):
        node.tick()
    assert len(node.segments()) <= 2
    assert len(disk._open) < opened


def test_tombstones_go_when_no_older_record_can_be_left(disk: MemoryFiles, start) -> None:
    node = start(disk)
    node.publish(1, 100)  # stays
    for group in range(1000, 1200):
        node.log.begin(group, 1, MEMBERS)
        node.publish(group)
        node.write()
        node.unread.pop(group)
        node.log.remove_group(group)
        node.write()
        node.tick()
    for _ in range(5 * COLLECT_REST_STEPS):
        node.tick()
    assert len(node.log._table.removed) < 40
    before = {g: node.log.group(g).last_index() for g in node.log.groups()}
    node.log.close()
    again = start(disk)
    assert {g: again.log.group(g).last_index() for g in again.log.groups()} == before
    assert again.log.quarantined == {}


def test_full_disk_gives_up_files_that_died_before(disk: MemoryFiles, start) -> None:
    node = start(disk)
    node.publish(1, 160)
    node.write()
    node.unread[1].clear()
    node.snapshot(1)
    node.write()
    node.write()
    disk.capacity_bytes = node.used_bytes()
    done: list[object] = []
    node.log.on_durable = done.extend
    for at in range(60):
        node.publish(2)
        node.log.append(3, None, [Entry(at + 1, 1, 0, b"x")], True, at)
        node.write()
    assert node.log.full
    assert len(done) < 60
    assert SECOND in node.segments()
    assert node.log.collect(1 << 20) == []
    node.write()
    assert SECOND not in node.segments()
    node.write()
    assert not node.log.full
    assert done == list(range(60))
    node.log.close()
    again = start(disk)
    assert again.log.group(3).last_index() == 60


@pytest.mark.parametrize("call", ["remove", "write", "sync"])
def test_failure_while_files_are_removed_is_final_and_nothing_is_lost(
    disk: MemoryFiles, start, call: str
) -> None:
    node = start(disk)
    node.publish(1, 80)
    node.write()
    node.unread[1] = {17}
    node.snapshot(1)
    node.write()
    node.write()

    def fail(name: str, path: str) -> None:
        if name == call:
            raise OSError(errno.EIO, "broken", path)

    node.log.collect(0)
    disk.fault = fail
    node.log.flush()
    node.log.step()
    assert node.log.failure is not None
    disk.fault = lambda name, path: None
    node.log.close()
    for survives in (False, True):
        again = start(disk.after_power_loss(lambda *_, s=survives: s, names_synced=survives))
        assert again.log.group(1).entry(17).data == bytes([1]) * 400
        assert again.log.group(1).snapshot_index == 80


def test_damaged_file_is_neither_moved_nor_lost(disk: MemoryFiles, start) -> None:
    node = start(disk)
    node.publish(1, 120)
    node.write()
    first = f"/log/{node.segments()[0]}"
    written = disk.file(first).written
    written[written.rindex(bytes([1]) * 300)] ^= 1
    node.unread[1] = {1, 100}
    node.snapshot(1)
    for _ in range(3 * COLLECT_REST_STEPS):
        node.tick()
    assert first[5:] in node.segments()
    assert node.log._table.ledger.segments[1].stuck


def test_file_stays_until_what_supersedes_it_is_durable(disk: MemoryFiles, start) -> None:
    node = start(disk)
    node.publish(1, 80)
    node.write()
    node.publish(2, 40)
    node.write()
    before = node.segments()
    node.log.append(1, HardState(2, 0, 0), [Entry(1, 2, 0, b"replaces all")], True, None)
    node.log.collect(1 << 20)
    node.log.step()  # the writer has been told of files to remove, but not of the entry
    assert node.segments() == before
    lost = start(disk.after_power_loss(lambda *_: True, names_synced=False))
    assert lost.log.group(1).last_index() == 80
    assert lost.log.quarantined == {}
    for _ in range(5):
        node.tick()
    assert node.segments()[0] != before[0]


def test_files_are_removed_only_when_the_log_says_so(disk: MemoryFiles, start) -> None:
    node = start(disk)
    node.publish(1, 80)
    node.write()
    node.unread[1].clear()
    node.snapshot(1)
    node.write()
    node.write()
    crashed: list[MemoryFiles] = []

    def crash_behind(call: str, path: str) -> None:
        if call == "remove" and path.endswith(".log"):
            crashed.append(disk.after_power_loss(lambda *_: False, names_synced=False))
            crashed[-1].remove(path)

    disk.fault = crash_behind
    node.tick()
    disk.fault = lambda call, path: None
    assert crashed
    for left in crashed:
        assert start(left).log.group(1).snapshot_index == 80


def test_tombstone_is_moved_while_older_files_hold_records_of_its_group(
    disk: MemoryFiles, start
) -> None:
    node = start(disk)
    node.publish(5)
    node.publish(1, 25)  # a file of live entries, with one of group 5 in it
    node.write()
    assert len(node.segments()) == 1
    node.publish(9, 5)
    node.write()
    node.log.remove_group(5)
    node.unread.pop(5)
    node.publish(9, 60)
    node.write()
    node.unread[9].clear()
    node.snapshot(9)
    for _ in range(3 * COLLECT_REST_STEPS):
        node.tick()
    assert node.segments()[0] == "0000000000000001.log"
    assert SECOND not in node.segments()  # which had the tombstone
    node.log.close()
    again = start(disk)
    assert again.log.groups() == [1, 9]


def test_damaged_file_stays_until_its_groups_are_begun_anew(disk: MemoryFiles, start) -> None:
    node = start(disk)
    node.publish(1, 20)
    node.publish(2, 60)
    node.write()
    node.log.close()
    first = "0000000000000001.log"
    written = bytearray(disk.file(f"/log/{first}").written)
    location = written.index(bytes([1]) * 300) - HEADER_BYTES
    written[location + 11] ^= 1  # the check of its header: nothing says what it was
    disk.put(f"/log/{first}", bytes(written))
    node = start(disk)
    assert 1 in node.log.quarantined
    for group in node.log.groups():
        node.log.remove_group(group)
    for _ in range(3 * COLLECT_REST_STEPS):
        node.tick()
    assert first in node.segments()
    assert SECOND not in node.segments()
    for group in list(node.log.quarantined):
        node.log.begin(group, 99, MEMBERS)
    for _ in range(3 * COLLECT_REST_STEPS):
        node.tick()
    assert first not in node.segments()
    assert node.log.quarantined == {}


def copies_of_what_lives_shortly(node: Node) -> int:
    """Publish; every fourth entry lives for the time in which some three files are written."""
    lately: list[int] = []
    copies = 0
    for index in range(1, 1500):
        node.publish(1)
        node.write()
        if index % 4:
            node.consume(1, index)
        else:
            lately.append(index)
        if len(lately) > 25:
            node.consume(1, lately.pop(0))
        if index % 20 == 0:
            node.snapshot(1)
        before = node.log.group(1).location_of(lately[0]) if lately else 0
        node.tick()
        copies += bool(lately) and node.log.group(1).location_of(lately[0]) != before
    return copies


def test_what_lives_shortly_dies_where_it_is_while_files_are_spare(start) -> None:
    none = copies_of_what_lives_shortly(start(MemoryFiles()))
    some = copies_of_what_lives_shortly(start(MemoryFiles(), spare_files=4))
    assert none > 20
    assert some < none / 2
