"""Placement of replicas."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.placement import lead_by_fewest, place, split_members

COUNTS = st.dictionaries(st.integers(1, 9), st.integers(0, 5), min_size=1)


def test_preferred_node_is_first_then_the_least_loaded_then_the_lowest_id() -> None:
    counts = {1: 5, 2: 0, 3: 1, 4: 0}
    assert place(counts, 1, 3) == (1, 2, 4)
    assert place(counts, 0, 3) == (2, 4, 3)
    assert place(counts, 7, 1) == (2,)


@given(COUNTS, st.integers(0, 10), st.integers(1, 7))
def test_nodes_are_different_known_and_as_many_as_there_are(
    counts: dict[int, int], preferred: int, wanted: int
) -> None:
    chosen = place(counts, preferred, wanted)
    assert len(set(chosen)) == len(chosen) == min(wanted, len(counts))
    assert set(chosen) <= set(counts)
    assert preferred not in counts or chosen[0] == preferred
    rest = [node for node in chosen if node != preferred]
    left = set(counts) - set(chosen)
    assert all(counts[node] <= counts[other] for node in rest for other in left)


@given(COUNTS, st.integers(0, 10), st.integers(1, 7))
def test_order_of_the_table_does_not_matter(
    counts: dict[int, int], preferred: int, wanted: int
) -> None:
    turned = dict(reversed(counts.items()))
    assert place(turned, preferred, wanted) == place(counts, preferred, wanted)


def test_first_is_who_is_first_for_the_fewest_queues() -> None:
    assert lead_by_fewest((3, 1, 2), {1: 4, 2: 3, 3: 5}) == (2, 3, 1)
    assert lead_by_fewest((3, 1, 2), {1: 4, 2: 4, 3: 4}) == (1, 3, 2)
    assert lead_by_fewest((3,), {3: 9}) == (3,)


def test_queues_without_a_preferred_node_are_spread(driver: Any) -> None:
    queues = [driver.queue(f"q{number}", "quorum", replicas=3) for number in range(6)]
    assert sorted(queue.members[0] for queue in queues) == [1, 1, 2, 2, 3, 3]
    driver.do(commands.DeleteQueue("/", "q1"))
    assert driver.queue("new", "quorum", replicas=3).members[0] == queues[1].members[0]


@pytest.mark.parametrize(
    ("count", "voters"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 5), (6, 5), (9, 5)]
)
def test_odd_number_of_the_lowest_ids_votes(count, voters):
    nodes = list(range(count, 0, -1))
    voting, learning = split_members(nodes)
    assert voting == tuple(range(1, voters + 1))
    assert learning == tuple(range(voters + 1, count + 1))
