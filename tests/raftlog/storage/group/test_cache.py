"""The bounds on entries in memory."""

from __future__ import annotations

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.limits import (
    ENTRY_CACHE_OVERHEAD_BYTES,
    READ_CACHE_BYTES_MAX,
    READ_CACHE_ENTRY_BYTES_MAX,
)
from headrace_raftlog.storage.disk.read_cache import ReadCache
from headrace_raftlog.storage.group.accounting import Ledger
from headrace_raftlog.storage.group.cache import EntryCache, cached_bytes
from headrace_raftlog.storage.group.group_log import StoredGroup
from headrace_raftlog.storage.segment.segment import SegmentReader
from headrace_simulation.memory_files import MemoryFiles

COST = 1000 + ENTRY_CACHE_OVERHEAD_BYTES


def in_memory(group: StoredGroup) -> list[int]:
    return sorted(group.recent)


def appended(cache: EntryCache, group: StoredGroup, count: int) -> list[list[Entry]]:
    runs = [[Entry(index, 1, 0, bytes(1000))] for index in range(1, count + 1)]
    for entries in runs:
        group.append(entries)
        cache.pin(cached_bytes(entries))
    return runs


def settle(cache: EntryCache, group: StoredGroup, entries: list[Entry]) -> None:
    """Note that entries are durable."""
    group.settle(entries, 1 << 32 | entries[0].index << 16)
    cache.settle(group, entries, COST)


def test_pinned_entries_stay_beyond_the_bound(disk: MemoryFiles) -> None:
    group = StoredGroup(1, SegmentReader(disk, "/log"), Ledger(8192))
    cache = EntryCache(2 * COST)
    appended(cache, group, 5)
    assert in_memory(group) == [1, 2, 3, 4, 5]
    assert cache.used == 5 * COST


def test_oldest_settled_entries_leave_first_over_all_groups(disk: MemoryFiles) -> None:
    reader = SegmentReader(disk, "/log")
    one, two = StoredGroup(1, reader, Ledger(8192)), StoredGroup(2, reader, Ledger(8192))
    cache = EntryCache(3 * COST)
    runs_one, runs_two = appended(cache, one, 2), appended(cache, two, 2)
    for entries_one, entries_two in zip(runs_one, runs_two, strict=True):
        settle(cache, one, entries_one)
        settle(cache, two, entries_two)
    assert (in_memory(one), in_memory(two)) == ([2], [1, 2])
    assert cache.used == 3 * COST


def test_replaced_entry_counts_until_its_turn_and_spares_its_successor(disk: MemoryFiles) -> None:
    group = StoredGroup(1, SegmentReader(disk, "/log"), Ledger(8192))
    cache = EntryCache(2 * COST)
    old = appended(cache, group, 1)[0]
    new = [Entry(1, 2, 0, bytes(1000))]
    group.append(new)
    cache.pin(COST)
    settle(cache, group, old)
    assert cache.used == 2 * COST
    settle(cache, group, new)
    cache.pin(COST)
    assert in_memory(group) == [1]
    cache.pin(COST)
    assert in_memory(group) == []


def test_everything_is_readable_with_no_cache_at_all(disk: MemoryFiles, open_log) -> None:
    opened = open_log(disk, cache_bytes=0)
    blobs = [bytes([n]) * (n * 30) for n in range(1, 30)]
    for index, blob in enumerate(blobs, 1):
        assert opened.commit(1, [Entry(index, 1, 0, blob)])
    opened.log.flush()
    view = opened.log.group(1)
    assert in_memory(view) == []
    assert [entry.data for entry in view.entries(1, 30, 1 << 30)] == blobs
    assert view.entry(17).data == blobs[16]


def test_entries_read_last_are_kept_within_the_bound() -> None:
    cache = ReadCache()
    size = (1 << 20) - ENTRY_CACHE_OVERHEAD_BYTES
    entries = [Entry(index, 1, 0, bytes(size)) for index in range(1, 10)]
    for entry in entries[:8]:
        cache.keep(entry.index, entry)
    assert cache.used == READ_CACHE_BYTES_MAX
    assert cache.find(1) is entries[0]
    cache.keep(9, entries[8])
    assert cache.used == READ_CACHE_BYTES_MAX
    assert [index for index in range(1, 10) if cache.find(index) is None] == [2]


def test_long_entry_does_not_take_the_place_of_others() -> None:
    cache = ReadCache()
    cache.keep(1, Entry(1, 1, 0, b"short"))
    used = cache.used
    cache.keep(2, Entry(2, 1, 0, bytes(READ_CACHE_ENTRY_BYTES_MAX + 1)))
    assert cache.find(2) is None
    assert cache.find(1) is not None
    assert cache.used == used


def test_a_smaller_bound_counts_at_once_and_a_larger_one_for_what_comes(disk: MemoryFiles) -> None:
    group = StoredGroup(1, SegmentReader(disk, "/log"), Ledger(8192))
    cache = EntryCache(10 * COST)
    runs = appended(cache, group, 6)
    for entries in runs[:4]:
        settle(cache, group, entries)
    cache.resize(3 * COST)
    assert in_memory(group) == [4, 5, 6]
    cache.resize(0)
    assert in_memory(group) == [5, 6], "what is not durable stays"
    cache.resize(4 * COST)
    for entries in runs[4:]:
        settle(cache, group, entries)
    assert in_memory(group) == [5, 6]
    assert cache.used == 2 * COST
