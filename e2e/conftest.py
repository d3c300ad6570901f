"""Clusters of real processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from e2e.harness.cluster import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes on fresh data, for a test that breaks them."""
    with Cluster(tmp_path / "data") as started:
        yield started
        started.close_connections()


@pytest.fixture(scope="session")
def session_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes for all tests that leave them whole."""
    with Cluster(tmp_path_factory.mktemp("shared") / "data") as started:
        yield started


@pytest.fixture
def shared_cluster(session_cluster: Cluster) -> Iterator[Cluster]:
    """The nodes shared by all tests that leave them whole."""
    yield session_cluster
    session_cluster.close_connections()


@pytest.fixture
def queue_name(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Make queue names that no other test uses."""
    return lambda name: f"{request.node.name}-{name}"
