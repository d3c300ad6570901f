"""Cuts messages of a lease out of the log entries they stand in, many at a time.

A chunk is two blocks of bytes, big-endian, so that who reads it may do so in compiled code:

    heads   for each message: u64 id | u64 arrived at (Unix time in ms) | u32 acquired before
                | u32 failed deliveries before | u32 bytes of its body | u32 priority
    batch   the messages in the layout of `model.message`
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from headrace_broker.codecs.batch import message_start
from headrace_broker.core.queue.command.command import ENQUEUE_BATCH_OFFSET, U32_MAX, write_u32
from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.model.limits import CHUNK_ENTRIES_BYTES_MAX
from headrace_broker.runtime.replica.reading.entries import Entries

HEAD_BYTES: Final = 32


@final
class Chunk:
    """Some messages of a lease."""

    def __init__(self, count: i64, heads: bytes, batch: bytes) -> None:
        self.count = count  # how many
        self.heads = heads  # as above
        self.batch = batch  # as above


@final
class _Run:
    """Messages at consecutive positions of one entry."""

    def __init__(self, entry: bytes, first: i64) -> None:
        self.entry = entry
        self.first = first
        self.stop = first


def cut_chunk(
    entries: Entries, messages: list[Acquired], offset: i64, most: i64, bytes_max: i64
) -> Chunk:
    """Cut out messages of a lease; as `cut_batch`."""
    count, batch = cut_batch(entries, messages, offset, most, bytes_max)
    return Chunk(count, _heads(messages, offset, offset + count), batch)


def cut_batch(
    entries: Entries, messages: list[Acquired], offset: i64, most: i64, bytes_max: i64
) -> tuple[i64, bytes]:
    """Cut out messages from `offset` on, at most `most`, up to and with one that exceeds a size.

    They end early where more has to be read of the log than CHUNK_ENTRIES_BYTES_MAX, and before
    an entry that is missing. Returns how many there are, and the batch.
    """
    runs: list[_Run] = []
    run: _Run | None = None
    index: i64 = -1
    at = offset
    stop = min(offset + most, len(messages))
    byte_count: i64 = 0
    read: i64 = 0
    count: i64 = 0
    while at < stop and byte_count < bytes_max:
        message = messages[at]
        position = message.position
        at += 1
        if message.entry_index != index:
            if read >= CHUNK_ENTRIES_BYTES_MAX:
                break
            index = message.entry_index
            entry = entries.get(index)
            read += entries.byte_count(index) if entry is None else len(entry)
            run = None if entry is None else _Run(entry, position)
            if run is not None:
                runs.append(run)
        elif run is not None and position != run.stop:
            run = _Run(run.entry, position)
            runs.append(run)
        if run is None:  # what else is missing is to be found out
            byte_count += message.byte_count
            continue
        start = message_start(run.entry, ENQUEUE_BATCH_OFFSET, position)
        byte_count += message_start(run.entry, ENQUEUE_BATCH_OFFSET, position + 1) - start
        run.stop = position + 1
        count += 1
    return count, _batch(runs, count)


def _heads(messages: list[Acquired], start: i64, stop: i64) -> bytes:
    out = BytesWriter()
    for at in range(start, stop):
        message = messages[at]
        write_i64_be(out, message.message_id)
        write_i64_be(out, message.arrived_ms)
        write_u32(out, min(message.acquired_count, U32_MAX))
        write_u32(out, min(message.delivery_count, U32_MAX))
        write_u32(out, message.byte_count)
        write_u32(out, message.priority)
    return out.getvalue()


def _batch(runs: list[_Run], count: i64) -> bytes:
    out = BytesWriter()
    write_i32_be(out, i32(count))
    end: i64 = 0
    for run in runs:
        start = message_start(run.entry, ENQUEUE_BATCH_OFFSET, run.first)
        for position in range(run.first, run.stop):
            stop = message_start(run.entry, ENQUEUE_BATCH_OFFSET, position + 1)
            write_i32_be(out, i32(end + stop - start))
        end += message_start(run.entry, ENQUEUE_BATCH_OFFSET, run.stop) - start
    for run in runs:
        start = message_start(run.entry, ENQUEUE_BATCH_OFFSET, run.first)
        stop = message_start(run.entry, ENQUEUE_BATCH_OFFSET, run.stop)
        out.write(run.entry[start:stop])
    return out.getvalue()
