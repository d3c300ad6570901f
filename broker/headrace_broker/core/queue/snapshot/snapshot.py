"""A queue's state as bytes, without bodies: version 2, or 3 where there are sections.

Numbers are in groups of 7 bits (`varint`), but for u8. `text` is a length and bytes; `n x`
stands for a number and so many.

    u8 version | machine version | text settings | now | next id | u8 refusing | arrivals | overdue
    entries: n x (log position difference | count)
    lanes: n x (u8 priority | count | bytes | n x page | n x message)
    purged: n x page
    groups: n x message                delayed: n x message
    last values: follow from the messages
    dead: n x (u8 reason | message)    seen: n x (text name | time)
    sessions: n x session
    rotation: n x (session | number)   active: session | number, 0 | 0 for none
    sections, of version 3: n x (u8 number | text) in ascending order
        1, of a saturated queue: deferred: n x (log position difference | session
            | publish number of position 0 | n x (distance from there or the end before | count))
        2: n x (u8 priority | text key | count | bytes | n x page | n x message), which are the
           lanes that take turns, by priority and turn; of a plain one, with key "", no more
        3: epochs given | n x group | n x (number of the holder | u8 operation | n x message), of
           leases that ended
        4: n x publisher, who published last comes last
        5: had an archive since | index of the first row, or of the next one | n x text rows (see
            `archive_row`), each up to an index that PAGE_ROWS divides | n x (id | first delivered
            at), of messages that came back | epochs given | n x reader

    page: first id | last id | count | expires | size | text batches (see `batch_page`)
    message: id | entry | position | bytes | acquired | deliveries | arrived | expires
        | u8 priority | acquired at | due | text key
    session: number | publish seq | control seq | n x (seq | status | count | delivery)
        | n x (first | last | why) | n x consumer
    consumer: number | prefetch | u8 flags | u8 state | text tag | u8 sign | priority
        | prefetch bytes | timeout | arrival | next delivery | n x (delivery | message)
    group: text name | number of the holder | epoch | n x (text opener | epoch) | next number
        | settled | settled before | settled count | deadline | n x (number | n x message)
        | n x (number | u8 state | count | bytes | rows), of leases that are gone
    publisher: text id | epoch | last | used at | rows of holes
    reader: text name | epoch | n x (text opener | epoch) | committed | committed at
    rows: n x (distance from the end before | count)

What follows from the rest (counters, heaps, who owns a group) is computed again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from headrace_broker.core.queue.messages.batch import Batch
from headrace_broker.core.queue.messages.batch_page import (
    encode_batches,
    read_entries,
    write_varint,
)
from headrace_broker.core.queue.messages.settings import encode_settings
from headrace_broker.core.queue.snapshot.section import (
    encode_archive,
    encode_leases,
    encode_publishers,
    write_message,
    write_messages,
    write_rows,
    write_text,
)
from headrace_broker.core.queue.state.consumer import Consumer
from headrace_broker.core.queue.state.lane import Lane
from headrace_broker.core.queue.state.page import Page
from headrace_broker.core.queue.state.queue_state import QueueState
from headrace_broker.core.queue.state.ready_list import ReadyList
from headrace_broker.core.queue.state.session import Session
from headrace_broker.core.queue.state.watermark import Watermark

SNAPSHOT_VERSION: Final = 2
SECTIONS_VERSION: Final = 3
FLAG_EXCLUSIVE: Final = 1
FLAG_FILTERED: Final = 2
PAGED: Final = 0  # instead of a number of batches: with time and layout
ALL_BATCHES: Final = (1 << 62) - 1
SECTION_WATERMARK: Final = 1
SECTION_FAIR_LANES: Final = 2
SECTION_LEASES: Final = 3
SECTION_PUBLISHERS: Final = 4
SECTION_ARCHIVE: Final = 5


def live_indexes(state: QueueState) -> array[int]:
    """Return the log positions, ascending, of the entries that hold messages of the queue."""
    found: array[int] = array("Q")
    filled = 0
    for lane in [*state.ready.lanes, *state.ready.fair.of_values()]:
        if lane.pages:
            filled += 1
            _add_entries(lane.pages, found)
    if state.ready.purged:
        filled += 2  # they are of several lanes
        _add_entries(state.ready.purged, found)
    if filled > 1:
        found = array("Q", sorted(found))
    counts = state.ready.entries.counts
    if counts:
        found = _with(found, sorted(counts))
    archived = state.archived.entries()
    return _united(found, archived) if archived else found


def _united(found: array[int], others: array[int]) -> array[int]:
    """Return the log positions that are in one of both or in both, which have each once."""
    united: array[int] = array("Q")
    done: i64 = 0
    for entry_index in others:
        at: i64 = bisect_left(found, entry_index, done)
        united += found[done:at]
        united.append(entry_index)
        done = at + 1 if at < len(found) and found[at] == entry_index else at
    united += found[done:]
    return united


def _add_entries(pages: Collection[Page], found: array[int]) -> None:
    for page in pages:
        if page.packed:
            read_entries(page.packed, found)
        else:
            for batch in page.waiting():
                found.append(batch.entry_index)


def _with(found: array[int], counted: list[int]) -> array[int]:
    """Return the log positions found, and those counted; only these may be found repeatedly."""
    merged: array[int] = array("Q")
    done: i64 = 0
    for entry_index in counted:
        at: i64 = bisect_left(found, entry_index, done)
        merged += found[done:at]
        merged.append(entry_index)
        done = bisect_right(found, entry_index, at)
    merged += found[done:]
    return merged


def write_snapshot(state: QueueState) -> bytes:
    """Encode a queue's state."""
    return _write(state, PAGED)


def write_state(state: QueueState, batches_max: i64 = ALL_BATCHES) -> bytes:
    """Encode a queue's state without time and layout: equal for equal states.

    Args:
        state: of the queue.
        batches_max: batches that are encoded from the head of each lane, 1 or more; of the others
            only the number and bytes of their messages.
    """
    return _write(state, batches_max)


def _write(state: QueueState, batches_max: i64) -> bytes:
    out = BytesWriter()
    sections = _sections(state, batches_max)
    out.append(SECTIONS_VERSION if sections else SNAPSHOT_VERSION)
    write_varint(out, state.version)
    write_text(out, encode_settings(state.settings))
    write_varint(out, state.now_ms if batches_max == PAGED else 0)
    write_varint(out, state.ready.next_id)
    out.append(1 if state.refusing else 0)
    write_varint(out, state.arrivals)
    write_varint(out, state.overdue_ms)
    _write_ready(out, state.ready, batches_max)
    write_messages(out, state.ready.groups.loose.in_order())
    write_messages(
        out, [state.delayed.messages[number] for number in sorted(state.delayed.messages)]
    )
    write_varint(out, len(state.dead))
    for dead in state.dead.values():
        out.append(int(dead.reason))
        write_message(out, dead.message)
    write_varint(out, len(state.seen.seen))
    for name, time_ms in state.seen.seen.items():
        write_text(out, name)
        write_varint(out, time_ms)
    write_varint(out, len(state.sessions))
    for session in state.sessions.values():
        _write_session(out, session)
    waiting = state.rotation.in_order()
    write_varint(out, len(waiting))
    for consumer in waiting:
        _write_name(out, consumer)
    _write_name(out, state.active)
    if sections:
        write_varint(out, len(sections))
        for number, section in sections.items():
            out.append(number)
            write_text(out, section)
    return out.getvalue()


def _sections(state: QueueState, batches_max: i64) -> dict[int, bytes]:
    """Return what queues have of which earlier versions knew nothing, by ascending numbers."""
    sections: dict[int, bytes] = {}
    if state.watermark.saturated:
        sections[SECTION_WATERMARK] = _watermark(state.watermark)
    if state.ready.fair.count > 0:
        sections[SECTION_FAIR_LANES] = _fair_lanes(state.ready.fair.in_order(), batches_max)
    if state.leases.epochs > 0:
        sections[SECTION_LEASES] = encode_leases(state.leases)
    if state.publishers.known:
        sections[SECTION_PUBLISHERS] = encode_publishers(state.publishers)
    if state.archived.since_ms > 0:
        sections[SECTION_ARCHIVE] = encode_archive(state.archived)
    return sections


def _write_ready(out: BytesWriter, ready: ReadyList, batches_max: i64) -> None:
    counts = ready.entries.counts
    write_varint(out, len(counts))
    before: i64 = 0
    for entry_index in sorted(counts):
        write_varint(out, entry_index - before)
        write_varint(out, counts[entry_index])
        before = entry_index
    lanes = [lane for lane in ready.lanes if lane.count > 0]
    write_varint(out, len(lanes))
    for lane in lanes:
        out.append(int(lane.priority))
        _write_lane(out, lane, batches_max)
    _write_pages(out, ready.purged or ())


def _write_lane(out: BytesWriter, lane: Lane, batches_max: i64) -> None:
    write_varint(out, lane.count)
    write_varint(out, lane.byte_count)
    if batches_max == PAGED:
        _write_pages(out, lane.pages)
    else:
        write_text(out, encode_batches(_first_batches(lane, batches_max)))
    write_messages(out, lane.loose.in_order())


def _first_batches(lane: Lane, batches_max: i64) -> list[Batch]:
    batches: list[Batch] = []
    for page in lane.pages:
        batches.extend(page.waiting())
        if len(batches) >= batches_max:
            return batches[:batches_max]
    return batches


def _fair_lanes(lanes: list[Lane], batches_max: i64) -> bytes:
    out = BytesWriter()
    write_varint(out, len(lanes))
    for lane in lanes:
        out.append(int(lane.priority))
        write_text(out, lane.key)
        if lane.key:
            _write_lane(out, lane, batches_max)
    return out.getvalue()


def _write_pages(out: BytesWriter, pages: Collection[Page]) -> None:
    write_varint(out, len(pages))
    for page in pages:
        write_varint(out, page.first_id)
        write_varint(out, page.last_id)
        write_varint(out, page.count)
        write_varint(out, page.expires_ms)
        write_varint(out, page.size)
        write_text(out, page.packed or encode_batches(page.waiting()))


def _watermark(watermark: Watermark) -> bytes:
    out = BytesWriter()
    write_varint(out, len(watermark.commands))
    before: i64 = 0
    for index, command in watermark.commands.items():
        write_varint(out, index - before)
        before = index
        write_varint(out, command.session.number)
        write_varint(out, command.base)
        write_rows(out, command.seqs.bounds, command.base)
    return out.getvalue()


def _write_session(out: BytesWriter, session: Session) -> None:
    write_varint(out, session.number)
    write_varint(out, session.publish_seq)
    write_varint(out, session.control_seq)
    write_varint(out, len(session.answers))
    for answer in session.answers:
        write_varint(out, answer.seq)
        write_varint(out, answer.status)
        write_varint(out, answer.count)
        write_varint(out, answer.delivery)
    write_varint(out, len(session.refusals))
    for refusal in session.refusals:
        write_varint(out, refusal.first)
        write_varint(out, refusal.last)
        write_varint(out, refusal.why)
    write_varint(out, len(session.consumers))
    for consumer in session.consumers.values():
        _write_consumer(out, consumer)


def _write_consumer(out: BytesWriter, consumer: Consumer) -> None:
    write_varint(out, consumer.number)
    write_varint(out, consumer.prefetch)
    exclusive = FLAG_EXCLUSIVE if consumer.exclusive else 0
    out.append(exclusive | (FLAG_FILTERED if consumer.filtered else 0))
    out.append(int(consumer.state))
    write_text(out, consumer.tag)
    priority = consumer.priority
    out.append(1 if priority < 0 else 0)
    write_varint(out, -priority if priority < 0 else priority)
    write_varint(out, consumer.prefetch_bytes)
    write_varint(out, consumer.timeout_ms)
    write_varint(out, consumer.arrival)
    write_varint(out, consumer.next_delivery)
    write_varint(out, len(consumer.unsettled))
    for number, message in consumer.unsettled.items():
        write_varint(out, number)
        write_message(out, message)


def _write_name(out: BytesWriter, consumer: Consumer | None) -> None:
    write_varint(out, 0 if consumer is None else consumer.session)
    write_varint(out, 0 if consumer is None else consumer.number)
