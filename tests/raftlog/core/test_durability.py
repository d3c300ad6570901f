"""Proof of completed writes that were under way. Thesis sections 3.8 and 10.2.1."""

from __future__ import annotations

from headrace_raftlog.core.durability import Durability


def test_write_proves_the_log_and_hard_state_of_its_ready():
    """Section 3.8: term, vote and log are persistent before a server answers."""
    durability = Durability(3, 1, 0)
    durability.began(1, 5, 2, 4)
    assert (durability.last_index, durability.term, durability.vote) == (3, 1, 0)
    assert durability.finished(1)
    assert (durability.last_index, durability.term, durability.vote) == (5, 2, 4)


def test_one_completion_covers_all_before_it():
    """A group commit reports its newest Ready."""
    durability = Durability(0, 1, 0)
    for number in (1, 2, 3):
        durability.began(number, number, 1, number)
    assert durability.finished(2)
    assert (durability.last_index, durability.vote) == (2, 2)
    assert [writing.number for writing in durability.writing] == [3]


def test_repeated_completion_is_no_news():
    durability = Durability(0, 1, 0)
    durability.began(1, 4, 1, 0)
    assert durability.finished(1)
    assert not durability.finished(1)


def test_write_of_replaced_entries_proves_only_what_stayed():
    """Hazard 12: it may even have the index and term of what replaced them (etcd's ABA)."""
    durability = Durability(0, 1, 0)
    durability.began(1, 5, 1, 0)
    durability.truncated(3)
    durability.began(2, 5, 2, 0)
    durability.finished(1)
    assert durability.last_index == 2
    durability.finished(2)
    assert durability.last_index == 5


def test_truncation_reaches_what_is_durable():
    """Hazard 12: what is on disk there is not the log any more."""
    durability = Durability(5, 1, 0)
    durability.truncated(4)
    assert durability.last_index == 3


def test_snapshot_covers_what_lies_before_it_and_leaves_what_follows():
    """Chapter 5: it is written before everything that follows."""
    durability = Durability(2, 1, 0)
    durability.began(1, 3, 1, 0)
    durability.began(2, 9, 1, 0)
    durability.restored(6)
    assert durability.last_index == 6
    durability.finished(1)
    assert durability.last_index == 6
    durability.finished(2)
    assert durability.last_index == 9
