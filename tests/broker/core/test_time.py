"""Expiry, delayed delivery, delayed retries and consumer timeouts."""

from __future__ import annotations

import pytest
from tests.broker.core.conftest import ANNA, BERT, QueueLog, dead, messages, properties, runs

from headrace_broker.core.queue.command.command import (
    MODIFY_FAILED,
    RELEASE,
    encode_attach,
    encode_get,
)
from headrace_broker.core.queue.command.leader_command import encode_acquire
from headrace_broker.core.queue.messages.effect import (
    REASON_EXPIRED,
    DeadLettered,
    Detached,
    Effect,
    Got,
    TimedOut,
    Unused,
)
from headrace_broker.core.queue.messages.settings import (
    DEAD_LETTER_AT_MOST_ONCE,
    RETRY_ALL,
    RETRY_FAILED,
    RETRY_RETURNED,
)
from headrace_broker.model.limits import EXPIRE_BYTES_MAX, EXPIRE_MESSAGES_MAX

PLAIN = (b"\x00\x00", b"body")


def living(after_ms: int) -> tuple[bytes, bytes]:
    return properties(expiration=after_ms), b"body"


def delayed(by_ms: int, expiration: int = -1) -> tuple[bytes, bytes]:
    return properties(expiration=expiration, headers={b"x-delay": by_ms}), b"body"


def buried(effects: list[Effect]) -> list[tuple[list[int], int]]:
    return [
        ([message.message_id for message in effect.messages], int(effect.reason))
        for effect in effects
        if isinstance(effect, DeadLettered)
    ]


def test_the_smaller_of_the_queues_and_the_messages_time_counts(queue: QueueLog) -> None:
    queue.configure(message_ttl_ms=50)
    queue.publish(living(80), living(20), PLAIN)
    start = queue.now_ms
    assert queue.machine.due_ms() == start + 20
    queue.tick(20)
    assert queue.ids() == [1, 3]
    assert queue.machine.due_ms() == start + 50
    queue.tick(30)
    assert queue.ids() == []
    assert queue.machine.due_ms() == 0


def test_messages_expire_anywhere_in_the_queue(queue: QueueLog) -> None:
    queue.configure()
    queue.publish(PLAIN, living(10), PLAIN, living(10), living(99))
    assert dead(queue.tick(10)) == [3]
    assert queue.ids() == [1, 3, 5]


def test_an_expired_message_at_the_front_is_not_delivered(queue: QueueLog) -> None:
    queue.configure()
    queue.publish(living(5), PLAIN)
    queue.now_ms += 5
    assert [m.message_id for m in messages(queue.attach(ANNA, 1, 1, 9))] == [2]


def test_a_message_without_time_goes_only_to_who_is_ready(queue: QueueLog) -> None:
    queue.configure(dead_letter=DEAD_LETTER_AT_MOST_ONCE)
    queue.attach(ANNA, 1, 1, 1)
    assert runs(queue.publish(living(0), living(0))) == [(ANNA, 1, [1])]
    assert queue.machine.due_ms() <= queue.now_ms
    assert buried(queue.tick()) == [([2], REASON_EXPIRED)]


def test_a_message_that_comes_back_has_the_time_that_is_left(queue: QueueLog) -> None:
    queue.configure(message_ttl_ms=50)
    queue.attach(ANNA, 1, 1, 1)
    queue.publish(PLAIN)
    queue.tick(60)
    assert queue.machine.unsettled_count == 1  # who has it keeps it
    assert messages(queue.settle(ANNA, 2, RELEASE, (1, 1, 1))) == []
    assert queue.machine.ready_count == 0
    queue.publish(PLAIN)
    queue.now_ms += 40
    assert messages(queue.settle(ANNA, 3, RELEASE, (1, 2, 2))) != []


def test_a_tick_expires_a_bounded_number_and_more_are_due_at_once(queue: QueueLog) -> None:
    queue.configure(message_ttl_ms=1)
    for _ in range(5):
        queue.publish(*[PLAIN] * 1000)
    queue.tick(1)
    assert queue.machine.ready_count == 5000 - 4096
    assert queue.machine.due_ms() <= queue.now_ms
    queue.tick()
    assert queue.machine.ready_count == 0


def test_a_clock_that_goes_back_is_not_followed(queue: QueueLog) -> None:
    queue.configure(message_ttl_ms=10)
    queue.now_ms += 100
    queue.publish(PLAIN)
    due = queue.machine.due_ms()
    queue.now_ms -= 1000
    queue.publish(PLAIN)
    assert queue.machine.due_ms() == due
    queue.now_ms = due
    queue.tick()
    assert queue.machine.ready_count == 0


def test_a_delayed_message_comes_when_it_is_due_behind_those_that_are_there(
    queue: QueueLog,
) -> None:
    queue.configure()
    queue.publish(delayed(100), PLAIN, delayed(50))
    assert (queue.machine.ready_count, queue.machine.delayed_count) == (1, 2)
    assert queue.machine.due_ms() == queue.now_ms + 50
    queue.tick(49)
    assert queue.machine.ready_count == 1
    queue.tick(51)
    taken = messages(queue.attach(ANNA, 1, 1, 9))
    assert [(m.entry_index, m.position) for m in taken] == [(2, 1), (2, 2), (2, 0)]
    assert queue.machine.due_ms() == 0


def test_the_time_to_live_of_a_delayed_message_begins_when_it_is_due(queue: QueueLog) -> None:
    queue.configure(message_ttl_ms=30)
    queue.publish(delayed(100))
    queue.tick(100)
    assert queue.machine.ready_count == 1
    queue.tick(29)
    assert queue.machine.ready_count == 1
    queue.tick(1)
    assert queue.machine.ready_count == 0


@pytest.mark.parametrize("delay", [0, -5])
def test_a_delay_of_nothing_is_none(queue: QueueLog, delay: int) -> None:
    queue.configure()
    queue.publish(delayed(delay))
    assert queue.machine.ready_count == 1


def test_the_first_machine_version_knows_no_time(queue: QueueLog) -> None:
    queue.publish(living(5), delayed(50))
    queue.now_ms += 50
    assert len(messages(queue.attach(ANNA, 1, 1, 9))) == 2


@pytest.mark.parametrize(
    ("kind", "operation", "waits"),
    [
        (RETRY_ALL, MODIFY_FAILED, True),
        (RETRY_ALL, RELEASE, True),
        (RETRY_FAILED, MODIFY_FAILED, True),
        (RETRY_FAILED, RELEASE, False),
        (RETRY_RETURNED, MODIFY_FAILED, False),
        (RETRY_RETURNED, RELEASE, True),
    ],
)
def test_what_comes_back_is_held_for_a_while(
    queue: QueueLog, kind: int, operation: int, waits: bool
) -> None:
    queue.configure(retry_type=kind, retry_min_ms=10, retry_max_ms=25)
    queue.publish(PLAIN, PLAIN)
    queue.attach(ANNA, 1, 1, 1)
    again = messages(queue.settle(ANNA, 2, operation, (1, 1, 1)))
    assert [m.message_id for m in again] == ([2] if waits else [1])
    assert queue.machine.delayed_count == (1 if waits else 0)


def test_each_retry_waits_longer_up_to_the_longest(queue: QueueLog) -> None:
    queue.configure(retry_type=RETRY_ALL, retry_min_ms=10, retry_max_ms=25)
    queue.publish(PLAIN)
    queue.attach(ANNA, 1, 1, 1)
    pauses = []
    for number in range(1, 5):
        queue.settle(ANNA, number + 1, MODIFY_FAILED, (1, number, number))
        pauses.append(queue.machine.due_ms() - queue.now_ms)
        queue.tick(pauses[-1])
    assert pauses == [10, 20, 25, 25]


def test_a_consumer_that_settles_nothing_is_cancelled(queue: QueueLog) -> None:
    queue.configure(consumer_timeout_ms=1000)
    queue.attach(ANNA, 1, 1, 2)
    queue.publish(PLAIN)
    queue.now_ms += 500
    queue.publish(PLAIN)
    queue.settle(ANNA, 2, RELEASE, (1, 2, 2))
    assert queue.machine.due_ms() == queue.now_ms + 500
    effects = queue.tick(500)
    assert [repr(e) for e in effects if isinstance(e, TimedOut | Unused)] == [
        f"TimedOut({ANNA}, 1)",
        "Unused()",
    ]
    assert queue.machine.unsettled_count == 0
    assert queue.ids() == [1, 2]
    found = messages(queue.attach(BERT, 1, 1, 2))
    assert [(m.message_id, m.delivery_count) for m in found] == [(1, 0), (2, 0)]


def test_a_consumers_own_timeout_counts_and_the_oldest_delivery(queue: QueueLog) -> None:
    queue.configure(consumer_timeout_ms=1000)
    queue.apply(encode_attach(ANNA, 1, 1, 2, False, b"", timeout_ms=100))
    queue.attach(BERT, 1, 1, 2)
    queue.publish(PLAIN, PLAIN, PLAIN, PLAIN)
    effects = queue.tick(100)
    assert [repr(e) for e in effects if isinstance(e, TimedOut)] == [f"TimedOut({ANNA}, 1)"]
    assert queue.machine.unsettled_count == 2
    assert [repr(e) for e in queue.tick(900) if isinstance(e, TimedOut)] == [f"TimedOut({BERT}, 1)"]


def test_what_get_took_comes_back_too(queue: QueueLog) -> None:
    queue.configure(consumer_timeout_ms=1000)
    queue.publish(PLAIN)
    got = queue.apply(encode_get(ANNA, 1))
    assert any(isinstance(e, Got) and e.delivery == 1 for e in got)
    effects = queue.tick(1000)
    assert [repr(e) for e in effects if isinstance(e, TimedOut | Detached)] == [
        f"TimedOut({ANNA}, 0)"
    ]
    assert queue.ids() == [1]


def test_a_shorter_timeout_counts_for_what_is_out_already(queue: QueueLog) -> None:
    queue.configure(consumer_timeout_ms=10_000)
    queue.attach(ANNA, 1, 1, 1)
    queue.publish(PLAIN)
    queue.now_ms += 500
    queue.configure(consumer_timeout_ms=200)
    assert queue.machine.due_ms() <= queue.now_ms
    assert any(isinstance(effect, TimedOut) for effect in queue.tick())


def test_the_oldest_message_is_known(queue: QueueLog) -> None:
    queue.configure(priority_max=31)
    assert queue.machine.oldest_ms() == 0
    start = queue.now_ms
    queue.publish(PLAIN)
    queue.now_ms += 7
    queue.publish((properties(priority=9), b""))
    assert queue.machine.oldest_ms() == start
    queue.apply(encode_get(ANNA, 1, 1))
    assert queue.machine.oldest_ms() == start + 7


def test_a_retry_waits_its_time_whether_or_not_anybody_asked_when_it_is_due(
    queue: QueueLog,
) -> None:
    queue.configure(retry_type=RETRY_ALL, retry_min_ms=10, retry_max_ms=99)
    queue.attach(ANNA, 1, 1, 2 * EXPIRE_MESSAGES_MAX)
    queue.publish(*[PLAIN] * EXPIRE_MESSAGES_MAX)
    queue.settle(ANNA, 2, RELEASE, (1, 1, EXPIRE_MESSAGES_MAX))
    assert len(messages(queue.tick(10))) == EXPIRE_MESSAGES_MAX
    queue.settle(ANNA, 3, RELEASE, (1, EXPIRE_MESSAGES_MAX + 1, 2 * EXPIRE_MESSAGES_MAX))
    assert messages(queue.tick(1)) == []
    assert queue.machine.due_ms() == queue.now_ms + 19


def test_what_has_expired_behind_the_first_message_is_not_delivered(queue: QueueLog) -> None:
    queue.configure(dead_letter=DEAD_LETTER_AT_MOST_ONCE)
    queue.publish(PLAIN, living(5), PLAIN, living(5), living(99))
    queue.now_ms += 6
    effects = queue.attach(ANNA, 1, 1, 9)
    assert runs(effects) == [(ANNA, 1, [1, 3, 5])]
    assert buried(effects) == [([2], REASON_EXPIRED), ([4], REASON_EXPIRED)]


def test_what_has_expired_while_it_was_out_is_not_delivered_again(queue: QueueLog) -> None:
    queue.configure()
    queue.publish(living(5), PLAIN)
    queue.attach(ANNA, 1, 1, 1)
    queue.now_ms += 6
    assert runs(queue.settle(ANNA, 2, RELEASE, (1, 1, 1))) == [(ANNA, 1, [2])]


def test_nothing_is_delivered_past_more_expired_messages_than_a_command_lets_go(
    queue: QueueLog,
) -> None:
    queue.configure()
    queue.publish(*[living(5)] * (EXPIRE_MESSAGES_MAX + 1), PLAIN)
    queue.now_ms += 6
    last = EXPIRE_MESSAGES_MAX + 2
    assert runs(queue.attach(ANNA, 1, 1, 9)) == []
    assert queue.ids() == [last - 1, last]
    assert runs(queue.tick()) == [(ANNA, 1, [last])]


def test_a_tick_expires_no_more_bytes_than_dead_letters_have_room_for(queue: QueueLog) -> None:
    queue.configure(dead_letter=DEAD_LETTER_AT_MOST_ONCE)
    body = bytes(EXPIRE_BYTES_MAX // 4)
    queue.publish(*[(properties(expiration=5), body)] * 6)
    assert buried(queue.tick(5)) == [([1, 2, 3, 4], REASON_EXPIRED)]
    assert queue.machine.due_ms() <= queue.now_ms
    assert buried(queue.tick()) == [([5, 6], REASON_EXPIRED)]


def test_messages_that_are_named_and_have_expired_are_left_for_a_tick(queue: QueueLog) -> None:
    queue.configure()
    queue.publish(PLAIN, living(5), living(5))
    queue.apply(encode_attach(ANNA, 1, 1, 9, False, b"", filtered=True))
    queue.machine.watch_returned(True)
    queue.now_ms += 6
    assert runs(queue.apply(encode_acquire(ANNA, 1, [2, 1]))) == [(ANNA, 1, [1])]
    got = queue.apply(encode_get(ANNA, 2, 3))[0]
    assert isinstance(got, Got)
    assert got.message is None
    assert queue.machine.take_returned() == []
    queue.tick()
    assert queue.machine.ready_count == 0
