"""Measurements of a node before it adapts its intake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.intake import Intake
from headrace_broker.flow.turn_budget import FULL
from headrace_broker.model.limits import TURN_US_MAX
from headrace_broker.runtime.intake.intake_turns import IntakeTurns
from headrace_broker.runtime.intake.intake_watch import LOOK_US, IntakePoller, IntakeWatch

TURNS = 20  # between two looks


class Outflow:
    """Records the node's state."""

    def __init__(self) -> None:
        self.turn_us = 0

    def poll(self, _now_us: int, _elapsed_us: int, turn_us: int) -> None:
        self.turn_us = turn_us


class Node:
    """An intake that is sampled every tenth of a second."""

    def __init__(self) -> None:
        self.now_us = 1
        self.calls: list[Callable[[], None]] = []
        self.turns = IntakeTurns(self.calls.append, lambda: self.now_us)
        self.intake = Intake(FlowLimits(), self.turns)
        self.turns.intake = self.intake
        self.outflow = Outflow()
        self.watch = IntakeWatch(self.intake, self.turns, cast(Any, self.outflow))
        self.watch.poll(self.now_us)

    def take_in(self, messages: int, turn_us: int) -> None:
        """Pass on so many in each of some turns that follow each other, and look."""
        for _ in range(TURNS):
            self.intake.take(messages, messages * 100)
            self.now_us += turn_us
            calls = list(self.calls)
            self.calls.clear()
            for call in calls:
                call()
        self.watch.poll(self.now_us)


def test_it_takes_in_less_while_turns_are_long_and_as_much_as_before_afterwards() -> None:
    node = Node()
    for _ in range(5):
        node.take_in(1500, 2 * TURN_US_MAX)
    assert node.intake.budget.share < FULL // 2
    for _ in range(200):
        node.take_in(0, 1000)
    assert node.intake.budget.share == FULL


def test_short_turns_are_no_reason() -> None:
    node = Node()
    for _ in range(5):
        node.take_in(1500, TURN_US_MAX // 2)
    assert node.intake.budget.share == FULL


def test_how_late_looks_are_tells_how_long_turns_are() -> None:
    node = Node()
    for _ in range(100):
        node.now_us += LOOK_US + 4000
        node.watch.poll(node.now_us)
    assert 7000 <= node.outflow.turn_us <= 8000
    for _ in range(100):
        node.now_us += LOOK_US
        node.watch.poll(node.now_us)
    assert node.outflow.turn_us < 10


def test_a_look_that_takes_long_does_not_make_the_next_one_late() -> None:
    """With 10,000 queues a look takes 10 ms, and lateness is what makes a node busy."""
    node = Node()
    due: list[tuple[float, Callable[[], None]]] = []  # when, in microseconds
    looker = IntakePoller(
        node.watch,
        lambda: node.now_us,
        lambda seconds, call: due.append((node.now_us + seconds * 1_000_000, call)),
    )
    poll = node.outflow.poll

    def slow_poll(_now_us: int, _elapsed_us: int, turn_us: int) -> None:
        poll(_now_us, _elapsed_us, turn_us)
        node.now_us += LOOK_US // 10

    node.outflow.poll = slow_poll  # type: ignore[method-assign]
    looker.start()
    for _ in range(50):
        when, call = due.pop()
        node.now_us = max(node.now_us, int(when))
        call()
    assert node.outflow.turn_us == 0


def test_a_looker_looks_until_it_is_stopped() -> None:
    node = Node()
    later: list[Callable[[], None]] = []
    looker = IntakePoller(node.watch, lambda: node.now_us, lambda _, call: later.append(call))
    looker.start()
    later.pop()()
    assert len(later) == 1
    looker.stop()
    later.pop()()
    assert later == []
