"""The session of jobs: its settings, and its start and end."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from headrace_pipeline.error import OptionError, PipelineError
from headrace_pipeline.fault import exit_code, one_line
from headrace_pipeline.jobs import session as module
from headrace_pipeline.jobs.session import (
    SessionSettings,
    open_session,
    read_conf,
    refuse_speculation,
    session,
    session_conf,
)


def test_what_the_user_sets_wins() -> None:
    settings = SessionSettings("x", conf={"spark.sql.session.timeZone": "Europe/Vienna"})
    assert session_conf(settings)["spark.sql.session.timeZone"] == "Europe/Vienna"
    assert session_conf(SessionSettings("x"))["spark.sql.session.timeZone"] == "UTC"


def test_only_a_local_session_is_kept_on_loopback_and_has_no_page() -> None:
    local, remote = (
        session_conf(SessionSettings("x", master)) for master in ("local[2]", "spark://a:7077")
    )
    assert local["spark.driver.bindAddress"] == "127.0.0.1"
    assert local["spark.ui.enabled"] == "false"
    assert not {"spark.driver.bindAddress", "spark.driver.host", "spark.ui.enabled"} & set(remote)


def test_what_is_submitted_keeps_its_own_master_and_java_options() -> None:
    conf = session_conf(SessionSettings("x", conf={"spark.a": "b"}), submitted=True)
    assert conf["spark.a"] == "b"
    assert conf["spark.sql.session.timeZone"] == "UTC"
    assert not [name for name in conf if name.startswith("spark.driver.")]
    assert "spark.ui.enabled" not in conf


def test_our_log_settings_stand_before_the_users_java_options_and_give_way_to_his() -> None:
    name = "spark.driver.extraJavaOptions"
    both = session_conf(SessionSettings("x", conf={name: "-Xss4m"}))[name]
    assert both.startswith("-Dlog4j2.configurationFile=file:///")
    assert both.endswith("log4j2.properties -Xss4m")
    own = "-Dlog4j2.configurationFile=file:///etc/mine.properties"
    assert session_conf(SessionSettings("x", conf={name: own}))[name] == own


@pytest.mark.parametrize("pair", ["spark.a", "a=b", "", "=x"])
def test_a_setting_that_is_none_of_sparks_is_refused(pair: str) -> None:
    with pytest.raises(OptionError, match=r"must be spark\.NAME=VALUE"):
        read_conf((pair,))


def test_a_value_may_hold_the_sign_that_ends_the_name() -> None:
    assert read_conf(("spark.a=b=c", "spark.a=d=e")) == {"spark.a": "d=e"}


def test_speculation_is_refused_where_a_task_acts() -> None:
    refuse_speculation({}, "the sink")
    refuse_speculation({"spark.speculation": "false"}, "the sink")
    with pytest.raises(OptionError, match="the sink would act twice"):
        refuse_speculation({"spark.speculation": "TRUE"}, "the sink")


def test_a_process_has_one_session(spark: SparkSession) -> None:
    with pytest.raises(PipelineError, match="already"):
        open_session(SessionSettings("another"))
    assert spark.range(3).count() == 3


def test_an_error_of_spark_keeps_its_text_when_the_jvm_has_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = True

    class AsksTheJvm(StreamingQueryException):
        def __str__(self) -> str:
            assert runs
            return "[X] failed\nheadrace_pipeline.error.OptionError: option log: must be given\n"

    def close(spark: object) -> None:
        nonlocal runs
        runs = False

    monkeypatch.setattr(module, "open_session", lambda settings: object())
    monkeypatch.setattr(module, "close_session", close)
    with pytest.raises(PipelineError) as raised, session(SessionSettings("x")):
        raise AsksTheJvm("x")
    assert not runs
    assert one_line(raised.value) == "option log: must be given"
    assert exit_code(raised.value) == 2
    assert raised.value.__notes__[0].startswith("[X] failed")


def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        column = pa.array([2 * each for each in batch.column(0).to_pylist()], pa.int64())
        yield pa.RecordBatch.from_arrays([column], ["id"])


def test_workers_import_what_tests_define(spark: SparkSession) -> None:
    rows = spark.range(4).mapInArrow(doubled, "id long").collect()
    assert sorted(row.id for row in rows) == [0, 2, 4, 6]
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
