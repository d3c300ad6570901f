"""Number of processes of a node, from the spec and what has been."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace_operator.shard_count import shard_count
from headrace_operator.specs.cluster import BrokerClusterSpec, BrokerClusterStatus


def count(spec: Any, **status: Any) -> int:
    return shard_count(msgspec.convert(spec, BrokerClusterSpec), BrokerClusterStatus(**status))


def limited(cores: Any, **more: Any) -> Any:
    return {"resources": {"limits": {"cpu": cores}}, **more}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, 1),
        ({"shards": 3}, 3),
        (limited("3999m"), 1),
        (limited("4000m"), 2),
        (limited(7), 3),
        (limited(64), 5),
        (limited(64, replicas=1), 8),
        (limited(64, replicas=9), 1),
        (limited(8, shards=1), 1),
    ],
)
def test_a_cluster_is_founded_with_what_is_asked_for_or_by_its_limit(
    spec: Any, expected: int
) -> None:
    assert count(spec) == expected


def test_a_cluster_that_is_founded_keeps_what_it_has() -> None:
    assert count(limited(8), formed=True, cluster_version=2) == 1
    assert count(limited(2), formed=True, cluster_version=2, shards=4) == 4
    assert count({"shards": 2}, formed=True, cluster_version=2, shards=4) == 4
    assert count({"shards": 4}, formed=True, cluster_version=2, shards=2) == 4


@pytest.mark.parametrize("version", [None, 1])
def test_shards_wait_for_the_cluster_version(version: int | None) -> None:
    assert count({"shards": 4}, formed=True, cluster_version=version) == 1
