"""Clusters of real processes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from e2e.harness.cluster import Cluster

FREE_MIB: Final = 8 << 10  # tests write up to 4 GiB each, and nodes have an alarm below 2 GiB


@pytest.fixture(autouse=True)
def free_disk(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Fail on a disk that would raise the nodes' alarm: publishers then wait, as they should."""
    directory = tmp_path_factory.getbasetemp()
    free = shutil.disk_usage(directory).free >> 20
    assert free >= FREE_MIB, f"{directory} has {free} MiB free; a test needs {FREE_MIB}"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes on fresh data, for a test that breaks them."""
    with Cluster(tmp_path / "data") as started:
        yield started
        started.close_connections()


@pytest.fixture(scope="session")
def session_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes for all tests that leave them whole; leaders do not move by themselves."""
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("HEADRACE_CLUSTER_BALANCE_LEADERS", "false")
            data = tmp_path_factory.mktemp("shared") / "data"
            started = stack.enter_context(Cluster(data))
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
