"""A telemetry log on a disk that fails, is cut off, or was damaged."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.codecs.column_reader import decode_columns

from headrace_broker.codecs.column_block import INT64, UTF8, ColumnBlock, Schema, encode_columns
from headrace_broker.model.limits import EXPORT_GROUPS_MAX
from headrace_broker.runtime.export.log import (
    DataGoneError,
    FencedError,
    NotYetError,
    OtherIncarnationError,
    TooManyGroupsError,
    UnknownGroupError,
)
from headrace_broker.runtime.telemetry.segment import inflated
from headrace_broker.runtime.telemetry.shard_log import SEGMENTS, Bounds, ShardLog
from headrace_simulation.memory_files import MemoryFiles

SCHEMA = Schema(1, (("number", INT64), ("text", UTF8)))
PLACE = "/data/telemetry/samples"
LARGE = Bounds(1 << 30, 1 << 40)
OPENER = b"me"


class Clock:
    """Unix time, set by tests."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


def rows(first: int, count: int = 3) -> ColumnBlock:
    """A block whose numbers are the indexes that its rows should get."""
    numbers = list(range(first, first + count))
    return encode_columns(SCHEMA, [numbers, [f"row {number}" for number in numbers]])


def opened(
    files: MemoryFiles, bounds: Bounds = LARGE, clock: Callable[[], int] | None = None
) -> ShardLog:
    log = ShardLog(files, PLACE, SCHEMA, bounds, clock or Clock())
    log.open()
    return log


def read_all(log: ShardLog, bytes_max: int = 1 << 20) -> list[int]:
    """The numbers of all rows that can be read."""
    summary = log.summary
    found: list[int] = []
    index = summary.first_index
    while index < summary.next_index:
        for block in log.read(summary.incarnation, index, summary.next_index, bytes_max):
            found += decode_columns(block.schema, inflated(block).columns)[0]
            index = block.end_index
    return found


def fill(log: ShardLog, clock: Clock, appends: int, count: int = 3) -> None:
    for _ in range(appends):
        log.append(clock.now_ms, [rows(log.summary.next_index, count)])
        log.trim()


def test_rows_are_read_as_they_were_appended() -> None:
    log = opened(MemoryFiles())
    log.append(5, [rows(0), rows(3, 1)])
    log.append(6, [rows(4, 200)])
    assert read_all(log) == list(range(204))
    assert log.summary[1:3] == (0, 204)
    assert log.summary[4:] == (5, 6)


def test_reading_begins_at_the_block_of_the_first_row_and_stops_by_bytes() -> None:
    log = opened(MemoryFiles())
    for first in range(0, 30, 3):
        log.append(5, [rows(first)])
    incarnation = log.summary.incarnation
    blocks = log.read(incarnation, 4, 8, 1 << 20)
    assert [(block.first_index, block.end_index) for block in blocks] == [(3, 6), (6, 9)]
    assert len(log.read(incarnation, 0, 30, 1)) == 1
    assert read_all(log, 1) == list(range(30))


def test_start_goes_on_where_the_log_ended() -> None:
    files = MemoryFiles()
    log = opened(files)
    log.append(5, [rows(0)])
    again = opened(files)
    again.append(6, [rows(3)])
    assert again.summary.incarnation == log.summary.incarnation
    assert read_all(again) == [0, 1, 2, 3, 4, 5]


def test_start_without_rows_leaves_one_file() -> None:
    files = MemoryFiles()
    for _ in range(3):
        log = opened(files)
    assert files.names(PLACE) == ["00000000000000000000.rows"]
    assert log.summary[1:3] == (0, 0)


@given(st.integers(0, 400), st.booleans())
def test_power_loss_takes_nothing_that_was_readable(survivors: int, names_synced: bool) -> None:
    files = MemoryFiles()
    log = opened(files)
    log.append(5, [rows(0)])
    readable = log.summary

    def no_sync(call: str, path: str) -> None:
        if call == "sync":
            raise OSError(errno.EIO, "no", path)

    files.fault = no_sync
    with pytest.raises(OSError, match="no"):
        log.append(6, [rows(3, 50)])
    assert log.summary == readable
    disk = files.after_power_loss(
        lambda path, number, offset: number < survivors, names_synced=names_synced
    )
    again = opened(disk)
    assert again.summary.incarnation == readable.incarnation
    numbers = read_all(again)
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= 3
    again.append(7, [rows(len(numbers))])
    assert read_all(again) == list(range(len(numbers) + 3))


def test_append_that_failed_gives_its_numbers_to_what_comes_next() -> None:
    files = MemoryFiles()
    log = opened(files)
    log.append(5, [rows(0)])
    files.fault = lambda call, path: _fail(call, path, "sync")
    with pytest.raises(OSError, match="sync failed"):
        log.append(6, [rows(100)])
    files.fault = lambda call, path: None
    log.append(7, [rows(3)])
    assert read_all(log) == [0, 1, 2, 3, 4, 5]
    assert read_all(opened(files)) == [0, 1, 2, 3, 4, 5]


def _fail(call: str, path: str, failing: str) -> None:
    if call == failing:
        raise OSError(errno.EIO, f"{failing} failed", path)


def test_full_disk_loses_what_does_not_fit_and_nothing_else() -> None:
    files = MemoryFiles()
    log = opened(files)
    log.append(5, [rows(0)])
    files.capacity_bytes = (
        sum(len(files.file(f"{PLACE}/{name}").written) for name in files.names(PLACE)) + 10
    )
    with pytest.raises(OSError, match="no space"):
        log.append(6, [rows(3)])
    files.capacity_bytes = 0
    log.append(7, [rows(3)])
    assert read_all(opened(files)) == [0, 1, 2, 3, 4, 5]


def test_full_disk_keeps_nothing_that_is_too_old() -> None:
    files, clock = MemoryFiles(), Clock()
    bounds = Bounds(1 << 30, 16_000)
    log = opened(files, bounds, clock)
    for _ in range(3):
        fill(log, clock, 1)
        clock.now_ms += 1_000  # so that each has a file
    log.append(clock.now_ms, [rows(9)])
    clock.now_ms += 1_000
    files.capacity_bytes = 1
    clock.now_ms += 13_500
    with pytest.raises(OSError, match="no space"):
        log.trim()
    assert read_all(log) == [6, 7, 8, 9, 10, 11]
    clock.now_ms += 1_000
    again = ShardLog(files, PLACE, SCHEMA, bounds, clock)
    with pytest.raises(OSError, match="no space"):
        again.open()
    assert read_all(again) == [9, 10, 11]
    files.capacity_bytes = 0
    again.append(clock.now_ms, [rows(12)])
    assert again.summary.incarnation == log.summary.incarnation
    assert read_all(again) == read_all(opened(files, bounds, clock)) == list(range(9, 15))


def test_damage_takes_what_is_before_it_and_says_so() -> None:
    files = MemoryFiles()
    log = opened(files)
    for first in (0, 3, 6):
        log.append(5, [rows(first)])
    incarnation = log.summary.incarnation
    path = f"{PLACE}/{files.names(PLACE)[0]}"
    data = files.file(path).written
    data[data.find(b"row 4")] ^= 1
    with pytest.raises(DataGoneError) as gone:
        log.read(incarnation, 3, 9, 1)
    assert gone.value.first_index == 6
    assert read_all(log) == [6, 7, 8]
    again = opened(files)
    assert again.summary[:3] == (incarnation, 6, 9)
    assert read_all(again) == [6, 7, 8]


def test_log_with_a_damaged_header_begins_anew() -> None:
    files = MemoryFiles()
    log = opened(files)
    log.append(5, [rows(0)])
    log.open_group("job", OPENER)
    files.file(f"{PLACE}/{files.names(PLACE)[0]}").written[20] ^= 1
    files.random = lambda count: bytes(reversed(range(1, count + 1)))  # type: ignore[method-assign]
    again = opened(files)
    assert again.summary.incarnation != log.summary.incarnation
    assert again.summary[1:3] == (0, 0)
    assert again.groups() == {}
    with pytest.raises(OtherIncarnationError) as other:
        again.read(log.summary.incarnation, 0, 3, 1)
    assert other.value.incarnation == again.summary.incarnation


def test_oldest_rows_go_when_there_are_too_many_bytes() -> None:
    files, clock = MemoryFiles(), Clock()
    bytes_max = SEGMENTS * (64 << 10)
    log = opened(files, Bounds(bytes_max, 1 << 40), clock)
    first = 0
    while log.summary.first_index == 0:
        texts = [f"{(first + each) * 7919 % 999983} {each}" for each in range(4000)]
        numbers = list(range(first, first + 4000))
        log.append(clock.now_ms, [encode_columns(SCHEMA, [numbers, texts])])
        log.trim()
        first += 4000
    assert log.summary.byte_count <= bytes_max
    on_disk = sum(len(files.file(f"{PLACE}/{name}").written) for name in files.names(PLACE))
    assert on_disk == log.summary.byte_count
    assert read_all(log) == list(range(log.summary.first_index, first))
    with pytest.raises(DataGoneError) as gone:
        log.read(log.summary.incarnation, 0, 1, 1)
    assert gone.value.first_index == log.summary.first_index


def test_rows_that_are_too_old_go_also_while_nothing_comes() -> None:
    files, clock = MemoryFiles(), Clock()
    log = opened(files, Bounds(1 << 30, 16_000), clock)
    fill(log, clock, 2)
    clock.now_ms += 17_000
    log.trim()
    assert log.summary[1:3] == (6, 6)
    fill(log, clock, 1)
    assert read_all(log) == [6, 7, 8]


def test_rows_that_all_groups_are_done_with_go() -> None:
    clock = Clock()
    log = opened(MemoryFiles(), Bounds(1 << 30, 160_000), clock)
    log.open_group("fast", OPENER)
    slow = log.open_group("slow", OPENER).epoch
    for _ in range(4):
        fill(log, clock, 1)
        clock.now_ms += 10_000  # two go into a file
    incarnation = log.summary.incarnation
    log.commit("fast", 1, incarnation, 12)
    assert log.summary.first_index == 0
    log.commit("slow", slow, incarnation, 6)
    assert log.summary.first_index == 6
    log.close_group("slow", slow)
    log.trim()
    assert log.summary[1:3] == (12, 12)


def test_group_never_goes_back_and_outlives_a_start() -> None:
    files = MemoryFiles()
    log = opened(files)
    log.append(5, [rows(0, 10)])
    log.open_group("job", OPENER)
    incarnation = log.summary.incarnation
    assert log.commit("job", 1, incarnation, 7).committed == 7
    assert log.commit("job", 1, incarnation, 3).committed == 7
    assert opened(files).groups()["job"].committed == 7


def test_opening_again_fences_and_a_repetition_does_not() -> None:
    files = MemoryFiles()
    log = opened(files)
    incarnation = log.summary.incarnation
    assert log.open_group("job", b"first").epoch == 1
    assert log.open_group("job", b"first").epoch == 1
    assert log.open_group("job", b"second").epoch == 2
    assert log.open_group("job", b"first").epoch == 1  # its own, which is fenced
    with pytest.raises(FencedError) as fenced:
        log.commit("job", 1, incarnation, 0)
    assert fenced.value.epoch == 2
    with pytest.raises(FencedError):
        log.close_group("job", 1)
    assert opened(files).open_group("job", b"second").epoch == 2
    log.close_group("job", 0)
    log.close_group("job", 2)
    with pytest.raises(UnknownGroupError):
        log.commit("job", 2, incarnation, 0)


def test_group_that_was_closed_and_is_made_again_fences_who_worked_for_it_before() -> None:
    files = MemoryFiles()
    log = opened(files)
    log.append(5, [rows(0)])
    incarnation = log.summary.incarnation
    stale = log.open_group("job", b"first").epoch
    log.close_group("job", 0)
    log = opened(files)
    assert log.open_group("job", b"second").epoch > stale
    with pytest.raises(FencedError):
        log.commit("job", stale, incarnation, 3)
    assert log.groups()["job"].committed == 0


def test_commit_beyond_the_end_and_of_another_incarnation_are_refused() -> None:
    log = opened(MemoryFiles())
    log.append(5, [rows(0)])
    log.open_group("job", OPENER)
    incarnation = log.summary.incarnation
    with pytest.raises(NotYetError) as early:
        log.commit("job", 1, incarnation, 4)
    assert early.value.next_index == 3
    with pytest.raises(NotYetError):
        log.read(incarnation, 0, 4, 1)
    with pytest.raises(OtherIncarnationError):
        log.commit("job", 1, incarnation + 1, 1)


def test_groups_are_bounded() -> None:
    log = opened(MemoryFiles())
    for number in range(EXPORT_GROUPS_MAX):
        log.open_group(f"job {number}", OPENER)
    with pytest.raises(TooManyGroupsError, match="64"):
        log.open_group("one more", OPENER)


def test_group_that_cannot_be_written_is_as_it_was() -> None:
    files = MemoryFiles()
    log = opened(files)
    log.append(5, [rows(0)])
    log.open_group("job", OPENER)
    files.fault = lambda call, path: _fail(call, path, "rename")
    with pytest.raises(OSError, match="rename failed"):
        log.commit("job", 1, log.summary.incarnation, 2)
    assert log.groups()["job"].committed == 0


def test_disk_that_fails_at_the_start_only_takes_nothing_that_was_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(self: ShardLog, path: str) -> bytes:
        raise OSError(errno.EIO, "read failed", path)

    files = MemoryFiles()
    log = opened(files)
    log.append(5, [rows(0)])
    incarnation = log.summary.incarnation
    log.close()
    log = ShardLog(files, PLACE, SCHEMA, LARGE, Clock())
    with monkeypatch.context() as patched:
        patched.setattr(ShardLog, "_contents", fail)
        with pytest.raises(OSError, match="read failed"):
            log.open()
    log.append(6, [rows(3)])
    assert log.summary.incarnation == incarnation
    assert read_all(log) == read_all(opened(files)) == [0, 1, 2, 3, 4, 5]


def test_damaged_book_loses_the_groups_only() -> None:
    files = MemoryFiles()
    log = opened(files)
    log.append(5, [rows(0)])
    log.open_group("job", OPENER)
    files.file(f"{PLACE}/groups.json").written[:] = b"{"
    again = opened(files)
    assert again.groups() == {}
    assert read_all(again) == [0, 1, 2]


def test_rows_from_before_an_upgrade_keep_their_schema() -> None:
    files = MemoryFiles()
    opened(files).append(5, [rows(0)])
    newer = Schema(2, (*SCHEMA.columns, ("more", INT64)))
    log = ShardLog(files, PLACE, newer, LARGE, Clock())
    log.open()
    log.append(6, [encode_columns(newer, [[3], ["row 3"], [7]])])
    again = ShardLog(files, PLACE, newer, LARGE, Clock())
    again.open()
    for each in (log, again):
        [old], [new] = [each.read(each.summary.incarnation, first, 4, 1 << 20) for first in (0, 3)]
        assert (old.schema, new.schema) == (SCHEMA, newer)
        assert decode_columns(newer, inflated(new).columns) == [[3], ["row 3"], [7]]
        assert read_all(each) == [0, 1, 2, 3]
