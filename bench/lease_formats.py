"""Cost of leased messages in each of three formats, in the broker and in the reader.

    python -m bench.lease_formats [--bytes 100]

Processor time for 10,000 messages of 100 bytes, from the chunk that the queue's leader has cut to
the bytes of the answer and from those to what a reader has: rows in Python, or Arrow's batches.
Messages have no properties, the same ones, an id each, or an id and headers each. Needs pyarrow;
the broker does not.

Source: docs/decisions/0016-columns-without-arrow-in-the-broker.md has the figures.
"""

from __future__ import annotations

import argparse
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa  # type: ignore[import-not-found, unused-ignore]
from pika.spec import BasicProperties

from headrace_broker.codecs.batch import (
    encode_batch,
    message_body,
    message_properties,
    message_route,
)
from headrace_broker.core.queue.state.lease_effect import LEASE_OK
from headrace_broker.gateways.grpc.lease.columns import LeaseColumns
from headrace_broker.gateways.grpc.lease.rows import HEAD, LeaseBlocks, LeaseRows
from headrace_broker.model.message import Publish
from headrace_broker.runtime.lease.leasing import Fetched
from headrace_protos.broker.v1 import export_pb2, lease_pb2

MESSAGES: Final = 10_000
CHUNK: Final = 5_000  # about what 1 MiB holds
REPEATS: Final = 9
FORMATS: Final[dict[str, Callable[[], Any]]] = {
    "BLOCKS": LeaseBlocks,
    "MESSAGES": LeaseRows,
    "COLUMNS": LeaseColumns,
}
ARROW: Final = {
    export_pb2.EXPORT_TYPE_INT64: pa.int64(),
    export_pb2.EXPORT_TYPE_INT32: pa.int32(),
    export_pb2.EXPORT_TYPE_UTF8: pa.string(),
    export_pb2.EXPORT_TYPE_BINARY: pa.binary(),
    export_pb2.EXPORT_TYPE_TIMESTAMP_MS: pa.timestamp("ms", "UTC"),
}


def own(number: int) -> bytes:
    """Properties with an id of the message's own."""
    return _block(message_id=f"order-{number}", content_type="application/json", delivery_mode=2)


def same(_number: int) -> bytes:
    """Properties that all messages share, with a header."""
    return _block(content_type="application/json", delivery_mode=2, headers={"region": "north"})


def headed(number: int) -> bytes:
    """Properties with an id and headers of the message's own."""
    return _block(message_id=f"order-{number}", headers={"region": "north", "number": number})


def none(_number: int) -> bytes:
    """No properties."""
    return b"\x00\x00"


def _block(**properties: Any) -> bytes:
    return b"".join(BasicProperties(**properties).encode())


def chunks(properties: Callable[[int], bytes], byte_count: int) -> list[Fetched]:
    """Return what the queue's leader sends."""
    found = []
    for first in range(0, MESSAGES, CHUNK):
        numbers = range(first, first + CHUNK)
        batch = encode_batch(
            [
                Publish(
                    1, b"\x06orders\x05new.1", False, False, properties(number), bytes(byte_count)
                )
                for number in numbers
            ]
        )
        heads = b"".join(HEAD.pack(number + 1, 1 << 40, 0, 0, byte_count, 0) for number in numbers)
        found.append(Fetched(LEASE_OK, MESSAGES, heads, batch))
    return found


def make(form: Callable[[], Any], given: list[Fetched]) -> list[bytes]:
    """Return answers as the broker writes them."""
    writer = form()
    answers = []
    for number, chunk in enumerate(given):
        answer = lease_pb2.FetchLeaseResponse(offset=CHUNK * number, messages=chunk.message_count)
        writer.add_to(answer, chunk)
        answers.append(answer.SerializeToString())
    return answers


def read(answers: list[bytes]) -> int:
    """Read answers; return how many messages there were."""
    found = 0
    schema: Any = None
    for data in answers:
        answer = lease_pb2.FetchLeaseResponse.FromString(data)
        if answer.format == lease_pb2.LEASE_FORMAT_COLUMNS:
            schema = answer.schema if answer.HasField("schema") else schema
            found += _arrow(schema, answer.block).num_rows
        elif answer.format == lease_pb2.LEASE_FORMAT_BLOCKS:
            found += len(list(_rows(answer.heads, answer.batch)))
        else:
            rows = [(row.message_id, row.exchange, row.properties, row.body) for row in answer.rows]
            found += len(rows)
    return found


def _rows(heads: bytes, batch: bytes) -> Iterator[tuple[Any, ...]]:
    for position, head in enumerate(HEAD.iter_unpack(heads)):
        route, block = message_route(batch, 0, position), message_properties(batch, 0, position)
        yield *head, route, struct.unpack_from(">H", block), message_body(batch, 0, position)


def _arrow(schema: Any, block: Any) -> Any:
    body, offset, lengths, arrays = pa.py_buffer(block.body), 0, iter(block.buffer_octets), []
    for column in schema.columns:
        kind, buffers = ARROW[column.type], []
        for number in range(3 if kind in (pa.string(), pa.binary()) else 2):
            length = next(lengths)
            buffers.append(body.slice(offset, length) if length or number else None)
            offset += length + -length % 8
        arrays.append(pa.Array.from_buffers(kind, block.rows, buffers))
    return pa.record_batch(arrays, [column.name for column in schema.columns])


def milliseconds(action: Callable[[], object]) -> float:
    """Return the processor time of an action, the least of some tries."""
    best = float("inf")
    for _ in range(REPEATS):
        begun = time.process_time()
        action()
        best = min(best, time.process_time() - begun)
    return 1000 * best


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=100, help="of each body")
    byte_count = parser.parse_args().bytes
    print(f"{'properties':12}{'format':12}{'broker ms':>12}{'reader ms':>12}{'octets':>12}")
    for properties in (none, same, own, headed):
        given = chunks(properties, byte_count)
        for name, form in FORMATS.items():
            answers = make(form, given)
            assert read(answers) == MESSAGES
            made = milliseconds(lambda form=form, given=given: make(form, given))  # type: ignore[misc]
            taken = milliseconds(lambda answers=answers: read(answers))  # type: ignore[misc]
            size = sum(map(len, answers))
            print(f"{properties.__name__:12}{name:12}{made:12.1f}{taken:12.1f}{size:12}")


if __name__ == "__main__":
    main()
