"""One Spark session of a process for all tests of the pipeline on real clusters."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace_pipeline.jobs.session import SessionSettings, session

ROOT = Path(__file__).resolve().parents[2]
CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",  # it does not live long
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark in this process, of two threads; it, its JVM and its files are gone afterwards."""
    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        roots = [ROOT, *(Path(each).resolve() for each in paths)]
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, roots)))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        conf = {
            **CONF,
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        }
        with session(SessionSettings("e2e", "local[2]", conf)) as started:
            yield started
