"""Assignment of messages: priorities of consumers, one active consumer, bytes, filters, groups."""

from __future__ import annotations

from tests.broker.core.conftest import ANNA, BERT, CARL, QueueLog, dead, messages, properties, runs

from headrace_broker.core.queue.command import command, leader_command
from headrace_broker.core.queue.command.command import ACCEPT, RELEASE, encode_attach
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.core.queue.messages.effect import Effect, Got

PLAIN = (b"\x00\x00", b"12345678")


def attach(queue: QueueLog, session: int, prefetch: int, **more: int) -> list[Effect]:
    seq = queue.seqs[session] = queue.seqs.get(session, 0) + 1
    return queue.apply(encode_attach(session, seq, 1, prefetch, False, b"", **more))  # type: ignore[arg-type]


def settle(queue: QueueLog, session: int, operation: int, first: int, last: int) -> list[Effect]:
    seq = queue.seqs[session] = queue.seqs.get(session, 0) + 1
    return queue.settle(session, seq, operation, (1, first, last))


def cancel(queue: QueueLog, session: int) -> list[Effect]:
    seq = queue.seqs[session] = queue.seqs.get(session, 0) + 1
    return queue.apply(command.encode_cancel(session, seq, 1))


def grouped(key: int) -> tuple[bytes, bytes]:
    return properties(headers={b"group": key}), b""


def valued(key: int, body: bytes) -> tuple[bytes, bytes]:
    return properties(headers={b"last": key}), body


def ids(effects: list[Effect]) -> list[int]:
    return [message.message_id for message in messages(effects)]


# Priorities of consumers


def test_consumers_of_higher_priority_are_served_first(queue: QueueLog) -> None:
    queue.configure()
    attach(queue, ANNA, 9)
    attach(queue, BERT, 2, priority=5)
    attach(queue, CARL, 1, priority=5)
    assert runs(queue.publish(*[PLAIN] * 5)) == [
        (BERT, 1, [1, 3]),
        (CARL, 1, [2]),
        (ANNA, 1, [4, 5]),
    ]
    settle(queue, BERT, ACCEPT, 1, 1)
    assert runs(queue.publish(PLAIN)) == [(BERT, 1, [6])]


def test_a_negative_priority_comes_last(queue: QueueLog) -> None:
    queue.configure()
    attach(queue, ANNA, 9, priority=-1)
    attach(queue, BERT, 1)
    assert runs(queue.publish(PLAIN, PLAIN)) == [(BERT, 1, [1]), (ANNA, 1, [2])]


# Bytes


def test_bytes_limit_what_a_consumer_has(queue: QueueLog) -> None:
    queue.configure()
    attach(queue, ANNA, 99, prefetch_bytes=17)
    assert runs(queue.publish(*[PLAIN] * 5)) == [(ANNA, 1, [1, 2, 3])]  # the third one overdraws
    assert settle(queue, ANNA, ACCEPT, 1, 1) != []
    assert queue.machine.ready_count == 1
    settle(queue, ANNA, ACCEPT, 2, 9)
    assert queue.machine.ready_count == 0


def test_one_message_larger_than_the_bytes_passes_alone(queue: QueueLog) -> None:
    queue.configure()
    attach(queue, ANNA, 99, prefetch_bytes=1)
    assert runs(queue.publish(PLAIN, PLAIN)) == [(ANNA, 1, [1])]
    assert ids(settle(queue, ANNA, RELEASE, 1, 1)) == [1]


# One active consumer


def test_only_one_consumer_gets_messages_until_it_leaves(queue: QueueLog) -> None:
    queue.configure(single_active=True)
    attach(queue, ANNA, 9)
    attach(queue, BERT, 9)
    assert runs(queue.publish(*[PLAIN] * 3)) == [(ANNA, 1, [1, 2, 3])]
    assert runs(cancel(queue, ANNA)) == []
    assert runs(queue.publish(PLAIN)) == [(BERT, 1, [4])]
    assert runs(settle(queue, ANNA, RELEASE, 1, 9)) == [(BERT, 1, [1, 2, 3])]


def test_the_next_active_consumer_is_the_oldest(queue: QueueLog) -> None:
    queue.configure(single_active=True)
    for session in (CARL, BERT, ANNA):
        attach(queue, session, 9)
    queue.apply(command.encode_close(CARL))
    assert runs(queue.publish(PLAIN)) == [(BERT, 1, [1])]
    queue.machine = QueueMachine.restore(queue.machine.snapshot())
    assert runs(queue.apply(command.encode_close(BERT))) == [(ANNA, 1, [1])]


def test_a_consumer_of_higher_priority_takes_over_when_the_active_one_is_done(
    queue: QueueLog,
) -> None:
    queue.configure(single_active=True)
    attach(queue, ANNA, 2)
    queue.publish(PLAIN, PLAIN, PLAIN)
    assert runs(attach(queue, BERT, 9, priority=1)) == []
    assert runs(settle(queue, ANNA, ACCEPT, 1, 1)) == []
    assert runs(settle(queue, ANNA, ACCEPT, 2, 2)) == [(BERT, 1, [3])]
    assert runs(queue.publish(PLAIN)) == [(BERT, 1, [4])]


def test_the_active_consumer_goes_on_when_who_was_to_take_over_leaves(queue: QueueLog) -> None:
    queue.configure(single_active=True)
    attach(queue, ANNA, 9)
    queue.publish(PLAIN)
    attach(queue, BERT, 9, priority=1)
    assert runs(queue.publish(PLAIN)) == []
    assert runs(cancel(queue, BERT)) == [(ANNA, 1, [2])]


def test_everybody_is_served_when_one_active_consumer_is_not_wanted_any_more(
    queue: QueueLog,
) -> None:
    queue.configure(single_active=True)
    attach(queue, ANNA, 1)
    attach(queue, BERT, 1)
    queue.publish(PLAIN, PLAIN)
    assert runs(queue.configure(single_active=False)) == [(BERT, 1, [2])]


# Filters


def test_a_filtered_consumer_gets_what_is_named_for_it(queue: QueueLog) -> None:
    queue.configure()
    attach(queue, ANNA, 2, filtered=True)
    assert runs(queue.publish(*[PLAIN] * 5)) == []
    assert queue.machine.filtered_credit(ANNA, 1) == 2
    effects = queue.apply(leader_command.encode_acquire(ANNA, 1, [4, 99, 2, 5]))
    assert runs(effects) == [(ANNA, 1, [4, 2])]
    assert queue.machine.filtered_credit(ANNA, 1) == 0
    assert queue.ids() == [1, 3, 5]
    assert runs(attach(queue, BERT, 9)) == [(BERT, 1, [1, 3, 5])]
    effects = queue.apply(leader_command.encode_acquire(BERT, 1, [1]))
    assert runs(effects) == []


def test_what_becomes_available_again_is_noted_while_somebody_watches(queue: QueueLog) -> None:
    queue.configure(last_value_key=b"last")
    attach(queue, ANNA, 2)
    queue.publish(PLAIN, PLAIN)
    queue.machine.watch_returned(True)
    queue.apply(command.encode_close(ANNA))
    assert [m.message_id for m in queue.machine.take_returned()] == [1, 2]
    queue.publish(valued(1, b"a"))
    assert queue.machine.take_returned() == []
    queue.publish(valued(1, b"b"))
    assert [m.message_id for m in queue.machine.take_returned()] == [3]
    queue.machine.watch_returned(False)
    attach(queue, BERT, 9)
    queue.apply(command.encode_close(BERT))
    assert queue.machine.take_returned() == []


def test_pages_of_available_messages_are_in_order_whatever_their_priority(queue: QueueLog) -> None:
    queue.configure(priority_max=31)
    queue.publish(*[(properties(priority=each % 3), b"") for each in range(9)])
    assert [m.message_id for m in queue.machine.available_from(2, 4)] == [3, 4, 5, 6]
    assert queue.machine.last_id == 9


# Groups


def test_a_group_is_one_consumers_until_it_has_settled_all(queue: QueueLog) -> None:
    queue.configure(group_key=b"group")
    attach(queue, ANNA, 2)
    attach(queue, BERT, 2)
    taken = runs(queue.publish(*[grouped(key) for key in (7, 7, 8, 7, 8)]))
    assert taken == [(ANNA, 1, [1, 2]), (BERT, 1, [3, 5])]
    attach(queue, CARL, 9)
    assert queue.ids() == [4]
    assert runs(settle(queue, ANNA, ACCEPT, 1, 1)) == [(ANNA, 1, [4])]
    assert runs(queue.publish(grouped(7))) == []
    assert runs(settle(queue, ANNA, ACCEPT, 2, 3)) == [(CARL, 1, [6])]


def test_a_group_goes_to_another_when_its_consumer_leaves(queue: QueueLog) -> None:
    queue.configure(group_key=b"group")
    attach(queue, ANNA, 1)
    attach(queue, BERT, 9)
    queue.publish(*[grouped(7)] * 3)
    assert queue.ids() == [2, 3]
    queue.machine = QueueMachine.restore(queue.machine.snapshot())
    assert runs(queue.publish(grouped(9), PLAIN)) == [(BERT, 1, [4, 5])]
    assert runs(queue.apply(command.encode_close(ANNA))) == [(BERT, 1, [1, 2, 3])]


def test_messages_of_a_group_come_in_order_after_a_release(queue: QueueLog) -> None:
    queue.configure(group_key=b"group")
    attach(queue, ANNA, 2)
    queue.publish(*[grouped(7)] * 4)
    assert ids(settle(queue, ANNA, RELEASE, 1, 2)) == [1, 2]


def test_get_takes_a_group_as_well(queue: QueueLog) -> None:
    queue.configure(group_key=b"group")
    queue.publish(grouped(7), grouped(7))
    queue.apply(command.encode_get(CARL, 1))
    assert runs(attach(queue, ANNA, 9)) == []
    effects = queue.apply(command.encode_get(CARL, 2))
    assert [e.delivery for e in effects if isinstance(e, Got)] == [2]


def test_what_a_filter_wanted_is_shown_again_when_its_group_is_free(queue: QueueLog) -> None:
    queue.configure(group_key=b"group")
    queue.machine.watch_returned(True)
    attach(queue, ANNA, 1)
    attach(queue, BERT, 1, filtered=True)
    queue.publish(grouped(7), grouped(7))
    assert runs(queue.apply(leader_command.encode_acquire(BERT, 1, [2]))) == []
    assert queue.machine.take_returned() == []
    cancel(queue, ANNA)
    settle(queue, ANNA, ACCEPT, 1, 1)
    assert [m.message_id for m in queue.machine.take_returned()] == [2]
    assert runs(queue.apply(leader_command.encode_acquire(BERT, 1, [2]))) == [(BERT, 1, [2])]


# Last values


def test_a_newer_value_takes_the_place_of_the_one_that_waits(queue: QueueLog) -> None:
    queue.configure(last_value_key=b"last")
    queue.publish(valued(1, b"a"), PLAIN)
    queue.publish(valued(2, b"b"))
    assert dead(queue.publish(valued(1, b"cc"))) == []
    assert dead(queue.publish(valued(1, b"ddd"))) == [4]
    assert queue.machine.ready_bytes == 3 + 8 + 1
    taken = messages(attach(queue, ANNA, 9))
    assert [(m.message_id, m.entry_index) for m in taken] == [(1, 5), (2, 2), (3, 3)]


def test_a_value_that_was_acquired_is_not_touched(queue: QueueLog) -> None:
    queue.configure(last_value_key=b"last")
    attach(queue, ANNA, 1)
    queue.publish(valued(1, b"a"))
    queue.publish(valued(1, b"b"))
    queue.machine = QueueMachine.restore(queue.machine.snapshot())
    queue.publish(valued(1, b"c"))
    assert queue.ids() == [2]
    # What comes back is older than what waits: it is forgotten.
    effects = settle(queue, ANNA, RELEASE, 1, 1)
    assert dead(effects) == [3, 6]
    assert [(m.message_id, m.entry_index) for m in messages(effects)] == [(2, 5)]
    effects = settle(queue, ANNA, RELEASE, 2, 2)
    assert ids(effects) == [2]


def test_two_values_of_a_key_in_one_batch_leave_the_second(queue: QueueLog) -> None:
    queue.configure(last_value_key=b"last")
    queue.publish(valued(1, b"a"), valued(1, b"bb"))
    assert [(m.position, m.message_id) for m in messages(attach(queue, ANNA, 9))] == [(1, 1)]
    assert dead(settle(queue, ANNA, ACCEPT, 1, 1)) == [2, 4]
