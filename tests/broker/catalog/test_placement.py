"""Placement of replicas."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.placement import Place, lead_by_fewest, place, shares
from headrace_broker.catalog.result import Ok, Refused
from headrace_broker.catalog.version import ZONES
from headrace_broker.model.definition import Node

COUNTS = st.dictionaries(st.integers(1, 9), st.integers(0, 5), min_size=1)
PLACES = st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")).map(lambda each: Place(*each))


def in_zones(zones: dict[int, str]) -> dict[int, Place]:
    return {node: Place(zone, f"host {node}") for node, zone in zones.items()}


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


def test_replicas_are_spread_over_zones_first() -> None:
    zones = in_zones({1: "a", 2: "a", 3: "b", 4: "c", 5: "c"})
    counts = {1: 0, 2: 0, 3: 9, 4: 7, 5: 8}
    assert place(counts, 0, 3, (), zones) == (1, 4, 3)
    assert place(counts, 5, 3, (), zones) == (5, 1, 3)
    assert place(counts, 0, 5, (), zones) == (1, 4, 3, 2, 5)
    assert place(counts, 0, 3, (3,), zones) == (1, 4, 2), "a drained node is taken last"


def test_nodes_without_a_zone_count_as_of_one() -> None:
    counts = {1: 0, 2: 0, 3: 9}
    assert place(counts, 0, 2, (), in_zones({3: "a"})) == (1, 3)


@given(COUNTS, st.dictionaries(st.integers(1, 9), st.sampled_from("abc")), st.integers(1, 7))
def test_no_zone_has_two_replicas_more_than_one_with_a_free_node(
    counts: dict[int, int], zones: dict[int, str], wanted: int
) -> None:
    places = in_zones(zones)
    chosen = place(counts, 0, wanted, (), places)
    free = set(counts) - set(chosen)
    held = {node: shares(node, chosen, places)[0] for node in counts}
    assert all(held[node] <= held[other] + 1 for node in chosen for other in free)


def test_replicas_are_spread_over_hosts_within_zones() -> None:
    on_two = {1: Place("", "x"), 2: Place("", "x"), 3: Place("", "y"), 4: Place("", "y")}
    assert place({1: 0, 2: 0, 3: 9, 4: 8}, 0, 2, (), on_two) == (1, 4)
    assert place({1: 0, 2: 0, 3: 9, 4: 8}, 0, 3, (), on_two) == (1, 4, 2)
    zoned = {1: Place("a", "x"), 2: Place("b", "x"), 3: Place("a", "y"), 4: Place("b", "z")}
    assert place(dict.fromkeys(zoned, 0), 1, 2, (), zoned) == (1, 4)
    assert place(dict.fromkeys(zoned, 0), 1, 3, (), zoned) == (1, 4, 3)


@given(COUNTS, st.dictionaries(st.integers(1, 9), PLACES), st.integers(1, 7))
def test_where_there_are_no_zones_no_host_has_two_replicas_more_than_a_free_one(
    counts: dict[int, int], places: dict[int, Place], wanted: int
) -> None:
    places = {node: place._replace(zone="") for node, place in places.items()}
    chosen = place(counts, 0, wanted, (), places)
    free = set(counts) - set(chosen)
    held = {node: shares(node, chosen, places)[1] for node in counts}
    assert all(held[node] <= held[other] + 1 for node in chosen for other in free)


def test_a_queue_is_spread_over_hosts_from_cluster_version_2_on(driver: Any) -> None:
    addresses = ("x:1", "X:2", "x.:3", "[::1]:1", "[::1]:2", "z:1")
    nodes = (Node(n, f"n{n}", address) for n, address in enumerate(addresses, 1))
    driver.do(commands.DeclareNodes(tuple(nodes)))
    assert sorted(driver.queue("old", "quorum", replicas=3).members) == [1, 2, 3]
    for node in range(1, 7):
        driver.do(commands.AnnounceNode(node, 5, catalog_version=ZONES))
    assert isinstance(driver.do(commands.RaiseClusterVersion(2)), Ok)
    assert sorted(driver.queue("q", "quorum", replicas=3).members) == [1, 4, 6]
    assert sorted(driver.queue("r", "quorum", replicas=3).members) == [2, 5, 6]


def test_processes_of_one_node_get_one_replica() -> None:
    two_each = {1: "n1", 65: "n1", 2: "n2", 66: "n2"}
    places = {node: Place("", "x", name) for node, name in two_each.items()}
    counts = {1: 5, 65: 0, 2: 9, 66: 8}
    assert place(counts, 0, 3, (), places) == (65, 66)
    assert place(counts, 2, 3, (), places) == (2, 65)
    assert place({1: 0, 65: 0}, 65, 3, (), places) == (65,)
    unnamed = {node: Place("", "x") for node in counts}
    assert place(counts, 0, 3, (), unnamed) == (65, 1, 66), "older semantics know no processes"


def test_processes_of_one_number_are_preferred_unless_they_have_a_third_more() -> None:
    ids = [node + 64 * shard for node in (1, 2, 3) for shard in (0, 1)]
    places = {each: Place("", "x", f"n{each % 64}", each // 64) for each in ids}
    counts = dict.fromkeys(ids, 0)
    assert place(counts, 65, 3, (), places) == (65, 66, 67)
    assert place(counts, 0, 3, (), places) == (1, 2, 3)
    counts |= {66: 12, 2: 9, 67: 13, 3: 9}
    assert place(counts, 65, 3, (), places) == (65, 66, 3), "13 is more than 9 and a third"
    assert place(counts, 65, 3, (66,), places) == (65, 2, 3), "a drained one is taken last"


def test_a_queue_of_a_cluster_with_processes_is_on_different_nodes(driver: Any) -> None:
    names = {1: "n1", 2: "n2", 3: "n3", 65: "n1:1", 66: "n2:1", 67: "n3:1"}
    nodes = (Node(node, name, f"x:{node}") for node, name in names.items())
    driver.do(commands.DeclareNodes(tuple(nodes)))
    for node in names:
        driver.do(commands.AnnounceNode(node, 5, catalog_version=ZONES))
    assert isinstance(driver.do(commands.RaiseClusterVersion(2)), Ok)
    for number in range(8):
        members = driver.queue(f"q{number}", "quorum", replicas=5).members
        assert sorted(node % 64 for node in members) == [1, 2, 3]


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


def test_a_queue_is_spread_over_the_zones_that_nodes_have_announced(driver: Any) -> None:
    driver.do(commands.DeclareNodes(tuple(Node(n, f"n{n}", f"h:{n}") for n in range(1, 7))))
    for node, zone in enumerate(("a", "a", "a", "b", "b", "c"), 1):
        assert isinstance(driver.do(commands.AnnounceNode(node, 1, zone=zone)), Ok)
    zones = {each.id: each.zone for each in driver.catalog.nodes()}
    for number in range(6):
        members = driver.queue(f"q{number}", "quorum", replicas=3).members
        assert sorted(zones[member] for member in members) == ["a", "b", "c"]


def test_a_zone_is_a_name_and_can_be_taken_back(driver: Any) -> None:
    refused = driver.do(commands.AnnounceNode(1, 1, zone="z" * 256))
    assert refused == Refused("the zone's name has 256 bytes, not 1 to 255")
    driver.do(commands.AnnounceNode(1, 1, zone="a"))
    assert driver.catalog.node(1).zone == "a"
    driver.do(commands.AnnounceNode(1, 1))
    assert driver.catalog.node(1).zone == ""


def test_queues_without_a_preferred_node_are_spread(driver: Any) -> None:
    queues = [driver.queue(f"q{number}", "quorum", replicas=3) for number in range(6)]
    assert sorted(queue.members[0] for queue in queues) == [1, 1, 2, 2, 3, 3]
    driver.do(commands.DeleteQueue("/", "q1"))
    assert driver.queue("new", "quorum", replicas=3).members[0] == queues[1].members[0]
