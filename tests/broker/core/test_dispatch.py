from __future__ import annotations

from tests.broker.core.conftest import ANNA, BERT, CARL, QueueLog, messages, runs

from headrace_broker.core.queue.command import command
from headrace_broker.core.queue.command.command import ACCEPT, RELEASE
from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.core.queue.state.delivery import group_by_entry


def ids(effects: list) -> list[int]:
    return [message.message_id for message in messages(effects)]


def test_messages_go_round_the_consumers_one_by_one(queue: QueueLog) -> None:
    for session in (ANNA, BERT, CARL):
        queue.attach(session, 1, 1, 100)
    shares = [(ANNA, 1, [1, 4, 7]), (BERT, 1, [2, 5, 8]), (CARL, 1, [3, 6])]
    assert runs(queue.enqueue(ANNA, 1, 8)) == shares
    # The turn goes on where it ended.
    assert runs(queue.enqueue(ANNA, 9, 2)) == [(CARL, 1, [9]), (ANNA, 1, [10])]


def test_many_consumers_get_equal_shares_from_single_messages(queue: QueueLog) -> None:
    for number in range(1, 8):
        queue.attach(BERT, number, number, 1000)
    for seq in range(1, 71):
        queue.enqueue(ANNA, seq)
    held = [len(queue.machine.unsettled_from(BERT, number, 1)) for number in range(1, 8)]
    assert held == [10] * 7


def test_a_consumer_without_credit_is_passed_over_and_gets_in_line_again(queue: QueueLog) -> None:
    queue.attach(ANNA, 1, 1, 1)
    queue.attach(BERT, 1, 1, 3)
    assert runs(queue.enqueue(ANNA, 1, 6)) == [(ANNA, 1, [1]), (BERT, 1, [2, 3, 4])]
    assert runs(queue.settle(BERT, 2, ACCEPT, (1, 1, 2))) == [(BERT, 1, [5, 6])]
    assert runs(queue.settle(ANNA, 2, ACCEPT, (1, 1, 1))) == []
    queue.settle(BERT, 3, ACCEPT, (1, 3, 5))
    assert runs(queue.enqueue(ANNA, 7, 4)) == [(ANNA, 1, [7]), (BERT, 1, [8, 9, 10])]


def test_a_cancelled_consumer_leaves_the_rotation(queue: QueueLog) -> None:
    for session in (ANNA, BERT, CARL):
        queue.attach(session, 1, 1, 100)
    queue.apply(command.encode_cancel(BERT, 2, 1))
    assert runs(queue.enqueue(ANNA, 1, 4)) == [(ANNA, 1, [1, 3]), (CARL, 1, [2, 4])]


def test_released_messages_stand_where_they_stood_before(queue: QueueLog) -> None:
    queue.enqueue(ANNA, 1, 10)
    queue.attach(BERT, 1, 1, 6)
    queue.apply(command.encode_cancel(BERT, 2, 1))
    # Released in any order: 5, then 2, then 4.
    queue.settle(BERT, 3, RELEASE, (1, 5, 5), (1, 2, 2))
    queue.settle(BERT, 4, RELEASE, (1, 4, 4))
    assert ids(queue.attach(CARL, 1, 1, 5)) == [2, 4, 5, 7, 8]
    assert ids(queue.apply(command.encode_close(BERT))) == []
    assert ids(queue.settle(CARL, 2, ACCEPT, (1, 1, 5))) == [1, 3, 6, 9, 10]


def test_a_lost_session_gives_its_messages_back_before_newer_ones(queue: QueueLog) -> None:
    queue.enqueue(ANNA, 1, 4)
    queue.attach(BERT, 1, 1, 2)
    queue.attach(CARL, 1, 1, 1)
    queue.apply(command.encode_close(BERT))
    taken = messages(queue.settle(CARL, 2, ACCEPT, (1, 1, 1)))
    taken += messages(queue.settle(CARL, 3, ACCEPT, (1, 2, 2)))
    taken += messages(queue.settle(CARL, 4, ACCEPT, (1, 3, 3)))
    assert [(m.message_id, m.acquired_count) for m in taken] == [(1, 1), (2, 1), (4, 0)]


def test_deliveries_are_grouped_by_the_entry_that_holds_them() -> None:
    places = [(7, 0, 0), (7, 2, 0), (8, 0, 0), (8, 1, 1), (8, 5, 0), (7, 1, 3)]
    acquired = [
        Acquired(number, entry, position, 1, again, 0)
        for number, (entry, position, again) in enumerate(places)
    ]
    groups = [
        (group.entry_index, group.first, group.positions, group.redelivered)
        for group in group_by_entry(40, acquired)
    ]
    assert groups == [
        (7, 40, [0, 2], b"\x00\x00"),
        (8, 42, [0, 1, 5], b"\x00\x01\x00"),
        (7, 45, [1], b"\x01"),
    ]
    assert group_by_entry(1, []) == []
