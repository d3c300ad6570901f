"""Commands of the control lane of a session: in order, each carried out once."""

from __future__ import annotations

from mypy_extensions import i64

from headrace_broker.core.queue.command.command import (
    Attach,
    Cancel,
    Control,
    Get,
    Purge,
    Remove,
    SetPrefetch,
    Settle,
)
from headrace_broker.core.queue.machine.leaving import drop_if_done, settle
from headrace_broker.core.queue.machine.serving import get
from headrace_broker.core.queue.messages.effect import (
    LANE_CONTROL,
    STATUS_ALREADY,
    STATUS_EXCLUSIVE_IN_USE,
    STATUS_OK,
    Acquired,
    Controlled,
    Effect,
    Gap,
    Got,
)
from headrace_broker.core.queue.state.archive_row import OUTCOME_PURGED, OUTCOME_REMOVED
from headrace_broker.core.queue.state.consumer import (
    ATTACHED,
    CANCELLED,
    DETACHED,
    GET_CONSUMER,
    Consumer,
)
from headrace_broker.core.queue.state.queue_state import QueueState
from headrace_broker.core.queue.state.session import Session


def control(state: QueueState, command: Control, effects: list[Effect]) -> None:
    """Carry out the next command of a session, or answer one again."""
    known = state.sessions.get(command.session)
    done: i64 = 0 if known is None else known.control_seq
    if command.seq > done + 1:
        effects.append(Gap(command.session, LANE_CONTROL, done + 1))
        return
    if known is not None and command.seq <= done:
        _repeat(state, known, command, effects)
        return
    session = state.open_session(command.session)
    session.control_seq = command.seq
    if isinstance(command, Settle):
        _settle(state, session, command, effects)
    elif isinstance(command, Attach):
        _attach(state, session, command, effects)
    elif isinstance(command, SetPrefetch):
        _set_prefetch(state, session, command, effects)
    elif isinstance(command, Cancel):
        _cancel(state, session, command.consumer, effects)
    elif isinstance(command, Get):
        _get(state, session, command.message_id, effects)
    elif isinstance(command, Purge):
        _answer(session, STATUS_OK, _purge(state, effects), effects)
    elif isinstance(command, Remove):
        _answer(session, STATUS_OK, _remove(state, command.ids, effects), effects)


def _repeat(state: QueueState, session: Session, command: Control, effects: list[Effect]) -> None:
    """Answer a control command that was applied before, without doing it again."""
    answer = session.answer(command.seq)
    if not isinstance(command, Get):
        effects.append(Controlled(session.number, command.seq, answer.status, answer.count))
        return
    getter = session.consumers.get(GET_CONSUMER)
    message = None if getter is None else getter.unsettled.get(answer.delivery)
    delivery: i64 = 0 if message is None else answer.delivery
    effects.append(Got(session.number, command.seq, message, delivery, state.ready.count))


def _answer(session: Session, status: i64, count: i64, effects: list[Effect]) -> None:
    """Answer a control command and remember the answer when it says more than "ok"."""
    if status != STATUS_OK or count != 0:
        session.keep_answer(status, count, 0)
    effects.append(Controlled(session.number, session.control_seq, status, count))


def _settle(state: QueueState, session: Session, command: Settle, effects: list[Effect]) -> None:
    settled: i64 = 0
    for item in command.items:
        consumer = session.consumers.get(item.consumer)
        if consumer is not None:
            settled += settle(state, consumer, item, effects)
            drop_if_done(session, consumer)
    effects.append(Controlled(session.number, session.control_seq, STATUS_OK, settled))


def _attach(state: QueueState, session: Session, command: Attach, effects: list[Effect]) -> None:
    consumer = session.consumers.get(command.consumer)
    if consumer is not None and consumer.state != DETACHED:
        _answer(session, STATUS_ALREADY, 0, effects)
        return
    if state.exclusive or (
        command.exclusive and (state.attached_count > 0 or state.leases.count > 0)
    ):
        _answer(session, STATUS_EXCLUSIVE_IN_USE, 0, effects)
        return
    if consumer is None:
        consumer = Consumer(session.number, command.consumer)
        session.consumers[command.consumer] = consumer
    consumer.tag = command.tag
    consumer.prefetch = command.prefetch
    consumer.exclusive = command.exclusive
    consumer.filtered = command.filtered
    consumer.priority = command.priority
    consumer.prefetch_bytes = command.prefetch_bytes
    consumer.timeout_ms = command.timeout_ms
    state.attach(consumer)
    _answer(session, STATUS_OK, 0, effects)


def _set_prefetch(
    state: QueueState, session: Session, command: SetPrefetch, effects: list[Effect]
) -> None:
    """Change the credit of consumers; deliveries above the new credit stay."""
    for number, prefetch in command.items:
        consumer = session.consumers.get(number)
        if consumer is None or consumer.state not in (ATTACHED, DETACHED):
            continue
        consumer.prefetch = prefetch
        if consumer.waiting and consumer.credit() == 0:
            state.rotation.remove(consumer)
        else:
            state.enter_rotation(consumer)
    _answer(session, STATUS_OK, 0, effects)


def _cancel(state: QueueState, session: Session, number: i64, effects: list[Effect]) -> None:
    consumer = session.consumers.get(number)
    left: i64 = 0
    if consumer is not None and number != GET_CONSUMER:
        left = len(consumer.unsettled)
        state.retire(consumer, CANCELLED)
        drop_if_done(session, consumer)
    _answer(session, STATUS_OK, left, effects)


def _purge(state: QueueState, effects: list[Effect]) -> i64:
    """Forget all that is available or delayed; return how many messages that was."""
    delayed = state.delayed.clear()
    state.archive(delayed, OUTCOME_PURGED, effects)
    removed = state.ready.purge(effects) + len(delayed)
    state.ready.let_go_purged(state.budget, state.version < 2, effects)
    return removed


def _remove(state: QueueState, ids: list[int], effects: list[Effect]) -> i64:
    """Forget messages by their ids; return how many there were."""
    removed: list[Acquired] = []
    for message_id in ids:
        message = state.ready.pop(message_id)
        if message is None:
            message = state.delayed.pop(message_id)
        if message is not None:
            removed.append(message)
    state.archive(removed, OUTCOME_REMOVED, effects)
    return len(removed)


def _get(state: QueueState, session: Session, message_id: i64, effects: list[Effect]) -> None:
    getter = session.consumers.get(GET_CONSUMER)
    if getter is None:
        getter = Consumer(session.number, GET_CONSUMER)
    delivery = get(state, getter, message_id)
    if delivery == 0:
        left = state.ready.count
        effects.append(Got(session.number, session.control_seq, None, 0, left))
        return
    session.consumers[GET_CONSUMER] = getter
    session.keep_answer(STATUS_OK, 0, delivery)
    message = getter.unsettled[delivery]
    left = state.ready.count
    effects.append(Got(session.number, session.control_seq, message, delivery, left))
