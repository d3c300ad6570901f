"""Meaning of a suite's outcomes, given the expected ones."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

PASSED: Final = "passed"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"
SECOND_LOOKS_MAX: Final = 3  # failures of a suite that are run again; more are no accident


class Outcome(Struct, frozen=True):
    """Outcome of one test, with its last output if it failed."""

    test: str
    outcome: str
    seconds: float
    detail: str = ""


class Verdict(Struct, frozen=True):
    """A suite, judged.

    Attributes:
        passed: how many tests passed.
        skipped: how many skipped themselves.
        expected: (test, reason) of those that failed as expected.
        failed: outcomes of those that failed and should not.
        surprising: expected failures that passed, or that no test matches.
        problem: the suite itself did not run to its end; empty if it did.
        seconds: how long it took.
    """

    passed: int
    skipped: int
    expected: tuple[tuple[str, str], ...]
    failed: tuple[Outcome, ...]
    surprising: tuple[str, ...]
    problem: str
    seconds: float

    @property
    def good(self) -> bool:
        """Return whether everything is as expected."""
        return not (self.failed or self.surprising or self.problem)

    @property
    def doubtful(self) -> tuple[str, ...]:
        """The tests that failed, where they are few and nothing else is wrong."""
        few = len(self.failed) <= SECOND_LOOKS_MAX
        alone = not (self.surprising or self.problem)
        return tuple(outcome.test for outcome in self.failed) if few and alone else ()

    def after(self, again: Verdict) -> Verdict:
        """Return the verdict after the doubtful tests ran again, with a fresh broker.

        Those of other people's tests that depend on the machine's load pass then; it takes all
        of them to pass.
        """
        if not again.good or again.passed != len(self.failed):
            return self
        return replace(
            self, passed=self.passed + again.passed, failed=(), seconds=self.seconds + again.seconds
        )


def read_outcomes(path: Path) -> list[Outcome]:
    """Read what the recorder wrote; the last line of a test counts."""
    outcomes: dict[str, Outcome] = {}
    if path.exists():
        for line in path.read_bytes().splitlines():
            outcome = msgspec.json.decode(line, type=Outcome)
            outcomes[outcome.test] = outcome
    return list(outcomes.values())


def covers(expected: str, test: str) -> bool:
    """Return whether an expected failure means this test, one of its parameters or its class."""
    return test == expected or test.startswith((expected + "[", expected + "::"))


def judge(
    outcomes: list[Outcome],
    expected: list[tuple[str, str]],
    problem: str,
    seconds: float,
    complete: bool,
) -> Verdict:
    """Compare outcomes with the expected ones.

    Args:
        outcomes: one for each test that ran.
        expected: (node id, reason) of what must fail.
        problem: why the suite did not run to its end, if so.
        seconds: how long it took.
        complete: whether all tests were asked for, so that each expected failure must have run.
    """
    as_expected: list[tuple[str, str]] = []
    failed: list[Outcome] = []
    surprising: list[str] = []
    for outcome in outcomes:
        reasons = [reason for test, reason in expected if covers(test, outcome.test)]
        if outcome.outcome == FAILED and reasons:
            as_expected.append((outcome.test, reasons[0]))
        elif outcome.outcome == FAILED:
            failed.append(outcome)
        elif outcome.outcome == PASSED and reasons:
            surprising.append(f"{outcome.test} passed, and should fail: {reasons[0]}")
    if complete:
        surprising += [
            f"{test} is expected to fail, and did not run"
            for test, _ in expected
            if not any(covers(test, outcome.test) for outcome in outcomes)
        ]
    return Verdict(
        passed=sum(outcome.outcome == PASSED for outcome in outcomes),
        skipped=sum(outcome.outcome == SKIPPED for outcome in outcomes),
        expected=tuple(as_expected),
        failed=tuple(failed),
        surprising=tuple(surprising),
        problem=problem or ("" if outcomes else "no test ran"),
        seconds=seconds,
    )
