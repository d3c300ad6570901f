"""Number of processes of a node, from the spec and what has been."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace_operator.shard_count import shard_count, shards_problem
from headrace_operator.specs.cluster import BrokerClusterSpec, BrokerClusterStatus


def count(spec: Any, **status: Any) -> int:
    return shard_count(
        msgspec.convert(spec, BrokerClusterSpec), BrokerClusterStatus(**status), False
    )


def limited(cores: Any, **more: Any) -> Any:
    return {"resources": {"limits": {"cpu": cores}}, **more}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, 1),
        ({"shards": 3}, 3),
        (limited("3999m"), 1),
        (limited("4000m"), 2),
        (limited(64), 2),
        (limited(64, replicas=1), 2),
        (limited(64, replicas=4), 2),
        (limited(64, replicas=5), 1),
        (limited(8, shards=1), 1),
        ({"shards": 8}, 5),
        ({"shards": 2, "listeners": {"cluster": 7100, "frames": 7200}}, 1),
        ({"shards": 2, "listeners": {"metrics": 65500}}, 1),
    ],
)
def test_a_cluster_is_founded_with_what_is_asked_for_or_by_its_limit(
    spec: Any, expected: int
) -> None:
    assert count(spec) == expected


def test_a_cluster_that_is_founded_keeps_what_it_has() -> None:
    formed = {"founders": 3, "formed": True, "cluster_version": 2, "replicas": 3}
    assert count(limited(8), **formed) == 1
    assert count(limited(2), **formed, shards=4) == 4
    assert count({"shards": 2}, **formed, shards=4) == 4
    assert count({"shards": 4}, **formed, shards=2) == 4
    assert count({"shards": 6}, **formed, shards=2) == 2
    assert count({"shards": 2, "listeners": {"metrics": 65500}}, **formed) == 1


def test_shards_wait_until_so_few_nodes_are_left() -> None:
    formed: Any = {"founders": 6, "formed": True, "cluster_version": 2}
    assert count({"replicas": 3, "shards": 4}, **formed, replicas=6) == 1
    assert count({"replicas": 3, "shards": 4}, **formed, replicas=3) == 4


def test_the_cpu_limit_says_nothing_where_there_is_data() -> None:
    spec = msgspec.convert(limited(8), BrokerClusterSpec)
    assert shard_count(spec, BrokerClusterStatus(), has_data=True) == 1
    assert shard_count(spec, BrokerClusterStatus(shards=4), has_data=True) == 4


def test_before_it_is_formed_founders_count() -> None:
    assert count(limited(8, replicas=3), founders=5) == 1
    assert count({"replicas": 2, "shards": 8}, founders=5) == 1
    assert count({"replicas": 5, "shards": 3}, founders=5) == 3


@pytest.mark.parametrize(
    ("spec", "shards", "expected"),
    [
        ({}, 1, ""),
        ({"shards": 2}, 2, ""),
        ({"replicas": 5}, 4, "5 nodes of 4 shards are more than 16"),
        ({"shards": 2}, 1, "2 shards wait for cluster version 2, or for nodes to leave"),
        (
            {"shards": 2, "listeners": {"metrics": 65500}},
            1,
            "listeners: a port of one of 2 shards is taken, or above 65535",
        ),
        (
            {"listeners": {"cluster": 7100, "frames": 7300}},
            3,
            "listeners: a port of one of 3 shards is taken, or above 65535",
        ),
        ({"listeners": {"cluster": 7100, "frames": 7300}}, 2, ""),
    ],
)
def test_what_cannot_be_is_told(spec: Any, shards: int, expected: str) -> None:
    assert shards_problem(msgspec.convert(spec, BrokerClusterSpec), shards) == expected


@pytest.mark.parametrize("version", [None, 1])
def test_shards_wait_for_the_cluster_version(version: int | None) -> None:
    status: Any = {"founders": 3, "formed": True, "cluster_version": version}
    assert count({"shards": 4}, **status) == 1
