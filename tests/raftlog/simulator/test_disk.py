"""The simulated disk: what survives a crash, and what does not."""

from __future__ import annotations

import pytest

from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry, HardState
from headrace_raftlog.simulator.disk import Disk, Write
from headrace_raftlog.simulator.loop import Loop
from headrace_raftlog.simulator.parameters import draw


def entry(index, term=1):
    return Entry(index, term, ENTRY_NORMAL, b"")


@pytest.fixture
def finished():
    """Return the numbers of the writes that each sync made durable."""
    return []


@pytest.fixture
def disk(finished):
    loop = Loop(1, False)
    disk = Disk(loop, draw(loop.rng, None))
    disk.open(lambda batch: finished.append([write.number for write in batch]))
    return disk


def test_writes_that_gather_during_a_sync_share_the_next(disk, finished):
    for number in (1, 2, 3):
        disk.submit(Write(number, None, [entry(number)]))
    assert disk.entries == []
    disk.loop.step()
    assert (finished, disk.entries) == ([[1]], [entry(1)])
    disk.loop.step()
    assert (finished, len(disk.entries)) == ([[1], [2, 3]], 3)


def test_later_entries_replace_earlier_ones(disk):
    disk.submit(Write(1, HardState(1, 0, 0), [entry(1), entry(2), entry(3)]))
    disk.loop.step()
    disk.submit(Write(2, HardState(2, 0, 0), [entry(2, 2)]))
    disk.loop.step()
    assert disk.entries == [entry(1), entry(2, 2)]
    assert (disk.hard_state.term, disk.term_at(2), disk.term_at(3), disk.term_at(0)) == (2, 2, 0, 0)


def test_crash_keeps_a_prefix_of_what_was_not_synced_and_all_that_was():
    kept = set()
    for seed in range(60):
        loop = Loop(seed, False)
        disk = Disk(loop, draw(loop.rng, None))
        disk.open(lambda batch: None)
        disk.submit(Write(1, HardState(1, 0, 0), [entry(1)]))
        loop.step()
        disk.submit(Write(2, HardState(2, 0, 0), [entry(2), entry(3)]))
        disk.submit(Write(3, None, [entry(4)]))
        disk.power_off()
        assert disk.entries == [entry(index) for index in range(1, len(disk.entries) + 1)]
        kept.add((disk.hard_state.term, len(disk.entries)))
        while loop.step():
            pass
    assert kept == {(1, 1), (2, 1), (2, 2), (2, 3), (2, 4)}
