"""Suites beside each other: each lane is a process that runs one suite after the other."""

from __future__ import annotations

import signal
import sys
from collections import deque
from collections.abc import Iterator
from multiprocessing import Pipe, Process
from multiprocessing.connection import Connection, wait

from msgspec import Struct
from msgspec.structs import replace

from conformance.broker import BrokerError
from conformance.distribution import DistributionError
from conformance.recipe import RecipeError, Suite
from conformance.runner import Run, run_suite
from conformance.verdict import Verdict


class Verdicts(Struct, frozen=True):
    """Results of a suite: the first, and a second where the first was in doubt."""

    first: Verdict
    again: Verdict | None = None

    @property
    def last(self) -> Verdict:
        """Return the verdict that counts."""
        return self.first if self.again is None else self.first.after(self.again)


def end_when_told() -> None:
    """Make SIGTERM end this process as an error would: brokers do not outlive it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))


def judge_suite(suite: Suite, run: Run) -> Verdicts:
    """Run a suite, and doubtful tests once more."""
    first = run_suite(suite, run)
    if not (run.ci and first.doubtful) or suite.runner == "node":
        return Verdicts(first)
    return Verdicts(first, run_suite(suite, replace(run, only=first.doubtful)))


def judge_suites(suites: list[Suite], run: Run, jobs: int) -> Iterator[tuple[Suite, Verdicts]]:
    """Run suites, so many beside each other; yield them as they end.

    Raises:
        BrokerError: a broker could not be driven, or a lane has ended.
        DistributionError: what a suite needs could not be had.
    """
    if jobs == 1:
        for suite in suites:
            yield suite, judge_suite(suite, run)
        return
    waiting = deque(suites)
    running: dict[Connection, Suite] = {}
    for lane in range(min(jobs, len(suites))):
        ours, theirs = Pipe()
        # Lanes that are left when this process ends are told to end, and waited for.
        process = Process(target=_run_lane, args=(theirs, replace(run, lane=lane)), daemon=True)
        process.start()
        theirs.close()
        _give(ours, waiting, running)
    while running:
        for channel in wait(list(running)):
            assert isinstance(channel, Connection)
            suite = running.pop(channel)
            found = _taken(channel, suite)
            _give(channel, waiting, running)
            yield suite, found


def _give(channel: Connection, waiting: deque[Suite], running: dict[Connection, Suite]) -> None:
    """Give a lane its next suite, or let it end."""
    suite = waiting.popleft() if waiting else None
    channel.send(suite)
    if suite is not None:
        running[channel] = suite


def _taken(channel: Connection, suite: Suite) -> Verdicts:
    try:
        found = channel.recv()
    except EOFError:
        raise BrokerError(f"{suite.name}: its process has ended") from None
    if isinstance(found, Exception):
        raise found
    assert isinstance(found, Verdicts)
    return found


def _run_lane(channel: Connection, run: Run) -> None:
    """Run the given suites, and report each outcome, until there are no more."""
    end_when_told()
    while (suite := channel.recv()) is not None:
        try:
            channel.send(judge_suite(suite, run))
        except (BrokerError, DistributionError, RecipeError) as error:
            channel.send(error)
