"""The headers that tell a consumer how often a message was handed out before.

Source: RabbitMQ's guide on quorum queues, "Poison message handling": x-acquired-count stands on
every redelivery, x-delivery-count where a delivery has failed.
"""

from __future__ import annotations

from typing import Final

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i16, i32, i64

from headrace_broker.codecs.field import HEADERS_FLAG, headers_place, properties_problem, value_end

DELIVERY_COUNT: Final = b"x-delivery-count"
ACQUIRED_COUNT: Final = b"x-acquired-count"
_TYPE_INT64: Final = 0x6C  # l


def with_counts(properties: bytes, failed: i64, acquired: i64) -> bytes:
    """Return a property block with the counts of a redelivered message among its headers.

    Headers of these names that are there are replaced, for they are another queue's or made up.
    No failed deliveries give no x-delivery-count. What is no property block comes back as it is.
    """
    if len(properties) < 2 or properties_problem(properties, 0, len(properties)):
        return properties
    flags: i64 = i64(read_i16_be(properties, 0)) & 0xFFFF
    start: i64 = headers_place(properties)
    stop = start
    table = b""
    if flags & HEADERS_FLAG:
        stop = start + 4 + i64(read_i32_be(properties, start))
        table = _others(properties, start + 4, stop)
    counts = BytesWriter()
    if failed > 0:
        _write_count(counts, DELIVERY_COUNT, failed)
    _write_count(counts, ACQUIRED_COUNT, acquired)
    added = counts.getvalue()
    out = BytesWriter()
    flags |= HEADERS_FLAG
    write_i16_be(out, i16(flags if flags < 0x8000 else flags - 0x10000))
    out.write(properties[2:start])
    write_i32_be(out, i32(len(table) + len(added)))
    out.write(table)
    out.write(added)
    out.write(properties[stop:])
    return out.getvalue()


def _others(buf: bytes, pos: i64, stop: i64) -> bytes:
    """Return the fields from `pos` to `stop` of a checked table but for the counts."""
    out = BytesWriter()
    while pos < stop:
        value: i64 = pos + 1 + buf[pos]
        end = value_end(buf, value)
        if buf[pos + 1 : value] not in (DELIVERY_COUNT, ACQUIRED_COUNT):
            out.write(buf[pos:end])
        pos = end
    return out.getvalue()


def _write_count(out: BytesWriter, name: bytes, count: i64) -> None:
    out.append(len(name))
    out.write(name)
    out.append(_TYPE_INT64)
    write_i64_be(out, count)
