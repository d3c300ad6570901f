"""Messages of a frozen queue as two blocks of bytes, big-endian.

    heads   for each message: u64 id | u64 arrived at | u64 expires at, 0 for never
                | u64 due at, 0 for when it came (Unix times in ms) | u32 acquired before
                | u32 failed deliveries before | u32 bytes of its body | u8 priority | u8 state
                | u16 0
    batch   the messages in the layout of `model.message`

A message's state is READY, UNSETTLED, DELAYED or DEAD of `core.queue.snapshot.frozen`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from headrace_broker.core.queue.snapshot.frozen import FrozenQueue
from headrace_broker.runtime.lease.chunk import cut_batch
from headrace_broker.runtime.replica.reading.entries import Entries

_HEAD: Final = struct.Struct(">QQQQIIIBBH")
HEAD_BYTES: Final = _HEAD.size


class Head(NamedTuple):
    """State that a queue had of a message."""

    id: int  # ascends in the order of arrival, from 1
    arrived_ms: int  # Unix time
    expires_ms: int  # Unix time at which it expires, 0 for never
    due_ms: int  # Unix time at which it becomes or became ready, 0 where it was not delayed
    acquired_count: int  # how often it had been acquired
    delivery_count: int  # how many of these deliveries had failed
    byte_count: int  # of its body
    priority: int  # 0 and above
    state: int  # READY, UNSETTLED, DELAYED or DEAD


def read_heads(heads: bytes) -> Iterator[Head]:
    """Return the fields of a block of heads, whose length is a multiple of HEAD_BYTES."""
    for found in _HEAD.iter_unpack(heads):
        yield Head(*found[:9])


def cut_frozen(
    entries: Entries, frozen: FrozenQueue, after: int, most: int, bytes_max: int
) -> tuple[bytes, bytes]:
    """Return heads and batch of messages behind an id, to the first that exceeds `bytes_max`.

    No heads when there are no more, or the first one is in an entry that is missing. Raises
    KeyError: the log has lost one of them.
    """
    run = frozen.read(after, most, bytes_max)
    count, batch = cut_batch(entries, run.messages, 0, most, bytes_max)
    return run.heads(count), batch


def last_id(heads: bytes) -> int:
    """Return the id of the last message of a chunk that has some."""
    [head] = read_heads(heads[-HEAD_BYTES:])
    return head.id
