"""Assignment of available messages to consumers."""

from __future__ import annotations

from mypy_extensions import i64

from headrace_broker.core.queue.machine.leaving import expire
from headrace_broker.core.queue.messages.effect import Acquired, Deliver, Effect
from headrace_broker.core.queue.state.consumer import Consumer
from headrace_broker.core.queue.state.queue_state import QueueState
from headrace_broker.core.queue.state.ready_list import KEY_GROUP


def dispatch(state: QueueState, effects: list[Effect]) -> None:
    """Hand out available messages while a consumer has credit: by priority, in fair rotation.

    Expired messages are dropped and not delivered; if they are too many for one command,
    nothing more is handed out before the next.
    """
    if state.ready.count == 0 or state.rotation.waiting == 0:
        return
    served: list[Consumer] = []
    if state.ready.groups.count > 0:
        _rotate_groups(state, served, effects)
    else:
        _rotate(state, served, effects)
    for consumer in served:
        _deliver(state, consumer, effects)


def has_expired(state: QueueState, effects: list[Effect]) -> bool:
    """Drop expired messages where the next message is taken; return whether any is left."""
    if state.ready.is_overdue(state.now_ms):
        expire(state, True, effects)
        return state.ready.is_overdue(state.now_ms)
    return False


def _rotate(state: QueueState, served: list[Consumer], effects: list[Effect]) -> None:
    ready = state.ready
    rotation = state.rotation
    while rotation.waiting > 0 and not has_expired(state, effects) and ready.count > 0:
        consumer = rotation.pop()
        fresh = consumer.fresh
        if not fresh:
            served.append(consumer)
        wanted: i64 = 1
        limited = consumer.prefetch_bytes > 0
        if not limited and rotation.alone(consumer):
            wanted = min(consumer.credit(), ready.count)
        ready.take(wanted, fresh, state.now_ms)
        if limited:
            consumer.byte_count += fresh[-1].byte_count
        if consumer.credit() > 0:
            rotation.again(consumer)


def _rotate_groups(state: QueueState, served: list[Consumer], effects: list[Effect]) -> None:
    """Rotate one message at a time; a consumer that may have none of the rest keeps its place."""
    ready = state.ready
    rotation = state.rotation
    passed: list[Consumer] = []
    while rotation.waiting > 0 and not has_expired(state, effects) and ready.count > 0:
        consumer = rotation.pop()
        message = ready.take_for(consumer)
        if message is None:
            passed.append(consumer)
            continue
        if not consumer.fresh:
            served.append(consumer)
        _give(state, consumer, message)
        if consumer.credit() > 0:
            rotation.again(consumer)
    for consumer in passed:
        rotation.again(consumer)


def _give(state: QueueState, consumer: Consumer, message: Acquired) -> None:
    consumer.fresh.append(message)
    if consumer.prefetch_bytes > 0:
        consumer.byte_count += message.byte_count
    if message.key.startswith(KEY_GROUP):
        state.ready.groups.hold(consumer, message)


def _deliver(state: QueueState, consumer: Consumer, effects: list[Effect]) -> None:
    messages = consumer.fresh
    consumer.fresh = []
    effects.append(Deliver(consumer.session, consumer.number, consumer.next_delivery, messages))
    state.hold(consumer, messages)


def acquire(state: QueueState, consumer: Consumer, ids: list[int], effects: list[Effect]) -> None:
    """Give a filtered consumer those messages that are available, as far as it has credit."""
    ready = state.ready
    served = state.is_served(consumer)
    for message_id in ids:
        message = ready.pop(message_id)
        if message is None:
            continue
        if 0 < message.expires_ms < state.now_ms:
            ready.add(message)  # for a TICK
        elif consumer.credit() == 0 or not served:
            ready.give_back(message, effects)
        elif ready.groups.refuses(consumer, message):
            ready.refuse(message)
        else:
            _give(state, consumer, message)
    if consumer.fresh:
        _deliver(state, consumer, effects)


def get(state: QueueState, consumer: Consumer, message_id: i64) -> i64:
    """Acquire message `message_id`, 0 for the first; return its delivery number, 0 for none.

    One whose group is another consumer's is not given.
    """
    ready = state.ready
    if message_id == 0:
        if ready.is_overdue(state.now_ms):
            return 0  # more has expired than one command drops
        message = ready.take_for(consumer)
    else:
        grouped = ready.groups.loose.messages.get(message_id)
        if grouped is not None and ready.groups.refuses(consumer, grouped):
            return 0
        message = ready.pop(message_id)
    if message is not None and 0 < message.expires_ms < state.now_ms:
        ready.add(message)  # for a TICK
        return 0
    if message is None:
        return 0
    if message.key.startswith(KEY_GROUP):
        ready.groups.hold(consumer, message)
    state.hold(consumer, [message])
    return consumer.next_delivery - 1
