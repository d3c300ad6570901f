"""Checks of Spark: that it starts, and that its workers are as the driver is."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace_pipeline.fault import one_line
from headrace_pipeline.jobs.doctor.check import Check, fail, ok, warn
from headrace_pipeline.jobs.doctor.machine import check_packages, installed_versions
from headrace_pipeline.jobs.session import SPECULATION

_PYTHON = "python of workers"


def worker_facts(_rows: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Say what a worker is; runs there."""
    import headrace_client  # noqa: F401 - that it can be imported is what is asked
    import headrace_pipeline

    yield {
        "python": platform.python_version(),
        "pipeline": headrace_pipeline.__version__,
        "host": platform.node(),
        "packages": installed_versions(),
    }


def check_workers(spark: SparkSession) -> list[Check]:
    """Run a task on each slot that there is, and judge what workers say."""
    context = spark.sparkContext
    slots = context.defaultParallelism
    try:
        facts = context.parallelize(range(slots), slots).mapPartitions(worker_facts).collect()
    except Exception as error:  # noqa: BLE001 - py4j's own errors have no base but this
        advice = (
            "give workers the driver's Python and packages: PYSPARK_PYTHON or spark.pyspark.python "
            "names their Python, headrace-pipeline and headrace-client must be installed there"
        )
        return [fail("workers", _said(error), advice)]
    return [
        ok("spark", f"{spark.version}, {slots} tasks at a time, master {context.master}"),
        *judge_workers(facts),
        check_speculation(dict(context.getConf().getAll())),
    ]


def _said(error: Exception) -> str:
    wrapped = error if isinstance(error, PySparkException) else PySparkException(str(error))
    return one_line(wrapped)


def judge_workers(facts: list[dict[str, Any]]) -> list[Check]:
    """Judge what workers say of themselves."""
    import headrace_pipeline

    here = platform.python_version()
    pythons = sorted({each["python"] for each in facts})
    own = headrace_pipeline.__version__
    versions = sorted({each["pipeline"] for each in facts})
    checks = []
    if [_minor(each) for each in pythons] == [_minor(here)]:
        checks.append(ok(_PYTHON, f"{', '.join(pythons)}, as the driver's"))
    else:
        says = f"{', '.join(pythons)}, the driver's is {here}"
        checks.append(fail(_PYTHON, says, "let PYSPARK_PYTHON name the same Python everywhere"))
    if versions == [own]:
        checks.append(ok("pipeline of workers", own))
    else:
        says = f"{', '.join(versions)}, the driver's is {own}"
        checks.append(fail("pipeline of workers", says, "install the same version everywhere"))
    wrong = {
        check
        for each in facts
        for check in check_packages(each["packages"], f"on {each['host']}")
        if check.state != "ok"
    }
    return [*checks, *sorted(wrong)]


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def check_speculation(conf: Mapping[str, str]) -> Check:
    """Judge whether Spark runs copies of slow tasks."""
    if conf.get(SPECULATION, "false").lower() == "true":
        advice = f"set {SPECULATION}=false for jobs that publish: the sink headrace refuses it"
        return warn("speculation", "is on", advice)
    return ok("speculation", "is off")
