"""Full queues, dead letters and delivery limits."""

from __future__ import annotations

import pytest
from tests.broker.core.conftest import (
    ANNA,
    BERT,
    PUBLISHER,
    QueueLog,
    batch,
    dead,
    messages,
    properties,
    runs,
)

from headrace_broker.core.queue.command import command, leader_command
from headrace_broker.core.queue.command.command import ACCEPT, MODIFY_FAILED, REJECT, RELEASE
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.core.queue.messages.effect import (
    REASON_DELIVERY_LIMIT,
    REASON_MAXLEN,
    REASON_REJECTED,
    REFUSED_NO_CONSUMER,
    REFUSED_OVERFLOW,
    DeadLettered,
    DeadLetterKept,
    Effect,
    Enqueued,
    EntryDead,
    PublishRejected,
)
from headrace_broker.core.queue.messages.settings import (
    DEAD_LETTER_AT_LEAST_ONCE,
    DEAD_LETTER_AT_MOST_ONCE,
    OVERFLOW_REJECT_PUBLISH,
    OVERFLOW_REJECT_PUBLISH_DLX,
)
from headrace_broker.model.limits import EXPIRE_MESSAGES_MAX

PLAIN = (b"\x00\x00", b"12345678")


def refusals(effects: list[Effect]) -> list[tuple[int, int, int]]:
    return [(e.first, e.last, e.why) for e in effects if isinstance(e, PublishRejected)]


def buried(effects: list[Effect]) -> list[tuple[list[int], int]]:
    return [
        ([message.message_id for message in effect.messages], int(effect.reason))
        for effect in effects
        if isinstance(effect, DeadLettered | DeadLetterKept)
    ]


def test_a_full_queue_drops_its_oldest_messages(queue: QueueLog) -> None:
    queue.configure(max_length=3, dead_letter=DEAD_LETTER_AT_MOST_ONCE)
    assert buried(queue.publish(*[PLAIN] * 5)) == [([1, 2], REASON_MAXLEN)]
    assert queue.ids() == [3, 4, 5]
    assert buried(queue.publish(PLAIN)) == [([3], REASON_MAXLEN)]


def test_bytes_are_limited_too(queue: QueueLog) -> None:
    queue.configure(max_length_bytes=20)
    queue.publish(*[PLAIN] * 3)
    assert queue.ids() == [2, 3]
    queue.publish((b"\x00\x00", bytes(21)))
    assert queue.ids() == []


def test_what_a_consumer_takes_at_once_is_not_too_much(queue: QueueLog) -> None:
    queue.configure(max_length=0)
    queue.attach(ANNA, 1, 1, 2)
    assert runs(queue.publish(*[PLAIN] * 4)) == [(ANNA, 1, [1, 2])]
    assert queue.ids() == []


def test_the_least_important_messages_are_dropped_first(queue: QueueLog) -> None:
    queue.configure(max_length=2, priority_max=31)
    queue.publish((properties(priority=5), b""), PLAIN, (properties(priority=9), b""), PLAIN)
    assert queue.ids() == [1, 3]


def test_a_smaller_limit_counts_at_once(queue: QueueLog) -> None:
    queue.configure(dead_letter=DEAD_LETTER_AT_MOST_ONCE)
    queue.publish(*[PLAIN] * 3)
    assert buried(queue.configure(max_length=1)) == [([1, 2], REASON_MAXLEN)]


def test_the_rest_of_a_batch_is_refused_when_the_queue_is_full(queue: QueueLog) -> None:
    queue.configure(max_length=3, overflow=OVERFLOW_REJECT_PUBLISH)
    effects = queue.publish(*[PLAIN] * 5)
    assert [type(e) for e in effects] == [PublishRejected, Enqueued]
    assert refusals(effects) == [(4, 5, REFUSED_OVERFLOW)]
    assert queue.ids() == [1, 2, 3]
    effects = queue.publish(PLAIN)
    assert refusals(effects) == [(6, 6, REFUSED_OVERFLOW)]
    assert dead(effects) == [3]


def test_a_queue_that_refused_takes_again_when_a_fifth_is_free(queue: QueueLog) -> None:
    queue.configure(max_length=10, overflow=OVERFLOW_REJECT_PUBLISH)
    queue.publish(*[PLAIN] * 11)
    queue.attach(ANNA, 1, 1, 2)
    queue.settle(ANNA, 2, ACCEPT, (1, 1, 1))  # another one is taken: 7 wait
    queue.apply(command.encode_cancel(ANNA, 3, 1))
    assert queue.machine.ready_count == 7
    assert refusals(queue.publish(PLAIN)) == []
    queue.settle(ANNA, 4, RELEASE, (1, 1, 9))
    assert queue.machine.ready_count == 10
    assert refusals(queue.publish(PLAIN)) == [(13, 13, REFUSED_OVERFLOW)]
    queue.apply(command.encode_remove(BERT, 1, [4]))
    assert queue.machine.ready_count == 9
    assert refusals(queue.publish(PLAIN)) == [(14, 14, REFUSED_OVERFLOW)]
    queue.apply(command.encode_remove(BERT, 2, [5]))
    assert refusals(queue.publish(PLAIN)) == []


def test_a_refusal_is_repeated_before_the_confirm(queue: QueueLog) -> None:
    queue.configure(max_length=1, overflow=OVERFLOW_REJECT_PUBLISH)
    encoded = command.encode_enqueue(ANNA, 1, batch(b"a", b"b"))
    first = queue.apply(encoded)
    queue.apply(command.encode_purge(BERT, 1))
    queue.machine = QueueMachine.restore(queue.machine.snapshot())
    again = queue.apply(encoded)
    assert list(map(repr, again[:2])) == list(map(repr, first[:2]))
    assert isinstance(again[2], EntryDead)
    later = queue.apply(command.encode_enqueue(ANNA, 3, batch(b"c")))
    assert refusals(later) == []


def test_refused_publishes_are_dead_lettered_where_that_is_wanted(queue: QueueLog) -> None:
    queue.configure(
        max_length=1, overflow=OVERFLOW_REJECT_PUBLISH_DLX, dead_letter=DEAD_LETTER_AT_LEAST_ONCE
    )
    effects = queue.publish(PLAIN, PLAIN)
    assert refusals(effects) == [(2, 2, REFUSED_OVERFLOW)]
    found = [e for e in effects if isinstance(e, DeadLettered)]
    assert [(m.entry_index, m.position) for m in found[0].messages] == [(2, 1)]
    assert found[0].reason == REASON_MAXLEN
    effects = queue.publish(PLAIN)
    assert [type(e) for e in effects if isinstance(e, DeadLettered | EntryDead)] == [
        DeadLettered,
        EntryDead,
    ]


def test_rejected_messages_are_dead_lettered_before_their_entry_dies(queue: QueueLog) -> None:
    queue.configure(dead_letter=DEAD_LETTER_AT_MOST_ONCE)
    queue.publish(PLAIN, PLAIN)
    queue.attach(ANNA, 1, 1, 5)
    effects = queue.settle(ANNA, 2, REJECT, (1, 1, 2))
    assert buried(effects) == [([1, 2], REASON_REJECTED)]
    assert isinstance(effects[0], DeadLettered)
    assert dead(effects) == [2, 4]


def test_dead_letters_are_kept_until_they_have_arrived(queue: QueueLog) -> None:
    queue.configure(dead_letter=DEAD_LETTER_AT_LEAST_ONCE)
    queue.publish(PLAIN, PLAIN)
    queue.attach(ANNA, 1, 1, 5)
    effects = queue.settle(ANNA, 2, REJECT, (1, 1, 2))
    assert buried(effects) == [([1, 2], REASON_REJECTED)]
    assert dead(effects) == [4]
    queue.machine = QueueMachine.restore(queue.machine.snapshot())
    kept = queue.machine.kept_dead(10)
    assert [(m.message_id, reason) for m, reason in kept] == [
        (1, REASON_REJECTED),
        (2, REASON_REJECTED),
    ]
    assert len(queue.machine.kept_dead(1)) == 1
    assert dead(queue.apply(leader_command.encode_forget([1, 77]))) == [5]
    assert dead(queue.apply(leader_command.encode_forget([2, 1]))) == [2, 6]
    assert queue.machine.dead_count == 0


def test_dead_letters_that_are_kept_count_in_a_queue_that_refuses(queue: QueueLog) -> None:
    queue.configure(
        max_length=2, overflow=OVERFLOW_REJECT_PUBLISH, dead_letter=DEAD_LETTER_AT_LEAST_ONCE
    )
    queue.publish(PLAIN, PLAIN)
    queue.attach(ANNA, 1, 1, 5)
    queue.settle(ANNA, 2, REJECT, (1, 1, 2))
    assert refusals(queue.publish(PLAIN)) == [(3, 3, REFUSED_OVERFLOW)]


@pytest.mark.parametrize(("operation", "survives"), [(MODIFY_FAILED, 3), (RELEASE, 9)])
def test_failed_deliveries_are_limited_and_releases_are_not(
    queue: QueueLog, operation: int, survives: int
) -> None:
    queue.configure(delivery_limit=2, dead_letter=DEAD_LETTER_AT_MOST_ONCE)
    queue.publish(PLAIN)
    queue.attach(ANNA, 1, 1, 1)
    ends = []
    for number in range(1, 10):
        ends += buried(queue.settle(ANNA, number + 1, operation, (1, number, number)))
        if ends:
            assert ends == [([1], REASON_DELIVERY_LIMIT)]
            break
    assert number == survives


def test_a_lost_connection_counts_as_a_failed_delivery(queue: QueueLog) -> None:
    queue.configure(delivery_limit=0)
    queue.publish(PLAIN)
    queue.attach(ANNA, 1, 1, 1)
    queue.apply(command.encode_close(ANNA))
    assert queue.machine.ready_count == 0


def test_an_immediate_message_goes_to_a_consumer_or_nowhere(queue: QueueLog) -> None:
    queue.configure()
    queue.attach(ANNA, 1, 1, 2)
    effects = queue.apply(command.encode_enqueue_now(BERT, 1, batch(b"a", b"b", b"c")))
    assert refusals(effects) == [(3, 3, REFUSED_NO_CONSUMER)]
    assert runs(effects) == [(ANNA, 1, [1, 2])]
    effects = queue.apply(command.encode_enqueue_now(BERT, 4, batch(b"d")))
    assert refusals(effects) == [(4, 4, REFUSED_NO_CONSUMER)]
    assert dead(effects) == [4]
    assert queue.machine.ready_count == 0


def test_an_immediate_message_does_not_pass_those_that_wait(queue: QueueLog) -> None:
    queue.configure()
    queue.apply(command.encode_attach(ANNA, 1, 1, 5, False, b"", filtered=True))
    queue.publish(PLAIN)
    effects = queue.apply(command.encode_enqueue_now(BERT, 1, batch(b"a")))
    assert refusals(effects) == [(1, 1, REFUSED_NO_CONSUMER)]


def test_purge_and_remove_take_delayed_messages_too(queue: QueueLog) -> None:
    queue.configure()
    later = (properties(headers={b"x-delay": 50}), b"")
    queue.publish(PLAIN, later, PLAIN, later)
    effects = queue.apply(command.encode_remove(ANNA, 1, [2, 3, 99]))
    assert repr(effects[0]) == f"Controlled({ANNA}, 1, 0, 2)"
    effects = queue.apply(command.encode_purge(ANNA, 2))
    assert f"Controlled({ANNA}, 2, 0, 2)" in map(repr, effects)
    assert dead(effects) == [2, 4]
    assert PUBLISHER


def test_messages_come_out_by_priority(queue: QueueLog) -> None:
    queue.configure(priority_max=31)
    queue.publish(*[(properties(priority=p), b"") for p in (0, 5, 31, 5, 40)], PLAIN)
    taken = messages(queue.attach(ANNA, 1, 1, 9))
    assert [m.message_id for m in taken] == [3, 5, 2, 4, 1, 6]
    queue.settle(ANNA, 2, RELEASE, (1, 4, 5))
    assert [m.message_id for m in messages(queue.attach(BERT, 1, 1, 9))] == []


def test_priorities_above_the_queues_are_its_highest_and_0_knows_none(queue: QueueLog) -> None:
    queue.configure(priority_max=2)
    queue.publish(*[(properties(priority=p), b"") for p in (1, 9, 2)])
    assert [m.message_id for m in messages(queue.attach(ANNA, 1, 1, 9))] == [2, 3, 1]
    queue.configure(priority_max=0)
    queue.publish(*[(properties(priority=p), b"") for p in (1, 9)])
    assert queue.ids() == []
    assert queue.machine.unsettled_count == 5


def test_a_repeated_name_is_taken_and_dropped(queue: QueueLog) -> None:
    queue.configure(deduplicate=True, dedup_count=2, dedup_ms=100)

    def named(number: int) -> tuple[bytes, bytes]:
        return properties(headers={b"x-deduplication-header": number}), b""

    effects = queue.publish(named(1), named(1), PLAIN, named(2))
    assert refusals(effects) == []
    assert queue.ids() == [1, 3, 4]
    queue.publish(named(3))  # 1 is forgotten: there is room for two
    effects = queue.publish(named(3), named(2))
    assert dead(effects) == [4]
    queue.publish(named(1))
    assert queue.machine.ready_count == 5
    queue.now_ms += 100
    queue.publish(named(1))
    assert queue.machine.ready_count == 6


def test_a_limit_that_is_lowered_is_enforced_a_bounded_number_at_a_time(queue: QueueLog) -> None:
    queue.publish(*[PLAIN] * (2 * EXPIRE_MESSAGES_MAX + 10))
    queue.configure(max_length=7)
    assert queue.machine.ready_count == EXPIRE_MESSAGES_MAX + 10
    assert 0 < queue.machine.due_ms() <= queue.now_ms
    queue.tick()
    assert queue.machine.ready_count == 10
    queue.tick()
    assert queue.machine.ready_count == 7
    assert queue.machine.due_ms() == 0


def test_a_full_queue_drops_as_much_as_arrives(queue: QueueLog) -> None:
    queue.configure(max_length=7)
    queue.publish(*[PLAIN] * (2 * EXPIRE_MESSAGES_MAX))
    assert queue.machine.ready_count == 7
