"""A queue's state as octets, without bodies: version 1, big-endian.

    u8 version | u64 next message id
    batches: u32 n | n x (u64 entry | u64 id base | u32 next | u32 count | sizes)
    returned: u32 n | n x acquired
    sessions: u32 n | n x (u64 number | u64 publish seq | u64 control seq | answers | consumers)
    rotation: u32 n | n x (u64 session | u32 consumer)

    sizes: u8 0 | u32 octets of every body, or u8 1 | count x u32
    acquired: u64 id | u64 entry | u32 position | u64 acquired count | u64 delivery count

    answers: u32 n | n x (u64 seq | u32 status | u64 count | u64 delivery)
    consumers: u32 n | n x (u32 number | u32 prefetch | u8 exclusive | u8 state | u8 m | m bytes tag
        | u64 next delivery | u32 unsettled | unsettled x (u64 delivery | acquired))

Drained batches with messages out stand before those that still have new messages. What follows
from the rest (counters, sizes of single messages, messages out per batch) is computed again.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64

from headrace_broker.core.batch_sizes import UNEQUAL, BatchSizes
from headrace_broker.core.command import write_u32
from headrace_broker.core.effect import Acquired
from headrace_broker.core.octet_reader import OctetReader
from headrace_broker.core.queue_state import QueueState
from headrace_broker.core.ready_list import Batch, ReadyList
from headrace_broker.core.session import (
    ATTACHED,
    DETACHED,
    GETTER,
    Answer,
    Consumer,
    Session,
)

SNAPSHOT_VERSION: Final = 1


class SnapshotError(ValueError):
    """A snapshot is malformed or of a version that this code does not know."""


def write_snapshot(state: QueueState) -> bytes:
    """Encode a queue's state; equal states give equal octets."""
    out = BytesWriter()
    out.append(SNAPSHOT_VERSION)
    _write_ready(out, state.ready)
    write_u32(out, len(state.sessions))
    for session in state.sessions.values():
        _write_session(out, session)
    write_u32(out, len(state.rotation))
    for consumer in state.rotation:
        write_i64_be(out, consumer.session)
        write_u32(out, consumer.number)
    return out.getvalue()


def _write_ready(out: BytesWriter, ready: ReadyList) -> None:
    write_i64_be(out, ready.next_id)
    drained: list[Batch] = []
    for index in sorted(ready.touched):
        batch = ready.touched[index]
        if batch.next == batch.sizes.count:
            drained.append(batch)
    write_u32(out, len(drained) + len(ready.batches))
    for batch in drained:
        _write_batch(out, batch)
    for batch in ready.batches:
        _write_batch(out, batch)
    write_u32(out, len(ready.returned))
    for message_id in sorted(ready.returned):
        _write_acquired(out, ready.returned[message_id])


def _write_batch(out: BytesWriter, batch: Batch) -> None:
    sizes = batch.sizes
    write_i64_be(out, batch.entry_index)
    write_i64_be(out, batch.id_base)
    write_u32(out, batch.next)
    write_u32(out, sizes.count)
    if sizes.size == UNEQUAL:
        out.append(1)
        out.write(sizes.table)
    else:
        out.append(0)
        write_u32(out, sizes.size)


def _write_acquired(out: BytesWriter, message: Acquired) -> None:
    write_i64_be(out, message.message_id)
    write_i64_be(out, message.entry_index)
    write_u32(out, message.position)
    write_i64_be(out, message.acquired_count)
    write_i64_be(out, message.delivery_count)


def _write_session(out: BytesWriter, session: Session) -> None:
    write_i64_be(out, session.number)
    write_i64_be(out, session.publish_seq)
    write_i64_be(out, session.control_seq)
    write_u32(out, len(session.answers))
    for answer in session.answers:
        write_i64_be(out, answer.seq)
        write_u32(out, answer.status)
        write_i64_be(out, answer.count)
        write_i64_be(out, answer.delivery)
    write_u32(out, len(session.consumers))
    for consumer in session.consumers.values():
        _write_consumer(out, consumer)


def _write_consumer(out: BytesWriter, consumer: Consumer) -> None:
    write_u32(out, consumer.number)
    write_u32(out, consumer.prefetch)
    out.append(1 if consumer.exclusive else 0)
    out.append(int(consumer.state))
    out.append(len(consumer.tag))
    out.write(consumer.tag)
    write_i64_be(out, consumer.next_delivery)
    write_u32(out, len(consumer.unsettled))
    for number, message in consumer.unsettled.items():
        write_i64_be(out, number)
        _write_acquired(out, message)


def read_snapshot(snapshot: bytes) -> QueueState:
    """Decode what `write_snapshot` gave.

    Raises:
        SnapshotError: it is malformed or of an unknown version.
    """
    reader = OctetReader(snapshot, 0)
    version = reader.u8()
    if version != SNAPSHOT_VERSION:
        raise SnapshotError(f"queue snapshot of version {version}, known is {SNAPSHOT_VERSION}")
    state = QueueState()
    try:
        _read_state(reader, state)
    except LookupError as error:
        raise SnapshotError(f"queue snapshot refers to what it does not hold: {error}") from error
    if not reader.at_end():
        raise SnapshotError(f"queue snapshot malformed near octet {reader.position}")
    return state


def _read_state(reader: OctetReader, state: QueueState) -> None:
    _read_ready(reader, state.ready)
    for _ in range(_count(reader)):
        session = _read_session(reader, state)
        state.sessions[session.number] = session
    for batch in list(state.ready.touched.values()):
        if batch.out == 0:
            del state.ready.touched[batch.entry_index]
    for _ in range(_count(reader)):
        consumer = state.sessions[reader.u64()].consumers[reader.u32()]
        consumer.waiting = True
        state.rotation.append(consumer)


def _count(reader: OctetReader) -> i64:
    """Read a number of things, each of which takes at least one octet."""
    count = reader.u32()
    if count > len(reader.data) - reader.position:
        reader.failed = True
        return 0
    return count


def _read_ready(reader: OctetReader, ready: ReadyList) -> None:
    ready.next_id = reader.u64()
    for _ in range(_count(reader)):
        batch = _read_batch(reader)
        ready.touched[batch.entry_index] = batch
        if batch.next < batch.sizes.count:
            ready.batches.append(batch)
            ready.count += batch.sizes.count - batch.next
            ready.octets += batch.sizes.octets_between(batch.next, batch.sizes.count)
    for _ in range(_count(reader)):
        message = _read_acquired(reader, ready)
        ready.returned[message.message_id] = message
        ready.returned_ids.append(message.message_id)
        ready.count += 1
        ready.octets += message.octets


def _read_batch(reader: OctetReader) -> Batch:
    entry_index = reader.u64()
    id_base = reader.u64()
    following = reader.u32()
    count = reader.u32()
    if reader.u8() == 0:
        sizes = BatchSizes(count, reader.u32(), b"")
    else:
        sizes = BatchSizes(count, UNEQUAL, reader.octets(count * 4))
    if following > count or reader.failed:
        raise LookupError(f"position {following} of {count} messages")
    return Batch(entry_index, id_base, following, sizes)


def _read_acquired(reader: OctetReader, ready: ReadyList) -> Acquired:
    """Read a message that was acquired before and count it as out of its batch."""
    message_id = reader.u64()
    entry_index = reader.u64()
    position = reader.u32()
    acquired_count = reader.u64()
    delivery_count = reader.u64()
    batch = ready.touched[entry_index]
    if position >= batch.next:
        raise LookupError(f"message {position} of entry {entry_index}")
    batch.out += 1
    octets = batch.sizes.octets(position)
    return Acquired(message_id, entry_index, position, octets, acquired_count, delivery_count)


def _read_session(reader: OctetReader, state: QueueState) -> Session:
    session = Session(reader.u64())
    session.publish_seq = reader.u64()
    session.control_seq = reader.u64()
    for _ in range(_count(reader)):
        session.answers.append(Answer(reader.u64(), reader.u32(), reader.u64(), reader.u64()))
    for _ in range(_count(reader)):
        consumer = _read_consumer(reader, session.number, state)
        session.consumers[consumer.number] = consumer
    return session


def _read_consumer(reader: OctetReader, session: i64, state: QueueState) -> Consumer:
    consumer = Consumer(session, reader.u32())
    consumer.prefetch = reader.u32()
    consumer.exclusive = reader.u8() == 1
    consumer.state = reader.u8()
    if not ATTACHED <= consumer.state <= GETTER:
        raise LookupError(f"consumer state {consumer.state}")
    consumer.tag = reader.octets(reader.u8())
    consumer.next_delivery = reader.u64()
    for _ in range(_count(reader)):
        number = reader.u64()
        message = _read_acquired(reader, state.ready)
        consumer.unsettled[number] = message
        state.unsettled_count += 1
        state.unsettled_octets += message.octets
    if consumer.state == ATTACHED:
        state.attached_count += 1
        state.exclusive = consumer.exclusive
    elif consumer.state == DETACHED:
        state.detached_count += 1
    return consumer
