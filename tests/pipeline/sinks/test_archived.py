"""Blocks of archived messages that are published."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.sinks.test_publish import FakeAnswer, FakeSender

from headrace_pipeline.error import RowsRefusedError
from headrace_pipeline.options.connection import Connection
from headrace_pipeline.sinks.exchange import archived
from headrace_pipeline.sinks.exchange.archived import ReplayTask, digest_of, publish_blocks
from headrace_pipeline.sinks.exchange.option import DROP, FAIL, SinkOptions
from headrace_protos.broker.v1.message_pb2 import Message

SCHEMA = pa.schema(
    {
        "shard": pa.string(),
        "incarnation": pa.int64(),
        "block": pa.int64(),
        "archive_index": pa.int64(),
        "exchange": pa.string(),
        "routing_key": pa.string(),
        "properties": pa.binary(),
        "payload": pa.binary(),
    }
)


class Senders:
    """Gives each publisher id a sender; the broker keeps a sequence of each id once."""

    def __init__(self, *refuses: str) -> None:
        self.refuses = refuses
        self.had: dict[str, int] = {}
        self.kept: list[tuple[str, bytes]] = []
        self.streams: list[tuple[str, str]] = []

    @contextmanager
    def open(self, options: SinkOptions, who: Any, name: str) -> Iterator[FakeSender]:
        senders = self
        self.streams.append((who.publisher_id, name))

        class Sender(FakeSender):
            def publish_all(
                self, messages: Iterable[Message], sequences: Iterable[int] | None = None
            ) -> list[FakeAnswer]:
                given = list(messages)
                assert sequences is not None
                for message, sequence in zip(given, sequences, strict=True):
                    if sequence > senders.had.get(who.publisher_id, 0):
                        senders.had[who.publisher_id] = sequence
                        senders.kept.append((message.routing_key, message.body))
                return list(super().publish_all(given))

        assert who.epoch == 0
        yield Sender(*self.refuses, settles=True)


@pytest.fixture
def senders(monkeypatch: pytest.MonkeyPatch) -> Senders:
    found = Senders("nowhere")
    monkeypatch.setattr(archived, "publisher", found.open)
    return found


def task(on_refused: str = FAIL, digest: str = "d") -> ReplayTask:
    options = SinkOptions(
        Connection("b:7672"), "", "", True, True, on_refused, True, 100, 1000, "", 0, 1.0
    )
    return ReplayTask(options, "replay:r", digest, 0.0)


def batch(*rows: tuple[str, int, int], key: str = "q", payload: bytes | None = b"x") -> Any:
    """Rows by shard, block and index."""
    given = [
        (shard, 7, block, index, "", key, b"\x00\x00", payload and payload + b"%d" % index)
        for shard, block, index in rows
    ]
    return pa.RecordBatch.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in given], SCHEMA
    )


def publish(given: ReplayTask, *batches: Any) -> list[dict[str, Any]]:
    return [row for done in publish_blocks(given, batches) for row in done.to_pylist()]


def test_each_block_has_a_publisher_and_says_what_became_of_it(senders: Senders) -> None:
    batches = batch(("1", 0, 3), ("1", 0, 5)), batch(("1", 0, 6), ("1", 1, 9), ("2", 0, 0))
    done = publish(task(), *batches)
    assert [(row["shard"], row["block"], row["published"]) for row in done] == [
        ("1", 0, 3),
        ("1", 1, 1),
        ("2", 0, 1),
    ]
    assert senders.streams == [
        ("replay:r:d:1.7.0", "replay:r"),
        ("replay:r:d:1.7.1", "replay:r"),
        ("replay:r:d:2.7.0", "replay:r"),
    ]
    assert senders.had == {"replay:r:d:1.7.0": 7, "replay:r:d:1.7.1": 10, "replay:r:d:2.7.0": 1}


def test_what_is_replayed_twice_or_stands_there_twice_is_published_once(senders: Senders) -> None:
    rows = batch(("1", 0, 3), ("1", 0, 3), ("1", 0, 5))
    (done,) = publish(task(), rows)
    assert (done["published"], done["repeated"]) == (2, 1)
    publish(task(), rows)
    publish(task(), batch(("1", 0, 3)), batch(("1", 0, 5), ("1", 0, 8)))
    assert senders.kept == [("q", b"x3"), ("q", b"x5"), ("q", b"x8")]
    publish(task(digest="other"), rows)
    assert len(senders.kept) == 5


def test_refused_rows_are_named_by_their_index(senders: Senders) -> None:
    rows = batch(("1", 0, 4), key="nowhere")
    with pytest.raises(RowsRefusedError, match="row 4 of shard 1, exchange '', routing key 'nowh"):
        publish(task(), rows)
    (done,) = publish(task(DROP), rows, batch(("1", 0, 5)))
    assert (done["published"], done["refused"]) == (1, 1)
    assert done["named"].startswith("row 4 of shard 1, ")


def test_no_rows_are_no_streams(senders: Senders) -> None:
    assert publish(task()) == []
    assert publish(task(), batch()) == []
    assert senders.streams == []


def test_what_is_selected_and_where_it_goes_are_a_part_of_the_name() -> None:
    assert digest_of("/", ("q",), None) == digest_of("/", ("q",), None)
    assert digest_of("/", ("q",), None) != digest_of("/", ("q",), "x")
