"""Clusters of real processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from e2e.harness.cluster import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes on fresh data, for a test that breaks them."""
    with Cluster(tmp_path / "data", base_port=31672) as started:
        yield started


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes for a module whose tests leave them whole."""
    with Cluster(tmp_path_factory.mktemp("shared") / "data", base_port=32672) as started:
        yield started


@pytest.fixture
def queue_name(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Make queue names that no other test uses."""
    return lambda name: f"{request.node.name}-{name}"
