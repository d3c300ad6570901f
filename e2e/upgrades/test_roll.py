"""Nodes of a release and of the head in one cluster, under load that is checked.

All nodes run the release first. One after the other becomes a node of the head, on its data, and
then one after the other a node of the release again.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

import pytest
from e2e.chaos.network import NetworkUnavailableError
from e2e.chaos.run import Options, Plan, Run
from e2e.chaos.schedule import Replace, Step
from e2e.harness.release import HistoryMissingError, Release, install, releases

DIRECTORY: Final = Path("build/upgrades")
NODES: Final = 3
AWAY_SECONDS: Final = 0.5  # that a node is away, beside its stop and start
MIXED_SECONDS: Final = 2.0  # of load after each node, at least
MIXED_SECONDS_OF_FULL: Final = 20.0
INTERVAL: Final = 0.02  # seconds between two messages of a publisher: releases are interpreted
# Nodes that are drained send their clients away, and those that do not run take none; clients of
# the catalog delete queues that others of them are declaring.
EXPECTED: Final = re.compile(
    r"ConnectionRefusedError|ConnectionResetError|BrokenPipeError"
    r"|RefusedError N CONNECTION_FORCED - node nN is taken out of service for maintenance"
    r"|catalog: RefusedError N NOT_FOUND - no queue 'chaos-queue-N'"
)


def interpreter(release: Release) -> Path:
    """Return the interpreter of an installed release; skip in a clone without its commit."""
    try:
        return install(release)
    except HistoryMissingError as error:
        pytest.skip(str(error))


def replacing(order: list[int], python: Path, seconds: float) -> list[Step]:
    """Return steps that replace nodes by another build, with load in between."""
    return [
        Step("replace", (Replace(node, str(python)),), 0.0, AWAY_SECONDS, seconds) for node in order
    ]


def roll(release: Release, rounds: int, seconds: float) -> None:
    """Roll from a release to the head and back, the way back in another order."""
    old, new = interpreter(release), Path(sys.executable)
    there = replacing([1, 2, 3], new, seconds)
    back = replacing([2, 3, 1], old, seconds)
    options = Options(seed=1, nodes=NODES, interval=INTERVAL)
    plan = Plan([*there, *back] * rounds, old, EXPECTED)
    try:
        report = Run(options, DIRECTORY / release.version, print, plan).execute()
    except NetworkUnavailableError as error:
        pytest.skip(str(error))
    assert not report.violations, report.text


def test_newest_release_is_rolled_to_the_head_and_back() -> None:
    roll(releases()[-1], 1, MIXED_SECONDS)


@pytest.mark.full
def test_releases_run_beside_the_head_for_long() -> None:
    roll(releases()[-1], 3, MIXED_SECONDS_OF_FULL)
