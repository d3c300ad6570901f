"""Queues with as many priorities as a message can have."""

from __future__ import annotations

import random

import pytest
from tests.broker.core.conftest import ANNA, QueueLog, messages, properties

from headrace_broker.core.queue.command.command import RELEASE
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION, QueueMachine


@pytest.fixture
def queue() -> QueueLog:
    queue = QueueLog()
    queue.configure(MACHINE_VERSION, priority_max=255)
    return queue


def test_all_256_priorities_are_told_apart_and_keep_their_order(queue: QueueLog) -> None:
    priorities = [*range(256), *range(256)]
    random.Random(7).shuffle(priorities)
    for priority in priorities:
        queue.publish((properties(priority=priority), b""))
    taken = messages(queue.attach(ANNA, 1, 1, 1000))
    expected = sorted(range(len(priorities)), key=lambda at: (-priorities[at], at))
    assert [m.message_id - 1 for m in taken] == expected
    back = messages(queue.settle(ANNA, 2, RELEASE, (1, 1, 512)))
    assert [m.message_id - 1 for m in back] == expected


def test_a_snapshot_keeps_them(queue: QueueLog) -> None:
    for priority in (3, 255, 31, 200, 32):
        queue.publish((properties(priority=priority), b""))
    again = QueueMachine.restore(queue.machine.snapshot())
    assert again.digest() == queue.machine.digest()
    queue.machine = again
    taken = messages(queue.attach(ANNA, 1, 1, 9))
    assert [m.priority for m in taken] == [255, 200, 32, 31, 3]


def test_what_came_before_an_upgrade_keeps_the_priority_that_it_had(queue: QueueLog) -> None:
    queue = QueueLog()
    queue.configure(MACHINE_VERSION - 1, priority_max=255)
    queue.publish((properties(priority=200), b""))
    queue.configure(MACHINE_VERSION, priority_max=255)
    queue.publish((properties(priority=100), b""))
    taken = messages(queue.attach(ANNA, 1, 1, 9))
    assert [(m.message_id, m.priority) for m in taken] == [(2, 100), (1, 31)]


def test_the_lowest_priority_is_dropped_first(queue: QueueLog) -> None:
    queue.configure(MACHINE_VERSION, priority_max=255, max_length=2)
    for priority in (200, 40, 250):
        queue.publish((properties(priority=priority), b""))
    assert [m.priority for m in messages(queue.attach(ANNA, 1, 1, 9))] == [250, 200]


def test_turns_are_taken_within_each_priority(queue: QueueLog) -> None:
    queue.configure(MACHINE_VERSION, priority_max=255, fairness_key=b"tenant")
    for tenant, priority in ((1, 100), (1, 100), (2, 100), (1, 200)):
        queue.publish((properties(priority=priority, headers={b"tenant": tenant}), b""))
    assert [m.message_id for m in messages(queue.attach(ANNA, 1, 1, 9))] == [4, 1, 3, 2]
