"""Messages that leave their consumer or the queue: settled, given back, expired, too many."""

from __future__ import annotations

from mypy_extensions import i64

from headrace_broker.core.queue.command.command import ACCEPT, MODIFY_FAILED, REJECT, SettleItem
from headrace_broker.core.queue.messages.effect import (
    REASON_DELIVERY_LIMIT,
    REASON_EXPIRED,
    REASON_MAXLEN,
    REASON_REJECTED,
    Acquired,
    DeadLettered,
    DeadLetterKept,
    Detached,
    Effect,
    TimedOut,
)
from headrace_broker.core.queue.messages.settings import (
    ARCHIVE_NONE,
    DEAD_LETTER_AT_LEAST_ONCE,
    DEAD_LETTER_NONE,
    OVERFLOW_DROP_HEAD,
    RETRY_ALL,
    RETRY_DISABLED,
    RETRY_FAILED,
)
from headrace_broker.core.queue.state.archive_row import (
    OUTCOME_ACKED,
    OUTCOME_DEAD_LETTERED,
    outcome_of,
)
from headrace_broker.core.queue.state.consumer import (
    ATTACHED,
    CANCELLED,
    DETACHED,
    GETTER,
    Consumer,
)
from headrace_broker.core.queue.state.queue_state import DeadMessage, QueueState
from headrace_broker.core.queue.state.session import Session
from headrace_broker.model.limits import EXPIRE_MESSAGES_MAX
from headrace_broker.model.session import session_boot, session_node


def bury(state: QueueState, messages: list[Acquired], reason: i64, effects: list[Effect]) -> None:
    """Dead-letter messages that left the queue, if there is an exchange for that."""
    if not messages:
        return
    mode = state.settings.dead_letter
    if state.tally is not None:
        state.tally.note(reason, mode != DEAD_LETTER_NONE, len(messages))
    if mode == DEAD_LETTER_AT_LEAST_ONCE:
        for message in messages:
            state.dead[message.message_id] = DeadMessage(message, reason)
            state.dead_bytes += message.byte_count
        effects.append(DeadLetterKept(messages, reason))
        return
    outcome = outcome_of(reason)
    if mode != DEAD_LETTER_NONE:
        effects.append(DeadLettered(messages, reason))
        outcome = OUTCOME_DEAD_LETTERED + reason
    state.archive(messages, outcome, effects)


def forget_dead(state: QueueState, ids: list[int], effects: list[Effect]) -> None:
    """Forget kept dead messages, as far as they are there."""
    for message_id in ids:
        dead = state.dead.pop(message_id, None)
        if dead is not None:
            state.dead_bytes -= dead.message.byte_count
            state.archive([dead.message], OUTCOME_DEAD_LETTERED + dead.reason, effects)


def settle(state: QueueState, consumer: Consumer, item: SettleItem, effects: list[Effect]) -> i64:
    """Settle what of a range is unsettled; return how many messages that was."""
    messages = _take_range(consumer.unsettled, item.first, item.last)
    state.release(consumer, messages)
    if item.operation == ACCEPT:
        state.archive(messages, OUTCOME_ACKED, effects)
    elif item.operation == REJECT:
        bury(state, messages, REASON_REJECTED, effects)
    else:
        give_back(state, messages, item.operation == MODIFY_FAILED, effects)
    if state.active is not None:
        state.choose_active()
    state.enter_rotation(consumer)
    return len(messages)


def release_all(state: QueueState, consumer: Consumer, failed: bool, effects: list[Effect]) -> i64:
    """Put everything a consumer has unsettled back; return how many messages that was."""
    messages = list(consumer.unsettled.values())
    consumer.unsettled.clear()
    state.release(consumer, messages)
    give_back(state, messages, failed, effects)
    return len(messages)


def give_back(
    state: QueueState, messages: list[Acquired], failed: bool, effects: list[Effect]
) -> None:
    """Make messages that a consumer had available again where they were, now or later."""
    settings = state.settings
    archived = state.archived
    limit = settings.delivery_limit
    exhausted: list[Acquired] = []
    for message in messages:
        if archived.mode != ARCHIVE_NONE:
            archived.note_return(message)
        again = _again(message, failed)
        if failed and 0 <= limit < again.delivery_count:
            exhausted.append(again)
            continue
        pause = _pause(state, again, failed)
        if pause > 0:
            again.due_ms = state.now_ms + pause
            state.delayed.add(again)
        else:
            state.ready.give_back(again, effects)
    bury(state, exhausted, REASON_DELIVERY_LIMIT, effects)


def _again(message: Acquired, failed: bool) -> Acquired:
    again = Acquired(
        message.message_id,
        message.entry_index,
        message.position,
        message.byte_count,
        message.acquired_count + 1,
        message.delivery_count + 1 if failed else message.delivery_count,
    )
    again.arrived_ms = message.arrived_ms
    again.expires_ms = message.expires_ms
    again.priority = message.priority
    again.key = message.key
    return again


def _pause(state: QueueState, message: Acquired, failed: bool) -> i64:
    """Return how long a message that comes back is held, 0 for not at all."""
    settings = state.settings
    kind = settings.retry_type
    if kind == RETRY_DISABLED or (kind != RETRY_ALL and (kind == RETRY_FAILED) != failed):
        return 0
    times = message.delivery_count if failed else message.acquired_count
    return min(settings.retry_min_ms * times, settings.retry_max_ms)


def _take_range(unsettled: dict[int, Acquired], first: i64, last: i64) -> list[Acquired]:
    """Remove deliveries `first` to `last`, in time of the smaller of the range and the dict."""
    if last - first >= len(unsettled):
        numbers = [number for number in unsettled if first <= number <= last]
        return [unsettled.pop(number) for number in numbers]
    taken: list[Acquired] = []
    for number in range(first, last + 1):
        message = unsettled.pop(number, None)
        if message is not None:
            taken.append(message)
    return taken


# Consumers and sessions that end


def drop_if_done(session: Session, consumer: Consumer) -> None:
    """Forget a cancelled consumer that has nothing unsettled."""
    if consumer.state == CANCELLED and not consumer.unsettled:
        del session.consumers[consumer.number]


def forget_session(state: QueueState, session: Session, failed: bool, effects: list[Effect]) -> i64:
    """Release everything of a session and forget it; return the number of released messages."""
    released: i64 = 0
    for consumer in session.consumers.values():
        state.retire(consumer, CANCELLED)
        released += release_all(state, consumer, failed, effects)
    del state.sessions[session.number]
    state.watermark.forget(session)
    if state.active is None:
        state.choose_active()
    return released


def suspect_session(state: QueueState, session: Session, effects: list[Effect]) -> None:
    """Release everything of a session whose node may be dead, and detach its consumers."""
    for consumer in list(session.consumers.values()):
        release_all(state, consumer, False, effects)
        if consumer.state == ATTACHED:
            state.retire(consumer, DETACHED)
            effects.append(Detached(session.number, consumer.number))
        drop_if_done(session, consumer)


# Time and limits


def has_sessions_of(state: QueueState, node: i64, boot_keep: i64) -> bool:
    """Return whether NODE_DOWN with these values would change anything."""
    for session in state.sessions.values():
        if session_node(session.number) != node:
            continue
        if boot_keep > 0:
            if session_boot(session.number) != boot_keep:
                return True
            continue
        for consumer in session.consumers.values():
            if consumer.state == ATTACHED or len(consumer.unsettled) > 0:
                return True
    return False


def expire(state: QueueState, heads: bool, effects: list[Effect]) -> None:
    """Drop expired messages: those that are next, or some of all."""
    soonest = state.ready.expires_ms
    if 0 < soonest <= state.now_ms:
        expired = state.ready.take_expired(state.now_ms, state.budget, heads)
        bury(state, expired, REASON_EXPIRED, effects)


def end_delays(state: QueueState, effects: list[Effect]) -> None:
    """Make delayed messages available that are due, or some of them."""
    ready = state.ready
    for _ in range(EXPIRE_MESSAGES_MAX):
        message = state.delayed.pop_due(state.now_ms)
        if message is None:
            return
        if message.acquired_count == 0:  # it arrives only now
            message.message_id = ready.next_id
            ready.next_id += 1
            message.arrived_ms = message.due_ms
            message.due_ms = 0
            if ready.replace(message, effects):
                continue
        message.due_ms = 0
        ready.give_back(message, effects)


def end_overdue(state: QueueState, effects: list[Effect]) -> None:
    """Cancel consumers that leave a delivery unsettled for too long."""
    if state.overdue_ms == 0 or state.overdue_ms > state.now_ms:
        return
    soonest: i64 = 0
    for session in list(state.sessions.values()):
        for consumer in list(session.consumers.values()):
            timeout = state.timeout_of(consumer)
            if timeout <= 0 or not consumer.unsettled:
                continue
            due = consumer.unsettled[next(iter(consumer.unsettled))].acquired_ms + timeout
            if due <= state.now_ms:
                _end_consumer(state, session, consumer, effects)
            elif soonest == 0 or due < soonest:
                soonest = due
    state.overdue_ms = soonest


def _end_consumer(
    state: QueueState, session: Session, consumer: Consumer, effects: list[Effect]
) -> None:
    if consumer.state != GETTER:
        state.retire(consumer, CANCELLED)
    release_all(state, consumer, False, effects)  # a timeout is no failed delivery: RabbitMQ 4.3
    drop_if_done(session, consumer)
    if state.active is None:
        state.choose_active()
    effects.append(TimedOut(session.number, consumer.number))


def drop_excess(state: QueueState, effects: list[Effect]) -> None:
    """Let go the oldest of the least important messages as long as there are too many.

    What a queue takes in is made up for at once; when its limits were lowered, TICKs do the rest.
    """
    budget = state.budget
    excess: list[Acquired] = []
    while is_over(state) and not budget.spent():
        ready = state.ready
        if ready.count > 0:
            message = ready.take_lowest(by_bytes=not _has_too_many(state))
        else:
            message = state.delayed.pop_first()
        budget.spend(message.byte_count)
        excess.append(message)
    bury(state, excess, REASON_MAXLEN, effects)


def is_over(state: QueueState) -> bool:
    """Return whether messages have to be dropped: more are there than there may be."""
    settings = state.settings
    if settings.overflow != OVERFLOW_DROP_HEAD:
        return False
    ready = state.ready
    delayed = state.delayed
    if ready.count + delayed.count == 0:
        return False
    most_bytes = settings.max_length_bytes
    return _has_too_many(state) or 0 <= most_bytes < ready.byte_count + delayed.byte_count


def _has_too_many(state: QueueState) -> bool:
    """Return whether there are more messages, of whatever size, than there may be."""
    return 0 <= state.settings.max_length < state.ready.count + state.delayed.count
