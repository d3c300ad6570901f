"""Rows as messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from headrace_client.message import PERSISTENT, TRANSIENT
from headrace_client.value import encode_table
from headrace_pipeline.limits import SINK_SLICE_BYTES, SINK_SLICE_ROWS
from headrace_pipeline.sinks.exchange.column import (
    EXCHANGE,
    HEADERS,
    PAYLOAD,
    PROPERTIES,
    ROUTING_KEY,
    SINGLE,
)
from headrace_protos.broker.v1.message_pb2 import Message, Properties

_PRIORITY_MAX: Final = 255


class Row(NamedTuple):
    """A row that is to be published."""

    number: int  # of it in its partition, from 1 on
    message: Message | None  # None for a row that cannot be one
    problem: str = ""  # why it cannot


def rows(batch: pa.RecordBatch, first: int, persistent: bool) -> Iterator[list[Row]]:
    """Make messages of a batch of `column.uniform`, some at a time.

    Args:
        batch: whose columns `column.check_columns` has seen.
        first: number of its first row.
        persistent: of messages of whom no column says it.
    """
    start = 0
    while start < batch.num_rows:
        stop = _stop(batch, start)
        yield _slice(batch.slice(start, stop - start), first + start, persistent)
        start = stop


def _stop(batch: pa.RecordBatch, start: int) -> int:
    """Return where a slice ends that begins somewhere."""
    stop: int = min(start + SINK_SLICE_ROWS, batch.num_rows)
    payload = batch.column(PAYLOAD)
    while stop - start > 1 and payload.slice(start, stop - start).nbytes > SINK_SLICE_BYTES:
        stop = start + (stop - start) // 2
    return stop


def _slice(batch: pa.RecordBatch, first: int, persistent: bool) -> list[Row]:
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    size = batch.num_rows
    bodies = columns[PAYLOAD]
    none = [None] * size
    exchanges = columns.get(EXCHANGE, none)
    keys = columns.get(ROUTING_KEY, none)
    make = _maker(columns, persistent)
    found = []
    for at in range(size):
        body = bodies[at]
        if body is None:
            found.append(Row(first + at, None, "payload: is null"))
            continue
        try:
            properties = make(at)
        except (TypeError, ValueError) as error:
            found.append(Row(first + at, None, str(error)))
            continue
        message = Message(
            body=body, exchange=exchanges[at], routing_key=keys[at], properties=properties
        )
        found.append(Row(first + at, message))
    return found


def _maker(columns: dict[str, list[Any]], persistent: bool) -> Callable[[int], Properties | None]:
    """Return what makes the properties of the row at a position."""
    blocks = columns.get(PROPERTIES)
    if blocks is not None:

        def encoded(at: int) -> Properties | None:
            return Properties(encoded=blocks[at]) if blocks[at] is not None else None

        return encoded
    given = [(name, columns[name]) for name in SINGLE if name in columns]
    mode = PERSISTENT if persistent else TRANSIENT

    def single(at: int) -> Properties:
        properties = Properties(delivery_mode=mode)
        for name, values in given:
            value = values[at]
            if value is not None:
                _set(properties, name, value)
        return properties

    return single


def _set(properties: Properties, name: str, value: Any) -> None:
    """Set one property.

    Raises:
        TypeError: a header has no form.
        ValueError: a value is none.
    """
    if name == HEADERS:
        properties.headers.CopyFrom(encode_table(_headers(value)))
    elif name == "persistent":
        properties.delivery_mode = PERSISTENT if value else TRANSIENT
    elif name == "priority":
        if not 0 <= value <= _PRIORITY_MAX:
            raise ValueError(f"priority: must be 0 to {_PRIORITY_MAX}, not {value}")
        properties.priority = value
    elif name == "expiration":
        properties.expiration = _milliseconds(str(value))
    elif name == "published_at":
        seconds = int(value.timestamp())
        if seconds < 0:
            raise ValueError(f"published_at: {value} is before 1970")
        properties.timestamp = seconds
    else:
        setattr(properties, name, value)


def _milliseconds(text: str) -> str:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"expiration: must be milliseconds, as digits, not {text!r}")
    return text


def _headers(value: Any) -> Mapping[str, Any]:
    """Return headers of JSON, or of a map as Arrow tells it."""
    if not isinstance(value, str):
        return dict(value)
    try:
        found = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"headers: are no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"headers: must be an object of JSON, not {value[:40]!r}")
    return found
