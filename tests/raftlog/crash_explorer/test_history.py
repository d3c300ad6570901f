"""Allowed content of a recovered log."""

from __future__ import annotations

import pytest

from headrace_raftlog.crash_explorer.history import History
from headrace_raftlog.crash_explorer.image import REMOVED, GroupImage, LogImage

FIRST = (1, 1, 0, b"a")
OTHER = (1, 2, 0, b"b")
SECOND = (2, 2, 0, b"c")


@pytest.fixture
def history() -> History:
    """Four calls: an append, an append that replaces it, one to another group, a removal."""
    history = History({})
    states: list[LogImage] = [
        {1: GroupImage(1, 0, (FIRST,))},
        {1: GroupImage(2, 5, (OTHER, SECOND), commit=1, commit_synced=1)},
    ]
    history.add("first", 1, states[0], [])
    history.add("second", 1, states[1], [{1: GroupImage(2, 5, (FIRST,))}])
    history.add("third", 2, {**states[1], 2: GroupImage(1, 0, (FIRST,))}, [])
    history.add("fourth", 2, {**states[1], 2: REMOVED}, [])
    return history


def test_every_state_from_the_acknowledged_one_on_is_legal(history: History) -> None:
    history.acknowledge(2)
    for number, image in enumerate(history.steps):
        assert (history.legal().judge(image) == "") == (number >= 2), number


def test_state_within_an_unacknowledged_call_is_legal(history: History) -> None:
    within = {1: GroupImage(2, 5, (FIRST,))}
    history.acknowledge(1)
    assert history.legal().judge(within) == ""
    history.acknowledge(2)
    assert "state after call 2" not in history.legal().judge(within)
    assert history.legal().judge(within) != ""


@pytest.mark.parametrize(
    "found",
    [
        {1: GroupImage(2, 5, (OTHER,), 1, 1)},  # an entry lost
        {1: GroupImage(2, 5, (FIRST, SECOND), 1, 1)},  # a replaced entry is back
        {1: GroupImage(2, 5, (OTHER, (2, 2, 0, b"x")), 1, 1)},  # another body
        {1: GroupImage(2, 4, (OTHER, SECOND), 1, 1)},  # another vote
        {1: GroupImage(1, 5, (OTHER, SECOND), 1, 1)},  # a term forgotten
        {1: GroupImage(2, 5, (OTHER, SECOND), 0, 0)},  # a synced commit index forgotten
        {1: GroupImage(2, 5, (OTHER, SECOND), 2, 2)},  # a commit index from nowhere
        {1: GroupImage(2, 5, (OTHER, SECOND), 1, 1), 3: GroupImage(1)},  # a group from nowhere
        {2: REMOVED},  # a later call without an earlier one
        {},
    ],
)
def test_any_other_state_is_not(history: History, found: LogImage) -> None:
    history.acknowledge(2)
    assert history.legal().judge(found) != ""


def test_hint_may_be_lost_and_is_cut_to_what_is_there() -> None:
    history = History({})
    history.add("hint", 1, {1: GroupImage(1, 0, (FIRST,), commit=3, commit_synced=0)}, [])
    for commit, legal in ((0, True), (1, True), (2, False)):
        found = {1: GroupImage(1, 0, (FIRST,), commit, commit)}
        assert (history.legal().judge(found) == "") == legal, commit


def test_groups_that_are_sequences_of_their_own_are_judged_one_by_one() -> None:
    history = History({}, by_group=True)
    one, two = GroupImage(1, 0, (FIRST,)), GroupImage(2, 5, (OTHER, SECOND), 1, 1)
    history.add("long", 1, {1: one}, [])
    history.add("other", 2, {1: one, 2: one}, [])
    history.add("behind", 1, {1: two, 2: one}, [])
    early = history.legal()
    history.acknowledge(2)
    assert history.waiting() == [3]
    assert history.legal().judge({2: one}) == "", "a later call of another group alone"
    assert history.legal().judge({1: two, 2: one}) == ""
    assert "group 2" in history.legal().judge({1: two}), "what was acknowledged is gone"
    assert "group 1" in history.legal().judge({1: GroupImage(1, 0, (OTHER,)), 2: one})
    assert early.implied_by(history.legal())
    assert not history.legal().implied_by(early)
    with pytest.raises(AssertionError, match="in order"):
        history.acknowledge(2)


def test_problem_names_the_state_that_was_found(history: History) -> None:
    history.acknowledge(3)
    text = history.legal().judge(history.steps[1])
    assert "holds the state after call 1 (first)" in text
    assert "acknowledged is call 3 (third)" in text


def test_stricter_judgement_implies_a_looser_one(history: History) -> None:
    early = history.legal()
    history.acknowledge(2)
    late = history.legal()
    assert early.implied_by(late)
    assert not late.implied_by(early)
    assert not History({}).legal().implied_by(early)


def test_removal_may_be_forgotten_once_garbage_was_collected(history: History) -> None:
    forgotten = history.steps[2]
    history.acknowledge(4)
    before = history.legal()
    assert before.judge(forgotten) != ""
    history.forgetful = True
    assert history.legal().judge(forgotten) == ""
    assert history.legal().judge(history.steps[3]) != "", "what was removed is back"
    assert before.judge(forgotten) != "", "it was not yet so then"
    assert history.legal().complete(forgotten)[2].removed


def test_removed_group_stays_removed_in_the_next_life(history: History) -> None:
    history.acknowledge(4)
    assert history.legal().complete(history.steps[4]) == history.steps[4]
