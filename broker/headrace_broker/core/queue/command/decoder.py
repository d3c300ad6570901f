"""Reads commands back from the data of log entries; total, for any bytes."""

from __future__ import annotations

from mypy_extensions import i64

from headrace_broker.core.queue.command.archive_command import decode_archive_command
from headrace_broker.core.queue.command.command import (
    ACCEPT,
    ACQUIRE,
    ATTACH,
    CANCEL,
    CLOSE,
    CLOSE_ARCHIVE,
    CLOSE_GROUP,
    COMMAND_VERSION,
    CONFIGURE,
    ENQUEUE,
    ENQUEUE_NOW,
    EXTENDED_VERSION,
    FLAG_EXCLUSIVE,
    FLAG_FILTERED,
    FORGET,
    GET,
    MODIFY_FAILED,
    NAMED_VERSION,
    NODE_DOWN,
    NUMBER_MAX,
    OPEN_ARCHIVE,
    OPEN_GROUP,
    PREFETCH_ITEM_BYTES,
    REMOVE,
    SET_PREFETCH,
    SETTLE,
    SETTLE_ITEM_BYTES,
    STAMP_BYTES,
    TICK,
    Attach,
    Cancel,
    Close,
    Command,
    Enqueue,
    Get,
    Malformed,
    NodeDown,
    Purge,
    Remove,
    SetPrefetch,
    Settle,
    SettleItem,
)
from headrace_broker.core.queue.command.leader_command import Acquire, Configure, Forget, Tick
from headrace_broker.core.queue.command.lease_command import decode_lease_command
from headrace_broker.core.queue.messages.batch_sizes import measure_batch
from headrace_broker.core.queue.messages.byte_reader import ByteReader
from headrace_broker.core.queue.messages.publisher import read_named
from headrace_broker.core.queue.messages.settings import decode_settings


def decode_command(data: bytes) -> Command:
    """Decode the data of an entry, stamp included; return Malformed where it breaks any rule."""
    reader = ByteReader(data, STAMP_BYTES)
    kind = reader.u8()
    version = reader.u8()
    if reader.failed:
        return Malformed("shorter than its head")
    if not _is_known(kind, version):
        return Malformed(f"unknown command kind {kind} version {version}")
    if CONFIGURE <= kind <= ACQUIRE or kind in (NODE_DOWN, FORGET):
        command = _decode_leaders(kind, reader)
        return command if reader.at_end() else Malformed(f"malformed command of kind {kind}")
    if OPEN_GROUP <= kind <= CLOSE_GROUP:
        command = decode_lease_command(kind, reader)
        return command if reader.at_end() else Malformed(f"malformed command of kind {kind}")
    if OPEN_ARCHIVE <= kind <= CLOSE_ARCHIVE:
        command = decode_archive_command(kind, reader)
        return command if reader.at_end() else Malformed(f"malformed command of kind {kind}")
    session = reader.u64()
    if not 1 <= session <= NUMBER_MAX:
        return Malformed("session out of range")
    if kind == CLOSE:
        return Close(session) if reader.at_end() else Malformed("malformed CLOSE")
    seq = reader.u64()
    if not 1 <= seq <= NUMBER_MAX:
        return Malformed("sequence number out of range")
    if kind in (ENQUEUE, ENQUEUE_NOW):
        if version == NAMED_VERSION:
            return _decode_named(session, seq, reader)
        base = reader.position
        sizes = measure_batch(data, base)
        if sizes is None:
            return Malformed("malformed batch")
        patient = version == EXTENDED_VERSION
        return Enqueue(session, seq, base, sizes, kind == ENQUEUE_NOW, patient)
    command = _decode_control(kind, version, session, seq, reader)
    return command if reader.at_end() else Malformed(f"malformed command of kind {kind}")


def _is_known(kind: i64, version: i64) -> bool:
    if version == COMMAND_VERSION:
        return ENQUEUE <= kind <= SET_PREFETCH
    if version == NAMED_VERSION:
        return kind == ENQUEUE
    return version == EXTENDED_VERSION and kind in (ENQUEUE, ATTACH, GET)


def _decode_named(session: i64, seq: i64, reader: ByteReader) -> Command:
    """Decode a batch with who publishes it behind it."""
    named = read_named(reader.data, reader.position)
    if named is None:
        return Malformed("malformed numbers of a publisher")
    sizes = measure_batch(reader.data, reader.position, named.batch_end)
    if sizes is None or sizes.count != named.count:
        return Malformed("malformed batch, or another number of messages than its publisher says")
    enqueue = Enqueue(session, seq, reader.position, sizes, False, named.patient)
    enqueue.named = named
    return enqueue


def _decode_leaders(kind: i64, reader: ByteReader) -> Command:
    if kind == NODE_DOWN:
        return NodeDown(reader.u32(), reader.u32())
    if kind == TICK:
        return Tick()
    if kind == ACQUIRE:
        return Acquire(reader.u64(), reader.u32(), reader.ids())
    if kind == FORGET:
        return Forget(reader.ids())
    version = reader.u8()
    settings = decode_settings(reader.read_bytes(len(reader.data) - reader.position))
    if settings is None or reader.failed:
        return Malformed("CONFIGURE with settings that are not understood")
    return Configure(version, settings)


def _decode_control(kind: i64, version: i64, session: i64, seq: i64, reader: ByteReader) -> Command:
    if kind == SETTLE:
        return _decode_settle(session, seq, reader)
    if kind == ATTACH:
        return _decode_attach(version, session, seq, reader)
    if kind == CANCEL:
        return Cancel(session, seq, reader.u32())
    if kind == GET:
        return Get(session, seq, reader.u64() if version == EXTENDED_VERSION else 0)
    if kind == REMOVE:
        return Remove(session, seq, reader.ids())
    if kind == SET_PREFETCH:
        return _decode_set_prefetch(session, seq, reader)
    return Purge(session, seq)


def _decode_settle(session: i64, seq: i64, reader: ByteReader) -> Command:
    count = reader.u32()
    items: list[SettleItem] = []
    if count * SETTLE_ITEM_BYTES != len(reader.data) - reader.position:
        return Malformed("SETTLE of another length than its items")
    for _ in range(count):
        item = SettleItem(reader.u32(), reader.u8(), reader.u64(), reader.u64())
        if not ACCEPT <= item.operation <= MODIFY_FAILED or item.first > item.last:
            return Malformed("SETTLE with an unknown operation or an empty range")
        items.append(item)
    return Settle(session, seq, items)


def _decode_set_prefetch(session: i64, seq: i64, reader: ByteReader) -> Command:
    count = reader.u32()
    items: list[tuple[int, int]] = []
    if count * PREFETCH_ITEM_BYTES != len(reader.data) - reader.position:
        return Malformed("SET_PREFETCH of another length than its items")
    for _ in range(count):
        consumer, prefetch = reader.u32(), reader.u32()
        if consumer == 0 or prefetch == 0:
            return Malformed("SET_PREFETCH with consumer 0 or prefetch 0")
        items.append((int(consumer), int(prefetch)))
    return SetPrefetch(session, seq, items)


def _decode_attach(version: i64, session: i64, seq: i64, reader: ByteReader) -> Command:
    consumer = reader.u32()
    prefetch = reader.u32()
    flags = reader.u8()
    tag = reader.read_bytes(reader.u8())
    known = FLAG_EXCLUSIVE if version == COMMAND_VERSION else FLAG_EXCLUSIVE | FLAG_FILTERED
    if consumer == 0 or prefetch == 0 or flags > known:
        return Malformed("ATTACH with consumer 0, prefetch 0 or an unknown flag")
    attach = Attach(session, seq, consumer, prefetch, flags, tag)
    if version == EXTENDED_VERSION:
        attach.priority = reader.s32()
        attach.prefetch_bytes = reader.u32()
        attach.timeout_ms = reader.u64()
    return attach
