"""Answers of a queue to sessions, and confirms at its pace."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_broker.core.queue.command.command import encode_enqueue, stamp_command
from headrace_broker.core.queue.messages.effect import (
    Completed,
    ConfirmsDeferred,
    Controlled,
    Effect,
    Enqueued,
    Gap,
    PublishRejected,
    Unused,
)
from headrace_broker.flow.paced_confirms import LOOK_US, PacedQueues, QueueFigures
from headrace_broker.model.message import DeliveryRun
from headrace_broker.model.session import session_id
from headrace_broker.runtime.contract.lane_port import HostEnd, SessionEnd, SessionTransport
from headrace_broker.runtime.replica.session_telling import SessionTelling

SESSION = 5
READY, HELD = 800, 1000  # what stands in the queue, and at its consumer
STEP_US = 1000


class End(SessionEnd):
    """A session that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def enqueued(self, first: int, last: int) -> None:
        self.told.append(("enqueued", first, last))

    def controlled(self, number: int, status: int, count: int) -> None:
        self.told.append(("controlled", number, status, count))

    def gap(self, lane: int, expected: int) -> None:
        self.told.append(("gap", lane, expected))

    def rejected(self, first: int, last: int, fenced: bool) -> None:
        self.told.append(("rejected", first, last))

    def deferred(self, rows: list[int]) -> None:
        self.told.append(("deferred", rows))

    def completed(self, rows: list[int]) -> None:
        self.told.append(("completed", rows))

    def still_deferred(self, last: int, rows: list[int]) -> None:
        raise NotImplementedError

    def run(self, run: DeliveryRun) -> None:
        raise NotImplementedError

    def got(self, number: int, run: DeliveryRun | None, ready_left: int) -> None:
        raise NotImplementedError

    def refused(self, leader: int, busy: bool, unknown: bool) -> None:
        raise NotImplementedError

    def detached(self, consumer: int) -> None:
        raise NotImplementedError

    def timed_out(self, consumer: int) -> None:
        raise NotImplementedError


class Reach(SessionTransport):
    """Finds sessions."""

    def __init__(self, ends: dict[int, End]) -> None:
        self._ends = ends

    def host(self, target: int, group: int) -> HostEnd | None:
        raise NotImplementedError

    def session(self, session: int) -> SessionEnd | None:
        return self._ends.get(session)


class Queue:
    """A queue of which as much is confirmed as leaves it."""

    def __init__(self) -> None:
        self.end = End()
        self.ends = {SESSION: self.end}
        self.telling = SessionTelling(7, Reach(self.ends), PacedQueues())
        self.now_us = self.delivered = 0
        self.ready = READY
        self._last = 0

    def flow(self) -> None:
        """Bring as many messages as leave until confirms wait, and tell these."""
        for _ in range(6 * LOOK_US // STEP_US):
            self.leave(HELD // 8)
            self.publish(HELD // 8)
        assert self.telling.paced is not None
        self.telling.paced.tell_all()
        self.end.told.clear()

    def publish(self, count: int, *effects: Effect, session: int = SESSION) -> int:
        """Apply publishes whose command has other effects too; return the last one's number."""
        first, self._last = self._last + 1, self._last + count
        self.ready += count
        data = stamp_command(1, encode_enqueue(session, first, b""))
        for effect in (*effects, Enqueued(session, self._last)):
            assert self.telling.tell(effect, data, count)
        self.apply()
        return self._last

    def apply(self) -> None:
        self.now_us += STEP_US
        figures = (self.delivered, self.ready, HELD, 1, 5 * STEP_US)
        self.telling.follow(QueueFigures(self.now_us, *figures))

    def leave(self, count: int) -> None:
        self.ready -= count
        self.delivered += count


def test_publishes_are_confirmed_at_once_while_nothing_stands_in_the_queue() -> None:
    queue = Queue()
    assert queue.telling.paced is None
    queue.ready = 0
    queue.publish(10)
    assert queue.end.told == [("enqueued", 1, 10)]


def test_publishes_to_a_queue_that_is_behind_are_confirmed_as_messages_leave() -> None:
    queue = Queue()
    queue.flow()
    last = queue.publish(10)
    assert queue.end.told == []
    assert queue.telling.is_behind(queue.now_us)
    queue.leave(10)
    queue.apply()
    assert queue.end.told == [("enqueued", last - 9, last)]


@pytest.mark.parametrize(
    ("effect", "name"),
    [
        (Gap(SESSION, 1, 7), "gap"),
        (PublishRejected(SESSION, 3, 4, 1), "rejected"),
        (ConfirmsDeferred(SESSION, [3, 5]), "deferred"),
        (Completed(SESSION, [3, 5]), "completed"),
    ],
)
def test_what_is_said_of_later_publishes_comes_after_the_confirms(
    effect: Effect, name: str
) -> None:
    queue = Queue()
    queue.flow()
    queue.publish(10)
    queue.publish(10, effect)
    assert [each[0] for each in queue.end.told] == ["enqueued", name]


def test_an_answer_to_a_command_does_not_wait_for_confirms() -> None:
    queue = Queue()
    queue.flow()
    queue.publish(10)
    assert queue.telling.tell(Controlled(SESSION, 3, 0, 0), b"", 0)
    assert queue.end.told == [("controlled", 3, 0, 0)]


def test_confirms_that_wait_are_told_by_a_replica_that_leads_no_more() -> None:
    queue = Queue()
    queue.flow()
    last = queue.publish(10)
    queue.telling.stop()
    assert queue.end.told == [("enqueued", last - 9, last)]
    assert queue.telling.paced is None


def test_dead_letters_do_not_wait() -> None:
    queue = Queue()
    queue.flow()
    session = session_id(1, 1, 1, deaths=True)
    queue.ends[session] = queue.end
    queue.publish(10)
    last = queue.publish(10, session=session)
    assert queue.end.told == [("enqueued", last - 9, last)]


def test_a_session_that_is_gone_holds_up_no_other() -> None:
    queue = Queue()
    queue.flow()
    queue.publish(10, session=SESSION + 1)
    last = queue.publish(10)
    queue.ready = 0
    queue.apply()
    assert queue.end.told == [("enqueued", last - 9, last)]


def test_an_effect_that_is_for_no_session_is_told_to_nobody() -> None:
    assert not Queue().telling.tell(Unused(), b"", 0)
