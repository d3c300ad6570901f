"""Announcements about queues that fall behind."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from headrace_broker.flow.account import Account
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.gate import Waiter
from headrace_broker.flow.intake import Intake
from headrace_broker.flow.outflow import STILL_LOOKS
from headrace_broker.model.flow import CONNECTION, LIMIT_OUTFLOW, Cause
from headrace_broker.model.limits import OUTFLOW_LEASE_US, TURN_US_BUSY
from headrace_broker.runtime.contract.recently_applied import Changes, RecentlyApplied
from headrace_broker.runtime.intake.outflow_watch import Claims, Outflows, OutflowWatch
from headrace_broker.runtime.intake.queue_gates import QueueGates

LOOK_US = 100_000
GROUP, OTHER = 7, 8


class Machine:
    """A queue's figures."""

    def __init__(self) -> None:
        self.last_id = 0
        self.ready_count = 0
        self.unsettled_count = 100
        self.consumer_count = 1


class Host:
    """A replica that leads."""

    def __init__(self, changes: Changes) -> None:
        self.serving = True
        self.machine = Machine()
        self._changes = changes

    def go_on(self, arrived: int, left: int) -> None:
        self._changes.note()
        self.machine.last_id += arrived
        self.machine.ready_count += arrived - left


class Node:
    """A node among three that leads two queues, and publishes to both."""

    def __init__(self) -> None:
        self.now_us = 0
        self.cpu_us = 0
        self.hosts: dict[int, Host] = {}
        recent = RecentlyApplied(self.hosts)
        for group in (GROUP, OTHER):
            self.hosts[group] = Host(recent.of(group))
        limits = FlowLimits()
        self.gates = QueueGates(limits, Intake(limits))
        self.pending = {group: self.gates.enter(group) for group in self.hosts}
        self.sent: list[tuple[int, list[int]]] = []
        self.claimed: list[tuple[int, list[int]]] = []
        hosts = cast(Any, self.hosts)
        self.watch = OutflowWatch(
            *(hosts, recent, self.gates, [2, 3], self._send, lambda: self.cpu_us)
        )

    def _send(self, peer: int, data: bytes) -> bool:
        payload = msgspec.msgpack.decode(data, type=Claims | Outflows)
        told = self.claimed if isinstance(payload, Claims) else self.sent
        told.append((peer, payload.rows))
        return True

    def poll(self, turn_us: int = 2 * TURN_US_BUSY) -> None:
        self.now_us += LOOK_US
        self.sent.clear()
        self.watch.poll(self.now_us, LOOK_US, turn_us)

    def fall_behind(self, looks: int = 8, turn_us: int = 2 * TURN_US_BUSY) -> None:
        """Make one queue take three times as much as leaves it, and the other what leaves."""
        for _ in range(looks):
            self.hosts[GROUP].go_on(3000, 1000)
            self.hosts[OTHER].go_on(1000, 1000)
            self.poll(turn_us)

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
    for _ in range(STILL_LOOKS):
        node.watch.hear_claims(2, [GROUP, 1000], node.now_us)
        node.poll()
    assert node.outflows[GROUP] == 0
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
    assert 0 < bound <= 10_000 // 3
    assert node.outflows[OTHER] == 0
    assert node.sent == [(2, [GROUP, bound]), (3, [GROUP, bound])]


def test_a_node_that_has_time_left_says_nothing() -> None:
    node = Node()
    node.fall_behind(turn_us=TURN_US_BUSY - 1)
    assert (node.sent, node.outflows[GROUP]) == ([], 0)


def test_a_loop_that_computes_all_the_time_is_busy_though_its_turns_are_short() -> None:
    node = Node()
    for _ in range(8):
        node.cpu_us += LOOK_US * 9 // 10
        node.fall_behind(1, turn_us=2000)
    assert node.outflows[GROUP] > 0


def test_queues_that_are_led_elsewhere_are_not_looked_at() -> None:
    node = Node()
    node.hosts[GROUP].serving = False
    node.fall_behind()
    assert (node.sent, node.outflows[GROUP]) == ([], 0)


def test_the_end_of_a_bound_is_told() -> None:
    node = Node()
    node.fall_behind()
    told: list[int] = []
    while node.outflows[GROUP] > 0:
        node.hosts[GROUP].go_on(1000, 1000)
        node.poll(turn_us=0)
        told = node.sent[0][1]
    assert told == [GROUP, 0]
    node.poll(turn_us=0)
    assert node.sent == []


def test_a_node_that_is_not_busy_for_a_moment_goes_on_looking() -> None:
    node = Node()
    node.fall_behind(4)
    node.fall_behind(2, turn_us=0)
    node.fall_behind(3)
    assert node.outflows[GROUP] > 0


def test_queues_to_which_nothing_comes_are_left_alone() -> None:
    node = Node()
    node.fall_behind()
    for _ in range(STILL_LOOKS):
        node.poll()
    assert node.outflows[GROUP] == 0
    node.hosts[GROUP].go_on(3000, 1000)
    node.poll()
    assert node.sent == []


def test_what_another_node_says_counts_until_nothing_is_heard_of_it() -> None:
    node = Node()
    node.watch.receive(2, [GROUP, 100, 99, 5], node.now_us)
    assert node.gate(GROUP) == (False, LIMIT_OUTFLOW)
    node.poll(turn_us=0)
    assert node.gate(GROUP)[0]
    node.pending[GROUP].add(1000, 1)
    node.poll(turn_us=0)
    assert node.gate(GROUP) == (False, LIMIT_OUTFLOW)
    for _ in range(OUTFLOW_LEASE_US // LOOK_US):
        node.poll(turn_us=0)
    assert (node.gate(GROUP)[0], node.outflows[GROUP]) == (True, 0)


def test_a_row_without_its_figure_is_left_away() -> None:
    node = Node()
    node.watch.receive(2, [OTHER, 5, GROUP], node.now_us)
    assert node.outflows == {GROUP: 0, OTHER: 5}


def test_queues_are_watched_to_which_something_comes_from_the_first_busy_look_on() -> None:
    node = Node()
    for host in node.hosts.values():
        host.go_on(1000, 1000)
    node.poll()
    node.poll()
    assert not node.watch._seen, "it came before the node was busy"
    node.hosts[OTHER].go_on(0, 0)  # something else was applied, as a new leader's settings
    node.poll()
    node.poll()
    assert not node.watch._seen
    node.hosts[GROUP].go_on(1000, 1000)
    node.poll()
    node.hosts[GROUP].go_on(1000, 1000)
    node.poll()
    assert list(node.watch._seen) == [GROUP]
