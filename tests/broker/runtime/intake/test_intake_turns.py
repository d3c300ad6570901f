"""Turns of the loop: budgets, order, and length of turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.flow.account import Account
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.gate import Gate, Waiter
from headrace_broker.flow.intake import Intake
from headrace_broker.flow.pending import Pending
from headrace_broker.model.flow import CONNECTION, Cause
from headrace_broker.runtime.intake.intake_turns import IntakeTurns
from headrace_broker.runtime.intake.queue_gates import QueueGates


class Loop:
    """Calls back in turns of its own, and has a clock that is set."""

    def __init__(self) -> None:
        self.now_us = 0
        self.calls: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.calls.append(callback)

    def clock_us(self) -> int:
        return self.now_us

    def turn(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class Node:
    """The intake of a node with a loop of its own."""

    def __init__(self, limits: FlowLimits) -> None:
        self.loop = Loop()
        self.turns = IntakeTurns(self.loop.call_soon, self.loop.clock_us)
        self.intake = Intake(limits, self.turns)
        self.turns.intake = self.intake
        self.gates = QueueGates(limits, self.intake, self.turns)


class Publisher(Waiter):
    """A channel that publishes to one queue, and buffers stopped publishes."""

    def __init__(self, node: Node, name: str, pending: Pending) -> None:
        self.account = Account(Cause(name, CONNECTION, name, "n1"), FlowLimits())
        self.held: deque[int] = deque()
        self.passed = 0
        self.waits_at: Gate | None = None
        self._node = node
        self._pending = pending

    def publish(self, byte_count: int) -> None:
        if self.held:
            self.held.append(byte_count)
        elif self._node.intake.gate.is_open and self._pending.gate.is_open:
            self._pass_on(byte_count)
        else:
            self.held.append(byte_count)
            self._wait()

    def admit(self, byte_count: int) -> int:
        self.waits_at = None
        gone = 0
        while self.held and gone < byte_count and self._may():
            gone += self.held[0]
            self._pass_on(self.held.popleft())
        if self.held:
            self._wait()
        return gone

    def _may(self) -> bool:
        return self._node.intake.gate.room and self._pending.gate.room

    def _wait(self) -> None:
        queue = self._pending.gate
        self.waits_at = queue if not queue.room else self._node.intake.gate
        self.waits_at.wait(self)

    def _pass_on(self, byte_count: int) -> None:
        self._node.intake.take(1, byte_count)
        self._pending.add(1, byte_count)
        self.passed += byte_count


def small_limits() -> FlowLimits:
    limits = FlowLimits()
    limits.intake_messages = 400
    limits.intake_bytes = 100_000
    limits.queue_pending_bytes = 20_000
    limits.node_buffer_bytes = 400_000
    return limits


def test_what_exceeds_a_turns_budget_goes_in_the_next_turns() -> None:
    limits = small_limits()
    limits.queue_pending_bytes = 1 << 30
    limits.node_buffer_bytes = 1 << 30
    node = Node(limits)
    publisher = Publisher(node, "a", node.gates.enter(7))
    for _ in range(25):
        publisher.publish(10_000)
    passed = []
    for _ in range(3):
        passed.append(publisher.passed)
        node.loop.turn()
    assert passed == [100_000, 200_000, 250_000]


def test_turns_are_measured_and_idle_time_is_not() -> None:
    limits = small_limits()
    limits.queue_pending_bytes = 1 << 30
    limits.node_buffer_bytes = 1 << 30
    node = Node(limits)
    publisher = Publisher(node, "a", node.gates.enter(7))
    node.loop.now_us = 50_000
    for _ in range(35):
        publisher.publish(10_000)
    node.loop.now_us = 53_000  # half a turn, as far as is known
    node.loop.turn()
    node.loop.now_us = 60_000
    node.loop.turn()
    assert node.turns.take_turn_us() == (6000 * 6000 + 7000 * 7000) // 13_000
    assert node.turns.take_turn_us() == 0


def test_a_queues_figures_last_as_long_as_its_sessions() -> None:
    node = Node(small_limits())
    pending = node.gates.enter(7)
    assert node.gates.enter(7) is pending
    node.gates.leave(7)
    assert node.gates.by_group == {7: pending}
    node.gates.leave(7)
    assert node.gates.by_group == {}


def test_limits_that_were_raised_open_gates() -> None:
    limits = small_limits()
    limits.node_buffer_bytes = 1 << 30
    node = Node(limits)
    pending = node.gates.enter(7)
    pending.add(1, 30_000)
    assert not pending.gate.is_open
    limits.queue_pending_bytes = 100_000
    node.gates.poll()
    assert pending.gate.room


steps = st.lists(
    st.tuples(st.sampled_from(["publish", "publish", "apply", "turn"]), st.integers(0, 5)),
    max_size=120,
)


@given(steps, st.integers(1, 30_000))
def test_no_schedule_leaves_a_publisher_behind(steps: list[tuple[str, int]], size: int) -> None:
    node = Node(small_limits())
    queues = [node.gates.enter(7), node.gates.enter(8)]
    publishers = [Publisher(node, str(number), queues[number % 2]) for number in range(6)]
    sent = 0
    for what, at in steps:
        if what == "publish":
            publishers[at].publish(size)
            sent += size
        elif what == "apply":
            pending = queues[at % 2]
            pending.done(min(pending.byte_count, size))
        else:
            node.loop.turn()
        assert node.intake.pending == sum(pending.byte_count for pending in queues)
        for publisher in publishers:
            assert (publisher.waits_at is not None) == bool(publisher.held)
    turns = 0
    while any(publisher.held for publisher in publishers):
        for pending in queues:
            pending.done(pending.byte_count)
        node.loop.turn()
        turns += 1
        assert turns < 1000, "somebody waits, and nobody serves"
    assert sum(publisher.passed for publisher in publishers) == sent


def test_publishers_of_a_busy_queue_and_of_others_all_get_their_share() -> None:
    node = Node(small_limits())
    queues = [node.gates.enter(7), node.gates.enter(8)]
    publishers = [Publisher(node, str(number), queues[number % 4 != 0]) for number in range(8)]
    for _ in range(400):
        for publisher in publishers:
            while len(publisher.held) < 20:
                publisher.publish(500)
        for pending in queues:
            pending.done(min(pending.byte_count, 5000))
        node.loop.turn()
    at_first = [publisher.passed for publisher in publishers[::4]]
    at_second = [p.passed for number, p in enumerate(publishers) if number % 4 != 0]
    for shares in (at_first, at_second):
        assert max(shares) - min(shares) <= 100_000
        assert sum(shares) >= 0.95 * 400 * 5000


def test_who_waits_at_the_node_is_called_though_queues_came_first_and_took_all() -> None:
    limits = small_limits()
    limits.queue_pending_bytes = limits.intake_bytes = 1 << 30
    node = Node(limits)
    queue = node.gates.enter(7)
    first, second = Publisher(node, "a", queue), Publisher(node, "b", node.gates.enter(8))
    node.turns.turn()
    node.turns.turn()  # so that queues are first in the next one
    other = node.gates.enter(9)
    other.add(1, 110_000)  # more than may be pending
    second.publish(1000)
    queue.gate.set_room(False)
    first.publish(110_000)
    other.done(110_000)
    queue.gate.set_room(True)
    node.loop.turn()
    assert (first.passed, second.passed) == (110_000, 0)
    queue.done(110_000)
    node.loop.turn()
    assert second.passed == 1000


def test_queues_that_take_nothing_leave_room_for_others() -> None:
    limits = small_limits()
    limits.queue_pending_bytes = 50_000  # half of what may be pending
    node = Node(limits)
    stuck = [node.gates.enter(group) for group in range(7, 17)]
    publishers = [Publisher(node, str(pending.gate.group), pending) for pending in stuck]
    healthy = node.gates.enter(20)
    fast = Publisher(node, "fast", healthy)
    for _ in range(100):
        for publisher in (*publishers, fast):
            publisher.publish(1000)
        node.loop.turn()
        healthy.done(healthy.byte_count)
    assert fast.passed == 100_000
    assert min(publisher.passed for publisher in publishers) > 5000


def test_the_loop_rests_while_nothing_may_pass_for_what_is_pending() -> None:
    limits = small_limits()
    limits.queue_pending_bytes = limits.intake_bytes = 1 << 30
    node = Node(limits)
    queue, stuck = node.gates.enter(7), node.gates.enter(8)
    publisher = Publisher(node, "a", queue)
    queue.gate.set_room(False)
    publisher.publish(1000)
    stuck.add(1, 110_000)  # more than may be pending
    queue.gate.set_room(True)
    turns = 0
    while node.loop.calls and turns < 10:
        node.loop.turn()
        turns += 1
    assert (turns < 10, publisher.passed) == (True, 0)
    stuck.done(110_000)
    node.loop.turn()
    node.loop.turn()
    assert publisher.passed == 1000
