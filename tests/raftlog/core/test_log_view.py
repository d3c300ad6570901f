"""The log overlaid with entries that were not handed out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_raftlog.core.durability import Durability
from headrace_raftlog.core.log_view import LogView
from headrace_raftlog.core.prng import Prng
from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry
from headrace_simulation.simulator.memory_log import MemoryLog


def entries(first, *terms):
    return [
        Entry(index, term, ENTRY_NORMAL, b"x" * index) for index, term in enumerate(terms, first)
    ]


def test_pending_entries_hide_the_log_from_their_first_index_on():
    view = LogView(MemoryLog(entries(1, 1, 1, 1, 1)))
    view.append(entries(3, 2))
    assert (view.last_index, view.last_term()) == (3, 2)
    assert [view.term_at(index) for index in range(5)] == [0, 1, 1, 2, -1]
    assert [entry.term for entry in view.entries(1, 4, 1000)] == [1, 1, 2]
    view.append(entries(2, 3, 3))
    assert [entry.term for entry in view.entries(1, 4, 1000)] == [1, 3, 3]
    assert [entry.index for entry in view.take_pending()] == [2, 3]
    assert view.pending == []


def test_append_must_not_leave_a_gap():
    view = LogView(MemoryLog(entries(1, 1)))
    with pytest.raises(AssertionError, match="gaps"):
        view.append(entries(3, 1))


def test_entries_are_cut_by_bytes_across_both_parts():
    view = LogView(MemoryLog(entries(1, 1, 1)))
    view.append(entries(3, 1, 1))
    assert [entry.index for entry in view.entries(1, 5, 6)] == [1, 2, 3]
    assert [entry.index for entry in view.entries(2, 5, 1)] == [2]
    assert [entry.index for entry in view.entries(4, 5, 1)] == [4]
    assert [entry.index for entry in view.entries(1, 3, 100)] == [1, 2]


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4), st.booleans()), max_size=30))
def test_view_equals_a_plain_list(steps):
    log = MemoryLog([])
    view = LogView(log)
    plain: list[Entry] = []
    for term, (at, count, hand_out) in enumerate(steps, 1):
        first = min(at, len(plain) + 1)
        new = entries(first, *[term] * count)
        plain[first - 1 :] = new
        view.append(new)
        if hand_out:
            log.append(view.take_pending())
        assert view.last_index == len(plain)
        assert [view.term_at(index) for index in range(1, len(plain) + 2)] == [
            *(entry.term for entry in plain),
            -1,
        ]
        assert view.entries(1, len(plain) + 1, 1 << 30) == plain


@given(st.lists(st.sampled_from(["append", "truncate", "finish"]), max_size=40))
def test_durable_index_is_what_a_disk_written_in_order_really_agrees_on(steps):
    """The truth is kept as two lists: the log as it should be, and what the disk holds."""
    durability = Durability(0, 0, 0)
    log: list[int] = []
    disk: list[int] = []
    queue: list[tuple[int, list[int]]] = []
    number = 0
    for version, step in enumerate(steps):
        if step == "finish":
            if queue:
                done, state = queue.pop(0)
                disk = state
                durability.finished(done)
        else:
            if step == "truncate" and log:
                del log[len(log) // 2 :]
                durability.truncated(len(log) + 1)
            log.append(version)
            number += 1
            durability.began(number, len(log), 1, 0)
            queue.append((number, list(log)))
        agreed = 0
        while agreed < min(len(log), len(disk)) and log[agreed] == disk[agreed]:
            agreed += 1
        assert durability.last_index == agreed


def test_generator_is_reproducible_and_spread():
    numbers = [Prng(seed).below(1000) for seed in range(1000)]
    assert numbers == [Prng(seed).below(1000) for seed in range(1000)]
    assert len(set(numbers)) > 500
    assert all(0 <= number < 1000 for number in numbers)
    generator = Prng(-1)
    assert {generator.below(3) for _ in range(100)} == {0, 1, 2}
