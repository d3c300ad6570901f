"""The cluster version: raised once all nodes know it, and never taken back."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog import store
from headrace_broker.catalog import version as versions
from headrace_broker.catalog.cluster_version import (
    CLUSTER_VERSION,
    CLUSTER_VERSIONS,
    in_force,
    is_empty,
    known_cluster_version,
)
from headrace_broker.catalog.event import ClusterVersionRaised
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.result import Exists, Ok, Refused
from headrace_broker.catalog.version import (
    CATALOG_VERSION,
    CLUSTER,
    LOCAL_RANDOM,
    ZONES,
    required_version,
    stamped,
    upgrade_problem,
)
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.core.queue.snapshot import snapshot
from headrace_broker.model.definition import Node, User
from headrace_raftlog.storage.segment.segment import SEGMENT_VERSION
from headrace_raftlog.transport.identity import PROTOCOL_VERSION

RAISE = commands.RaiseClusterVersion(CLUSTER_VERSION)
ENDING = commands.PutUser(User("bob", b"s", b"h"), end_sessions=True)


def say(driver: Any, node: int, catalog: int, machine: int = MACHINE_VERSION) -> Any:
    return driver.do(commands.AnnounceNode(node, machine, catalog_version=catalog))


@pytest.fixture
def upgraded(driver: Any) -> Any:
    """Three nodes that know the newest version, in a cluster of the first."""
    for node in (1, 2, 3):
        say(driver, node, CATALOG_VERSION)
    return driver


def test_each_version_uses_more_than_the_one_before_and_the_last_all_that_is_known() -> None:
    assert [row.version for row in CLUSTER_VERSIONS] == list(range(1, CLUSTER_VERSION + 1))
    for before, row in pairwise(CLUSTER_VERSIONS):
        assert row.catalog > before.catalog  # so that an older node stops where it is raised
        assert all(new >= old for old, new in zip(before, row, strict=True))
    assert CLUSTER_VERSIONS[-1] == (
        CLUSTER_VERSION,
        CATALOG_VERSION,
        MACHINE_VERSION,
        PROTOCOL_VERSION,
        store.SNAPSHOT_VERSION,
        max(snapshot.SNAPSHOT_VERSION, snapshot.SECTIONS_VERSION),
        SEGMENT_VERSION,
    )


def test_the_document_has_the_table() -> None:
    text = (Path(__file__).parents[3] / "docs" / "upgrades.md").read_text(encoding="utf-8")
    for row in CLUSTER_VERSIONS:
        assert "| " + " | ".join(str(each) for each in row) + " |\n" in text


def test_a_node_knows_the_versions_of_which_it_knows_everything() -> None:
    assert known_cluster_version(4, 5) == 0
    assert known_cluster_version(5, 5) == 1
    assert known_cluster_version(CATALOG_VERSION, MACHINE_VERSION) == CLUSTER_VERSION
    assert known_cluster_version(CATALOG_VERSION + 9, MACHINE_VERSION + 9) == CLUSTER_VERSION
    assert known_cluster_version(CATALOG_VERSION, 4) == 0


def test_it_is_raised_for_good(upgraded: Any) -> None:
    assert in_force(upgraded.catalog).version == 1
    result = upgraded.do(RAISE)
    assert isinstance(result, Ok)
    assert in_force(upgraded.catalog).version == CLUSTER_VERSION
    assert isinstance(upgraded.do(commands.RaiseClusterVersion(1)), Exists)
    assert upgraded.catalog.cluster_version == CLUSTER_VERSION


def test_it_is_part_of_the_state(upgraded: Any) -> None:
    before = upgraded.catalog.snapshot()
    assert msgspec.msgpack.decode(before)["version"] < 8  # older nodes read it
    upgraded.do(RAISE)
    restored = Catalog.restore(upgraded.catalog.snapshot())
    assert restored.cluster_version == CLUSTER_VERSION
    assert ClusterVersionRaised(CLUSTER_VERSION) in restored.contents()
    follower = Catalog.restore(before)
    assert ClusterVersionRaised(CLUSTER_VERSION) in follower.load(upgraded.catalog.snapshot())


def test_it_is_not_raised_while_a_node_runs_an_older_release(upgraded: Any) -> None:
    assert upgrade_problem(upgraded.catalog, 1, RAISE) == ""
    say(upgraded, 3, LOCAL_RANDOM)
    assert "node 'n3' runs an older version" in upgrade_problem(upgraded.catalog, 1, RAISE)


def test_an_older_node_stops_where_it_is_raised_further_than_it_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    last = CLUSTER_VERSIONS[-1]
    later = last._replace(version=last.version + 1, catalog=last.catalog + 1)
    rows = (*CLUSTER_VERSIONS, later)
    monkeypatch.setattr(versions, "row_of", lambda version: rows[version - 1])
    assert required_version(RAISE) == ZONES
    assert required_version(commands.RaiseClusterVersion(later.version)) == later.catalog


def test_what_is_newer_waits_for_it(upgraded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table: Any = versions.COMMAND_VERSIONS
    monkeypatch.setitem(table, commands.PutAdvice, CLUSTER)
    advice = commands.PutAdvice((), 1)
    assert upgrade_problem(upgraded.catalog, 1, advice) == (
        "'put_advice' needs catalog version 6, and cluster version 1 uses 5: finish the upgrade "
        "first (`headrace upgrade finish`)"
    )
    upgraded.do(RAISE)
    assert upgrade_problem(upgraded.catalog, 1, advice) == ""


@pytest.mark.parametrize("node", [2, 4])
def test_a_zone_can_be_announced_beside_a_node_that_has_said_nothing(
    upgraded: Any, node: int
) -> None:
    upgraded.do(RAISE)
    upgraded.do(commands.AdmitNode(Node(4, "n4", "h:4")))
    announcement = commands.AnnounceNode(
        node, MACHINE_VERSION, catalog_version=CATALOG_VERSION, zone="a"
    )
    assert upgrade_problem(upgraded.catalog, 1, announcement) == ""
    assert stamped(upgraded.catalog, 1, announcement).version == ZONES


def test_a_zone_is_not_announced_before_it(upgraded: Any) -> None:
    announcement = commands.AnnounceNode(1, MACHINE_VERSION, zone="a")
    assert "finish the upgrade first" in upgrade_problem(upgraded.catalog, 2, announcement)


def test_later_semantics_wait_for_it(upgraded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table: Any = versions.LATER_SEMANTICS
    monkeypatch.setitem(table, commands.PutUser, (4, CLUSTER))
    assert stamped(upgraded.catalog, 1, ENDING).as_of == 4
    upgraded.do(RAISE)
    assert stamped(upgraded.catalog, 1, ENDING).as_of == CLUSTER


def test_an_older_release_cannot_come_back_once_it_is_raised(upgraded: Any) -> None:
    assert isinstance(say(upgraded, 3, LOCAL_RANDOM), Ok)
    say(upgraded, 3, CATALOG_VERSION)
    upgraded.do(RAISE)
    result = say(upgraded, 3, LOCAL_RANDOM)
    assert isinstance(result, Refused)
    assert "node 'n3' runs a release that is too old for this cluster" in result.reason
    assert isinstance(say(upgraded, 3, CATALOG_VERSION + 1), Ok)


def test_a_cluster_is_empty_until_it_has_a_queue_or_a_vhost(driver: Any) -> None:
    assert is_empty(driver.catalog)
    driver.queue("q", "quorum", replicas=3)
    assert not is_empty(driver.catalog)
