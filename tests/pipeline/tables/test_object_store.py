"""Tables in an object store: writes, reads, and the winner of two writers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyarrow import fs
from pyspark.sql import SparkSession
from tests.pipeline.tables import s3_server
from tests.pipeline.tables.s3_server import BUCKET, CONTESTED, ObjectStore
from tests.pipeline.tables.table_rows import (
    THINGS,
    THINGS_2,
    Row,
    come_between,
    frame,
    row,
    rows_of,
    run_tasks,
    whole,
)

from headrace_pipeline.error import OptionError, PipelineError
from headrace_pipeline.fault import one_line
from headrace_pipeline.tables import SinkTable, open_stored, open_table
from headrace_pipeline.tables.delta import DeltaLog

MIB = 2**20
SAME_FILE = 8  # rows whose numbers differ by so much have one name; within a day, one partition

Open = Callable[[], SinkTable]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with s3_server.running(tmp_path_factory.mktemp("store")) as store:
        yield store


@pytest.fixture
def opened(store: ObjectStore, request: pytest.FixtureRequest) -> Open:
    """Open a table that is not there yet, as another driver does."""
    uri, options = f"s3://{BUCKET}/a table/{request.node.name}", store.options_file()
    return lambda: open_table(uri, THINGS, storage_options_file=options)


def rows(*numbers: int) -> list[Row]:
    return [row(number) for number in numbers]


def write(sink: SinkTable, batch: int, *numbers: int, app: str = "app") -> None:
    sink.commit_files(run_tasks(sink, rows(*numbers), tasks=1), app, batch)


def numbers(sink: SinkTable) -> list[int]:
    return sorted(each["number"] for each in rows_of(sink, sink.files()))


def test_spark_writes_a_batch_once_and_reads_it(spark: SparkSession, opened: Open) -> None:
    assert not opened().exists()
    first = range(4)  # a file each, with names that are hard to write
    assert opened().write_batch(frame(spark, first), "app", 3).rows == 4
    assert opened().write_batch(frame(spark, first), "app", 3).skipped
    found = opened().read(spark, ["number"], [("name", "=", "a/b c%:é+")]).collect()
    assert [each.number for each in found] == [1]
    place = opened().place
    other = DeltaTable(place.uri, storage_options=place.options()).to_pyarrow_table()
    assert sorted(other["number"].to_pylist()) == list(first)
    newer = open_table(place.uri, THINGS_2, storage_options_file=place.options_file)
    newer.write_batch(frame(spark, range(4, 5), THINGS_2), "app", 4)
    nothing = {"colour": None, "size": None}
    assert whole(newer.read(spark)) == [*(row(n) | nothing for n in first), row(4, THINGS_2)]
    stored = open_stored(place.uri, storage_options_file=place.options_file)
    assert stored.table.names == THINGS_2.names


def test_of_two_drivers_with_one_batch_one_comes_through(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(opened(), 0, 0)
    late = opened()
    files = run_tasks(late, rows(1), tasks=1)
    come_between(monkeypatch, lambda: write(opened(), 1, 1))
    assert late.commit_files(files, "app", 1).skipped
    assert numbers(opened()) == [0, 1]


def test_of_two_who_write_the_same_entry_of_the_log_at_once_none_is_lost(
    store: ObjectStore,
) -> None:
    """The store refuses the one that would write over the other's, and it is tried again."""
    options = store.options_file()

    def contested() -> SinkTable:
        return open_table(f"s3://{BUCKET}/contested", THINGS, storage_options_file=options)

    write(contested(), 0, 0)
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(write, contested(), 7, n, app=f"app {n}") for n in (1, 2)]:
            done.result()
    assert numbers(contested()) == [0, 1, 2]
    assert [contested().last_batch(f"app {n}") for n in (1, 2)] == [7, 7]
    assert store.answered("PUT", 412) == [f"/{BUCKET}{CONTESTED}"]


def test_of_two_drivers_that_make_the_table_both_come_through(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = opened()
    files = run_tasks(late, rows(1), tasks=1)
    come_between(monkeypatch, lambda: write(opened(), 0, 2, app="other"), (DeltaLog, "_load"))
    assert late.commit_files(files, "app", 0).rows == 1
    assert numbers(opened()) == [1, 2]


def test_small_files_become_large_ones_and_what_nobody_needs_goes(opened: Open) -> None:
    for batch in range(2):
        write(opened(), batch, batch * SAME_FILE)
    orphan = run_tasks(opened(), rows(2), tasks=1)
    old = [file.path for file in opened().files()]
    [dry] = opened().log.compact(MIB, dry_run=True)
    assert (dry.files, dry.made) == (2, None)
    [done] = opened().log.compact(MIB, dry_run=False)
    assert done.made == 1
    assert numbers(opened()) == [0, SAME_FILE]
    assert opened().log.vacuum(1, dry_run=True) == []
    gone = opened().log.vacuum(0, dry_run=False)
    assert sorted(gone) == sorted([*old, *(file.path for file in orphan)])
    assert numbers(opened()) == [0, SAME_FILE]
    selector = fs.FileSelector("", recursive=True)
    there = [each.path for each in opened().place.files().get_file_info(selector)]
    [left] = [each for each in there if each.endswith(".parquet")]
    assert left == opened().files()[0].path


@pytest.mark.parametrize(
    ("uri", "options", "told"),
    [
        ("s3://nobody/table", {}, "NoSuchBucket"),
        (f"s3://{BUCKET}/table", {"AWS_ALLOW_HTTP": "false"}, "scheme is not allowed"),
        (f"s3://{BUCKET}/table", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "onnection refused"),
    ],
)
def test_what_a_store_refuses_is_told_in_one_line_with_what_to_look_at(
    store: ObjectStore, tmp_path: Path, uri: str, options: dict[str, str], told: str
) -> None:
    file = store.options_file("wrong.json", max_retries="0", **options)
    sink = open_table(uri, THINGS, storage_options_file=file)
    files = run_tasks(open_table(str(tmp_path), THINGS), rows(0))
    for call in (
        sink.exists,
        lambda: sink.last_batch("app"),
        lambda: run_tasks(sink, rows(0)),
        lambda: sink.log.commit(files, "app", 0),
        lambda: sink.log.compact(MIB, dry_run=True),
        lambda: sink.log.vacuum(1, dry_run=True),
    ):
        with pytest.raises(PipelineError) as caught:
            call()
        text = one_line(caught.value)
        assert text == str(caught.value)
        assert text.startswith(f"{uri}: the object store fails: ")
        assert told in text
        assert text.endswith(f"look at the URI, and at endpoint, region and keys in {file}")
        assert "hidden" not in text
        assert "\x1b" not in text


def test_a_store_that_is_none_is_told(tmp_path: Path) -> None:
    sink = open_table("s4://lake/table", THINGS)
    with pytest.raises(OptionError, match="the URI of a store such as s3://, not s4://"):
        sink.exists()
