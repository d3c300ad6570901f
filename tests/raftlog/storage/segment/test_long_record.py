"""Records that no turn of the event loop copies or checks as a whole, and their segments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import pytest
from tests.raftlog.storage.log.test_collector import Node

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.model.errors import LostEntryError
from headrace_raftlog.storage.disk.files import Files
from headrace_simulation.memory_files import MemoryFiles

Run = Callable[..., list[Entry]]


def test_long_entries_are_checked_and_read_back_in_two_parts(
    tmp_path: Path, open_log, run: Run
) -> None:
    body = bytes(range(251)) * (5 * (1 << 20) // 251)
    options = {"segment_bytes": 1 << 20, "cache_bytes": 0}
    opened = open_log(Files(), str(tmp_path), **options)
    assert opened.commit(1, run(1, 1, b"short", body, body[1:]), HardState(1, 0, 0))
    assert opened.commit(2, run(1, 1, body[2:]), HardState(1, 0, 0))
    opened.log.close()
    again = open_log(Files(), str(tmp_path), **options)
    assert not again.log.quarantined
    reader = again.log.group(1).reader
    calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
    reader.reads.start(calls.put)
    view = again.log.group(1)
    told: list[int] = []
    view.on_read = lambda _group: told.append(1)
    assert view.at_hand(2, 4, 1 << 40) == 2, "nothing is there yet"
    calls.get()()
    assert told == [1]
    assert view.at_hand(2, 4, 1 << 40) == 3
    assert [entry.data for entry in view.entries(2, 3, 1)] == [body]
    assert reader.blocking == 0
    assert view.entry(2).data is view.entry(2).data, "it is not copied out of anything"


def test_long_entry_that_is_damaged_is_lost(tmp_path: Path, open_log, run: Run) -> None:
    opened = open_log(Files(), str(tmp_path), segment_bytes=1 << 20, cache_bytes=0)
    assert opened.commit(1, run(1, 1, bytes(3 << 20)), HardState(1, 0, 0))
    opened.log.backlog_bytes  # noqa: B018  (notes what is durable)
    view = opened.log.group(1)
    at = int(view.location_of(1))
    with (tmp_path / f"{at >> 32:016d}.log").open("r+b") as file:
        file.seek((at & 0xFFFFFFFF) + (2 << 20))
        file.write(b"x")
    calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
    view.reader.reads.start(calls.put)
    assert not view.prepare(1, lambda: None)
    calls.get()()
    with pytest.raises(LostEntryError, match="entry 1 of group 1 is not intact there"):
        view.entry(1)


class CountingFiles(MemoryFiles):
    """Files in memory that count reads."""

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes = 0

    def read(self, fd: int, count: int, offset: int) -> bytes:
        data = super().read(fd, count, offset)
        self.read_bytes += len(data)
        return data


LONG = 3 << 20  # bytes: written in slices, in a segment of its own


def test_long_record_that_is_dead_is_not_read_to_move_what_stands_beside_it() -> None:
    disk = CountingFiles()
    node = Node(disk)
    node.publish(2, 3)
    node.log.append(1, HardState(1, 0, 1), [Entry(1, 1, 0, bytes(LONG))], True, None)
    node.log.flush()
    node.publish(2, 40)  # beside the slices
    for _ in range(3):
        node.write()
    node.publish(2, 1000)  # in later segments
    for _ in range(60):
        node.write()
    first = node.segments()[0]
    node.log.entry_dead(1, 1)
    node.snapshot(1)
    node.write()
    disk.read_bytes = 0
    for _ in range(30):
        node.tick(1 << 20)
    assert all(len(disk.file(f"/log/{name}").written) < LONG for name in node.segments()), first
    assert disk.read_bytes < LONG
    view = node.log.group(2)
    assert [len(view.entry(index).data) for index in (1, 4, 43, 1043)] == [400] * 4
    node.log.close()


def test_long_record_that_is_live_stays_where_it_is(disk: MemoryFiles) -> None:
    node = Node(disk)
    node.log.append(1, HardState(1, 0, 1), [Entry(1, 1, 0, bytes(LONG))], True, None)
    node.log.flush()
    for _ in range(12):
        node.publish(2, 100)
        node.write()
    for index in range(1, 1201):
        node.consume(2, index)
    for _ in range(30):
        node.tick(1 << 20)
    view = node.log.group(1)
    at = int(view.location_of(1))
    assert at
    for _ in range(100):
        node.publish(3, 100)
        for index in range(int(node.log.group(3).last_index()) - 99, 0, -1):
            if index in node.unread[3]:
                node.consume(3, index)
        node.tick(1 << 20)
    assert view.location_of(1) == at
    assert view.entry(1).data == bytes(LONG)
    node.log.close()
