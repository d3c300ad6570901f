"""Clusters for the tests of the builders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headrace_operator.builders.cluster import Cluster
from headrace_operator.specs.cluster import BrokerClusterSpec

MakeCluster = Callable[..., Cluster]


@pytest.fixture
def make_cluster() -> MakeCluster:
    """Make a cluster of a spec as it is written in a resource."""

    def make(spec: Any = None, *, replicas: int = 0, nodes: int = 0) -> Cluster:
        decoded = msgspec.convert(spec or {}, BrokerClusterSpec)
        count = replicas or decoded.replicas
        uid = "11111111-2222-3333-4444-555555555555"
        image = "headrace/broker:1"
        return Cluster(
            *("mill", "shop", uid, decoded, image, count, nodes or count),
            shards=decoded.shards or 1,
        )

    return make
