"""The state of a queue and the moves of which every command is made."""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64

from headrace_broker.core.command import ACCEPT, MODIFY_FAILED, REJECT, SettleItem
from headrace_broker.core.effect import Acquired, Deliver, Detached, Effect
from headrace_broker.core.ready_list import ReadyList
from headrace_broker.core.session import ATTACHED, CANCELLED, DETACHED, Consumer, Session


@final
class QueueState:
    """Everything a queue knows. Every message is available (`ready`) or unsettled (at a consumer).

    Attributes:
        ready: available messages, and which entries are alive.
        sessions: by id, in the order of their first command.
        rotation: the consumers that have credit, next to be served first.
        attached_count: consumers in state ATTACHED.
        detached_count: consumers in state DETACHED.
        exclusive: the only attached consumer is exclusive.
        unsettled_count: messages acquired by consumers and not settled.
        unsettled_octets: of their bodies.
    """

    def __init__(self) -> None:
        self.ready = ReadyList()
        self.sessions: dict[int, Session] = {}
        self.rotation: deque[Consumer] = deque()
        self.attached_count: i64 = 0
        self.detached_count: i64 = 0
        self.exclusive = False
        self.unsettled_count: i64 = 0
        self.unsettled_octets: i64 = 0

    def open_session(self, number: i64) -> Session:
        """Return a session, new where it is not known."""
        session = self.sessions.get(number)
        if session is None:
            session = Session(number)
            self.sessions[number] = session
        return session

    def forget_session(self, session: Session, failed: bool) -> i64:
        """Release everything of a session and forget it; return the number of released messages."""
        released: i64 = 0
        for consumer in session.consumers.values():
            self.retire(consumer, CANCELLED)
            released += self.release_all(consumer, failed)
        del self.sessions[session.number]
        return released

    def suspect_session(self, session: Session, effects: list[Effect]) -> None:
        """Release everything of a session whose node may be dead, and detach its consumers."""
        for consumer in list(session.consumers.values()):
            self.release_all(consumer, False)
            if consumer.state == ATTACHED:
                self.retire(consumer, DETACHED)
                effects.append(Detached(session.number, consumer.number))
            self.drop_if_done(session, consumer)

    def attach(self, consumer: Consumer) -> None:
        """Let a consumer that was not attached have deliveries."""
        if consumer.state == DETACHED:
            self.detached_count -= 1
        consumer.state = ATTACHED
        self.attached_count += 1
        self.exclusive = consumer.exclusive
        self.enter_rotation(consumer)

    def retire(self, consumer: Consumer, state: i64) -> None:
        """Give a consumer no more deliveries: make it DETACHED or CANCELLED."""
        if consumer.state == ATTACHED:
            self.attached_count -= 1
            if consumer.exclusive:
                self.exclusive = False
            if consumer.waiting:
                consumer.waiting = False
                self.rotation.remove(consumer)
        elif consumer.state == DETACHED:
            self.detached_count -= 1
        consumer.state = state
        if state == DETACHED:
            self.detached_count += 1

    def enter_rotation(self, consumer: Consumer) -> None:
        """Give a consumer a place at the end of the rotation when it has credit and none yet."""
        if not consumer.waiting and consumer.credit() > 0:
            consumer.waiting = True
            self.rotation.append(consumer)

    def dispatch(self, effects: list[Effect]) -> None:
        """Hand out available messages while a consumer has credit, in fair rotation."""
        ready = self.ready
        rotation = self.rotation
        if ready.count == 0 or not rotation:
            return
        served: list[Consumer] = []
        while ready.count > 0 and rotation:
            consumer = rotation.popleft()
            if not consumer.fresh:
                served.append(consumer)
            credit = consumer.credit() - len(consumer.fresh)
            wanted = 1 if rotation else min(credit, ready.count)
            ready.take(wanted, consumer.fresh)
            if credit > wanted:
                rotation.append(consumer)
            else:
                consumer.waiting = False
        for consumer in served:
            messages = consumer.fresh
            consumer.fresh = []
            effects.append(
                Deliver(consumer.session, consumer.number, consumer.next_delivery, messages)
            )
            self._hold(consumer, messages)

    def get(self, consumer: Consumer) -> i64:
        """Acquire the oldest available message, which there must be; return its delivery number."""
        messages: list[Acquired] = []
        self.ready.take(1, messages)
        self._hold(consumer, messages)
        return consumer.next_delivery - 1

    def _hold(self, consumer: Consumer, messages: list[Acquired]) -> None:
        unsettled = consumer.unsettled
        number = consumer.next_delivery
        octets: i64 = 0
        for message in messages:
            unsettled[number] = message
            octets += message.octets
            number += 1
        consumer.next_delivery = number
        self.unsettled_count += len(messages)
        self.unsettled_octets += octets

    def settle(self, consumer: Consumer, item: SettleItem, effects: list[Effect]) -> i64:
        """Settle what of a range is unsettled; return how many messages that was."""
        messages = _take_range(consumer.unsettled, item.first, item.last)
        if item.operation == ACCEPT or item.operation == REJECT:
            self._archive(messages, effects)
        else:
            self._give_back(messages, item.operation == MODIFY_FAILED)
        self.enter_rotation(consumer)
        return len(messages)

    def release_all(self, consumer: Consumer, failed: bool) -> i64:
        """Put everything a consumer has unsettled back; return how many messages that was."""
        messages = list(consumer.unsettled.values())
        consumer.unsettled.clear()
        self._give_back(messages, failed)
        return len(messages)

    def _give_back(self, messages: list[Acquired], failed: bool) -> None:
        for message in messages:
            self.unsettled_octets -= message.octets
            self.ready.give_back(message, failed)
        self.unsettled_count -= len(messages)

    def _archive(self, messages: list[Acquired], effects: list[Effect]) -> None:
        """Forget settled messages, entry by entry."""
        if not messages:
            return
        entry_index = messages[0].entry_index
        settled: i64 = 0
        for message in messages:
            if message.entry_index != entry_index:
                self.ready.archive(entry_index, settled, effects)
                entry_index = message.entry_index
                settled = 0
            settled += 1
            self.unsettled_octets -= message.octets
        self.ready.archive(entry_index, settled, effects)
        self.unsettled_count -= len(messages)

    def drop_if_done(self, session: Session, consumer: Consumer) -> None:
        """Forget a cancelled consumer that has nothing unsettled."""
        if consumer.state == CANCELLED and not consumer.unsettled:
            del session.consumers[consumer.number]


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
