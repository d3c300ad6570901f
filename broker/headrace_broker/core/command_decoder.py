"""Reads commands back from the data of log entries; total, for any octets."""

from __future__ import annotations

from mypy_extensions import i64

from headrace_broker.core.batch_sizes import measure_batch
from headrace_broker.core.command import (
    ACCEPT,
    ATTACH,
    CANCEL,
    CLOSE,
    COMMAND_VERSION,
    ENQUEUE,
    FLAG_EXCLUSIVE,
    GET,
    MODIFY_FAILED,
    NODE_DOWN,
    NUMBER_MAX,
    SETTLE,
    SETTLE_ITEM_OCTETS,
    STAMP_OCTETS,
    Attach,
    Cancel,
    Close,
    Command,
    Enqueue,
    Get,
    Malformed,
    NodeDown,
    Purge,
    Settle,
    SettleItem,
)
from headrace_broker.core.octet_reader import OctetReader


def decode_command(data: bytes) -> Command:
    """Decode the data of an entry, stamp included; return Malformed where it breaks any rule."""
    reader = OctetReader(data, STAMP_OCTETS)
    kind = reader.u8()
    version = reader.u8()
    if reader.failed:
        return Malformed("shorter than its head")
    if version != COMMAND_VERSION or not ENQUEUE <= kind <= NODE_DOWN:
        return Malformed(f"unknown command kind {kind} version {version}")
    if kind == NODE_DOWN:
        command: Command = NodeDown(reader.u32(), reader.u32())
        return command if reader.at_end() else Malformed("malformed NODE_DOWN")
    session = reader.u64()
    if not 1 <= session <= NUMBER_MAX:
        return Malformed("session out of range")
    if kind == CLOSE:
        return Close(session) if reader.at_end() else Malformed("malformed CLOSE")
    seq = reader.u64()
    if not 1 <= seq <= NUMBER_MAX:
        return Malformed("sequence number out of range")
    if kind == ENQUEUE:
        sizes = measure_batch(data, reader.position)
        return Malformed("malformed batch") if sizes is None else Enqueue(session, seq, sizes)
    command = _decode_control(kind, session, seq, reader)
    return command if reader.at_end() else Malformed(f"malformed command of kind {kind}")


def _decode_control(kind: i64, session: i64, seq: i64, reader: OctetReader) -> Command:
    if kind == SETTLE:
        return _decode_settle(session, seq, reader)
    if kind == ATTACH:
        return _decode_attach(session, seq, reader)
    if kind == CANCEL:
        return Cancel(session, seq, reader.u32())
    if kind == GET:
        return Get(session, seq)
    return Purge(session, seq)


def _decode_settle(session: i64, seq: i64, reader: OctetReader) -> Command:
    count = reader.u32()
    items: list[SettleItem] = []
    if count * SETTLE_ITEM_OCTETS != len(reader.data) - reader.position:
        return Malformed("SETTLE of another length than its items")
    for _ in range(count):
        item = SettleItem(reader.u32(), reader.u8(), reader.u64(), reader.u64())
        if not ACCEPT <= item.operation <= MODIFY_FAILED or item.first > item.last:
            return Malformed("SETTLE with an unknown operation or an empty range")
        items.append(item)
    return Settle(session, seq, items)


def _decode_attach(session: i64, seq: i64, reader: OctetReader) -> Command:
    consumer = reader.u32()
    prefetch = reader.u32()
    flags = reader.u8()
    tag = reader.octets(reader.u8())
    if consumer == 0 or prefetch == 0 or flags > FLAG_EXCLUSIVE:
        return Malformed("ATTACH with consumer 0, prefetch 0 or an unknown flag")
    return Attach(session, seq, consumer, prefetch, flags == FLAG_EXCLUSIVE, tag)
