"""Confirms that follow the messages that leave a queue."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.flow.paced_confirms import (
    BOUND_DEPTH,
    CALM_LOOKS,
    FAST_COMMANDS,
    LOOK_US,
    REST_US,
    SHOWN_US,
    STALLED_COMMANDS,
    STALLED_US,
    STANDING_MIN,
    WAIT_US_MAX,
    PacedConfirms,
    PacedQueues,
    QueueFigures,
)

GROUP = 7
HELD = 10 * STANDING_MIN  # by consumers
MOST = HELD // 2  # ready messages for which no confirm waits
COMMAND_US = 5000
OTHER = 9  # a session
STEP_US = 1000  # from one command to the next


class Queue:
    """A queue of which as much is confirmed as leaves it, and that is to confirm the next ones."""

    def __init__(self, ready: int = 3 * MOST // 2) -> None:
        self.told: list[tuple[int, int, int]] = []
        self.queues = PacedQueues()
        self.paced = PacedConfirms(GROUP, lambda *row: self.told.append(row), self.queues)
        self.now_us = 0
        self.ready = ready
        self.delivered = 0
        self.held = HELD
        self.busy = 1
        self._numbers: dict[int, int] = {}
        self.flow(6 * LOOK_US)
        assert self.paced.is_on == (ready > STANDING_MIN)
        self.told.clear()

    def flow(self, us: int, messages: int = HELD // 8) -> None:
        """Apply a command each STEP_US that brings as many messages as have left."""
        for _ in range(us // STEP_US):
            self.ready -= messages
            self.delivered += messages
            self.publish(messages, OTHER)

    def fill(self, count: int) -> None:
        """Bring messages of which no confirm waits."""
        self.ready += count
        self._applied()

    def publish(self, count: int, session: int = 1, known: int = 0) -> None:
        """Apply a command with `count` new messages, after `known` that are there already."""
        first = self._numbers.get(session, 0) + 1
        last = first + known + count - 1
        self._numbers[session] = last
        self.ready += count
        self.paced.confirm(session, first, last, count)
        self._applied()

    def leave(self, count: int) -> None:
        self.ready -= count
        self.delivered += count
        self._applied()

    def wait(self, us: int) -> None:
        self.now_us += us
        self.queues.poll(self.now_us)

    def _applied(self) -> None:
        self.now_us += STEP_US
        figures = (self.delivered, self.ready, self.held, self.busy, COMMAND_US)
        self.paced.applied(QueueFigures(self.now_us, *figures))

    @property
    def confirmed(self) -> int:
        return sum(last - first + 1 for _, first, last in self.told)


def test_no_confirm_waits_while_few_messages_stand() -> None:
    queue = Queue()
    queue.leave(queue.ready)
    queue.publish(MOST)
    assert queue.told == [(1, 1, MOST)]


def test_beyond_that_a_confirm_waits_until_as_many_have_left() -> None:
    queue = Queue()
    queue.publish(10)
    queue.leave(9)
    assert queue.told == []
    queue.leave(1)
    assert queue.told == [(1, 1, 10)]


def test_all_are_told_once_few_messages_are_left() -> None:
    queue = Queue()
    queue.publish(10 * MOST)
    queue.publish(5, session=2)
    queue.leave(queue.ready - 1)
    assert queue.told == [(1, 1, 10 * MOST), (2, 1, 5)]


def test_confirms_keep_their_order() -> None:
    queue = Queue()
    queue.publish(20)
    queue.publish(1, session=2)
    queue.leave(19)
    assert queue.told == []
    queue.leave(2)
    assert queue.told == [(1, 1, 20), (2, 1, 1)]


def test_a_deep_queue_becomes_shorter() -> None:
    queue = Queue()
    queue.fill(98 * MOST)
    for _ in range(100):
        queue.leave(MOST // 4)
        queue.publish(MOST // 4)
    part = queue.confirmed / (100 * (MOST // 4))
    assert 0.8 < part < 0.9


def test_what_left_makes_room_for_a_burst_and_no_more() -> None:
    queue = Queue()
    queue.fill(98 * MOST)
    queue.leave(50 * MOST)
    for _ in range(10):
        queue.publish(MOST // 2)
    assert queue.confirmed == MOST


def test_publishes_that_the_queue_has_already_need_no_room() -> None:
    queue = Queue()
    queue.publish(0, known=5)
    assert queue.told == [(1, 1, 5)]


def test_confirms_wait_no_more_when_nothing_leaves() -> None:
    queue = Queue()
    before = queue.ready
    queue.publish(10)
    while queue.paced.is_on:
        queue.publish(1)
    assert queue.confirmed == queue.ready - before
    assert queue.confirmed < 2 * (STALLED_US + STALLED_COMMANDS * COMMAND_US) // STEP_US
    assert not queue.paced.is_on


def test_nor_when_no_command_comes() -> None:
    queue = Queue()
    queue.publish(10)
    queue.wait(STALLED_US + STALLED_COMMANDS * COMMAND_US - 2 * STEP_US)
    assert queue.told == []
    queue.wait(STEP_US)
    assert queue.told == [(1, 1, 10)]
    assert not queue.paced.is_on


@pytest.mark.parametrize("why", ["slow", "gone"])
def test_consumers_that_are_slow_themselves_make_nobody_wait(why: str) -> None:
    queue = Queue()
    if why == "slow":
        queue.held = HELD * FAST_COMMANDS * 1000
    else:
        queue.busy = 0
    queue.flow((CALM_LOOKS + 1) * LOOK_US)
    assert not queue.paced.is_on
    queue.told.clear()
    queue.publish(10)
    assert queue.told == [(1, 1, 10)]


def test_consumers_of_a_busy_node_may_take_a_turn_of_its_loop_for_each_message() -> None:
    queue = Queue()
    queue.held = HELD * 100
    queue.queues.busy_us = 1000
    queue.flow((CALM_LOOKS + 1) * LOOK_US)
    assert queue.paced.is_on
    queue.queues.busy_us = 0
    queue.flow((CALM_LOOKS + 1) * LOOK_US)
    assert not queue.paced.is_on


def test_one_slow_look_ends_nothing() -> None:
    queue = Queue()
    queue.busy = 0
    queue.flow(2 * LOOK_US)
    queue.busy = 1
    queue.flow(CALM_LOOKS * LOOK_US)
    queue.told.clear()
    queue.publish(10)
    assert queue.told == []


def test_a_queue_without_messages_that_stand_is_not_behind() -> None:
    queue = Queue(STANDING_MIN)
    queue.flow(10 * LOOK_US)
    assert not queue.paced.is_on
    assert not queue.paced.is_behind(queue.now_us)


def test_it_counts_as_behind_for_a_second_after_a_confirm_waited() -> None:
    queue = Queue()
    queue.publish(10)
    queue.leave(10)
    assert queue.paced.is_behind(queue.now_us)
    assert queue.paced.is_behind(queue.now_us - STEP_US + SHOWN_US - 1)
    assert not queue.paced.is_behind(queue.now_us - STEP_US + SHOWN_US)


def test_nodes_let_in_less_than_leaves_a_queue_while_it_is_deep() -> None:
    queue = Queue()
    queue.flow(20 * LOOK_US)
    queue.publish(10)
    assert queue.queues.poll(queue.now_us) == {}
    queue.fill(100 * HELD)
    bound = queue.queues.poll(queue.now_us)[GROUP]
    leaves = (HELD // 8) * 1_000_000 // STEP_US
    assert 0.7 * leaves < bound < leaves
    queue.leave(queue.ready - BOUND_DEPTH * HELD - 1)
    assert queue.queues.poll(queue.now_us)[GROUP] == bound


def test_a_bound_rises_when_the_queue_is_no_longer_deep_until_it_is_over() -> None:
    queue = Queue()
    queue.flow(20 * LOOK_US)
    queue.fill(100 * HELD)
    queue.publish(10)
    bounds = [queue.queues.poll(queue.now_us)[GROUP]]
    queue.leave(queue.ready - BOUND_DEPTH * HELD)
    while bounds[-1] > 0 and len(bounds) < 100:
        bounds.append(queue.queues.poll(queue.now_us)[GROUP])
    assert bounds.pop() == 0
    assert bounds == sorted(bounds)
    assert queue.queues.poll(queue.now_us) == {}


def test_a_deep_queue_in_which_nothing_happens_has_no_bound() -> None:
    queue = Queue()
    queue.publish(10)
    queue.fill(100 * HELD)
    queue.leave(10)
    assert queue.queues.poll(queue.now_us)[GROUP] > 0
    queue.now_us += STALLED_US + STALLED_COMMANDS * COMMAND_US
    assert queue.queues.poll(queue.now_us) == {GROUP: 0}
    assert queue.queues.poll(queue.now_us) == {}


def test_confirms_that_wait_are_told_when_the_replica_leads_no_more() -> None:
    queue = Queue()
    queue.publish(10)
    queue.paced.stop()
    assert queue.told == [(1, 1, 10)]


def test_a_command_of_many_messages_waits_until_as_many_have_left() -> None:
    queue = Queue()
    queue.fill(98 * MOST)
    queue.publish(10 * MOST)
    queue.publish(1, session=2)
    for _ in range(24):
        assert queue.told == []
        queue.leave(MOST // 2)
    assert queue.told == [(1, 1, 10 * MOST), (2, 1, 1)]


def test_a_confirm_waits_for_a_second_at_most() -> None:
    queue = Queue()
    queue.fill(98 * MOST)
    queue.publish(400 * MOST)
    waited = 0
    while not queue.told:
        queue.leave(HELD // 8)
        queue.wait(0)
        waited += STEP_US
    assert WAIT_US_MAX - 2 * STEP_US <= waited <= WAIT_US_MAX
    assert queue.paced.is_on


def test_after_a_stall_no_confirm_waits_for_a_second() -> None:
    queue = Queue()
    queue.publish(10)
    queue.wait(STALLED_US + STALLED_COMMANDS * COMMAND_US)
    queue.flow(REST_US - 2 * LOOK_US)
    assert not queue.paced.is_on
    queue.flow(4 * LOOK_US)
    assert queue.paced.is_on


COUNT = st.integers(0, 1 << 40)


@given(st.lists(st.tuples(COUNT, COUNT, COUNT, COUNT, st.integers(0, 3), COUNT), max_size=40))
def test_each_confirm_is_told_once_in_order_whatever_is_seen(
    commands: list[tuple[int, int, int, int, int, int]],
) -> None:
    told: list[int] = []
    queues = PacedQueues()
    paced = PacedConfirms(GROUP, lambda _, first, last: told.append(first), queues)
    now_us = delivered = 0
    for number, (elapsed, came, *figures) in enumerate(commands):
        now_us += elapsed % (2 * LOOK_US)
        delivered += came // 2
        paced.confirm(1, number, number, came)
        paced.applied(QueueFigures(now_us, delivered, *figures))
    queues.poll(1 << 60)
    assert told == list(range(len(commands)))


class Flood:
    """A publisher and a consumer with equal windows, a command of the log each STEP_US.

    A publish is confirmed after a command's duration; a message makes room at its consumer after
    that of its delivery and acknowledgement too.
    """

    WINDOW = 1000

    def __init__(self) -> None:
        self.paced = PacedConfirms(GROUP, self._confirmed, PacedQueues())
        self.ready = self.last_id = self.held = self.delivered = 0
        self.free = self.WINDOW
        self._acks: deque[tuple[int, int]] = deque()
        self._log: deque[tuple[int, int]] = deque()
        self.deepest = 0

    def _confirmed(self, _: int, first: int, last: int) -> None:
        self.free += last - first + 1

    def run(self, steps: int, paces: bool) -> None:
        self.deepest = 0
        for step in range(steps):
            now_us = step * STEP_US
            if self.free:
                self._log.append((now_us + COMMAND_US, self.free))
                self.free = 0
            while self._acks and self._acks[0][0] <= now_us:
                self.held -= self._acks.popleft()[1]
            new = 0
            while self._log and self._log[0][0] <= now_us:
                count = self._log.popleft()[1]
                self.last_id += count
                self.ready += count
                new += count
            gone = min(self.ready, self.WINDOW - self.held)
            self.ready -= gone
            self.held += gone
            self.delivered += gone
            if gone:
                self._acks.append((now_us + 2 * COMMAND_US, gone))
            if new and paces:
                self.paced.confirm(1, self.last_id - new + 1, self.last_id, new)
            self.free += 0 if paces else new
            busy = int(self.held == self.WINDOW)
            figures = (self.delivered, self.ready, self.held, busy, COMMAND_US)
            self.paced.applied(QueueFigures(now_us, *figures))
            if step > steps // 2:
                self.deepest = max(self.deepest, self.ready)


def test_a_publisher_with_the_window_of_its_consumer_fills_no_queue() -> None:
    loose, paced = Flood(), Flood()
    loose.run(2000, paces=False)
    paced.run(2000, paces=True)
    assert loose.deepest > 50 * Flood.WINDOW
    assert paced.deepest <= 2 * Flood.WINDOW
    assert paced.delivered >= 0.98 * loose.delivered
