"""Messages that take turns by the value of a header."""

from __future__ import annotations

import pytest
from tests.broker.core.conftest import (
    ANNA,
    BERT,
    NOBODY,
    A,
    B,
    C,
    QueueLog,
    dead,
    messages,
    of,
    properties,
    runs,
    taken,
)

from headrace_broker.core.queue.command import command
from headrace_broker.core.queue.command.command import ACCEPT, MODIFY_FAILED, RELEASE, encode_attach
from headrace_broker.core.queue.command.leader_command import encode_acquire
from headrace_broker.core.queue.messages.effect import DeadLettered, Effect, Got
from headrace_broker.core.queue.messages.settings import DEAD_LETTER_AT_MOST_ONCE


def waiting(queue: QueueLog) -> dict[bytes, tuple[int, int]]:
    return {each.value: (each.waiting, each.byte_count) for each in queue.machine.fairness(10**6)}


def value(tenant: int) -> bytes:
    return b"l" + tenant.to_bytes(8, "big")


# Turns


def test_values_take_turns_and_keep_their_order(fair: QueueLog) -> None:
    fair.publish(of(A), of(A), of(A), of(A))  # 1 to 4
    fair.publish(of(B), of(B))  # 5, 6
    fair.publish(of(C))  # 7
    assert taken(fair, 7) == [1, 5, 7, 2, 6, 3, 4]


def test_one_consumer_with_much_credit_gets_them_in_turns_at_once(fair: QueueLog) -> None:
    fair.publish(of(A), of(A), of(A), of(B), of(C), of(B))
    assert runs(fair.attach(ANNA, 1, 1, 100)) == [(ANNA, 1, [1, 4, 5, 2, 6, 3])]


def test_messages_without_the_header_are_one_value(fair: QueueLog) -> None:
    fair.publish(NOBODY, NOBODY, NOBODY, of(A), of(A))
    assert taken(fair, 5) == [1, 4, 2, 5, 3]


def test_a_header_of_no_value_is_none(fair: QueueLog) -> None:
    void = b"\x20\x00" + (8).to_bytes(4, "big") + b"\x06tenantV", b""
    fair.publish(of(A), of(A), void, NOBODY, of(A))
    assert taken(fair, 5) == [1, 3, 2, 4, 5]


def test_a_value_that_was_away_comes_last_and_is_owed_nothing(fair: QueueLog) -> None:
    fair.publish(of(A), of(A), of(A), of(A), of(B))  # 1 to 5
    assert taken(fair, 3) == [1, 5, 2]  # B has nothing more
    fair.publish(of(C), of(B), of(B), of(B))  # 6 to 9
    left = [m.message_id for m in messages(fair.attach(ANNA, 1, 1, 100))]
    assert left == [3, 6, 7, 4, 8, 9]


def test_equal_integers_are_one_value_in_whatever_width(fair: QueueLog) -> None:
    byte = b"\x20\x00" + (9).to_bytes(4, "big") + b"\x06tenantb\x01", b""
    fair.publish(of(A), byte, of(B))
    assert taken(fair, 3) == [1, 3, 2]


def test_priorities_come_before_turns(fair: QueueLog) -> None:
    fair.publish(of(A), of(A), of(B), of(A, priority=5), of(A, priority=5), of(C, priority=5))
    assert taken(fair, 6) == [4, 6, 5, 1, 3, 2]


def test_turns_go_on_from_one_consumer_to_the_next(fair: QueueLog) -> None:
    fair.publish(of(A), of(A), of(A), of(B), of(B), of(B))
    fair.attach(ANNA, 1, 1, 1)
    fair.attach(BERT, 1, 1, 1)
    held = {
        session: [m.message_id for _, m in fair.machine.unsettled_from(session, 1, 1)]
        for session in (ANNA, BERT)
    }
    assert held == {ANNA: [1], BERT: [4]}
    assert runs(fair.settle(ANNA, 2, ACCEPT, (1, 1, 1))) == [(ANNA, 1, [2])]
    assert runs(fair.settle(BERT, 2, ACCEPT, (1, 1, 1))) == [(BERT, 1, [5])]


def test_get_takes_turns_too(fair: QueueLog) -> None:
    fair.publish(of(A), of(A), of(B))
    got = [effect for n in (1, 2, 3) for effect in fair.apply(command.encode_get(ANNA, n))]
    found = [e.message.message_id for e in got if isinstance(e, Got) and e.message is not None]
    assert found == [1, 3, 2]


def test_a_single_active_consumer_gets_them_in_turns(fair: QueueLog) -> None:
    fair.configure(single_active=True)
    fair.attach(ANNA, 1, 1, 2)
    fair.attach(BERT, 1, 1, 9)
    fair.publish(of(A), of(A), of(A), of(B))
    assert runs(fair.settle(ANNA, 2, ACCEPT, (1, 1, 2))) == [(ANNA, 1, [2, 3])]


def test_consumers_of_high_priority_are_served_first(fair: QueueLog) -> None:
    fair.publish(of(A), of(A), of(B), of(B))
    fair.apply(encode_attach(ANNA, 1, 1, 1, False, b"", priority=1))
    fair.apply(encode_attach(BERT, 1, 1, 9, False, b""))
    assert runs(fair.settle(ANNA, 2, ACCEPT, (1, 1, 1))) == []
    fair.publish(of(B))
    held = [m.message_id for _, m in fair.machine.unsettled_from(BERT, 1, 1)]
    assert held == [3, 2, 4]
    assert [m.message_id for _, m in fair.machine.unsettled_from(ANNA, 1, 1)] == [5]


# Coming back


@pytest.mark.parametrize("operation", [RELEASE, MODIFY_FAILED])
def test_what_comes_back_stands_where_it_stood_in_its_value(fair: QueueLog, operation: int) -> None:
    fair.publish(of(A), of(A), of(A), of(B), of(B), of(B))
    assert runs(fair.attach(ANNA, 1, 1, 4)) == [(ANNA, 1, [1, 4, 2, 5])]
    fair.apply(command.encode_cancel(ANNA, 2, 1))
    fair.settle(ANNA, 3, operation, (1, 1, 4))
    # Neither was empty, so their turns are as they were.
    assert taken(fair, 6) == [1, 4, 2, 5, 3, 6]


def test_what_comes_back_to_an_empty_value_has_its_turn_after_the_others(fair: QueueLog) -> None:
    fair.publish(of(A), of(B), of(B), of(C))
    fair.attach(ANNA, 1, 1, 1)
    fair.apply(command.encode_cancel(ANNA, 2, 1))
    fair.settle(ANNA, 3, RELEASE, (1, 1, 1))
    assert taken(fair, 4) == [2, 4, 1, 3]


def test_what_is_delayed_takes_part_when_it_is_due(fair: QueueLog) -> None:
    late = properties(headers={b"tenant": B, b"x-delay": 10}), b""
    fair.publish(late, of(A), of(A), of(A))
    assert fair.ids() == [2, 3, 4]
    fair.tick(10)
    assert taken(fair, 4) == [2, 5, 3, 4]


def test_what_comes_back_later_takes_part_then(fair: QueueLog) -> None:
    fair.configure(retry_type=1, retry_min_ms=10, retry_max_ms=10)
    fair.publish(of(B), of(A), of(A), of(A))
    fair.attach(ANNA, 1, 1, 1)
    fair.apply(command.encode_cancel(ANNA, 2, 1))
    fair.settle(ANNA, 3, RELEASE, (1, 1, 1))
    assert waiting(fair) == {value(A): (3, 0)}
    fair.tick(10)
    assert taken(fair, 4) == [2, 1, 3, 4]


# Leaving in other ways


def test_a_full_queue_drops_the_oldest_of_the_value_with_most(fair: QueueLog) -> None:
    fair.configure(max_length=4, dead_letter=DEAD_LETTER_AT_MOST_ONCE)
    fair.publish(of(B))
    fair.publish(of(A), of(A), of(A))
    dropped: list[int] = []
    for _ in range(3):
        effects = fair.publish(of(A))
        dropped += [
            m.message_id for e in effects if isinstance(e, DeadLettered) for m in e.messages
        ]
    assert dropped == [2, 3, 4]
    assert waiting(fair) == {value(B): (1, 0), value(A): (3, 0)}


def test_of_equals_a_full_queue_drops_from_the_first_in_order_of_keys(fair: QueueLog) -> None:
    fair.configure(max_length=4)
    fair.publish(of(B), of(B), NOBODY, NOBODY, of(A))
    assert fair.ids() == [1, 2, 4, 5]
    fair.publish(of(A))
    assert fair.ids() == [1, 2, 4, 6]


def test_too_many_bytes_drop_the_oldest_of_the_value_with_most_bytes(fair: QueueLog) -> None:
    fair.configure(max_length_bytes=250)
    fair.publish(of(A, bytes(100)), of(A, bytes(100)), *[of(B, b"x")] * 20)
    fair.publish(of(B, bytes(40)))
    assert waiting(fair) == {value(A): (1, 100), value(B): (21, 60)}


def test_the_lowest_priority_is_dropped_first_whatever_its_value(fair: QueueLog) -> None:
    fair.configure(max_length=3)
    fair.publish(of(B), of(A, priority=1), of(A, priority=1), of(A, priority=1))
    assert fair.ids() == [2, 3, 4]


def test_what_has_expired_in_any_value_is_let_go(fair: QueueLog) -> None:
    fair.configure(dead_letter=DEAD_LETTER_AT_MOST_ONCE)
    fair.publish(of(A), of(A, expiration=5), of(B, expiration=5), of(B), of(C, expiration=50))
    assert fair.machine.due_ms() == fair.now_ms + 5
    fair.now_ms += 6
    assert lettered(fair.publish(NOBODY)) == [3]  # at the front of its value
    assert lettered(fair.tick()) == [2]
    assert fair.machine.due_ms() == fair.now_ms + 44
    assert lettered(fair.tick(44)) == [5]
    assert fair.machine.due_ms() == 0
    assert fair.ids() == [1, 4, 6]


def lettered(effects: list[Effect]) -> list[int]:
    return [m.message_id for e in effects if isinstance(e, DeadLettered) for m in e.messages]


def test_expired_messages_are_not_handed_out_in_their_turn(fair: QueueLog) -> None:
    fair.publish(of(A), of(A), of(B, expiration=5), of(B))
    fair.now_ms += 6
    assert runs(fair.attach(ANNA, 1, 1, 9)) == [(ANNA, 1, [1, 4, 2])]


def test_rejected_messages_are_dead_lettered(fair: QueueLog) -> None:
    fair.configure(dead_letter=DEAD_LETTER_AT_MOST_ONCE)
    fair.publish(of(A), of(B))
    fair.attach(ANNA, 1, 1, 9)
    assert lettered(fair.settle(ANNA, 2, command.REJECT, (1, 1, 2))) == [1, 2]


def test_a_purge_empties_all_values(fair: QueueLog) -> None:
    fair.publish(of(A), of(A), of(B), NOBODY)
    fair.attach(ANNA, 1, 1, 1)
    fair.apply(command.encode_purge(ANNA, 2))
    assert waiting(fair) == {}
    assert fair.machine.ready_count == fair.machine.ready_bytes == 0
    effects = fair.settle(ANNA, 3, ACCEPT, (1, 1, 1))
    assert dead(effects)[0] == 2  # only now
    effects = fair.publish(of(B), of(B), of(A))
    assert runs(effects) == [(ANNA, 1, [5])]
    assert taken(fair, 2) == [7, 6]


def test_messages_are_removed_by_their_ids(fair: QueueLog) -> None:
    fair.publish(of(A), of(A), of(B), of(A))
    fair.apply(command.encode_remove(ANNA, 1, [2, 3, 99]))
    assert waiting(fair) == {value(A): (2, 0)}
    assert taken(fair, 2) == [1, 4]


def test_a_filtered_consumer_gets_what_is_named(fair: QueueLog) -> None:
    fair.publish(of(A), of(A), of(B), of(B))
    fair.apply(encode_attach(ANNA, 1, 1, 9, False, b"", filtered=True))
    assert runs(fair.apply(encode_acquire(ANNA, 1, [2, 4, 3]))) == [(ANNA, 1, [2, 4, 3])]
    fair.publish(of(B))
    assert taken(fair, 2) == [1, 5]


# Settings


def test_what_waited_before_there_was_a_key_is_one_value(queue: QueueLog) -> None:
    queue.configure()
    queue.publish(of(A), of(A), of(B))
    queue.configure(fairness_key=b"tenant")
    queue.publish(of(C), of(C))
    assert taken(queue, 5) == [1, 4, 2, 5, 3]


def test_without_the_key_values_take_turns_until_they_are_gone(fair: QueueLog) -> None:
    fair.publish(of(A), of(A), of(A), of(B))
    fair.configure(fairness_key=b"")
    fair.publish(of(B), of(B))
    assert waiting(fair) == {b"": (2, 0), value(A): (3, 0), value(B): (1, 0)}
    assert taken(fair, 6) == [1, 4, 5, 2, 6, 3]
    assert waiting(fair) == {}


def test_beside_a_key_of_groups_it_has_no_effect(queue: QueueLog) -> None:
    queue.configure(fairness_key=b"tenant", group_key=b"group")
    queue.publish(of(A), of(A), of(B))
    assert taken(queue, 3) == [1, 2, 3]


# Looking


def test_available_messages_are_listed_by_id(fair: QueueLog) -> None:
    tenants = [A, B, A, A, C, A, B, A] * 30
    for tenant in tenants:
        fair.publish(of(tenant) if tenant != C else NOBODY)
    everything = list(range(1, len(tenants) + 1))
    assert fair.ids() == everything
    for after in (0, 1, 7, 200, len(tenants) - 1, len(tenants)):
        for limit in (1, 2, 9, 100):
            found = fair.machine.available_from(after, limit)
            assert [m.message_id for m in found] == everything[after : after + limit]


def test_the_oldest_is_the_oldest_of_all_values(fair: QueueLog) -> None:
    fair.publish(of(A))
    first = fair.now_ms
    fair.now_ms += 5
    fair.publish(NOBODY, of(B))
    assert fair.machine.oldest_ms() == first
    taken(fair, 1)
    assert fair.machine.oldest_ms() == first + 5


def test_values_are_listed_with_most_first(fair: QueueLog) -> None:
    assert fair.machine.fairness(9) == []
    fair.publish(of(A, b"1"), of(B, b"22"), of(B, b"22", priority=3), NOBODY, NOBODY, NOBODY)
    found = [(v.value, v.waiting, v.byte_count, v.shared) for v in fair.machine.fairness(2)]
    assert found == [(b"", 3, 0, False), (value(B), 2, 4, False)]
