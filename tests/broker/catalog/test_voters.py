"""Nodes that vote on the catalog."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.catalog.test_placement import in_zones

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.cluster_version import CLUSTER_VERSION
from headrace_broker.catalog.placement import Place
from headrace_broker.catalog.version import CATALOG_VERSION
from headrace_broker.catalog.voters import (
    catalog_voters,
    split_members,
    voters_among,
    voters_wanted,
)
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.model.definition import Node


@pytest.mark.parametrize(
    ("count", "voters"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 5), (6, 5), (9, 5)]
)
def test_odd_number_of_the_lowest_ids_votes(count, voters):
    nodes = list(range(count, 0, -1))
    voting, learning = split_members(nodes)
    assert voting == tuple(range(1, voters + 1))
    assert learning == tuple(range(voters + 1, count + 1))


ANYWHERE = st.builds(Place, st.sampled_from("abc"), st.sampled_from("xyz"))


@pytest.mark.parametrize(
    ("nodes", "sitting", "expected"),
    [
        ((1, 2, 3), (1, 2, 3), (1, 2, 3)),
        ((1, 2, 3, 4), (1, 2, 3), (1, 2, 3)),
        ((1, 2, 3, 4), (2, 3, 4), (2, 3, 4)),
        ((1, 2, 3, 4, 5), (2, 4), (1, 2, 3, 4, 5)),
        ((1, 2, 3, 5), (1, 2, 3, 4, 5), (1, 2, 3)),
        ((4, 5, 6, 7), (1, 2), (4, 5, 6)),
        ((6, 7, 8, 9, 10, 11), (7, 9, 11), (6, 7, 8, 9, 11)),
        ((), (1,), ()),
    ],
)
def test_so_many_vote_and_those_first_that_do(
    nodes: tuple[int, ...], sitting: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert voters_among(in_zones(dict.fromkeys(nodes, "")), sitting) == expected


@pytest.mark.parametrize(
    ("zones", "sitting", "expected"),
    [
        ("aabc", (1, 2, 3), (1, 3, 4)),
        ("aabc", (2, 3, 4), (2, 3, 4)),
        ("aaabbbccc", (1, 2, 3, 4, 5), (1, 2, 4, 5, 7)),
        ("aaaab", (1, 2, 3), (1, 2, 3, 4, 5)),
        ("aaaabb", (1, 2, 3, 4, 5), (1, 2, 3, 5, 6)),
        ("abcaa", (1, 2, 3), (1, 2, 3)),  # with five, three would be in a
        ("abcaa", (1, 2, 3, 4, 5), (1, 2, 3)),
        ("abca", (1, 2, 3, 4), (1, 2, 3)),
        ("abcab", (1, 2, 3), (1, 2, 3, 4, 5)),
    ],
)
def test_voters_are_spread_over_zones(
    zones: str, sitting: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert voters_among(in_zones(dict(enumerate(zones, 1))), sitting) == expected


@pytest.mark.parametrize(
    ("places", "sitting", "expected"),
    [
        ("ax ax by cz", (1, 2, 3), (1, 3, 4)),
        ("ax ax bz bz cw ay", (1, 2, 3, 4, 5), (1, 3, 4, 5, 6)),
        ("ax ay az bw bw bv", (1, 2, 3, 4, 5), (1, 2, 3, 4, 6)),
    ],
)
def test_voters_of_a_zone_are_spread_over_hosts(
    places: str, sitting: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    given = {node: Place(*each) for node, each in enumerate(places.split(), 1)}
    assert voters_among(given, sitting) == expected


def test_a_leader_goes_on_and_drained_nodes_come_last_where_that_is_no_worse() -> None:
    places = in_zones(dict(enumerate("aabcc", 1)))
    del places[5]
    assert voters_among(places, (1, 2, 3), own=2) == (2, 3, 4)
    assert voters_among(places, (1, 2, 3), own=1) == (1, 3, 4)
    places = in_zones(dict(enumerate("aabcc", 1)))
    del places[2]
    assert voters_among(places, (1, 3), drained=(4,)) == (1, 3, 5)
    assert voters_among(places, (1, 3, 4), drained=(4,)) == (1, 3, 4)


@given(st.dictionaries(st.integers(1, 16), ANYWHERE, min_size=1), st.sets(st.integers(1, 16)))
def test_voters_that_are_spread_stay(places: dict[int, Place], sitting: set[int]) -> None:
    """The next leader of the catalog finds nothing to change."""
    chosen = voters_among(places, sitting)
    assert set(chosen) <= set(places)
    assert len(chosen) in {voters_wanted(len(places)), min(3, voters_wanted(len(places)))}
    for own in chosen:
        assert voters_among(places, chosen, own) == chosen
    zones = Counter(place.zone for place in places.values())
    votes = Counter(places[node].zone for node in chosen)
    if len(zones) == 3:
        assert all(2 * count < len(chosen) for count in votes.values())
    for zone, most in votes.items():
        assert all(most <= votes[other] + 1 or zones[other] == votes[other] for other in zones), (
            zone
        )


def test_of_a_node_with_processes_the_first_one_votes(driver: Any) -> None:
    for number, name in ((65, "n1:1"), (66, "n2:1"), (67, "n3:1")):
        driver.do(commands.AdmitNode(Node(number, name, f"127.0.0.1:{7000 + number}", disk=number)))
    assert catalog_voters(driver.catalog, (1, 2, 3), 1) == (1, 2, 3)
    assert catalog_voters(driver.catalog, (65, 66, 67), 65) == (1, 2, 3)


def test_no_zone_counts_until_all_nodes_have_said_theirs(driver: Any) -> None:
    driver.do(commands.AdmitNode(Node(4, "n4", "127.0.0.1:7004", disk=4)))

    def announce(node: int, zone: str) -> None:
        said = commands.AnnounceNode(
            node, MACHINE_VERSION, catalog_version=CATALOG_VERSION, zone=zone
        )
        driver.do(said)

    for node in range(1, 5):
        announce(node, "")
    driver.do(commands.RaiseClusterVersion(CLUSTER_VERSION))
    for node, zone in ((1, "a"), (2, "a"), (3, "b")):
        announce(node, zone)
        assert catalog_voters(driver.catalog, (1, 2, 3), 1) == (1, 2, 3)
    announce(4, "c")
    assert catalog_voters(driver.catalog, (1, 2, 3), 1) == (1, 3, 4)
    driver.do(commands.SetMaintenance(4, True))
    assert catalog_voters(driver.catalog, (1, 2, 3), 1) == (1, 3, 4), "it is the only one in c"
