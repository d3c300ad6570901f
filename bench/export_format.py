"""Cost of a log for export in each of three forms, in the broker and in the reader.

    python -m bench.export_format

Processor time for 10,000 rows of flow samples, in blocks of 1,000: (a) a protobuf message for each
row, (b) columns as raw buffers, made with `array` and wrapped by Arrow as they are, plain and
deflated, (c) Arrow IPC, made with pyarrow. The rows are those of a node with 500 queues and 400
connections that are busy in different ways. Needs pyarrow; the broker does not.

Source: docs/decisions/0016-columns-without-arrow-in-the-broker.md has the figures.
"""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-not-found, unused-ignore]
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from headrace_broker.codecs.column_block import (
    BOOL,
    INT64,
    TIMESTAMP_MS,
    UTF8,
    Schema,
    encode_columns,
)
from headrace_broker.runtime.telemetry.schema import FLOW_SAMPLES, SCHEMAS, Sample

ROWS: Final = 10_000
BLOCK: Final = 1_000
REPEATS: Final = 7
SCHEMA: Final[Schema] = SCHEMAS[FLOW_SAMPLES]
ARROW: Final = {
    INT64: pa.int64(),
    UTF8: pa.string(),
    BOOL: pa.bool_(),
    TIMESTAMP_MS: pa.timestamp("ms", "UTC"),
}


def rows() -> list[Sample]:
    """Rows as a node makes them: in each second queues, then connections."""
    chance = random.Random(7)
    found: list[Sample] = []
    while len(found) < ROWS:
        at = 1_795_324_261_103 + 1000 * len(found) // 900
        found += [_queue(at, number, chance) for number in range(500)]
        found += [_connection(at, number, chance) for number in range(400)]
    return found[:ROWS]


def _queue(at: int, number: int, chance: random.Random) -> Sample:
    rate = chance.randrange(3000)
    name = f"orders.{number % 500}"
    return Sample(
        *(at, 1000, "node-1", "queue", str(number % 500), name, "/"),
        published=rate,
        delivered=rate - 3,
        settled=rate - 5,
        ready=chance.randrange(100),
        ready_octets=chance.randrange(100_000),
        unacked=chance.randrange(300),
        unacked_octets=chance.randrange(300_000),
        oldest_ready_ms=chance.randrange(2000),
        consumers=4,
        consumers_busy=chance.randrange(4),
        saturated=chance.random() < 0.1,
        withheld=0,
        high_messages=0,
        high_octets=64 << 20,
    )


def _connection(at: int, number: int, chance: random.Random) -> Sample:
    rate = chance.randrange(3000)
    entity, name = (
        f"node-1/4/{number % 400}",
        f"10.0.{number % 100}.7:4{number % 400:03} -> 10.0.0.1:5672",
    )
    return Sample(
        *(at, 1000, "node-1", "connection", entity, name, "/", "app", entity, "connection"),
        published=rate,
        published_octets=300 * rate,
        blocked_ms=chance.choice((0, 0, 0, chance.randrange(1000))),
        state="running",
        held_messages=0,
        held_octets=0,
        debt_messages=chance.randrange(100),
        debt_octets=chance.randrange(30_000),
        debt_messages_max=1000,
        debt_octets_max=8 << 20,
        in_debt=False,
        channels=1,
    )


def message_class() -> Any:
    """A protobuf message with a field for each column."""
    file = descriptor_pb2.FileDescriptorProto(name="sample.proto", package="bench", syntax="proto2")
    message = file.message_type.add(name="Sample")
    types = descriptor_pb2.FieldDescriptorProto
    kinds = {
        INT64: types.TYPE_INT64,
        TIMESTAMP_MS: types.TYPE_INT64,
        UTF8: types.TYPE_STRING,
        BOOL: types.TYPE_BOOL,
    }
    for number, (name, kind) in enumerate(SCHEMA.columns, 1):
        message.field.add(name=name, number=number, type=kinds[kind], label=types.LABEL_OPTIONAL)
    chunk = file.message_type.add(name="Chunk")
    chunk.field.add(
        name="rows",
        number=1,
        type=types.TYPE_MESSAGE,
        type_name=".bench.Sample",
        label=types.LABEL_REPEATED,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.Chunk"))


def blocks(samples: list[Sample]) -> list[list[Sample]]:
    """The rows in blocks."""
    return [samples[start : start + BLOCK] for start in range(0, len(samples), BLOCK)]


def write_protobuf(samples: list[Sample], kind: Any) -> list[bytes]:
    """Rows as messages."""
    names = [name for name, _ in SCHEMA.columns]
    found = []
    for block in blocks(samples):
        chunk = kind()
        for sample in block:
            fields = {
                name: value for name, value in zip(names, sample, strict=True) if value is not None
            }
            chunk.rows.add(**fields)
        found.append(chunk.SerializeToString())
    return found


def read_protobuf(data: list[bytes], kind: Any) -> list[Any]:
    """Messages as Arrow batches."""
    found = []
    for each in data:
        chunk = kind.FromString(each)
        arrays = []
        for name, column in SCHEMA.columns:
            values = [getattr(row, name) if row.HasField(name) else None for row in chunk.rows]
            arrays.append(pa.array(values, ARROW[column]))
        found.append(pa.record_batch(arrays, [name for name, _ in SCHEMA.columns]))
    return found


Raw = list[tuple[int, tuple[int, ...], int, bytes]]


def write_columns(samples: list[Sample], deflate: bool) -> Raw:
    """Rows as raw buffers."""
    found: Raw = []
    for block in blocks(samples):
        columns = encode_columns(SCHEMA, list(zip(*block, strict=True)))
        body = zlib.compress(columns.body, 1) if deflate else columns.body
        found.append((columns.rows, columns.buffer_bytes, len(columns.body), body))
    return found


def read_columns(data: Raw, deflated: bool) -> list[Any]:
    """Raw buffers as Arrow batches, which use the buffers as they are."""
    found = []
    for count, lengths, byte_count, packed in data:
        body = zlib.decompress(packed, bufsize=byte_count) if deflated else packed
        whole = pa.py_buffer(body)
        arrays, offset, position = [], 0, 0
        for _, kind in SCHEMA.columns:
            buffers = []
            for number in range(3 if kind == UTF8 else 2):
                length = lengths[position]
                absent = number == 0 and not length  # of the bitmap only: all rows have a value
                buffers.append(None if absent else whole.slice(offset, length))
                offset += length + -length % 8
                position += 1
            arrays.append(pa.Array.from_buffers(ARROW[kind], count, buffers))
        found.append(pa.record_batch(arrays, [name for name, _ in SCHEMA.columns]))
    return found


def write_arrow(samples: list[Sample], compression: str | None) -> list[bytes]:
    """Rows as Arrow IPC streams."""
    names = [name for name, _ in SCHEMA.columns]
    found = []
    options = pa.ipc.IpcWriteOptions(compression=compression)
    for block in blocks(samples):
        columns = zip(*block, strict=True)
        arrays = [
            pa.array(values, ARROW[kind])
            for (_, kind), values in zip(SCHEMA.columns, columns, strict=True)
        ]
        batch = pa.record_batch(arrays, names)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
            writer.write_batch(batch)
        found.append(sink.getvalue().to_pybytes())
    return found


def read_arrow(data: list[bytes]) -> list[Any]:
    """Arrow IPC streams as batches."""
    return [batch for each in data for batch in pa.ipc.open_stream(each)]


def measure(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the least processor time in ms of some runs, and what the last one gave."""
    best = float("inf")
    result = None
    for _ in range(REPEATS):
        start = time.process_time()
        result = work()
        best = min(best, 1000 * (time.process_time() - start))
    return best, result


def main() -> None:
    """Print the figures."""
    samples = rows()
    kind = message_class()
    print(f"{'form':34} {'broker ms':>10} {'reader ms':>10} {'KiB':>8}")
    forms: list[tuple[str, Callable[[], Any], Callable[[Any], Any]]] = [
        ("protobuf rows", lambda: write_protobuf(samples, kind), lambda d: read_protobuf(d, kind)),
        ("columns, plain", lambda: write_columns(samples, False), lambda d: read_columns(d, False)),
        (
            "columns, deflated",
            lambda: write_columns(samples, True),
            lambda d: read_columns(d, True),
        ),
        ("Arrow IPC, plain", lambda: write_arrow(samples, None), read_arrow),
        ("Arrow IPC, lz4", lambda: write_arrow(samples, "lz4"), read_arrow),
        ("Arrow IPC, zstd", lambda: write_arrow(samples, "zstd"), read_arrow),
    ]
    tables = []
    for name, write, read in forms:
        broker_ms, data = measure(write)
        byte_count = sum(len(each[3] if isinstance(each, tuple) else each) for each in data)
        reader_ms, batches = measure(partial(read, data))
        tables.append(pa.Table.from_batches(batches).combine_chunks())
        print(f"{name:34} {broker_ms:10.1f} {reader_ms:10.1f} {byte_count / 1024:8.0f}")
    assert all(table.equals(tables[0]) for table in tables), "the forms do not say the same"


if __name__ == "__main__":
    main()
