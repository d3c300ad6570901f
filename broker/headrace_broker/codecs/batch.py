"""The batch layout of `model.message`: written once by the gateway, sliced by everybody else.

Functions that read take `blob` (bytes that hold a batch) and `base` (offset where it begins), and
trust what stands there; `check_batch` decides whether that trust is earned, for bytes from a peer.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i32_be, write_i32_be
from mypy_extensions import i32, i64

from headrace_broker.model.message import Publish
from headrace_raftlog.model.pieces import Bytes

# Bytes of a batch from which on it is joined of its parts: a writer that grows copies it again and
# again, into memory that the system has to clear first (28 ms for 16 MiB, against 2 ms).
_JOIN_BYTES: Final = 64 << 10


def write_batch(out: BytesWriter, publishes: list[Publish]) -> None:
    """Append a batch of `publishes` to `out`; its messages hold below 2**31 bytes together."""
    write_i32_be(out, i32(len(publishes)))
    end: i64 = 0
    for publish in publishes:
        end += len(publish.route) + 4 + len(publish.properties) + len(publish.body)
        write_i32_be(out, i32(end))
    for publish in publishes:
        properties = publish.properties
        out.write(publish.route)
        write_i32_be(out, i32(len(properties)))
        out.write(properties)
        out.write(publish.body)


def encode_batch(publishes: list[Publish], lead: bytes = b"") -> bytes:
    """Return the batch of `publishes` behind `lead`."""
    byte_count: i64 = 0
    for publish in publishes:
        byte_count += len(publish.body)
    if byte_count >= _JOIN_BYTES:
        return _join_batch(publishes, lead)
    out = BytesWriter()
    out.write(lead)
    write_batch(out, publishes)
    return out.getvalue()


def single_head(publish: Publish) -> bytes:
    """Return what stands before the body in a batch of one message."""
    properties = publish.properties
    head: i64 = len(publish.route) + 4 + len(properties)
    out = BytesWriter()
    write_i32_be(out, 1)
    write_i32_be(out, i32(head + len(publish.body)))
    out.write(publish.route)
    write_i32_be(out, i32(len(properties)))
    out.write(properties)
    return out.getvalue()


def _join_batch(publishes: list[Publish], lead: bytes) -> bytes:
    """Return what `write_batch` writes, behind `lead`; each body is copied once."""
    out = BytesWriter()
    out.write(lead)
    write_i32_be(out, i32(len(publishes)))
    end: i64 = 0
    for publish in publishes:
        end += len(publish.route) + 4 + len(publish.properties) + len(publish.body)
        write_i32_be(out, i32(end))
    pieces: list[bytes] = []
    for publish in publishes:
        properties = publish.properties
        out.write(publish.route)
        write_i32_be(out, i32(len(properties)))
        out.write(properties)
        pieces.append(out.getvalue())
        pieces.append(publish.body)
        out = BytesWriter()
    return b"".join(pieces)


def batch_count(blob: bytes, base: i64) -> i64:
    """Return how many messages the batch holds."""
    return i64(read_i32_be(blob, base))


def batch_end(blob: bytes, base: i64) -> i64:
    """Return the offset after the batch."""
    return message_start(blob, base, batch_count(blob, base))


def message_start(blob: bytes, base: i64, position: i64) -> i64:
    """Return where message `position`, 0 to count, begins (count: where the batch ends)."""
    messages: i64 = base + 4 + 4 * i64(read_i32_be(blob, base))
    if position == 0:
        return messages
    return messages + i64(read_i32_be(blob, base + 4 * position))


def properties_start(blob: bytes, start: i64) -> i64:
    """Return the offset of the properties' length in the message that begins at `start`."""
    key: i64 = start + 1 + blob[start]
    return key + 1 + blob[key]


def properties_stop(blob: bytes, start: i64) -> i64:
    """Return where the properties end, and the body begins, of the message at `start`."""
    pos = properties_start(blob, start)
    return pos + 4 + i64(read_i32_be(blob, pos))


def message_route(blob: bytes, base: i64, position: i64) -> bytes:
    """Return exchange and routing key of a message, as in `Publish.route`."""
    start = message_start(blob, base, position)
    return blob[start : properties_start(blob, start)]


def message_properties(blob: bytes, base: i64, position: i64) -> bytes:
    """Return the property flags and list of a message."""
    pos = properties_start(blob, message_start(blob, base, position))
    return blob[pos + 4 : pos + 4 + i64(read_i32_be(blob, pos))]


def message_body(blob: bytes, base: i64, position: i64) -> bytes:
    """Return the body of a message."""
    pos = properties_start(blob, message_start(blob, base, position))
    return blob[pos + 4 + i64(read_i32_be(blob, pos)) : message_start(blob, base, position + 1)]


def message_body_bytes(blob: bytes, base: i64, position: i64) -> i64:
    """Return the bytes of a message's body."""
    pos = properties_start(blob, message_start(blob, base, position))
    return message_start(blob, base, position + 1) - pos - 4 - i64(read_i32_be(blob, pos))


def body_bytes(blob: bytes, base: i64, positions: list[int]) -> i64:
    """Return the bytes of the bodies of the messages at `positions` together."""
    total: i64 = 0
    for position in positions:
        total += message_body_bytes(blob, base, position)
    return total


def slice_batch(blob: bytes, base: i64, positions: list[int]) -> bytes:
    """Return a batch of the messages at `positions`, in that order."""
    out = BytesWriter()
    write_i32_be(out, i32(len(positions)))
    end: i64 = 0
    for position in positions:
        end += message_start(blob, base, i64(position) + 1) - message_start(blob, base, position)
        write_i32_be(out, i32(end))
    for position in positions:
        stop: i64 = message_start(blob, base, i64(position) + 1)
        out.write(blob[message_start(blob, base, position) : stop])
    return out.getvalue()


def slices_batch(blob: bytes, base: i64, positions: list[int]) -> list[Bytes]:
    """Return what `slice_batch` does, in pieces, the messages uncopied."""
    out = BytesWriter()
    write_i32_be(out, i32(len(positions)))
    end: i64 = 0
    pieces: list[Bytes] = [b""]
    view = memoryview(blob)
    for position in positions:
        start: i64 = message_start(blob, base, position)
        stop: i64 = message_start(blob, base, i64(position) + 1)
        end += stop - start
        write_i32_be(out, i32(end))
        pieces.append(view[start:stop])
    pieces[0] = out.getvalue()
    return pieces


def check_batch(blob: bytes, base: i64) -> bool:
    """Return whether a batch begins at `base` and lies within `blob` with consistent lengths.

    Total for any bytes; reads every message's lengths once. What follows the batch is the caller's
    affair (`batch_end`).
    """
    size: i64 = len(blob)
    if base < 0 or size - base < 4:
        return False
    count: i64 = i64(read_i32_be(blob, base))
    if count < 0 or count > (size - base - 4) // 4:
        return False
    messages: i64 = base + 4 + 4 * count
    start: i64 = messages
    for position in range(count):
        end: i64 = messages + i64(read_i32_be(blob, base + 4 + 4 * position))
        if end > size or not _check_message(blob, start, end):
            return False
        start = end
    return True


def _check_message(blob: bytes, start: i64, end: i64) -> bool:
    """Return whether one message fills `start` to `end`; the body is the rest behind its head."""
    if start >= end:
        return False
    key: i64 = start + 1 + blob[start]
    if key >= end:
        return False
    pos: i64 = key + 1 + blob[key]
    if end - pos < 4:
        return False
    properties: i64 = i64(read_i32_be(blob, pos))
    return 2 <= properties <= end - pos - 4
