"""Groups that take messages by lease."""

from __future__ import annotations

import pytest
from tests.broker.core.conftest import ANNA, BERT, messages, properties
from tests.broker.core.lease_queue import TTL, Leasing, batch_of, group_of, states

from headrace_broker.core.queue.command import command
from headrace_broker.core.queue.messages.effect import Completed, DeadLettered, EntryDead
from headrace_broker.core.queue.state.lease_effect import (
    EXPIRED,
    HELD,
    LEASE_FENCED,
    LEASE_GONE,
    LEASE_GROUPS_FULL,
    LEASE_OK,
    LEASE_OUT_OF_ORDER,
    LEASE_SETTLED,
    LEASE_UNKNOWN_GROUP,
    LEASES_FULL,
    RELEASED,
    LeaseGone,
)
from headrace_broker.model.limits import (
    LEASE_GROUPS_MAX,
    LEASE_RETURNS_MAX,
    LEASE_ROWS_MAX,
    LEASES_MAX,
)


@pytest.fixture
def queue() -> Leasing:
    return Leasing()


@pytest.fixture
def filled(queue: Leasing) -> Leasing:
    return queue.fill()


# Opening


def test_who_opens_a_group_last_fences_the_others(filled: Leasing) -> None:
    assert group_of(filled.open(b"b")).epoch == 2
    for answer in (filled.lease(1), filled.renew(), filled.settle_to(0), filled.release()):
        assert (answer.status, group_of(answer).epoch) == (LEASE_FENCED, 2)
    assert filled.close(1).status == LEASE_FENCED
    assert filled.machine.leased(b"g", 1, 1) == (LEASE_FENCED, [])
    assert filled.figures() == (10, 0, 0)
    assert filled.lease(1, epoch=2).status == LEASE_OK


def test_opening_is_answered_alike_when_it_is_repeated(filled: Leasing) -> None:
    answer = filled.open(b"a")
    assert (answer.status, group_of(answer).epoch) == (LEASE_OK, 1)


def test_opening_repeated_behind_another_one_fences_nobody(filled: Leasing) -> None:
    filled.open(b"b")
    assert filled.open(b"a").status == LEASE_FENCED
    assert filled.lease(1, epoch=2).status == LEASE_OK


def test_epochs_grow_over_groups_that_were_closed(filled: Leasing) -> None:
    filled.close()
    assert group_of(filled.open(b"a")).epoch == 2
    assert filled.lease(1, epoch=1).status == LEASE_FENCED


def test_group_that_is_not_there_is_said_so(queue: Leasing) -> None:
    for answer in (queue.lease(1), queue.renew(), queue.settle_to(1), queue.release()):
        assert (answer.status, answer.group) == (LEASE_UNKNOWN_GROUP, None)
    assert queue.close().status == LEASE_OK
    assert queue.machine.leased(b"g", 1, 1) == (LEASE_UNKNOWN_GROUP, [])


def test_groups_are_bounded(queue: Leasing) -> None:
    for number in range(LEASE_GROUPS_MAX):
        assert queue.open(name=b"g%d" % number).status == LEASE_OK
    answer = queue.open(name=b"more")
    assert (answer.status, answer.group) == (LEASE_GROUPS_FULL, None)
    assert queue.open(name=b"g3").status == LEASE_OK
    assert len(queue.machine.lease_groups()) == LEASE_GROUPS_MAX


def test_who_takes_a_group_over_has_its_leases_and_time_to_work(filled: Leasing) -> None:
    filled.lease(1, 3)
    filled.now_ms += 9_000
    answer = filled.open(b"b")
    assert states(answer) == [(1, HELD, 3)]
    assert group_of(answer).deadline_ms == filled.now_ms + TTL
    assert filled.held(1, epoch=2) == [1, 2, 3]
    assert filled.settle_to(1, epoch=2).count == 3


# Leases


def test_lease_takes_the_oldest_messages_in_order(filled: Leasing) -> None:
    answer = filled.lease(1, 7)
    assert (answer.count, answer.byte_count, answer.ready) == (7, 15, 3)
    assert filled.held(1) == [1, 2, 3, 4, 5, 6, 7]
    assert filled.figures() == (3, 7, 7)
    assert filled.lease(2).count == 3
    assert filled.held(2) == [8, 9, 10]


def test_lease_asked_for_again_is_the_same(filled: Leasing) -> None:
    filled.lease(1, 4)
    answer = filled.lease(1, 100)
    assert (answer.status, answer.count, answer.byte_count) == (LEASE_OK, 4, 6)
    assert filled.figures() == (6, 4, 4)


def test_lease_of_nothing_is_none(queue: Leasing) -> None:
    queue.open()
    answer = queue.lease(1)
    assert (answer.status, answer.count, group_of(answer).next_number) == (LEASE_OK, 0, 1)
    assert states(answer) == []
    queue.enqueue(ANNA, 1)
    assert queue.lease(1).count == 1


def test_lease_beyond_the_next_number_is_out_of_order(filled: Leasing) -> None:
    assert filled.lease(2).status == LEASE_OUT_OF_ORDER
    assert filled.settle_to(1).status == LEASE_OUT_OF_ORDER
    assert filled.machine.leased(b"g", 1, 1) == (LEASE_OUT_OF_ORDER, [])


def test_lease_ends_with_the_message_that_exceeds_its_bytes(filled: Leasing) -> None:
    answer = filled.lease(1, byte_count=5)  # bodies of 0, 1, 2, 3 bytes
    assert (answer.count, answer.byte_count) == (4, 6)
    assert filled.lease(2, byte_count=1).count == 1  # 4 bytes: one message goes always


def test_leases_of_a_group_are_bounded(queue: Leasing) -> None:
    queue.open()
    queue.enqueue(ANNA, 1, LEASES_MAX + 1)
    for number in range(1, LEASES_MAX + 1):
        assert queue.lease(number, 1).status == LEASE_OK
    assert queue.lease(LEASES_MAX + 1, 1).status == LEASES_FULL
    queue.release()
    assert queue.lease(LEASES_MAX + 1, 1).status == LEASES_FULL  # they are not settled
    queue.settle_to(1)
    assert queue.lease(LEASES_MAX + 1, 1).status == LEASE_OK


def test_lease_goes_by_priority_and_leaves_what_has_expired(queue: Leasing) -> None:
    queue.configure(3, priority_max=5)
    queue.publish((properties(0, 5), b""), (properties(0), b""), (properties(4), b""))
    queue.open()
    queue.now_ms += 6
    assert queue.lease(1).count == 2
    assert queue.held(1) == [3, 2]


# Settling


def test_settling_accepts_everything_up_to_a_lease(filled: Leasing) -> None:
    for number, most in ((1, 2), (2, 4), (3, 9)):
        filled.lease(number, most)
    answer = filled.settle_to(2)
    assert (answer.status, answer.count) == (LEASE_OK, 6)
    assert states(answer) == [(3, HELD, 4)]
    assert [e.index for e in filled.effects if isinstance(e, EntryDead)] == [2, len(filled.entries)]
    assert filled.figures() == (0, 4, 4)
    assert filled.machine.leased(b"g", 1, 1) == (LEASE_SETTLED, [])
    assert filled.lease(2).status == LEASE_SETTLED
    assert filled.settle_to(3).count == 4
    assert list(filled.machine.live_entries()) == []


def test_settling_is_answered_alike_when_it_is_repeated(filled: Leasing) -> None:
    filled.lease(1, 2)
    filled.lease(2, 2)
    filled.settle_to(1)
    first = filled.settle_to(2)
    again = filled.settle_to(2)
    assert (first.status, first.count) == (again.status, again.count) == (LEASE_OK, 2)
    assert filled.settle_to(1).count == 0  # of old


def test_settled_messages_complete_their_publishes(queue: Leasing) -> None:
    queue.configure(3, high_watermark=2, low_watermark=1)
    queue.apply(command.encode_enqueue(ANNA, 1, batch_of(3), True))
    queue.open()
    queue.lease(1, 3)
    assert queue.machine.deferred_count == 1  # what is leased is held
    queue.settle_to(1)
    assert not queue.machine.saturated
    assert [e.rows for e in queue.effects if isinstance(e, Completed)] == [[3, 4]]


# Expiry


def test_lease_that_is_not_renewed_gives_its_messages_back(filled: Leasing) -> None:
    filled.lease(1, 2)
    filled.lease(2, 3)
    assert filled.machine.due_ms() == filled.now_ms + TTL
    filled.now_ms += TTL - 1
    filled.tick()
    assert filled.figures() == (5, 5, 5)
    effects = filled.tick(1)
    gone = [(e.name, e.lease.number, e.lease.rows) for e in effects if isinstance(e, LeaseGone)]
    assert gone == [(b"g", 1, [1, 3]), (b"g", 2, [3, 6])]
    assert filled.figures() == (10, 0, 0)
    assert filled.machine.due_ms() == 0
    assert filled.ids() == list(range(1, 11))


def test_settling_says_what_has_expired(filled: Leasing) -> None:
    filled.lease(1, 2)
    filled.tick(TTL)
    filled.lease(2, 4)
    for answer in (filled.settle_to(2), filled.settle_to(2)):
        assert (answer.status, answer.count) == (LEASE_GONE, 4)
        assert [(g.number, g.state, g.count, g.rows) for g in answer.gone] == [
            (1, EXPIRED, 2, [1, 3])
        ]
    filled.lease(3)
    answer = filled.settle_to(3)
    assert (answer.status, answer.count, answer.gone) == (LEASE_OK, 6, [])


def test_lease_that_has_expired_is_not_there_and_said_so(filled: Leasing) -> None:
    filled.lease(1, 2)
    filled.tick(TTL)
    answer = filled.lease(1, 5)
    assert (answer.status, answer.count) == (LEASE_GONE, 0)
    assert [(gone.number, gone.state) for gone in answer.gone] == [(1, EXPIRED)]
    assert filled.machine.leased(b"g", 1, 1) == (LEASE_GONE, [])
    assert filled.figures() == (10, 0, 0)


def test_renewing_puts_the_deadline_of_all_leases_off(filled: Leasing) -> None:
    filled.lease(1, 2)
    filled.now_ms += 8_000
    assert group_of(filled.renew(5_000)).deadline_ms == filled.now_ms + 5_000
    filled.tick(4_999)
    assert filled.held(1) == [1, 2]
    filled.tick(1)
    assert filled.held(1) == []


def test_another_lease_never_shortens_the_time_of_those_before(filled: Leasing) -> None:
    filled.lease(1, 2, ttl_ms=50_000)
    assert group_of(filled.lease(2, 2, ttl_ms=1_000)).deadline_ms == filled.now_ms + 50_000


def test_messages_come_back_unharmed_and_seen(filled: Leasing) -> None:
    filled.configure(3, delivery_limit=0, dead_letter=1)
    filled.lease(1, 1)
    filled.tick(TTL)
    (message,) = messages(filled.attach(BERT, 1, 1, 1))
    assert (message.message_id, message.acquired_count, message.delivery_count) == (1, 1, 0)


def test_many_messages_come_back_in_steps(queue: Leasing) -> None:
    count = 2 * LEASE_RETURNS_MAX + 5
    queue.enqueue(ANNA, 1, 1)
    for first in range(2, count + 1, 1000):
        queue.apply(command.encode_enqueue(ANNA, first, batch_of(min(1000, count + 1 - first))))
    queue.open()
    assert queue.lease(1, count).count == count
    queue.tick(TTL)
    assert queue.figures() == (
        LEASE_RETURNS_MAX,
        count - LEASE_RETURNS_MAX,
        count - LEASE_RETURNS_MAX,
    )
    assert queue.machine.due_ms() == 1
    queue.turn_over()
    queue.tick()
    queue.tick()
    assert queue.figures() == (count, 0, 0)
    assert queue.machine.due_ms() == 0


# Giving back


def test_released_leases_go_back_to_their_places(filled: Leasing) -> None:
    filled.lease(1, 2)
    filled.lease(2, 2)
    answer = filled.release(first=2)
    assert (answer.status, answer.count) == (LEASE_OK, 2)
    assert states(answer) == [(1, HELD, 2), (2, RELEASED, 2)]
    assert filled.ids() == list(range(3, 11))
    assert filled.release(first=2).count == 0
    assert filled.settle_to(2).status == LEASE_OK  # by its own wish
    assert filled.lease(3, 1).count == 1
    assert filled.held(3) == [3]


def test_released_as_failed_counts_against_the_delivery_limit(filled: Leasing) -> None:
    filled.configure(3, delivery_limit=1, dead_letter=1)
    for number in (1, 2):
        filled.lease(number, 1)
        filled.release(failed=True)
    (dead_letter,) = [e for e in filled.effects if isinstance(e, DeadLettered)]
    assert [message.message_id for message in dead_letter.messages] == [1]
    assert filled.figures() == (9, 0, 0)


def test_closing_a_group_gives_back_what_it_holds(filled: Leasing) -> None:
    filled.lease(1, 4)
    answer = filled.close(1)
    assert (answer.status, answer.group, answer.count) == (LEASE_OK, None, 4)
    assert filled.figures() == (10, 0, 0)
    assert filled.machine.lease_groups() == []
    assert filled.close(1).status == LEASE_OK


def test_rows_that_are_remembered_of_a_lease_are_bounded(queue: Leasing) -> None:
    count = 2 * LEASE_ROWS_MAX + 100
    queue.enqueue(ANNA, 1, count)
    queue.apply(command.encode_remove(ANNA, 1, list(range(2, count + 1, 2))))
    queue.open()
    queue.lease(1, count)
    (gone,) = group_of(queue.release()).leases
    assert (gone.count, len(gone.rows)) == (count // 2, 2 * LEASE_ROWS_MAX)
    assert gone.rows[:4] == [1, 2, 3, 4]
