"""Announcements about queues that fall behind."""

from __future__ import annotations

import msgspec
import pytest

from headrace_broker.flow.account import Account
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.gate import Waiter
from headrace_broker.flow.intake import Intake
from headrace_broker.flow.paced_confirms import PacedConfirms, QueueFigures
from headrace_broker.model.flow import CONNECTION, LIMIT_OUTFLOW, Cause
from headrace_broker.model.limits import OUTFLOW_LEASE_US, TURN_US_BUSY
from headrace_broker.runtime.intake.outflow_watch import Claims, Outflows, OutflowWatch
from headrace_broker.runtime.intake.queue_gates import QueueGates

LOOK_US = 100_000
STEP_US = 10_000
HELD = 1000
GROUP, OTHER = 7, 8


class Node:
    """A node among three that leads two queues, and publishes to both."""

    def __init__(self) -> None:
        self.now_us = 0
        self.cpu_us = 0
        limits = FlowLimits()
        self.gates = QueueGates(limits, Intake(limits))
        self.pending = {group: self.gates.enter(group) for group in (GROUP, OTHER)}
        self.sent: list[tuple[int, list[int]]] = []
        self.claimed: list[tuple[int, list[int]]] = []
        self.watch = OutflowWatch(self.gates, [2, 3], self._send, lambda: self.cpu_us)
        queues = self.watch.paced
        self.paced = {
            group: PacedConfirms(group, lambda *_: None, queues) for group in self.pending
        }
        self._gone = dict.fromkeys(self.paced, 0)
        self._ready = dict.fromkeys(self.paced, 0)

    def _send(self, peer: int, data: bytes) -> bool:
        payload = msgspec.msgpack.decode(data, type=Claims | Outflows)
        told = self.claimed if isinstance(payload, Claims) else self.sent
        told.append((peer, payload.rows))
        return True

    def poll(self, turn_us: int = 0) -> None:
        self.now_us += LOOK_US
        self.sent.clear()
        self.watch.poll(self.now_us, LOOK_US, turn_us)

    def flow(self, group: int, came: int, left: int) -> None:
        """Apply a command with which so many messages come and have left."""
        self._gone[group] += left
        self._ready[group] += came - left
        figures = (self._gone[group], self._ready[group], HELD, 1, 100_000)
        self.paced[group].confirm(1, 1, 1, came)
        self.paced[group].applied(QueueFigures(self.now_us, *figures))

    def fall_behind(self, looks: int = 8) -> None:
        """Make one queue take three times as much as leaves it, and the other what leaves."""
        for _ in range(looks):
            for _ in range(LOOK_US // STEP_US):
                self.now_us += STEP_US
                self.flow(GROUP, 3000, 1000)
                self.flow(OTHER, 1000, 1000)
            self.now_us -= LOOK_US
            self.poll()

    def calm_down(self) -> None:
        """Empty the queue, and let as much come as leaves."""
        self.flow(GROUP, 0, self._ready[GROUP])
        while self.outflows[GROUP] > 0:
            self.flow(GROUP, 1000, 1000)
            self.poll()

    def gate(self, group: int) -> tuple[bool, int]:
        """Return whether it has room, and its limit."""
        gate = self.pending[group].gate
        return gate.room, gate.limit

    @property
    def outflows(self) -> dict[int, int]:
        return {group: int(pending.outflow) for group, pending in self.pending.items()}

    def wait(self, group: int, weight: int) -> None:
        """Make a publisher wait for a queue that lets in little."""
        waiter = Idle(Account(Cause("a", CONNECTION, "a", "n1"), FlowLimits()))
        waiter.account.weight = weight
        self.pending[group].gate.wait(waiter)


class Idle(Waiter):
    """Waits, and passes nothing on."""

    def __init__(self, account: Account) -> None:
        self.account = account

    def admit(self, _byte_count: int) -> int:
        return 0


def test_nodes_get_parts_as_their_publishers_weigh() -> None:
    node = Node()
    node.fall_behind()
    node.wait(GROUP, 6)
    node.watch.hear_claims(2, [GROUP, 3, OTHER, 9, 99, 9, GROUP], node.now_us)
    node.fall_behind(2)
    [(_, two), (_, three)] = node.sent
    assert two[0] == three[0] == GROUP
    assert two[1] == pytest.approx(3 * three[1], rel=0.1)
    assert node.outflows[GROUP] == pytest.approx(6 * three[1], rel=0.1)


def test_what_was_claimed_goes_with_the_bound() -> None:
    node = Node()
    node.fall_behind()
    node.watch.hear_claims(2, [GROUP, 1000], node.now_us)
    node.calm_down()
    node.poll()
    node.watch.hear_claims(2, [GROUP, 1000], node.now_us)  # too late
    node.fall_behind()
    assert node.sent[0][1] == node.sent[1][1]


def test_who_waits_is_told_to_the_leader_that_bounds_them() -> None:
    node = Node()
    node.wait(GROUP, 6)
    node.wait(OTHER, 1)
    node.watch.receive(3, [GROUP, 100, OTHER, 100, 99, 5], node.now_us)
    assert node.claimed == [(3, [GROUP, 6])]
    node.watch.receive(2, [OTHER, 100], node.now_us)
    assert len(node.claimed) == 1


def test_all_nodes_are_told_the_same_of_the_queue_that_falls_behind_and_of_no_other() -> None:
    node = Node()
    node.fall_behind()
    bound = node.outflows[GROUP]
    assert 0 < bound <= 100_000 // 3
    assert node.outflows[OTHER] == 0
    assert node.sent == [(2, [GROUP, bound]), (3, [GROUP, bound])]


def test_the_end_of_a_bound_is_told() -> None:
    node = Node()
    node.fall_behind()
    node.calm_down()
    assert node.sent == [(2, [GROUP, 0]), (3, [GROUP, 0])]
    node.poll()
    assert node.sent == []


def test_the_bound_of_a_queue_that_is_led_elsewhere_is_over() -> None:
    node = Node()
    node.fall_behind()
    node.paced[GROUP].stop()
    node.poll()
    assert node.sent == [(2, [GROUP, 0]), (3, [GROUP, 0])]
    node.poll()
    assert node.sent == []


def test_turns_count_only_while_the_node_is_busy() -> None:
    node = Node()
    node.poll(TURN_US_BUSY - 1)
    assert node.watch.paced.busy_us == 0
    node.poll(TURN_US_BUSY)
    assert node.watch.paced.busy_us == TURN_US_BUSY
    node.cpu_us += LOOK_US * 9 // 10
    node.poll(2000)
    assert node.watch.paced.busy_us == 2000
    node.poll(2000)
    assert node.watch.paced.busy_us == 0


def test_what_another_node_says_counts_until_nothing_is_heard_of_it() -> None:
    node = Node()
    node.watch.receive(2, [GROUP, 100, 99, 5], node.now_us)
    assert node.gate(GROUP) == (False, LIMIT_OUTFLOW)
    node.poll()
    assert node.gate(GROUP)[0]
    node.pending[GROUP].add(1000, 1)
    node.poll()
    assert node.gate(GROUP) == (False, LIMIT_OUTFLOW)
    for _ in range(OUTFLOW_LEASE_US // LOOK_US):
        node.poll()
    assert (node.gate(GROUP)[0], node.outflows[GROUP]) == (True, 0)


def test_a_row_without_its_figure_is_left_away() -> None:
    node = Node()
    node.watch.receive(2, [OTHER, 5, GROUP], node.now_us)
    assert node.outflows == {GROUP: 0, OTHER: 5}
