"""Reads a queue's state back from a snapshot (layout in `snapshot`)."""

from __future__ import annotations

from mypy_extensions import i64

from headrace_broker.core.queue.messages.batch_page import decode_batches
from headrace_broker.core.queue.messages.byte_reader import ByteReader
from headrace_broker.core.queue.messages.effect import REASON_NAMES, Acquired, PublishRejected
from headrace_broker.core.queue.messages.settings import PRIORITY_MAX, decode_settings
from headrace_broker.core.queue.snapshot.restoring_section import (
    read_archive,
    read_count,
    read_leases,
    read_message,
    read_publishers,
    read_text,
)
from headrace_broker.core.queue.snapshot.snapshot import (
    FLAG_EXCLUSIVE,
    FLAG_FILTERED,
    SECTION_ARCHIVE,
    SECTION_FAIR_LANES,
    SECTION_LEASES,
    SECTION_PUBLISHERS,
    SECTION_WATERMARK,
    SECTIONS_VERSION,
    SNAPSHOT_VERSION,
)
from headrace_broker.core.queue.state.consumer import ATTACHED, DETACHED, GETTER, Consumer
from headrace_broker.core.queue.state.lane import Lane
from headrace_broker.core.queue.state.page import Page
from headrace_broker.core.queue.state.queue_state import DeadMessage, QueueState
from headrace_broker.core.queue.state.ready_list import KEY_GROUP
from headrace_broker.core.queue.state.session import Answer, DeferredCommand, Session


class SnapshotError(ValueError):
    """A snapshot is malformed or of a version that this code does not know."""


def read_snapshot(data: bytes) -> QueueState:
    """Decode a queue's state; SnapshotError for what `write_snapshot` does not give."""
    reader = ByteReader(data, 0)
    version = reader.u8()
    if version not in (SNAPSHOT_VERSION, SECTIONS_VERSION):
        known = f"{SNAPSHOT_VERSION} or {SECTIONS_VERSION}"
        raise SnapshotError(f"snapshot of version {version}, not {known}")
    state = QueueState()
    try:
        _read_state(reader, state)
        if version == SECTIONS_VERSION:
            _read_sections(reader, state)
    except LookupError as error:
        raise SnapshotError(f"malformed near byte {reader.position}: {error}") from error
    if not reader.at_end():
        raise SnapshotError(f"malformed near byte {reader.position}: another length")
    return state


def _read_state(reader: ByteReader, state: QueueState) -> None:
    state.version = reader.varint()
    settings = decode_settings(read_text(reader))
    if settings is None:
        raise LookupError("settings")
    state.settings = settings
    state.archived.mode = settings.archive
    state.now_ms = reader.varint()
    state.ready.next_id = reader.varint()
    state.refusing = reader.u8() == 1
    state.arrivals = reader.varint()
    state.overdue_ms = reader.varint()
    entry_index: i64 = 0
    for _ in range(read_count(reader)):
        entry_index += reader.varint()
        state.ready.entries.counts[entry_index] = reader.varint()
    for _ in range(read_count(reader)):
        _read_lane(reader, state)
    state.ready.find_top()
    state.ready.add_purged([_read_page(reader) for _ in range(read_count(reader))])
    for _ in range(read_count(reader)):
        state.ready.add(read_message(reader, state))
    for _ in range(read_count(reader)):
        state.delayed.add(read_message(reader, state))
    for _ in range(read_count(reader)):
        _read_dead(reader, state)
    for _ in range(read_count(reader)):
        name = read_text(reader)
        time_ms = reader.varint()
        if name in state.seen.seen:
            raise LookupError("a name that is remembered twice")
        state.seen.remember(name, time_ms)
    for _ in range(read_count(reader)):
        session = _read_session(reader, state)
        state.sessions[session.number] = session
    for _ in range(read_count(reader)):
        consumer = _named(reader, state)
        if consumer is None or consumer.waiting:
            raise LookupError("a place in the rotation for nobody, or for one that has one")
        state.rotation.add(consumer)
    state.active = _named(reader, state)


def _read_sections(reader: ByteReader, state: QueueState) -> None:
    before: i64 = 0
    for _ in range(read_count(reader)):
        section = reader.u8()
        body = ByteReader(read_text(reader), 0)
        if section <= before:
            raise LookupError(f"section {section} behind {before}")
        before = section
        _read_section(section, body, state)
        if not body.at_end():
            raise LookupError(f"section {section} of another length")


def _read_section(section: i64, reader: ByteReader, state: QueueState) -> None:
    if section == SECTION_WATERMARK:
        _read_watermark(reader, state)
    elif section == SECTION_FAIR_LANES:
        _read_fair_lanes(reader, state)
    elif section == SECTION_LEASES:
        read_leases(reader, state)
    elif section == SECTION_PUBLISHERS:
        read_publishers(reader, state)
    elif section == SECTION_ARCHIVE:
        read_archive(reader, state)
    else:
        raise LookupError(f"unknown section {section}")


def _read_watermark(reader: ByteReader, state: QueueState) -> None:
    mark = state.watermark
    mark.saturated = True
    index: i64 = 0
    for _ in range(read_count(reader)):
        step = reader.varint()
        index += step
        session = state.sessions.get(reader.varint())
        if session is None or step == 0:
            raise LookupError(f"deferred of nobody, or of entry {index} again")
        base = reader.varint()
        command = DeferredCommand(session, base)
        end = base
        for _ in range(read_count(reader)):
            start = end + reader.varint()
            end = start + reader.varint()
            command.seqs.append(start, end)
            mark.count += end - start
        if not command.seqs or end > session.publish_seq + 1:
            raise LookupError(f"deferred of entry {index} what was not published")
        mark.keep(index, command)


def _read_lane(reader: ByteReader, state: QueueState) -> None:
    priority = reader.u8()
    if priority > PRIORITY_MAX:
        raise LookupError(f"priority {priority}")
    lane = state.ready.lane(priority)
    if lane.count > 0:
        raise LookupError(f"priority {priority} twice")
    _read_lane_body(reader, state, lane)


def _read_fair_lanes(reader: ByteReader, state: QueueState) -> None:
    for _ in range(read_count(reader)):
        priority = reader.u8()
        key = read_text(reader)
        if priority > PRIORITY_MAX:
            raise LookupError(f"priority {priority}")
        if not key:
            state.ready.fair.restore(state.ready.lane(priority))
            continue
        lane = Lane(priority, key, state.ready.entries)
        _read_lane_body(reader, state, lane)
        state.ready.fair.restore(lane)
    state.ready.fair.check(state.ready.lanes)
    state.ready.find_top()


def _read_lane_body(reader: ByteReader, state: QueueState, lane: Lane) -> None:
    count = reader.varint()
    byte_count = reader.varint()
    for _ in range(read_count(reader)):
        lane.put_page(_read_page(reader))
    lane.count = count
    lane.byte_count = byte_count
    state.ready.count += count
    state.ready.byte_count += byte_count
    for _ in range(read_count(reader)):
        message = read_message(reader, state)
        lane.put_back(message)
        if lane.key and message.key != lane.key:
            raise LookupError(f"message {message.message_id} in another's lane")
        if message.key and not lane.key:
            state.ready.last_values[message.key] = message.message_id


def _read_page(reader: ByteReader) -> Page:
    page = Page()
    page.first_id = reader.varint()
    page.last_id = reader.varint()
    page.count = reader.varint()
    page.expires_ms = reader.varint()
    page.size = reader.varint()
    page.packed = read_text(reader)
    if sum([batch.count for batch in decode_batches(page.packed)]) != page.count:
        raise LookupError(f"a page with another number of messages than {page.count}")
    return page


def _read_dead(reader: ByteReader, state: QueueState) -> None:
    reason = reader.u8()
    message = read_message(reader, state)
    if reason not in REASON_NAMES:
        raise LookupError(f"reason {reason}")
    state.dead[message.message_id] = DeadMessage(message, reason)
    state.dead_bytes += message.byte_count


def _read_session(reader: ByteReader, state: QueueState) -> Session:
    session = Session(reader.varint())
    session.publish_seq = reader.varint()
    session.control_seq = reader.varint()
    for _ in range(read_count(reader)):
        session.answers.append(
            Answer(reader.varint(), reader.varint(), reader.varint(), reader.varint())
        )
    for _ in range(read_count(reader)):
        session.refusals.append(
            PublishRejected(session.number, reader.varint(), reader.varint(), reader.varint())
        )
    for _ in range(read_count(reader)):
        consumer = _read_consumer(reader, session.number, state)
        session.consumers[consumer.number] = consumer
    return session


def _read_consumer(reader: ByteReader, session: i64, state: QueueState) -> Consumer:
    consumer = Consumer(session, reader.varint())
    consumer.prefetch = reader.varint()
    flags = reader.u8()
    consumer.exclusive = flags & FLAG_EXCLUSIVE != 0
    consumer.filtered = flags & FLAG_FILTERED != 0
    consumer.state = reader.u8()
    if not ATTACHED <= consumer.state <= GETTER:
        raise LookupError(f"consumer state {consumer.state}")
    consumer.tag = read_text(reader)
    negative = reader.u8() == 1
    consumer.priority = reader.varint()
    if negative:
        consumer.priority = -consumer.priority
    consumer.prefetch_bytes = reader.varint()
    consumer.timeout_ms = reader.varint()
    consumer.arrival = reader.varint()
    consumer.next_delivery = reader.varint()
    for _ in range(read_count(reader)):
        number = reader.varint()
        _read_unsettled(consumer, number, read_message(reader, state), state)
    if consumer.state == ATTACHED:
        state.attached_count += 1
        if consumer.filtered:
            state.filtered_count += 1
        state.exclusive = consumer.exclusive
    elif consumer.state == DETACHED:
        state.detached_count += 1
    return consumer


def _read_unsettled(consumer: Consumer, number: i64, message: Acquired, state: QueueState) -> None:
    consumer.unsettled[number] = message
    state.unsettled_count += 1
    state.unsettled_bytes += message.byte_count
    if consumer.prefetch_bytes > 0:
        consumer.byte_count += message.byte_count
    if message.key.startswith(KEY_GROUP):
        state.ready.groups.hold(consumer, message)


def _named(reader: ByteReader, state: QueueState) -> Consumer | None:
    number = reader.varint()
    consumer_number = reader.varint()
    if number == 0:
        return None
    return state.sessions[number].consumers[consumer_number]
