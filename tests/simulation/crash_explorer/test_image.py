"""Logs as values: what counts as the same."""

from __future__ import annotations

import pytest

from headrace_raftlog.model.membership import NOBODY, Membership
from headrace_simulation.crash_explorer.image import (
    EMPTY,
    FORGETTABLE,
    REMOVED,
    EntryImage,
    GroupImage,
    SnapshotImage,
)

ENTRIES: tuple[EntryImage, ...] = ((5, 2, 0, b"e"), (6, 3, 1, b"f"))
SNAPSHOT = SnapshotImage(4, 2, Membership((1, 2, 3)), b"state", (1, 3))
LIVE: tuple[EntryImage, ...] = ((1, 1, 0, b"a"), (3, 2, 0, b"c"))


@pytest.fixture
def expected() -> GroupImage:
    """A group with a snapshot, live entries, a log and fetched entries."""
    return GroupImage(
        term=3,
        vote=1,
        entries=ENTRIES,
        commit=6,
        commit_synced=5,
        member=7,
        snapshot=SNAPSHOT,
        live=LIVE,
        incoming=(8, 9),
    )


def test_group_with_a_snapshot_knows_its_indexes(expected: GroupImage) -> None:
    assert expected.first_index() == 5
    assert expected.last_index() == 6
    assert [expected.term_at(index) for index in (0, 3, 4, 5, 6)] == [0, 2, 2, 2, 3]
    assert expected.find(3) == LIVE[1]
    assert expected.find(6) == ENTRIES[1]
    assert expected._replace(entries=()).last_index() == 4


@pytest.mark.parametrize(
    "other",
    [
        {"term": 2},
        {"vote": 2},
        {"entries": ENTRIES[:1]},
        {"entries": (*ENTRIES[:1], (6, 3, 1, b"x"))},
        {"member": 8},
        {"membership": Membership((1,))},
        {"snapshot": None},
        {"snapshot": SnapshotImage(4, 2, NOBODY, b"state", (1, 3))},
        {"snapshot": SnapshotImage(4, 2, Membership((1, 2, 3)), b"other", (1, 3))},
        {"live": LIVE[:1]},
        {"live": (*LIVE, (4, 2, 0, b"d"))},
        {"incoming": (8,)},
        {"commit": 4},
        {"commit": 7},
        {"removed": True},
    ],
)
def test_any_difference_is_noticed(expected: GroupImage, other: dict[str, object]) -> None:
    assert expected.allows(expected)
    assert not expected.allows(expected._replace(**other))  # type: ignore[arg-type]


def test_hints_may_be_lost_and_more_may_have_been_fetched(expected: GroupImage) -> None:
    assert expected.allows(expected._replace(commit=5))
    assert expected.allows(expected._replace(incoming=(8, 9, 10)))


def test_commit_index_is_at_least_that_of_the_snapshot_when_its_hint_was_lost() -> None:
    expected = GroupImage(term=2, snapshot=SNAPSHOT, live=LIVE, commit=1, commit_synced=1)
    assert expected.allows(expected._replace(commit=4))
    assert not expected.allows(expected._replace(commit=5))


def test_removed_group_may_be_forgotten_only_where_that_is_said(expected: GroupImage) -> None:
    assert not REMOVED.allows(EMPTY)
    assert FORGETTABLE.allows(EMPTY)
    assert FORGETTABLE.allows(REMOVED)
    assert not FORGETTABLE.allows(expected)
    assert not EMPTY.allows(REMOVED)
