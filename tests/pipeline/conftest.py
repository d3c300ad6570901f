"""One Spark session for all tests of the pipeline; those that need none do not start it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace_pipeline.jobs.session import SessionSettings, session

# A test's rows are few and its plans many, so what the JVM's second compiler makes of them is
# hardly ever run: without it the tests of blame take 46 s of processor time in place of 78.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark in this process, of two threads; it, its JVM and its files are gone afterwards."""
    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        # Workers import what tests define by the name that pytest gives their modules.
        paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        roots = [ROOT, *(Path(each).resolve() for each in paths)]
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, roots)))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        conf = {
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        }
        with session(SessionSettings("tests", "local[2]", conf)) as spark:
            yield spark
