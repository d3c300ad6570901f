"""Real nodes under faults: what they promised to their clients holds."""

from __future__ import annotations

import pytest
from e2e.chaos.__main__ import run_directory
from e2e.chaos.linearizability import Reads
from e2e.chaos.network import NetworkUnavailableError
from e2e.chaos.run import Options, Run
from e2e.chaos.schedule import SHORT_KINDS, SHORT_SHARD_KINDS, kinds_of


def run(options: Options) -> None:
    """Run one schedule; skip where network namespaces are impossible."""
    try:
        report = Run(options, run_directory(options), print).execute()
    except NetworkUnavailableError as error:
        pytest.skip(str(error))
    assert not report.violations, f"repeat with: {options.command()}\n{report.text}"


def seeds(config: pytest.Config, defaults: range) -> list[int]:
    """Return the seed that was asked for, or the default ones."""
    asked = config.getoption("--seed", default=None)
    return list(defaults) if asked is None else [asked]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test its seeds."""
    full = any(mark.name == "full" for mark in metafunc.definition.iter_markers())
    metafunc.parametrize("seed", seeds(metafunc.config, range(1, 11) if full else range(1, 2)))


@pytest.fixture
def reads(request: pytest.FixtureRequest) -> Reads:
    """Return the strictness of look-ups in the catalog."""
    return Reads(request.config.getoption("--reads", default=Reads.OWN_ROUTING))


@pytest.mark.parametrize(("shards", "kinds"), [(1, SHORT_KINDS), (2, SHORT_SHARD_KINDS)])
def test_three_nodes_survive_a_short_schedule(
    seed: int, shards: int, kinds: tuple[str, ...], reads: Reads
) -> None:
    run(Options(seed, nodes=3, steps=4, kinds=kinds, reads=reads, shards=shards))


@pytest.mark.full
@pytest.mark.parametrize(("nodes", "shards"), [(3, 1), (5, 1), (3, 2)])
def test_all_faults(seed: int, nodes: int, shards: int, reads: Reads) -> None:
    kinds = kinds_of(shards)
    run(Options(seed, nodes, steps=2 * len(kinds), kinds=kinds, reads=reads, shards=shards))
