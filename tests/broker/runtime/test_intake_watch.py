"""What a node looks at before it adapts its intake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.intake import Intake
from headrace_broker.flow.turn_budget import FULL
from headrace_broker.runtime.intake_turns import IntakeTurns
from headrace_broker.runtime.intake_watch import IntakeWatch, Looker


class Machine:
    """A queue's figures."""

    def __init__(self) -> None:
        self.last_id = 0
        self.ready_count = 0
        self.unsettled_count = 100


class Host:
    """A replica that leads."""

    def __init__(self) -> None:
        self.serving = True
        self.machine = Machine()

    def go_on(self, arrived: int, left: int) -> None:
        self.machine.last_id += arrived
        self.machine.ready_count += arrived - left


class Node:
    """An intake that is looked at every tenth of a second, with turns of 2 ms."""

    def __init__(self) -> None:
        self.now_us = 0
        self.calls: list[Callable[[], None]] = []
        self.turns = IntakeTurns(self.calls.append, lambda: self.now_us)
        self.intake = Intake(FlowLimits(), self.turns)
        self.turns.intake = self.intake
        self.hosts = {7: Host(), 8: Host()}
        self.watch = IntakeWatch(self.intake, self.turns, cast(Any, self.hosts))

    def take_in(self, messages: int) -> None:
        """Pass on so many in each of 50 turns that follow each other, and look."""
        for _ in range(50):
            self.intake.take(messages, messages * 100)
            self.now_us += 2000
            calls = list(self.calls)
            self.calls.clear()
            for call in calls:
                call()
        self.watch.look(self.now_us)


def test_it_takes_in_less_while_consumers_of_queues_led_here_fall_behind() -> None:
    node = Node()
    for _ in range(5):
        node.take_in(1500)
        node.hosts[7].go_on(30_000, 10_000)
    assert node.intake.budget.share < FULL // 2


def test_queues_that_are_led_elsewhere_are_no_reason() -> None:
    node = Node()
    node.hosts[7].serving = False
    for _ in range(5):
        node.take_in(1500)
        node.hosts[7].go_on(30_000, 10_000)
    assert node.intake.budget.share == FULL


def test_a_node_that_takes_in_little_does_not_look_at_its_queues() -> None:
    node = Node()
    node.hosts = {}
    for _ in range(5):
        node.take_in(2)
    assert node.intake.turns == 0
    assert node.intake.budget.share == FULL


def test_it_recovers_when_publishers_have_gone() -> None:
    node = Node()
    for _ in range(5):
        node.take_in(1500)
        node.hosts[7].go_on(30_000, 10_000)
    for _ in range(200):
        node.take_in(0)
    assert node.intake.budget.share == FULL


def test_a_looker_looks_until_it_is_stopped() -> None:
    node = Node()
    later: list[Callable[[], None]] = []
    looker = Looker(node.watch, lambda: node.now_us, lambda _, call: later.append(call))
    looker.start()
    later.pop()()
    assert len(later) == 1
    looker.stop()
    later.pop()()
    assert later == []
