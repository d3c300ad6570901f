"""The doctor's report on Spark's workers."""

from __future__ import annotations

import platform

from pyspark.sql import SparkSession

import headrace_pipeline
from headrace_pipeline.jobs.doctor.check import Check
from headrace_pipeline.jobs.doctor.machine import installed_versions
from headrace_pipeline.jobs.doctor.workers import check_speculation, check_workers, judge_workers


def fact(**other: object) -> dict[str, object]:
    version = headrace_pipeline.__version__
    return {
        "python": platform.python_version(),
        "pipeline": version,
        "host": "a",
        "packages": {"pyspark": "4.3", "pyarrow": "26", "pandas": "2.3", "numpy": "2.4"}
        | {"deltalake": "1.6"},
    } | other


def states(checks: list[Check]) -> dict[str, str]:
    return {each.name: each.state for each in checks}


def test_the_workers_of_this_session_are_as_the_driver_is(spark: SparkSession) -> None:
    found = states(check_workers(spark))
    assert found["spark"] == "ok"
    assert found["python of workers"] == "ok"
    assert found["pipeline of workers"] == "ok"
    assert found["speculation"] == "ok"
    assert installed_versions()["pyspark"]


def test_another_python_or_pipeline_in_one_worker_fails() -> None:
    assert set(states(judge_workers([fact(), fact()])).values()) == {"ok"}
    found = states(judge_workers([fact(), fact(python="3.9.1", pipeline="0.0.1")]))
    assert found == {"python of workers": "fail", "pipeline of workers": "fail"}


def test_a_package_that_is_missing_on_one_host_is_said_once() -> None:
    facts = [fact(), fact(host="b", packages={"pyspark": "4.3"}), fact(host="b", packages={})]
    found = judge_workers(facts)
    assert [each.name for each in found if each.name.startswith("pyarrow")] == ["pyarrow on b"]
    assert states(found)["pyspark on b"] == "fail"


def test_speculation_is_a_warning() -> None:
    assert check_speculation({"spark.speculation": "true"}).state == "warn"
    assert check_speculation({}).state == "ok"
