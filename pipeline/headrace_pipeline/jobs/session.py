"""The Spark session of a job: the same on one machine, on a cluster and in a pod."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace_pipeline.error import OptionError, PipelineError
from headrace_pipeline.fault import one_line
from headrace_pipeline.limits import JVM_STOP_SECONDS_MAX, LOCAL_PARTITIONS

SPECULATION: Final = "spark.speculation"
_LOG4J: Final = Path(__file__).with_name("log4j2.properties")
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
# What spark-submit sets for the Python that it starts: the JVM runs then, and has a master.
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
_LOG_SETTING: Final = "-Dlog4j2.configurationFile="

_ALWAYS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",  # without it a source must define no filters
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.stopTimeout": "60s",  # one that hangs does not hold up its pod
}
_LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(LOCAL_PARTITIONS),
}


class SessionSettings(NamedTuple):
    """Settings of a Spark session."""

    app_name: str  # as Spark's pages and logs show it
    master: str = "local[*]"  # local[N], or the address of a cluster
    conf: Mapping[str, str] = {}  # Spark's own settings, which win over what is set here

    @property
    def is_local(self) -> bool:
        """True if driver and executors are one process."""
        return self.master.startswith("local")


def read_conf(pairs: tuple[str, ...]) -> dict[str, str]:
    """Return settings from texts NAME=VALUE; of a name that comes twice the last one counts.

    Raises:
        OptionError: one is something else, or is none of Spark's.
    """
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.startswith("spark."):
            raise OptionError("conf", f"must be spark.NAME=VALUE, not {pair!r}")
        found[name.strip()] = value.strip()
    return found


def session_conf(settings: SessionSettings, submitted: bool = False) -> dict[str, str]:
    """Return all that a session is told: our defaults, and over them what the user wants.

    Args:
        settings: of the session; its master counts only where it is not submitted.
        submitted: whether spark-submit has started the JVM, and this process.
    """
    conf = dict(_ALWAYS)
    if submitted:
        return {**conf, **settings.conf}
    if settings.is_local:
        conf |= _LOCAL
    conf |= settings.conf
    if _LOG_SETTING not in conf.get(_JAVA_OPTIONS, ""):
        said = f"{_LOG_SETTING}{_LOG4J.as_uri()}"
        conf[_JAVA_OPTIONS] = f"{said} {conf.get(_JAVA_OPTIONS, '')}".strip()
    return conf


def refuse_speculation(conf: Mapping[str, str], who: str) -> None:
    """Refuse to run two copies of a task where both would act.

    Args:
        conf: Spark's settings.
        who: cannot bear it, such as "the sink headrace".

    Raises:
        OptionError: speculation is on.
    """
    if conf.get(SPECULATION, "false").lower() == "true":
        raise OptionError(
            "conf", f"{SPECULATION} must be false: {who} would act twice for one task"
        )


def open_session(settings: SessionSettings) -> SparkSession:
    """Start Spark, in this process's JVM, and return its session; `close_session` ends both.

    Workers run the Python that runs here, unless PYSPARK_PYTHON or `spark.pyspark.python` say
    which other. Below spark-submit its master counts, and its Python.

    Raises:
        PipelineError: Spark does not start, or has been started already.
    """
    if SparkSession.getActiveSession() is not None:
        raise PipelineError("this process has a Spark session already")
    submitted = _SUBMITTED in os.environ
    builder = SparkSession.builder.appName(settings.app_name)
    if not submitted:
        builder = builder.master(settings.master)
        if "spark.pyspark.python" not in settings.conf:
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for name, value in session_conf(settings, submitted).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def close_session(spark: SparkSession) -> None:
    """Stop a session and its JVM, with the Python workers below it.

    Raises:
        PipelineError: the JVM did not end within JVM_STOP_SECONDS_MAX; it is killed then.
    """
    gateway = SparkContext._gateway  # noqa: SLF001 - nothing else ends the JVM before this process
    spark.stop()
    if gateway is None or gateway.proc is None:  # the JVM is spark-submit's
        return
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - or Spark would take it again
    _end_process(gateway.proc)


def _end_process(process: subprocess.Popen[bytes]) -> None:
    """Wait for the JVM, which ends when its standard input does."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(JVM_STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise PipelineError(f"Spark's JVM {process.pid} did not end, and was killed") from None


@contextmanager
def session(settings: SessionSettings) -> Iterator[SparkSession]:
    """Hold a session within.

    Spark's errors ask the JVM for their text, so they are told as ours while it is there; the whole
    text is a note, which a trace shows.

    Raises:
        PipelineError: Spark does not start, or not stop, or says that something went wrong.
    """
    spark = open_session(settings)
    try:
        yield spark
    except PySparkException as error:
        told = PipelineError(one_line(error))
        told.add_note(str(error))
        raise told from error
    finally:
        close_session(spark)
