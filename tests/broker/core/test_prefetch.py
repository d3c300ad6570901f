"""The prefetch of attached consumers changes while they are served."""

from __future__ import annotations

import pytest
from tests.broker.core.conftest import ANNA, BERT, QueueLog, messages, runs

from headrace_broker.core.queue.command.command import ACCEPT, encode_cancel, encode_node_down
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.core.queue.machine.versions import PREFETCH_VERSION
from headrace_broker.core.queue.messages.effect import Controlled, Rejected


@pytest.fixture
def queue() -> QueueLog:
    queue = QueueLog()
    queue.configure(PREFETCH_VERSION)
    return queue


def ids(effects: list) -> list[int]:
    return [message.message_id for message in messages(effects)]


def test_a_raised_prefetch_gives_more_at_once(queue: QueueLog) -> None:
    queue.enqueue(ANNA, 1, 5)
    assert ids(queue.attach(BERT, 1, 1, 1)) == [1]
    assert ids(queue.set_prefetch(BERT, 2, (1, 3))) == [2, 3]
    assert ids(queue.settle(BERT, 3, ACCEPT, (1, 1, 1))) == [4]


def test_a_lowered_prefetch_takes_effect_as_deliveries_are_settled(queue: QueueLog) -> None:
    queue.enqueue(ANNA, 1, 6)
    queue.attach(BERT, 1, 1, 3)
    assert ids(queue.set_prefetch(BERT, 2, (1, 1))) == []
    assert queue.machine.unsettled_count == 3
    assert ids(queue.settle(BERT, 3, ACCEPT, (1, 1, 1))) == []
    assert ids(queue.settle(BERT, 4, ACCEPT, (1, 2, 2))) == []
    assert ids(queue.settle(BERT, 5, ACCEPT, (1, 3, 3))) == [4]


def test_a_consumer_whose_credit_goes_leaves_the_rotation(queue: QueueLog) -> None:
    queue.attach(ANNA, 1, 1, 5)
    queue.attach(BERT, 1, 1, 5)
    queue.enqueue(ANNA, 1, 2)
    assert queue.machine.busy_count() == 0
    queue.set_prefetch(ANNA, 2, (1, 1))
    assert queue.machine.busy_count() == 1
    assert runs(queue.enqueue(ANNA, 3, 3)) == [(BERT, 1, [3, 4, 5])]
    assert len(queue.machine.unsettled_from(ANNA, 1, 1)) == 1


def test_consumers_that_are_not_there_are_passed_over(queue: QueueLog) -> None:
    queue.enqueue(ANNA, 1, 2)
    queue.attach(BERT, 1, 1, 1)
    queue.apply(encode_cancel(BERT, 2, 1))
    effects = queue.set_prefetch(BERT, 3, (1, 9), (2, 9))
    assert [(e.seq, e.status) for e in effects if isinstance(e, Controlled)] == [(3, 0)]
    assert ids(effects) == []


def test_a_detached_consumer_goes_on_with_what_it_was_told_last(queue: QueueLog) -> None:
    queue.attach(BERT, 1, 1, 1)
    queue.apply(encode_node_down(2, 0))
    assert ids(queue.set_prefetch(BERT, 2, (1, 2))) == []
    assert [info.prefetch for info in queue.machine.consumers()] == [2]


def test_a_snapshot_keeps_it(queue: QueueLog) -> None:
    queue.attach(BERT, 1, 1, 1)
    queue.set_prefetch(BERT, 2, (1, 4))
    again = QueueMachine.restore(queue.machine.snapshot())
    assert again.digest() == queue.machine.digest()
    assert [info.prefetch for info in again.consumers()] == [4]


def test_an_earlier_version_refuses_it_and_changes_nothing(queue: QueueLog) -> None:
    older = QueueLog()
    older.configure(PREFETCH_VERSION - 1)
    older.attach(BERT, 1, 1, 1)
    before = older.machine.digest()
    assert any(isinstance(e, Rejected) for e in older.set_prefetch(BERT, 2, (1, 4)))
    assert older.machine.digest() == before
