"""The budget of a turn on simulated nodes: what comes in follows what goes out."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.turn_budget import FULL, Round, Sight, TurnBudget
from headrace_broker.model.limits import TURN_MESSAGES_MIN, TURN_US_MAX

LOOK_US = 100_000
ROUND_TRIP = 8  # turns from a delivery to the next one in its place


class Node:
    """One queue and its consumers on a loop whose turns last as long as what is done in them.

    Args:
        window: messages that the consumers hold at most.
        publish_us: of the loop for each publish.
        deliver_us: for each delivery with its acknowledgement.
        think_us: a consumer's own time for a message.
    """

    def __init__(
        self, window: int, publish_us: float = 4.0, deliver_us: float = 4.0, think_us: float = 0.0
    ) -> None:
        self.budget = TurnBudget(FlowLimits())
        self.flood = True
        self._ids = 0
        self._sight = Sight(0, 0)
        self.published = 0
        self.delivered = 0
        self.ready = 0
        self.turn_us = 500.0
        self.consumers = window > 0
        self._now = 0.0
        self._turns = 0
        self._free = window
        self._out: deque[tuple[int, float, int]] = deque()
        self._costs = (publish_us, deliver_us)
        self._think_us = think_us
        self._window = window

    def pile_up(self, count: int) -> None:
        """Messages came in before anybody looked."""
        self.ready += count
        self._ids += count
        self._sight = Sight(self._ids, self.ready)

    def turn(self) -> None:
        self._turns += 1
        while self._out and self._out[0][0] <= self._turns and self._out[0][1] <= self._now:
            self._free += self._out.popleft()[2]
        count = int(self.budget.messages()) if self.flood else 20
        gone = min(self.ready, self._free)
        self.ready += count - gone
        self._free -= gone
        if gone:
            client = gone * self._think_us
            last = self._out[-1][1] if self._out else 0.0
            done = max(last, self._now) + client if client else 0.0
            self._out.append((self._turns + ROUND_TRIP, done, gone))
        self.published += count
        self.delivered += gone
        publish_us, deliver_us = self._costs
        self.turn_us = 500.0 + count * publish_us + gone * deliver_us
        self._now += self.turn_us

    def run(self, looks: int) -> tuple[float, float]:
        """Return what was published and delivered in a second."""
        began = self._now
        published, delivered = self.published, self.delivered
        for _ in range(looks):
            start, arrived, turns = self._now, self.published, 0
            while self._now < start + LOOK_US:
                self.turn()
                turns += 1
            round_ = Round()
            elapsed = int(self._now - start)
            mean = elapsed // turns
            arrived = self.published - arrived
            self._sight.look(
                self._ids + self.published,
                self.ready,
                self._window - self._free,
                elapsed,
                mean,
                round_,
            )
            self.budget.look(round_, arrived // turns, mean)
        seconds = (self._now - began) / 1e6
        return (self.published - published) / seconds, (self.delivered - delivered) / seconds


@given(st.integers(1000, 20_000), st.floats(1.0, 10.0), st.floats(1.0, 10.0))
def test_publishing_comes_down_to_what_consumers_get(
    window: int, publish_us: float, deliver_us: float
) -> None:
    node = Node(window, publish_us, deliver_us)
    node.run(60)
    published, delivered = node.run(60)
    assert 0.9 * published <= delivered
    assert node.ready < 20 * window + 200_000  # from before the first looks


def test_what_was_piled_up_is_worked_off_and_publishing_goes_on_meanwhile() -> None:
    node = Node(5000)
    node.pile_up(200_000)
    node.run(20)
    published, delivered = node.run(20)
    assert 0.7 * delivered < published < delivered
    node.run(1000)
    assert node.ready <= 4 * 5000


def test_without_consumers_the_whole_budget_is_used() -> None:
    node = Node(0)
    node.run(20)
    assert node.budget.share == FULL


def test_it_grows_again_when_nothing_is_behind() -> None:
    node = Node(5000)
    node.run(60)
    assert node.budget.share < FULL // 2
    node.flood = False
    node.run(200)
    assert node.budget.share == FULL


def test_consumers_that_take_their_time_hardly_slow_publishers_down() -> None:
    free = Node(0)
    free.run(60)
    unhindered, _ = free.run(60)
    node = Node(100, think_us=10_000)
    node.run(60)
    published, _ = node.run(60)
    assert published > 0.8 * unhindered


def test_long_turns_are_cut_short() -> None:
    node = Node(0, publish_us=100.0)
    node.run(60)
    assert node.turn_us <= 1.2 * TURN_US_MAX


@given(
    st.lists(
        st.tuples(
            st.integers(0, 100_000),
            st.integers(1, 100_000),
            st.integers(0, 1_000_000),
            st.integers(0, 100_000),
            st.integers(0, 1_000_000),
        ),
        max_size=40,
    )
)
def test_whatever_is_seen_publishers_go_on_and_limits_hold(
    looks: list[tuple[int, int, int, int, int]],
) -> None:
    limits = FlowLimits()
    budget = TurnBudget(limits)
    for arrived, left, waiting, unsettled, turn_us in looks:
        round_ = Round()
        round_.add(arrived, left, waiting, unsettled)
        budget.look(round_, arrived // 10, turn_us)
        assert TURN_MESSAGES_MIN <= budget.messages() <= limits.turn_messages
        assert 0 < budget.octets() <= limits.turn_octets
    limits.share = 1
    assert 1 <= budget.messages() <= limits.scaled(limits.turn_messages)
