from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from conformance.verdict import FAILED, PASSED, SKIPPED, Outcome, judge, read_outcomes

EXPECTED = [("t.py::test_a", "it has no a")]


def outcomes(**results: str) -> list[Outcome]:
    return [Outcome(f"t.py::{name}", result, 0.5) for name, result in results.items()]


def test_an_expected_failure_is_good_and_told_with_its_reason() -> None:
    verdict = judge(outcomes(test_a=FAILED, test_b=PASSED), EXPECTED, "", 1, True)
    assert verdict.good
    assert verdict.expected == (("t.py::test_a", "it has no a"),)
    assert verdict.passed == 1


def test_another_failure_is_not_good() -> None:
    verdict = judge(outcomes(test_a=FAILED, test_b=FAILED), EXPECTED, "", 1, True)
    assert not verdict.good
    assert [outcome.test for outcome in verdict.failed] == ["t.py::test_b"]


def test_an_expected_failure_that_passes_is_not_good() -> None:
    verdict = judge(outcomes(test_a=PASSED), EXPECTED, "", 1, True)
    assert not verdict.good
    assert verdict.surprising == ("t.py::test_a passed, and should fail: it has no a",)


@pytest.mark.parametrize("complete", [True, False])
def test_an_expected_failure_that_does_not_run_is_not_good_when_all_were_asked_for(
    complete: bool,
) -> None:
    verdict = judge(outcomes(test_b=SKIPPED), EXPECTED, "", 1, complete)
    assert verdict.good is not complete
    assert verdict.skipped == 1


@pytest.mark.parametrize("name", ["test_a", "test_a[x]", "test_a::inner"])
def test_an_expected_failure_covers_its_parameters_and_what_is_in_it(name: str) -> None:
    assert judge(outcomes(**{name: FAILED}), EXPECTED, "", 1, True).good


def test_an_expected_failure_does_not_cover_longer_names() -> None:
    assert not judge(outcomes(test_ab=FAILED, test_a=FAILED), EXPECTED, "", 1, True).good


def test_a_suite_that_did_not_end_is_not_good() -> None:
    assert not judge(outcomes(test_b=PASSED), [], "pytest ended with 3", 1, True).good


def test_a_suite_of_which_nothing_ran_is_not_good() -> None:
    assert not judge([], [], "", 1, False).good


def test_the_last_outcome_of_a_test_counts(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    lines = [Outcome("t.py::test_a", FAILED, 1.0), Outcome("t.py::test_a", PASSED, 2.0)]
    record.write_bytes(b"\n".join(msgspec.json.encode(line) for line in lines))
    assert read_outcomes(record) == lines[1:]
    assert read_outcomes(tmp_path / "none") == []


def test_few_failures_are_doubtful_and_good_when_they_pass_again() -> None:
    verdict = judge(outcomes(test_b=PASSED, test_c=FAILED), EXPECTED, "", 1, False)
    assert verdict.doubtful == ("t.py::test_c",)
    passed = verdict.after(judge(outcomes(test_c=PASSED), EXPECTED, "", 2, False))
    assert passed.good
    assert (passed.passed, passed.seconds) == (2, 3)


@pytest.mark.parametrize("again", [{"test_c": FAILED}, {}, {"test_c": SKIPPED}])
def test_a_failure_that_does_not_pass_again_stays_one(again: dict[str, str]) -> None:
    verdict = judge(outcomes(test_b=PASSED, test_c=FAILED), EXPECTED, "", 1, False)
    assert not verdict.after(judge(outcomes(**again), EXPECTED, "", 2, False)).good


def test_many_failures_and_other_trouble_are_not_doubtful() -> None:
    many = {f"test_{number}": FAILED for number in range(4)}
    assert judge(outcomes(**many), EXPECTED, "", 1, False).doubtful == ()
    assert judge(outcomes(test_c=FAILED), EXPECTED, "hung", 1, False).doubtful == ()
    assert judge(outcomes(test_a=PASSED, test_c=FAILED), EXPECTED, "", 1, False).doubtful == ()
