"""Admission to queues that are deep, on simulated nodes, and its effect at a gateway."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.flow.account import Account
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.gate import Waiter
from headrace_broker.flow.intake import Intake
from headrace_broker.flow.outflow_claims import OutflowClaims
from headrace_broker.flow.paced_confirms import (
    BOUND_OVER,
    RATE_MAX,
    STALLED_US,
    PacedConfirms,
    PacedQueues,
    QueueFigures,
)
from headrace_broker.flow.pending import Pending
from headrace_broker.model.flow import CONNECTION, LIMIT_OUTFLOW, LIMIT_QUEUE, Cause
from headrace_broker.model.limits import OUTFLOW_BURST_US, OUTFLOW_LEASE_US, OUTFLOW_MIN

LOOK_US = 100_000
IDLE_US = 500.0  # of each turn
ROUND_TRIP = 8  # turns from a delivery to the next one in its place
INTAKE_MESSAGES = 2000  # that publishers bring where nothing bounds them


class Gateway:
    """Publishers of one node, who want to bring so many messages in a turn of the loop."""

    def __init__(self, wants: int) -> None:
        self.wants = wants
        self.pending = Pending(7, FlowLimits(), Intake(FlowLimits()), 1, None)
        self.brought = 0

    def bring(self) -> int:
        count, batch = 0, max(self.wants // 10, 1)
        while count < self.wants and self.pending.gate.room:
            self.pending.add(batch, 1)
            self.pending.done(1)
            count += batch
        self.brought += count
        return count


class Node:
    """One queue and its consumer on a loop whose turns last as long as their work.

    Args:
        window: messages that the consumer holds at most, 0 for no consumer.
        publish_us: of the loop for each publish.
        deliver_us: for each delivery with its acknowledgement.
        think_us: a consumer's own time for a message.
        gateways: what publishers of each node want to bring in a turn.
    """

    def __init__(
        self,
        window: int,
        publish_us: float = 4.0,
        deliver_us: float = 4.0,
        think_us: float = 0.0,
        gateways: tuple[int, ...] = (INTAKE_MESSAGES,),
    ) -> None:
        self.queues = PacedQueues()
        self.paced = PacedConfirms(7, lambda *_: None, self.queues)
        self.bounded_looks = 0  # of the last run
        self.claims = OutflowClaims()
        self.gateways = [Gateway(wants) for wants in gateways]
        self.published = 0
        self.delivered = 0
        self.ready = 0
        self._now = 0.0
        self._turns = 0
        self._free = window
        self._out: deque[tuple[int, float, int]] = deque()
        self._costs = (publish_us, deliver_us)
        self._think_us = think_us
        self._window = window

    def turn(self) -> None:
        self._turns += 1
        while self._out and self._out[0][0] <= self._turns and self._out[0][1] <= self._now:
            self._free += self._out.popleft()[2]
        count = sum(gateway.bring() for gateway in self.gateways)
        gone = min(self.ready, self._free)
        self.ready += count - gone
        self._free -= gone
        if gone:
            last = self._out[-1][1] if self._out else 0.0
            done = max(last, self._now) + gone * self._think_us if self._think_us else 0.0
            self._out.append((self._turns + ROUND_TRIP, done, gone))
        self.published += count
        self.delivered += gone
        publish_us, deliver_us = self._costs
        turn_us = IDLE_US + count * publish_us + gone * deliver_us
        self._now += turn_us
        self.queues.busy_us = int(turn_us) if turn_us > 5 * IDLE_US else 0
        self.paced.confirm(1, self.published - count + 1, self.published, count)
        held, busy = self._window - self._free, 1 if self._window and not self._free else 0
        command_us = int(turn_us) * ROUND_TRIP // 2
        figures = (self.delivered, self.ready, held, busy, command_us)
        self.paced.applied(QueueFigures(int(self._now), *figures))

    def run(self, looks: int) -> tuple[float, float]:
        """Return the published and delivered messages of a second."""
        began, published, delivered = self._now, self.published, self.delivered
        self.bounded_looks = 0
        for _ in range(looks):
            start = self._now
            while self._now < start + LOOK_US:
                self.turn()
            bound = self.queues.poll(int(self._now)).get(7, 0)
            self.bounded_looks += bound > 0
            parts = self.claims.parts(bound, range(len(self.gateways)), int(self._now))
            for gateway, part in zip(self.gateways, parts.values(), strict=True):
                gateway.pending.receive(part, int(self._now))
        seconds = (self._now - began) / 1e6
        return (self.published - published) / seconds, (self.delivered - delivered) / seconds

    def bring(self) -> list[int]:
        """Return what each gateway brings in 100 looks, once what comes is what leaves."""
        self.run(60)
        for gateway in self.gateways:
            gateway.brought = 0
        published, delivered = self.run(100)
        assert 0.8 * delivered < published < 1.1 * delivered
        return [gateway.brought for gateway in self.gateways]


@pytest.mark.parametrize("window", [2000, 5000, 20_000])
@pytest.mark.parametrize(("publish_us", "deliver_us"), [(4.0, 4.0), (2.0, 10.0), (10.0, 2.0)])
def test_publishing_comes_down_to_what_consumers_get(
    window: int, publish_us: float, deliver_us: float
) -> None:
    node = Node(window, publish_us, deliver_us)
    node.run(60)
    published, delivered = node.run(100)
    assert 0.9 * published <= delivered


def test_what_was_piled_up_is_worked_off_and_publishing_goes_on_meanwhile() -> None:
    node = Node(2000)
    node.published = node.ready = 200_000
    node.run(20)
    published, delivered = node.run(20)
    assert 0.6 * delivered < published < delivered
    node.run(300)
    assert node.ready < 20 * 2000
    assert node.ready > 0


def test_without_consumers_nothing_is_bounded() -> None:
    node = Node(0)
    node.run(60)
    assert node.bounded_looks == 0


def test_a_consumer_that_takes_its_time_is_no_reason() -> None:
    node = Node(100, think_us=50_000)
    node.run(60)
    assert node.bounded_looks == 0


def test_the_bound_goes_when_publishers_have_what_they_want() -> None:
    node = Node(2000)
    node.run(60)
    assert node.bounded_looks > 0
    node.gateways[0].wants = 20
    node.run(60)
    node.run(10)
    assert node.bounded_looks == 0


def test_nodes_that_want_more_than_others_get_what_those_leave() -> None:
    small, one, other = Node(2000, gateways=(10, INTAKE_MESSAGES, INTAKE_MESSAGES)).bring()
    assert 0.9 < one / other < 1.1
    assert small < one


def test_nodes_get_what_their_publishers_weigh() -> None:
    node = Node(2000, gateways=(INTAKE_MESSAGES, INTAKE_MESSAGES, INTAKE_MESSAGES))
    node.claims.receive(0, 8, 1 << 40)  # for as long as this lasts
    many, one, other = node.bring()
    assert 0.9 < one / other < 1.1
    assert 6.5 < many / one < 9.5


def test_the_bound_goes_when_the_log_stands_still() -> None:
    node = Node(2000)
    node.run(60)
    while not node.paced.bound:
        node.run(1)
    now_us = int(node._now) + 100 * STALLED_US
    assert node.queues.poll(now_us) == {7: 0}
    assert node.queues.poll(now_us) == {}


COUNT = st.integers(0, 1 << 40)


@given(st.lists(st.tuples(COUNT, COUNT, COUNT, COUNT, st.integers(0, 3), COUNT), max_size=40))
def test_whatever_is_seen_a_bound_lets_something_in(
    commands: list[tuple[int, int, int, int, int, int]],
) -> None:
    queues = PacedQueues()
    paced = PacedConfirms(7, lambda *_: None, queues)
    now_us = delivered = 0
    for elapsed, came, *more in commands:
        now_us += elapsed
        delivered += came // 2
        paced.confirm(1, 1, 1, came)
        paced.applied(QueueFigures(now_us, delivered, *more))
        assert 0 <= queues.poll(now_us).get(7, 0) <= 2 * BOUND_OVER * RATE_MAX


# At a gateway


class Publishers:
    """Publishers of one node that bring one message after the other while they may."""

    def __init__(self) -> None:
        self.limits = FlowLimits()
        self.pending = Pending(7, self.limits, Intake(self.limits), 1, None)

    def bring(self, messages: int = 1) -> int:
        """Bring batches of so many messages until the gate closes, 3,000 at most."""
        count = 0
        while self.pending.gate.room and count < 3000:
            self.pending.add(messages, 100)
            self.pending.done(100)
            count += messages
        return count


@given(
    st.integers(OUTFLOW_MIN, 1000),
    st.integers(1, 50),
    st.lists(st.integers(0, 500_000), max_size=30),
)
def test_no_more_comes_in_than_the_time_brings_and_one_batch(
    rate: int, batch: int, steps: list[int]
) -> None:
    publishers = Publishers()
    publishers.pending.receive(rate, 0)
    now, came = 0, publishers.bring(batch)
    for step in steps:
        now += step
        publishers.pending.receive(rate, now)
        came += publishers.bring(batch)
    assert came <= rate * now / 1e6 + batch
    least = sum(min(step, OUTFLOW_BURST_US) for step in steps)
    assert came >= rate * least // 1_000_000


def test_a_closed_gate_says_which_limit_it_is() -> None:
    publishers = Publishers()
    pending = publishers.pending
    pending.receive(100, 0)
    assert (pending.gate.room, pending.gate.limit) == (False, LIMIT_OUTFLOW)
    pending.receive(0, 1)
    assert pending.gate.room
    pending.add(1, 1 << 40)
    assert (pending.gate.room, pending.gate.limit) == (False, LIMIT_QUEUE)
    pending.receive(100, 2)
    pending.done(1 << 40)
    assert (pending.gate.room, pending.gate.limit) == (False, LIMIT_OUTFLOW)


class Waiting(Waiter):
    """A publisher that always has more."""

    def __init__(self, pending: Pending) -> None:
        self.account = Account(Cause("a", CONNECTION, "a", "n1"), FlowLimits())
        self._pending = pending
        pending.gate.wait(self)

    def admit(self, byte_count: int) -> int:
        self._pending.add(1, byte_count)
        self._pending.done(byte_count)
        self._pending.gate.wait(self)
        return byte_count


def test_who_waits_is_claimed_for_and_forgotten_by_and_by() -> None:
    publishers = Publishers()
    pending = publishers.pending
    assert pending.claim == 1
    crowd = [Waiting(pending) for _ in range(40)]
    pending.go_on(0)
    assert pending.claim == 1  # nothing bounds them
    pending.receive(100, 0)
    assert pending.claim == 40
    for each in crowd:
        pending.gate.leave(each)
    claims = []
    for look in range(1, 30):
        pending.receive(100, look)
        claims.append(int(pending.claim))
    assert claims[0] == 30
    assert claims == sorted(claims, reverse=True)
    assert claims[-1] == 1


def test_claims_of_an_earlier_bound_are_forgotten() -> None:
    publishers = Publishers()
    pending = publishers.pending
    crowd = [Waiting(pending) for _ in range(40)]
    pending.receive(100, 0)
    assert pending.claim == 40
    for each in crowd:
        pending.gate.leave(each)
    pending.receive(0, 1)
    pending.receive(100, 2)
    assert pending.claim == 1


def test_a_leader_of_which_nothing_is_heard_bounds_nothing_in_the_end() -> None:
    publishers = Publishers()
    pending = publishers.pending
    pending.receive(100, 0)
    assert pending.go_on(OUTFLOW_LEASE_US)
    assert publishers.bring() < 3000
    assert not pending.go_on(OUTFLOW_LEASE_US + 1)
    assert publishers.bring() == 3000
