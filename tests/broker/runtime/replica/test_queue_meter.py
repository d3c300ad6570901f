"""Measurements by a queue's leader: its commands, and its consumers' time."""

from __future__ import annotations

import pytest

from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.model.limits import COMMANDS_TIMED_MAX
from headrace_broker.runtime.contract.clock import Clock
from headrace_broker.runtime.contract.port import ACCEPT, Attachment
from headrace_broker.runtime.contract.queue_log import COMMAND_OVERHEAD_BYTES
from headrace_broker.runtime.replica.queue_meter import Metered, QueueMeter


class SetClock(Clock):
    us = 1_000_000

    def monotonic_us(self) -> int:
        return self.us


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def meter(clock: SetClock) -> QueueMeter:
    return QueueMeter(clock)


def test_what_is_proposed_is_pending_until_it_is_applied(meter: QueueMeter) -> None:
    for data in (b"one", b"second"):
        meter.proposed(data)
    found = meter.take()
    assert (found.commands, found.byte_count) == (2, 9 + 2 * COMMAND_OVERHEAD_BYTES)
    meter.applied(b"one", 0)
    found = meter.take()
    assert (found.commands, found.byte_count) == (1, 6 + COMMAND_OVERHEAD_BYTES)
    meter.applied(b"second", 0)
    assert meter.take()[:2] == (0, 0)


def test_entries_of_an_earlier_leader_are_not_counted(meter: QueueMeter) -> None:
    meter.applied(b"old", 0)
    assert meter.take() == Metered(0, 0, [], 0)


def test_one_command_is_timed_at_a_time(meter: QueueMeter, clock: SetClock) -> None:
    meter.proposed(b"a")
    clock.us += 300
    meter.proposed(b"b")
    clock.us += 700
    meter.applied(b"a", 0)
    meter.applied(b"b", 0)
    meter.proposed(b"c")
    clock.us += 50
    meter.applied(b"c", 0)
    assert meter.take().durations_us == [50, 1000]
    assert meter.take().durations_us == []


def test_durations_that_are_kept_are_the_newest(meter: QueueMeter, clock: SetClock) -> None:
    for duration in range(COMMANDS_TIMED_MAX + 3):
        meter.proposed(b"a")
        clock.us += duration
        meter.applied(b"a", 0)
    assert meter.take().durations_us == list(range(3, COMMANDS_TIMED_MAX + 3))


@pytest.mark.parametrize(
    ("durations", "median", "high"),
    [
        ([], None, None),
        ([1500], 1.5, 1.5),
        ([1000, 2000], 1.0, 2.0),
        ([1000, 2000, 3000], 2.0, 3.0),
        (list(range(1000, 201_000, 1000)), 100.0, 198.0),
    ],
)
def test_percentiles_are_durations_that_were(
    durations: list[int], median: float | None, high: float | None
) -> None:
    found = Metered(0, 0, durations, 0)
    assert (found.percentile_ms(50), found.percentile_ms(99)) == (median, high)


def test_time_of_busy_consumers_is_summed(meter: QueueMeter, clock: SetClock) -> None:
    clock.us += 500
    meter.applied(b"a", 2)
    clock.us += 1000
    assert meter.take().busy_us == 2000
    clock.us += 100
    meter.applied(b"b", 1)
    clock.us += 10
    meter.applied(b"c", 0)
    clock.us += 7777
    assert meter.take().busy_us == 210


def test_leader_measures_its_commands(world, listener, publishes) -> None:
    host = world.hosts[1]
    assert host.lead is not None
    assert world.hosts[2].lead is None, "another one leads"
    session = world.open(2, listener)
    world.run(session.attach(1, Attachment("c", 1)))
    session.publish(publishes(b"a"), None)
    session.flush()
    world.settle_down()
    assert host.machine.busy_count() == 1
    found = host.lead.meter.take()
    assert (found.commands, found.byte_count) == (0, 0)
    assert found.durations_us
    session.settle(1, ACCEPT, 1, 1)
    session.flush()
    world.settle_down()
    assert host.machine.busy_count() == 0
    restored = QueueMachine.restore(host.machine.snapshot())
    assert restored.busy_count() == 0
    world.lead(2)
    assert (host.lead, world.hosts[2].lead is None) == (None, False)
