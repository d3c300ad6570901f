"""Rows as messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from headrace_client.message import Properties
from headrace_pipeline.limits import SINK_SLICE_BYTES, SINK_SLICE_ROWS
from headrace_pipeline.sinks.exchange.column import uniform
from headrace_pipeline.sinks.exchange.row import Row, rows


def made(columns: dict[str, Any], persistent: bool = True, first: int = 1) -> list[Row]:
    batch = uniform(pa.record_batch(columns))
    return [row for part in rows(batch, first, persistent) for row in part]


def test_each_column_is_a_property() -> None:
    at = datetime(2026, 1, 31, 12, 0, 0, 999_999, tzinfo=UTC)
    (row,) = made(
        {
            "payload": pa.array([b"\xff"]),
            "exchange": pa.array(["x"]),
            "routing_key": pa.array(["k"]),
            "headers": pa.array(['{"a": [1, {"b": null}], "c": 0.5}']),
            "content_type": pa.array(["t"]),
            "content_encoding": pa.array(["e"]),
            "persistent": pa.array([False]),
            "priority": pa.array([0]),
            "correlation_id": pa.array([""]),
            "reply_to": pa.array(["r"]),
            "expiration": pa.array([1500]),
            "message_id": pa.array(["m"]),
            "published_at": pa.array([at]),
            "type": pa.array(["y"]),
            "user_id": pa.array(["u"]),
            "app_id": pa.array(["p"]),
            "cluster_id": pa.array(["c"]),
        }
    )
    assert row.message is not None
    assert (row.message.body, row.message.exchange, row.message.routing_key) == (b"\xff", "x", "k")
    assert row.message.properties.expiration == "1500"
    found = Properties.from_pb(row.message.properties)
    assert found.headers == {"a": [1, {"b": None}], "c": 0.5}
    assert found.timestamp == at.replace(microsecond=0)
    assert (found.delivery_mode, found.priority) == (1, 0)
    assert (found.correlation_id, found.reply_to) == ("", "r")
    assert (found.message_id, found.type, found.user_id) == ("m", "y", "u")
    assert (found.app_id, found.cluster_id) == ("p", "c")
    assert (found.content_type, found.content_encoding) == ("t", "e")


@pytest.mark.parametrize(("persistent", "mode"), [(True, 2), (False, 1)])
def test_what_is_null_is_absent(persistent: bool, mode: int) -> None:
    none = pa.array([None], pa.string())
    (row,) = made(
        {"payload": pa.array(["a"]), "exchange": none, "routing_key": none, "app_id": none},
        persistent,
    )
    assert row.message is not None
    assert not row.message.HasField("exchange")
    assert not row.message.HasField("routing_key")
    assert Properties.from_pb(row.message.properties) == Properties(delivery_mode=mode)


def test_a_map_is_headers_too() -> None:
    kind = pa.map_(pa.string(), pa.string())
    headers = pa.array([[("a", "1"), ("b", None)], None], kind)
    first, second = made({"payload": pa.array(["a", "b"]), "headers": headers})
    assert first.message is not None
    assert second.message is not None
    assert Properties.from_pb(first.message.properties).headers == {"a": "1", "b": None}
    assert not second.message.properties.HasField("headers")


def test_a_property_block_goes_as_it_is() -> None:
    blocks = pa.array([b"\x80\x00\x01t", None])
    first, second = made({"payload": pa.array(["a", "b"]), "properties": blocks})
    assert first.message is not None
    assert second.message is not None
    assert first.message.properties.encoded == b"\x80\x00\x01t"
    assert not second.message.HasField("properties")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("payload", None, "payload: is null"),
        ("headers", "{", "headers: are no JSON"),
        ("headers", '{"a":' * 100_000, "headers: are no JSON"),
        (
            "headers",
            '{"a":' * 17 + "1" + "}" * 17,
            "headers: tables and arrays nest deeper than 16",
        ),
        ("headers", '{"a":' + "[" * 16 + "]" * 16 + "}", "tables and arrays nest deeper than 16"),
        ("headers", "[1]", "headers: must be an object of JSON, not '[1]'"),
        ("headers", '{"a": 99999999999999999999}', "has more than 64 bits"),
        ("priority", 256, "priority: must be 0 to 255, not 256"),
        ("priority", -1, "priority: must be 0 to 255, not -1"),
        ("expiration", "1s", "expiration: must be milliseconds, as digits, not '1s'"),
        ("expiration", -5, "not '-5'"),
        ("published_at", datetime(1960, 1, 1, tzinfo=UTC), "is before 1970"),
    ],
)
def test_a_row_that_can_be_no_message_is_told_and_the_others_go(
    name: str, value: Any, told: str
) -> None:
    columns = {"payload": pa.array([b"a", b"b"])}
    kind = pa.array([value]).type if value is not None else pa.binary()
    good = b"b" if name == "payload" else None
    columns[name] = pa.array([value, good], kind)
    bad, fine = made(columns, first=7)
    assert (bad.number, bad.message) == (7, None)
    assert told in bad.problem
    assert (fine.number, fine.problem) == (8, "")
    assert fine.message is not None
    assert fine.message.body == b"b"


def test_a_large_batch_comes_in_slices() -> None:
    batch = uniform(pa.record_batch({"payload": pa.array([b"x"] * (2 * SINK_SLICE_ROWS + 1))}))
    parts = list(rows(batch, 1, True))
    assert [len(part) for part in parts] == [SINK_SLICE_ROWS, SINK_SLICE_ROWS, 1]
    assert [part[0].number for part in parts] == [1, SINK_SLICE_ROWS + 1, 2 * SINK_SLICE_ROWS + 1]
    large = uniform(pa.record_batch({"payload": pa.array([b"x" * SINK_SLICE_BYTES] * 3)}))
    assert [len(part) for part in rows(large, 1, True)] == [1, 1, 1]
