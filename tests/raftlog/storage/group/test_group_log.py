"""One group's index: terms, truncation, reads from memory and disk."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.model.limits import DEAD_LOOKS_MAX
from headrace_raftlog.storage.group.accounting import Ledger
from headrace_raftlog.storage.group.group_log import StoredGroup
from headrace_raftlog.storage.segment.segment import SegmentReader
from headrace_simulation.memory_files import MemoryFiles

Run = Callable[..., list[Entry]]


@pytest.fixture
def group(disk: MemoryFiles) -> StoredGroup:
    return StoredGroup(5, SegmentReader(disk, "/log"), Ledger(8192))


def test_new_group_is_empty(group: StoredGroup) -> None:
    assert (group.first_index(), group.last_index()) == (1, 0)
    assert [group.term_at(index) for index in (-1, 0, 1)] == [-1, 0, -1]
    with pytest.raises(KeyError, match="group 5 has entries 1 to 0, asked for 1"):
        group.entries(1, 2, 100)


def test_term_is_known_for_every_entry_and_none_else(group: StoredGroup, run: Run) -> None:
    group.append(run(1, 1, b"", b""))
    group.append(run(3, 4, b""))
    group.append(run(4, 9, b"", b""))
    assert [group.term_at(index) for index in range(8)] == [0, 1, 1, 4, 9, 9, -1, -1]


@pytest.mark.parametrize("first", [1, 2, 3, 4, 5])
def test_append_at_or_below_the_last_index_replaces_the_rest(
    group: StoredGroup, run: Run, first: int
) -> None:
    group.append(run(1, 1, b"a", b"b"))
    group.append(run(3, 2, b"c", b"d"))
    before = group.entries(1, 5, 1000)
    replaced = run(first, 7, b"new")
    group.append(replaced)
    assert group.last_index() == first
    assert group.entries(1, 99, 1000) == before[: first - 1] + replaced
    terms = [entry.term for entry in before[: first - 1]] + [7]
    assert [group.term_at(index) for index in range(1, first + 1)] == terms
    assert group.term_at(first + 1) == -1


def test_gap_is_a_bug(group: StoredGroup, run: Run) -> None:
    with pytest.raises(AssertionError, match="entry 2 behind 0"):
        group.append(run(2, 1, b""))
    with pytest.raises(AssertionError, match="gap"):
        group.append([Entry(1, 1, 0, b""), Entry(3, 1, 0, b"")])


def test_entries_are_cut_by_bytes_but_never_to_none(group: StoredGroup, run: Run) -> None:
    group.append(run(1, 1, b"x" * 10, b"y" * 10, b"z" * 10))
    assert [entry.index for entry in group.entries(1, 4, 0)] == [1]
    assert [entry.index for entry in group.entries(1, 4, 19)] == [1]
    assert [entry.index for entry in group.entries(1, 4, 20)] == [1, 2]
    assert [entry.index for entry in group.entries(1, 3, 1000)] == [1, 2]
    assert [entry.index for entry in group.entries(2, 99, 1000)] == [2, 3]


def test_reads_outside_the_log_name_its_bounds(group: StoredGroup, run: Run) -> None:
    group.append(run(1, 1, b"", b""))
    for low, high in ((0, 2), (3, 4), (2, 2)):
        with pytest.raises(KeyError, match="group 5 has entries 1 to 2"):
            group.entries(low, high, 100)


def test_settling_a_replaced_entry_does_not_touch_the_new_one(group: StoredGroup, run: Run) -> None:
    old = run(1, 1, b"old", b"old")
    group.append(old)
    new = run(2, 2, b"new")
    group.append(new)
    group.settle(old, (1 << 32) | 512)
    group.forget(1, 3)
    assert group.entry(2) is new[0]
    assert list(group.locations) == [(1 << 32) | 512, 0]


def test_dead_entries_leave_memory_once_they_are_durable(group: StoredGroup, run: Run) -> None:
    entries = run(1, 1, b"a", b"b", b"c")
    group.append(entries)
    for index in (1, 3):
        group.hint_dead(index)
    group.settle(entries[:2], (1 << 32) | 512)
    group.forget_dead(False)
    assert sorted(group.recent) == [2, 3]
    group.forget_dead(True)
    assert sorted(group.recent) == [3]


def test_many_entries_in_memory_are_not_looked_through(group: StoredGroup, run: Run) -> None:
    entries = run(1, 1, *[b"x"] * (DEAD_LOOKS_MAX + 1))
    group.append(entries)
    for entry in entries:
        group.hint_dead(entry.index)
    group.settle(entries, (1 << 32) | 512)
    group.forget_dead(False)
    assert len(group.recent) == DEAD_LOOKS_MAX + 1
    group.forget(1, 2)
    group.forget_dead(False)
    assert not group.recent


def test_terms_of_many_runs_are_found(group: StoredGroup, run: Run) -> None:
    for term in range(1, 10):
        group.append(run(3 * term - 2, term, b"a", b"b", b"c"))
    terms = [group.term_at(index) for index in range(1, 28)]
    assert terms == [term for term in range(1, 10) for _ in range(3)]


def test_damage_found_by_a_read_names_file_and_offset(
    disk: MemoryFiles, open_log, run: Run
) -> None:
    opened = open_log(disk, cache_bytes=0)
    opened.commit(1, run(1, 1, b"a" * 100, b"b" * 100, b"c" * 100))
    opened.commit(1, run(4, 1, b"d"))
    assert [e.data[:1] for e in opened.log.group(1).entries(1, 4, 1000)] == [b"a", b"b", b"c"]
    path = "/log/0000000000000001.log"
    at = disk.file(path).written.index(b"b" * 100)
    disk.file(path).written[at + 50] ^= 1
    with pytest.raises(CorruptLogError, match="entry 2 of group 1") as caught:
        opened.log.group(1).entries(1, 4, 1000)
    assert (caught.value.path, caught.value.offset) == (path, at - 40)
    assert opened.log.group(1).entry(1).data == b"a" * 100
    assert opened.log.group(1).entry(3).data == b"c" * 100


def test_record_of_another_entry_in_its_place_is_noticed(
    disk: MemoryFiles, open_log, run: Run
) -> None:
    opened = open_log(disk, cache_bytes=0)
    opened.commit(1, run(1, 1, b"a" * 100, b"b" * 100))
    opened.commit(1, run(3, 1, b"c"))
    written = disk.file("/log/0000000000000001.log").written
    first = written.index(b"a" * 100) - 40
    written[first : first + 140] = written[first + 140 : first + 280]
    with pytest.raises(CorruptLogError, match="entry 1 of group 1 is not intact"):
        opened.log.group(1).entry(1)


def test_entry_read_in_pieces_is_read_from_disk_once(disk: MemoryFiles, open_log, run: Run) -> None:
    opened = open_log(disk, cache_bytes=0)
    opened.commit(1, run(1, 1, b"a" * 100, b"b" * 100))
    opened.commit(1, run(3, 1, b"c"))
    view = opened.log.group(1)
    first = view.entry(1)
    disk.file("/log/0000000000000001.log").written[:] = bytes(8192)
    assert view.entry(1) is first
    with pytest.raises(CorruptLogError):
        view.entry(2)


def test_entry_that_replaces_another_is_not_taken_for_it(
    disk: MemoryFiles, open_log, run: Run
) -> None:
    opened = open_log(disk, cache_bytes=0)
    opened.commit(1, run(1, 1, b"a", b"b"))
    view = opened.log.group(1)
    opened.commit(1, run(3, 1, b"c"))
    assert view.entry(2).data == b"b"
    opened.commit(1, run(2, 2, b"other"))
    opened.commit(1, run(3, 2, b"d"))
    assert view.entry(2) == Entry(2, 2, 0, b"other")
