"""Deliveries grouped by their log entry, so that each entry is read once."""

from __future__ import annotations

from typing import final

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

from headrace_broker.core.queue.command.command import U32_MAX, write_u32
from headrace_broker.core.queue.messages.effect import Acquired


@mypyc_attr(acyclic=True)
@final
class EntryGroup:
    """Consecutive deliveries whose messages stand in one entry."""

    def __init__(
        self,
        entry_index: i64,
        first: i64,
        positions: list[int],
        redelivered: bytes,
        counts: bytes = b"",
    ) -> None:
        self.entry_index = entry_index  # log position of the entry
        self.first = first  # delivery number of the first message; the rest follow without a gap
        self.positions = positions  # which messages of the entry's batch, in delivery order
        self.redelivered = redelivered  # one byte per position, 1 if it was acquired before
        # u32 failed deliveries and u32 acquisitions before this one per position, b"" when all of
        # them are 0
        self.counts = counts


def group_by_entry(first: i64, acquired: list[Acquired]) -> list[EntryGroup]:
    """Split deliveries numbered `first`, `first` + 1, ... where the entry changes."""
    groups: list[EntryGroup] = []
    start: i64 = 0
    count: i64 = len(acquired)
    while start < count:
        entry_index = acquired[start].entry_index
        positions: list[int] = []
        again: i64 = 0
        stop = start
        while stop < count:
            message = acquired[stop]
            if message.entry_index != entry_index:
                break
            positions.append(message.position)
            if message.acquired_count > 0:
                again += 1
            stop += 1
        redelivered = bytes(stop - start)
        counts = b""
        if again > 0:
            redelivered = _flags(acquired, start, stop)
            counts = _counts(acquired, start, stop)
        groups.append(EntryGroup(entry_index, first + start, positions, redelivered, counts))
        start = stop
    return groups


def _flags(acquired: list[Acquired], start: i64, stop: i64) -> bytes:
    flags = bytearray()
    for message in acquired[start:stop]:
        flags.append(1 if message.acquired_count > 0 else 0)
    return bytes(flags)


def _counts(acquired: list[Acquired], start: i64, stop: i64) -> bytes:
    out = BytesWriter()
    for message in acquired[start:stop]:
        write_u32(out, min(message.delivery_count, U32_MAX))
        write_u32(out, min(message.acquired_count, U32_MAX))
    return out.getvalue()
