"""The time by which a node's queues go, when wall clocks are set, machines sleep and nodes come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.model.limits import (
    ALARM_LEASE_MS,
    CLOCK_LOOK_MS,
    CLOCK_NOISE_MS,
    CLOCK_SETTLE_MS,
    CLOCK_SLEW_PARTS,
    CLOCK_WITNESS_MS,
)
from headrace_broker.runtime.cluster.steady_clock import ALONE, ClockReading, SteadyClock
from headrace_broker.runtime.replica.queue_time import QueueTime

NOW = 1_700_000_000_000
DAY = 86_400_000
HOUR = 3_600_000


class Machine(SteadyClock):
    """A node's clock on a machine whose wall clock the test sets.

    Attributes:
        true_ms: what the wall clock should show.
        error_ms: what it shows more.
    """

    def __init__(self, error_ms: int = 0, booted_ms: int = 50_000) -> None:
        self.true_ms = NOW
        self.error_ms = error_ms
        self.booted_ms = booted_ms
        super().__init__()

    def unix_ms(self) -> int:
        return self.true_ms + self.error_ms

    def boottime_us(self) -> int:
        return (self.true_ms - NOW + self.booted_ms) * 1000

    def run(self, ms: int) -> None:
        """Let time pass, and sample it as a node's reports do."""
        while ms > 0:
            step = min(ms, CLOCK_LOOK_MS)
            self.true_ms += step
            self.queue_ms()
            ms -= step

    @property
    def wrong_ms(self) -> int:
        """Return the lead of queue time over the true time."""
        return int(self.queue_ms()) - self.true_ms


def hear(clock: Machine, *others: Machine, settled: bool = False) -> None:
    """Report other nodes' clocks to a node, whose ids are 2, 3, ..."""
    boot = int(clock.boottime_us()) // 1000
    for node, other in enumerate(others, 2):
        other.true_ms = clock.true_ms
        reading = ClockReading(other.unix_ms() - boot, 1, other.queue_ms() - boot, settled, boot)
        clock.receive(node, reading)


def test_clock_shows_the_wall_clock_that_is_right():
    clock = Machine()
    clock.run(10_000)
    assert clock.wrong_ms == 0


@pytest.mark.parametrize("error", [600_000, DAY, -600_000, -DAY])
def test_wall_clock_that_is_wrong_for_seconds_moves_the_time_by_a_fraction(error):
    clock = Machine()
    clock.error_ms = error
    clock.run(4000)
    assert 0 < abs(clock.wrong_ms) <= 4000 // CLOCK_SLEW_PARTS
    clock.error_ms = 0
    clock.run(4200)
    assert clock.wrong_ms == 0


def test_one_look_at_a_clock_that_is_a_day_ahead_moves_nothing_to_speak_of():
    clock = Machine()
    clock.run(1000)
    clock.true_ms += HOUR  # nobody looked for an hour
    clock.error_ms = DAY
    clock.queue_ms()
    clock.error_ms = 0
    assert clock.wrong_ms <= 2000 // CLOCK_SLEW_PARTS


def test_wall_clock_that_was_set_for_good_is_reached_at_a_bounded_rate():
    clock = Machine()
    clock.error_ms = -1600  # it was ahead, and was set right
    clock.run(1600 * CLOCK_SLEW_PARTS - 1000)
    assert -1600 < clock.wrong_ms < -1400
    clock.run(3000)
    assert clock.wrong_ms == -1600


def test_time_that_the_machine_slept_has_passed():
    clock = Machine()
    clock.true_ms += HOUR  # boottime goes on, as does the wall clock
    assert clock.wrong_ms == 0


def test_machine_that_was_stopped_with_all_its_clocks_catches_up_slowly():
    clock = Machine()
    clock.booted_ms -= HOUR  # boottime stood still
    clock.true_ms += HOUR
    assert clock.wrong_ms == -HOUR
    clock.run(16_000)
    assert clock.wrong_ms == pytest.approx(-HOUR + 1000, abs=50)


def test_one_wrong_clock_of_three_moves_nothing():
    clock, second, third = Machine(), Machine(), Machine()
    hear(clock, second, third)
    clock.error_ms = DAY
    for _ in range(10):
        clock.run(1000)
        hear(clock, second, third)
    assert clock.wrong_ms == 0
    skew = clock.skew_ms(ALONE)
    assert skew is not None
    assert skew[0] == DAY
    assert clock.skew_ms(2) == (0, 1)


def test_clock_within_the_noise_of_the_others_goes_by_its_own():
    clock = Machine(CLOCK_NOISE_MS - 10)
    hear(clock, Machine(), Machine())
    clock.run(2000)
    assert clock.wrong_ms == CLOCK_NOISE_MS - 10


def test_node_with_a_wrong_clock_begins_with_the_median_of_the_others():
    clock = Machine(DAY)
    hear(clock, Machine(), Machine())
    assert clock.wrong_ms == 0


def test_node_begins_with_the_time_of_those_that_run():
    others = [Machine(), Machine()]
    for other in others:
        other.error_ms = HOUR
        other.run(16_000)
    clock = Machine(HOUR)
    clock.true_ms = others[0].true_ms
    hear(clock, *others, settled=True)
    assert clock.wrong_ms == pytest.approx(1000, abs=50)


def test_young_process_takes_over_the_time_of_others_once():
    clock = Machine()
    hear(clock, Machine(), Machine())
    clock.run(ALARM_LEASE_MS + 2 * CLOCK_LOOK_MS)
    assert clock.skew_ms(2) is None
    clock.error_ms = DAY
    hear(clock, Machine(DAY), Machine(DAY))  # the clocks of all were set meanwhile
    clock.run(CLOCK_LOOK_MS)
    assert clock.wrong_ms <= CLOCK_LOOK_MS


def test_old_process_takes_over_nothing():
    clock = Machine()
    clock.run(CLOCK_SETTLE_MS + CLOCK_LOOK_MS)
    hear(clock, Machine(DAY), Machine(DAY))
    assert clock.wrong_ms == 0
    hear(clock, Machine(DAY), settled=True)
    clock.run(200)
    assert clock.wrong_ms < 20


def test_machine_that_stood_still_goes_on_with_the_time_of_most():
    clock = Machine()
    clock.run(CLOCK_SETTLE_MS + CLOCK_LOOK_MS)
    clock.booted_ms -= HOUR
    clock.true_ms += HOUR
    hear(clock, Machine(), Machine(), settled=True)
    clock.run(CLOCK_LOOK_MS)
    assert clock.wrong_ms == pytest.approx(0, abs=CLOCK_NOISE_MS)


def test_of_two_clocks_the_earlier_counts():
    clock = Machine(HOUR)
    hear(clock, Machine())
    assert clock.wrong_ms == 0
    earlier = Machine()
    hear(earlier, Machine(HOUR))
    assert earlier.wrong_ms == 0


def test_clock_that_is_not_heard_any_more_counts_no_more():
    clock = Machine()
    hear(clock, Machine(), Machine())
    assert clock.skew_ms(2) is not None
    clock.run(ALARM_LEASE_MS + 2 * CLOCK_LOOK_MS)
    assert clock.skew_ms(2) is None
    assert clock.lead_ms(2) is None


@pytest.mark.parametrize("error", [-DAY, DAY])
def test_clock_of_a_node_that_hears_too_few_goes_by_what_passes(error):
    clock = Machine()
    clock.members = 3
    hear(clock, Machine(), Machine())
    clock.error_ms = error
    clock.run(ALARM_LEASE_MS + CLOCK_LOOK_MS)
    before = clock.wrong_ms
    clock.run(HOUR)
    assert clock.wrong_ms == before
    assert abs(before) <= ALARM_LEASE_MS // CLOCK_SLEW_PARTS


@pytest.mark.parametrize("lead", [-700, 700])
def test_node_that_hears_most_again_takes_over_their_time(lead):
    clock = Machine()
    clock.members = 3
    hear(clock, Machine(), Machine())
    clock.run(CLOCK_SETTLE_MS + ALARM_LEASE_MS)
    hear(clock, Machine(lead), Machine(lead), settled=True)
    assert clock.wrong_ms == lead


def test_processes_that_begin_with_wrong_clocks_set_nobody_back():
    clock = Machine()
    clock.members = 3
    clock.run(2 * CLOCK_SETTLE_MS)
    hear(clock, Machine(-HOUR), Machine(-HOUR))
    assert abs(clock.wrong_ms) <= CLOCK_NOISE_MS


def test_clock_that_was_unset_at_the_start_is_believed_as_far_as_logs_go():
    clock = Machine(-NOW)  # 1970
    QueueTime(clock).begin(NOW - 1000)  # its log is from before the restart
    clock.run(30_000)
    assert clock.wrong_ms < -DAY
    clock.error_ms = 0
    clock.run(1000)
    assert -35_000 < clock.wrong_ms <= 0


def test_clock_that_is_set_late_is_not_believed_at_once():
    clock = Machine(-HOUR)
    clock.run(CLOCK_WITNESS_MS + CLOCK_LOOK_MS)
    clock.witness(clock.true_ms)
    clock.error_ms = 0
    clock.run(1600)
    assert clock.wrong_ms == pytest.approx(-HOUR + 100, abs=20)


# Queues


def test_queue_ahead_of_its_node_goes_at_half_speed_until_it_is_caught_up():
    clock = Machine()
    time = QueueTime(clock)
    time.begin(NOW + 10_000)
    assert time.ahead_ms() == 10_000
    for _ in range(5000):  # stamped every millisecond
        clock.true_ms += 1
        time.stamp()
    assert time.stamp() == NOW + 12_500
    clock.run(15_000)
    assert time.stamp() == NOW + 20_000
    clock.run(5000)
    assert time.stamp() == NOW + 25_000
    assert time.ahead_ms() == 0


def test_queue_whose_leader_changes_to_a_clock_that_is_behind_never_goes_back():
    first, second = Machine(HOUR), Machine()
    times = QueueTime(first), QueueTime(second)
    times[0].begin(0)
    stamp = times[0].stamp()
    times[1].begin(stamp)
    assert times[1].stamp() == stamp
    second.run(1000)
    assert times[1].stamp() == stamp + 500


@pytest.mark.parametrize("ahead", [0, 1000, DAY])
@pytest.mark.parametrize("delay", [100, 5000, 60_000])
def test_what_is_due_is_due_when_the_node_says(ahead, delay):
    clock = Machine()
    time = QueueTime(clock)
    time.begin(NOW + ahead)
    due = time.stamp() + delay
    wake = time.node_ms(due)
    clock.true_ms = int(wake) - 1
    assert time.stamp() < due
    clock.true_ms = int(wake)
    assert time.stamp() == due
    assert time.node_ms(due) == clock.queue_ms()


def test_nothing_is_due_at_no_time():
    time = QueueTime(Machine())
    assert time.node_ms(0) == 0
    assert time.node_ms(1) == 1


FAULTS = st.lists(
    st.tuples(
        st.integers(-2 * DAY, 2 * DAY),  # the wall clock's error from now on
        st.integers(1, 20_000),  # for so long
        st.booleans(),  # and another leads the queue then
    ),
    max_size=12,
)


@given(FAULTS, st.integers(1000, 200_000))
def test_no_message_goes_early_by_more_than_the_slew_nor_stays(faults, ttl):
    nodes = [Machine(), Machine()]
    times = [QueueTime(node) for node in nodes]
    leader = 0
    times[0].begin(0)
    begun = int(times[0].stamp())
    elapsed, stamp = 0, begun
    for error, length, moves in [*faults, (0, 3 * ttl, False)]:
        for node in nodes:
            node.error_ms = error
        for _ in range(0, length, 500):
            for node in nodes:
                node.run(500)
            elapsed += 500
            now = int(times[leader].stamp())
            assert now >= stamp
            assert now - begun <= elapsed + elapsed // CLOCK_SLEW_PARTS + 1
            stamp = now
        if moves:
            leader = 1 - leader
            times[leader].begin(stamp)
    assert stamp - begun >= ttl
