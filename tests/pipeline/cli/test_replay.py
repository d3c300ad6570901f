"""The command `replay`: its options, and its output."""

from __future__ import annotations

import json
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner

from headrace_pipeline.cli import replay as command
from headrace_pipeline.jobs.replay import SKIP, Count, Replay, Report, Sample
from headrace_pipeline.transforms.replay import Selection, Target

TABLE = ["--id", "r", "--table", "/lake/archive"]


class Job:
    """Calls of the command, instead of Spark."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.source: tuple[str | None, str] | None = None
        self.storage: str | None = None
        self.replay: Replay | None = None
        self.ran = False
        self.report = Report([Count("/", "q", "acked", 3, 30, 1)])
        patch.setattr(command, "session", lambda _: nullcontext())
        patch.setattr(command, "archive_rows", self.rows)
        patch.setattr(command, "look", lambda _, replay: self.note(replay, False))
        patch.setattr(command, "run", lambda _, replay: self.note(replay, True))

    def rows(
        self, _spark: None, _replay: Replay, table: str | None, kind: str, storage: str | None
    ) -> None:
        self.source, self.storage = (table, kind), storage

    def note(self, replay: Replay, ran: bool) -> Report:
        self.replay, self.ran = replay, ran
        return self.report


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(monkeypatch)


def call(*arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(command.replay, [*arguments], prog_name="replay")
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


@pytest.mark.parametrize(("words", "table"), [([], "/data/archive"), (["--from-brokers"], None)])
def test_the_table_of_the_environment_is_read_unless_brokers_are(
    job: Job, monkeypatch: pytest.MonkeyPatch, words: list[str], table: str | None
) -> None:
    """On Kubernetes a driver's environment says where its archive is."""
    monkeypatch.setenv("HEADRACE_ARCHIVE_TABLE", "/data/archive")
    call("--id", "r", *words)
    assert job.source == (table, "delta")
    assert "give either" in call(*TABLE, "--from-brokers", code=2)


def test_all_goes_to_where_it_came_from_unless_one_says_more(job: Job) -> None:
    call(*TABLE)
    assert job.source == ("/lake/archive", "delta")
    assert job.replay is not None
    assert job.replay.name == "r"
    assert job.replay.selection == Selection("/")
    assert job.replay.target == Target()
    assert job.ran


def test_options_say_what_where_and_how_fast(job: Job) -> None:
    words = "--queue b --queue a --outcome rejected --where x=1 --rate 50 --tasks 2 --vhost v"
    words += " --since 2026-01-31 --until 2026-01-31T12:00:00+01:00 --headers-only skip"
    words += " --to-exchange x --on-refused drop --id r --from-brokers --from-vhost w"
    call(*words.split())
    found: Any = job.replay
    assert job.source == (None, "delta")
    assert found.selection == Selection(
        "w",
        ("a", "b"),
        ("rejected",),
        datetime(2026, 1, 31, tzinfo=UTC),
        datetime(2026, 1, 31, 11, tzinfo=UTC),
        "x=1",
    )
    assert found.target == Target("x", None)
    assert (found.rate, found.tasks, found.headers_only) == (50.0, 2, SKIP)
    assert (found.on_refused, found.connection.vhost) == ("drop", "v")


def test_a_queue_is_the_default_exchange_with_its_name(job: Job) -> None:
    call(*TABLE, "--to-queue", "again")
    assert job.replay is not None
    assert job.replay.target == Target("", "again")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--id", "r"], "give either --table or --from-brokers"),
        ([*TABLE, "--from-brokers"], "give either --table or --from-brokers"),
        ([*TABLE, "--to-queue", "q", "--to-routing-key", "k"], "--to-queue goes without"),
        ([*TABLE, "--since", "soon"], "'soon' is neither a time such as 2026-11-16T09:30"),
        ([*TABLE, "--rate", "-1"], "-1.0 is not in the range"),
        (["--table", "t"], "Missing option '--id'"),
    ],
)
def test_what_cannot_be_is_told(job: Job, words: list[str], told: str) -> None:
    assert told in call(*words, code=2)
    assert job.replay is None


def test_a_table_in_an_object_store_is_opened_with_its_options(job: Job) -> None:
    call("--id", "r", "--table", "s3://lake/archive", "--storage-options-file", "/etc/s3.json")
    assert (job.source, job.storage) == (("s3://lake/archive", "delta"), "/etc/s3.json")


def test_a_dry_run_says_what_would_be_published(job: Job) -> None:
    job.report.samples = [Sample("q", 7, "x", "k", 3, "{}", b"\xffab")]
    told = call(*TABLE, "--dry-run")
    assert not job.ran
    assert told == (
        "/  q  acked: 3 messages, 30 bytes, 1 without payload\n"
        "would publish 7 of q to exchange 'x', routing key 'k': 3 bytes, b'\\xffab'\n"
        "3 messages would be published; nothing was\n"
    )
    job.report.skipped = 1  # as `look` finds it
    last = "2 messages would be published; nothing was"
    refused = "1 have no payload: without --headers-only skip it fails"
    assert call(*TABLE, "--dry-run").splitlines()[2:] == [refused, last]
    assert call(*TABLE, "--dry-run", "--headers-only", "skip").splitlines()[2:] == [last]


def test_a_replay_says_what_became_of_it(job: Job) -> None:
    job.report.published, job.report.refused, job.report.skipped = 1, 1, 1
    job.report.named = ["row 3 of shard 1: no queue"]
    assert call(*TABLE).splitlines()[1:] == [
        "refused: row 3 of shard 1: no queue",
        "1 messages are in their queues, 1 without payload were skipped, 1 were refused",
    ]
    found = json.loads(call(*TABLE, "-o", "json"))
    assert (found["selected"], found["published"], found["refused"]) == (3, 1, 1)
    assert found["counts"][0]["queue"] == "q"
