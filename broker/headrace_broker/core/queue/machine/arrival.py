"""Messages that arrive: which are refused, and where the others wait."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, final

from librt.strings import read_i32_be
from mypy_extensions import i64

from headrace_broker.core.property_reader import (
    EXPIRATION,
    HEADERS,
    NO_INTEGER,
    PRIORITY,
    header_int,
    header_key,
)
from headrace_broker.core.queue.command.command import Enqueue
from headrace_broker.core.queue.messages.batch import Batch
from headrace_broker.core.queue.messages.batch_sizes import U32, UNEQUAL
from headrace_broker.core.queue.messages.effect import (
    LANE_PUBLISH,
    REASON_MAXLEN,
    REFUSED_FENCED,
    REFUSED_NO_CONSUMER,
    REFUSED_OVERFLOW,
    Acquired,
    DeadLettered,
    Effect,
    Enqueued,
    Gap,
    PublishRejected,
)
from headrace_broker.core.queue.messages.publisher import Named
from headrace_broker.core.queue.messages.settings import (
    DEAD_LETTER_NONE,
    OVERFLOW_DROP_HEAD,
    OVERFLOW_REJECT_PUBLISH_DLX,
)
from headrace_broker.core.queue.state.fair_lanes import fair_key, is_fair
from headrace_broker.core.queue.state.queue_state import QueueState
from headrace_broker.core.queue.state.ready_list import KEY_GROUP, KEY_LAST_VALUE
from headrace_broker.core.queue.state.session import Session

FENCING_VERSION: Final = 4  # from this machine version on, publishers are told that they are fenced
DELAY_HEADER: Final = b"x-delay"
DELAY_MS_MAX: Final = 0xFFFFFFFF  # 49 days, as RabbitMQ's plugin
DEDUPLICATION_HEADER: Final = b"x-deduplication-header"
_DELAY_FIELD: Final = b"\x07x-delay"
_RESUME_PERCENT: Final = 80  # of its limits, to which a queue that refuses must drain


def enqueue(
    state: QueueState, index: i64, data: bytes, command: Enqueue, effects: list[Effect]
) -> bool:
    """Accept the new messages of a batch; return whether anything of the entry is needed."""
    known = state.sessions.get(command.session)
    done: i64 = 0 if known is None else known.publish_seq
    count = command.sizes.count
    last = command.seq + count - 1
    if command.seq > done + 1 or last <= done:
        _answer_again(state, known, command, done, effects)
        return False
    session = state.open_session(command.session)
    session.publish_seq = last
    if command.named is not None and _is_fenced(state, command.named):
        _note_publisher(state, command.named, 0, 0)
        _refuse(session, done + 1, last, REFUSED_FENCED, effects)
        if session.deferred:
            state.watermark.announce(session, command.seq, effects)
        effects.append(Enqueued(command.session, last))
        return False
    had = _had_before(state, command)
    skip = _first_new(had, done + 1 - command.seq)
    special = (len(had) > 0 and had[-1] > skip) or _is_special(state, data, command)
    stop = _admit(state, data, command, skip, special) if skip < count else count
    if command.named is not None:
        _note_publisher(state, command.named, done + 1 - command.seq, stop)
    if stop < count:
        why = REFUSED_NO_CONSUMER if command.now else REFUSED_OVERFLOW
        _refuse(session, command.seq + stop, last, why, effects)
    if command.patient:
        _defer(state, index, session, command, skip, stop)
    if session.deferred:
        state.watermark.announce(session, command.seq, effects)
    effects.append(Enqueued(command.session, last))
    if state.settings.max_length >= 0 or state.settings.max_length_bytes >= 0:
        state.budget.extend(stop - skip, command.sizes.bytes_between(skip, stop))
    id_base = state.ready.next_id - skip
    state.ready.next_id += count - skip
    kept = False
    if special and stop > skip:
        kept = _Sorter(state, index, data, command, id_base, had).place(skip, stop, effects)
    elif stop > skip:
        kept = True
        expires = _expiry(state.now_ms, state.settings.message_ttl_ms)
        batch = Batch(index, id_base, skip, stop, command.sizes, state.now_ms, expires)
        state.ready.append(batch, 0, b"")
    if stop < count and not command.now:
        _bury_refused(state, index, command, stop, had, effects)
    return kept


def _is_fenced(state: QueueState, named: Named) -> bool:
    """Return whether the publisher of a batch has published under a later epoch since."""
    if state.version < FENCING_VERSION:
        return False
    return state.publishers.fences(named, state.now_ms, state.settings.publisher_retention_ms)


def _note_publisher(state: QueueState, named: Named, start: i64, stop: i64) -> None:
    """Note that positions `start` to `stop` - 1 of a batch came; a fenced one is noted as alive."""
    keep_ms = state.settings.publisher_retention_ms
    state.publishers.note(named, start, stop, state.now_ms, keep_ms)


def _refuse(session: Session, first: i64, last: i64, why: i64, effects: list[Effect]) -> None:
    refusal = PublishRejected(session.number, first, last, why)
    session.keep_refusal(refusal)
    effects.append(refusal)


def _answer_again(
    state: QueueState, known: Session | None, command: Enqueue, done: i64, effects: list[Effect]
) -> None:
    """Answer a gap before a command, or repeat the answer to an earlier command."""
    if command.seq > done + 1:
        effects.append(Gap(command.session, LANE_PUBLISH, done + 1))
        return
    if known is not None:
        effects.extend([r for r in known.refusals if r.last >= command.seq])
        if known.deferred:
            state.watermark.announce(known, command.seq, effects)
    effects.append(Enqueued(command.session, done))


def _had_before(state: QueueState, command: Enqueue) -> list[int]:
    """Return the positions that came before under their publisher's numbers, in rows."""
    if command.named is None:
        return []
    keep_ms = state.settings.publisher_retention_ms
    return state.publishers.had(command.named, state.now_ms, keep_ms)


def _first_new(had: list[int], skip: i64) -> i64:
    """Return the first position from `skip` on that is not in rows of those that came before."""
    for row in range(0, len(had), 2):
        if had[row] <= skip < had[row + 1]:
            return had[row + 1]
    return skip


def _is_special(state: QueueState, data: bytes, command: Enqueue) -> bool:
    """Return whether the messages have to be examined one by one."""
    flags = command.sizes.flags
    if state.version < 2 or flags & (EXPIRATION | PRIORITY | HEADERS) == 0:
        return False
    settings = state.settings
    if flags & EXPIRATION or (flags & PRIORITY and settings.priority_max > 0):
        return True
    if flags & HEADERS == 0:
        return False
    return settings.reads_headers or data.find(_DELAY_FIELD, command.batch_offset) >= 0


def _expiry(from_ms: i64, ttl_ms: i64) -> i64:
    """Return when a message that may wait `ttl_ms` expires, 0 for never."""
    return max(from_ms + ttl_ms, 1) if ttl_ms >= 0 else 0


def _admit(state: QueueState, data: bytes, command: Enqueue, skip: i64, special: bool) -> i64:
    """Return the position of the first message that is refused; that and all behind it are."""
    count = command.sizes.count
    settings = state.settings
    if command.now:
        free: i64 = 0 if state.ready.count > 0 else state.rotation.credit()
        stop = min(count, skip + free)
        return _first_delayed(state, data, command, skip, stop) if special else stop
    most = settings.max_length
    most_bytes = settings.max_length_bytes
    if settings.overflow == OVERFLOW_DROP_HEAD or (most < 0 and most_bytes < 0):
        state.refusing = False
        return count
    length = state.length
    byte_count = state.byte_count
    if state.refusing:
        if (most >= 0 and length * 100 > most * _RESUME_PERCENT) or (
            most_bytes >= 0 and byte_count * 100 > most_bytes * _RESUME_PERCENT
        ):
            return skip
        state.refusing = False
    stop = skip
    while (
        stop < count and (most < 0 or length < most) and (most_bytes < 0 or byte_count < most_bytes)
    ):
        length += 1
        byte_count += command.sizes.byte_count(stop)
        stop += 1
    state.refusing = stop < count
    return stop


def _defer(
    state: QueueState, index: i64, session: Session, command: Enqueue, skip: i64, stop: i64
) -> None:
    """Defer the confirms of a saturated queue's arrivals, or of those above its high watermark."""
    settings = state.settings
    high = settings.high_watermark
    high_bytes = settings.high_watermark_bytes
    sizes = command.sizes
    count = state.held_count
    byte_count = state.held_bytes
    start = skip
    if not state.watermark.saturated:
        above = (high > 0 and count + stop - skip > high) or (
            high_bytes > 0 and byte_count + sizes.bytes_between(skip, stop) > high_bytes
        )
        if not above:
            return
        while start < stop:
            count += 1
            byte_count += sizes.byte_count(start)
            if (high > 0 and count > high) or (high_bytes > 0 and byte_count > high_bytes):
                break
            start += 1
    if start < stop:
        state.watermark.defer(index, session, command.seq, start, stop)


def _first_delayed(state: QueueState, data: bytes, command: Enqueue, skip: i64, stop: i64) -> i64:
    table = command.batch_offset + 4
    for position in range(skip, stop):
        if _delay(state, data, _properties_offset(data, table, command.sizes.count, position)) > 0:
            return position
    return stop


def _properties_offset(data: bytes, table: i64, count: i64, position: i64) -> i64:
    """Return where the properties' length stands, of a message of a batch that was measured."""
    at = table + 4 * count
    if position > 0:
        at += i64(read_i32_be(data, table + 4 * (position - 1))) & U32
    at += 1 + data[at]
    return at + 1 + data[at]


def _delay(state: QueueState, data: bytes, properties: i64) -> i64:
    """Return the delay in ms that a message asks for, 0 for none."""
    reader = state.reader
    reader.scan(data, properties)
    delay = header_int(data, reader.headers_start, reader.headers_stop, DELAY_HEADER)
    return 0 if delay == NO_INTEGER or delay <= 0 else min(delay, DELAY_MS_MAX)


def _bury_refused(
    state: QueueState,
    index: i64,
    command: Enqueue,
    stop: i64,
    had: list[int],
    effects: list[Effect],
) -> None:
    """Dead-letter refused messages, at most once: their publisher knows of the refusal.

    What came before, by `had`, is in the queue or was; it is no dead letter, though it is refused
    too.
    """
    settings = state.settings
    if settings.overflow != OVERFLOW_REJECT_PUBLISH_DLX:
        return
    if settings.dead_letter == DEAD_LETTER_NONE:
        return
    refused: list[Acquired] = []
    for position in range(stop, command.sizes.count):
        if bisect_right(had, position) % 2 == 1:
            continue
        message = Acquired(0, index, position, command.sizes.byte_count(position), 0, 0)
        message.arrived_ms = state.now_ms
        refused.append(message)
    if refused:
        if state.tally is not None:
            state.tally.note(REASON_MAXLEN, True, len(refused))
        effects.append(DeadLettered(refused, REASON_MAXLEN))


@final
class _Sorter:
    """Sorter of a batch: puts each message where it belongs.

    What has nothing remarkable stays together: a run of equal priority, expiry and value of the
    fairness key is a batch. Positions in `had` came before.
    """

    def __init__(
        self,
        state: QueueState,
        index: i64,
        data: bytes,
        command: Enqueue,
        id_base: i64,
        had: list[int],
    ) -> None:
        self._state = state
        self._index = index
        self._data = data
        self._table = command.batch_offset + 4
        self._sizes = command.sizes
        self._id_base = id_base
        self._had = had
        self._runs: list[Batch] = []
        self._priorities: list[int] = []
        self._keys: list[bytes] = []
        self._alone: i64 = 0  # messages that are not in a run

    def place(self, skip: i64, stop: i64, effects: list[Effect]) -> bool:
        """Place positions `skip` to `stop` - 1; return whether anything of the entry is needed."""
        state = self._state
        entries = state.ready.entries
        entries.counts[self._index] = 1  # until all are placed
        for position in range(skip, stop):
            self._place_one(position, effects)
        self._trim()
        kept = entries.counts[self._index] - 1
        for run in self._runs:
            kept += run.count
        alone = entries.counts.pop(self._index) - 1
        if kept > 0 and (alone > 0 or len(self._runs) > 1):
            entries.counts[self._index] = kept
        for run, priority, key in zip(self._runs, self._priorities, self._keys, strict=True):
            state.ready.append(run, priority, key)
        return kept > 0

    def _trim(self) -> None:
        """Keep sizes of other values' messages out of batches, where they take more room."""
        sizes = self._sizes
        if sizes.size != UNEQUAL or len(self._runs) < 2 or not any(self._keys):
            return
        runs, priorities, keys = self._runs, self._priorities, self._keys
        self._runs, self._priorities, self._keys = [], [], []
        for run, priority, key in zip(runs, priorities, keys, strict=True):
            cut = run.cut_by_size() if key else [run]
            self._runs.extend(cut)
            self._priorities.extend([priority] * len(cut))
            self._keys.extend([key] * len(cut))

    def _place_one(self, position: i64, effects: list[Effect]) -> None:
        state = self._state
        data = self._data
        settings = state.settings
        if self._had and bisect_right(self._had, position) % 2 == 1:
            state.watermark.leave(self._index, position, position + 1)  # it never comes
            return
        at = _properties_offset(data, self._table, self._sizes.count, position)
        delay = _delay(state, data, at)
        reader = state.reader
        if settings.deduplicate and not self._is_new():
            state.watermark.leave(self._index, position, position + 1)  # it never comes
            return
        ttl = settings.message_ttl_ms
        own = reader.expiration_ms
        if own >= 0 and (ttl < 0 or own < ttl):
            ttl = own
        expires = _expiry(state.now_ms + delay, ttl)
        priority = min(max(reader.priority, 0), settings.priority_max)
        key = self._key()
        if delay == 0 and (not key or is_fair(key)):
            self._join(position, priority, expires, key)
            return
        message = Acquired(
            self._id_base + position, self._index, position, self._sizes.byte_count(position), 0, 0
        )
        message.arrived_ms = state.now_ms
        message.expires_ms = expires
        message.priority = priority
        message.key = key
        state.ready.entries.counts[self._index] += 1
        if delay > 0:
            message.due_ms = state.now_ms + delay
            state.delayed.add(message)
        elif not state.ready.replace(message, effects):
            state.ready.add(message)

    def _is_new(self) -> bool:
        state = self._state
        reader = state.reader
        settings = state.settings
        name = header_key(
            self._data, reader.headers_start, reader.headers_stop, DEDUPLICATION_HEADER
        )
        if name is None:
            return True
        return state.seen.is_new(name, state.now_ms, settings.dedup_count, settings.dedup_ms)

    def _key(self) -> bytes:
        settings = self._state.settings
        if settings.last_value_key:
            value = self._header(settings.last_value_key)
            return b"" if value is None else KEY_LAST_VALUE + value
        if settings.group_key:
            value = self._header(settings.group_key)
            return b"" if value is None else KEY_GROUP + value
        if settings.fairness_key:
            value = self._header(settings.fairness_key)
            return b"" if value is None else fair_key(value)
        return b""

    def _header(self, name: bytes) -> bytes | None:
        reader = self._state.reader
        return header_key(self._data, reader.headers_start, reader.headers_stop, name)

    def _join(self, position: i64, priority: i64, expires: i64, key: bytes) -> None:
        """Put a message into the run before it, or begin a new one."""
        if self._runs:
            run = self._runs[-1]
            if (
                run.stop == position
                and run.expires_ms == expires
                and self._priorities[-1] == priority
                and self._keys[-1] == key
            ):
                run.stop += 1
                return
        state = self._state
        self._runs.append(
            Batch(
                self._index,
                self._id_base,
                position,
                position + 1,
                self._sizes,
                state.now_ms,
                expires,
            )
        )
        self._priorities.append(int(priority))
        self._keys.append(key)
