from __future__ import annotations

import pytest
from tests.broker.core.conftest import ANNA, BERT, CARL, QueueLog, dead, messages, runs

from headrace_broker.core.queue.command import command
from headrace_broker.core.queue.command.command import ACCEPT, MODIFY_FAILED, REJECT, RELEASE
from headrace_broker.model.limits import ANSWERS_KEPT_MAX
from headrace_broker.model.session import session_id


def told(effects: list) -> list[str]:
    return [repr(effect) for effect in effects]


def controlled(session: int, seq: int, status: int, count: int) -> str:
    return f"Controlled({session}, {seq}, {status}, {count})"


# Publish lane


def test_a_batch_is_confirmed_up_to_its_last_message(queue: QueueLog) -> None:
    assert told(queue.enqueue(ANNA, 1, 3)) == [f"Enqueued({ANNA}, 3)"]
    assert told(queue.enqueue(ANNA, 4, 2)) == [f"Enqueued({ANNA}, 5)"]
    assert (queue.machine.ready_count, queue.machine.ready_bytes) == (5, 3 + 1)
    assert ANNA in queue.machine._state.sessions
    assert BERT not in queue.machine._state.sessions


def test_a_batch_seen_before_is_answered_and_dies(queue: QueueLog) -> None:
    queue.enqueue(ANNA, 1, 3)
    before = queue.machine.digest()
    assert told(queue.enqueue(ANNA, 1, 2)) == [f"Enqueued({ANNA}, 3)", "EntryDead(2)"]
    assert told(queue.enqueue(ANNA, 1, 3)) == [f"Enqueued({ANNA}, 3)", "EntryDead(3)"]
    assert queue.machine.digest() == before


def test_of_an_overlapping_batch_only_the_new_messages_are_taken(queue: QueueLog) -> None:
    queue.enqueue(ANNA, 1, 3)
    assert told(queue.enqueue(ANNA, 2, 4)) == [f"Enqueued({ANNA}, 5)"]
    assert (queue.machine.ready_count, queue.machine.ready_bytes) == (5, 3 + (2 + 3))
    taken = messages(queue.attach(BERT, 1, 1, 10))
    places = [(m.message_id, m.entry_index, m.position, m.byte_count) for m in taken]
    assert places == [(1, 1, 0, 0), (2, 1, 1, 1), (3, 1, 2, 2), (4, 2, 2, 2), (5, 2, 3, 3)]
    assert dead(queue.settle(BERT, 2, ACCEPT, (1, 1, 5))) == [1, 2, 4]


def test_a_gap_is_told_with_the_number_expected_and_changes_nothing(queue: QueueLog) -> None:
    empty = queue.machine.digest()
    assert told(queue.enqueue(ANNA, 2)) == [f"Gap({ANNA}, 1, 1)", "EntryDead(1)"]
    assert queue.machine.digest() == empty
    queue.enqueue(ANNA, 1, 3)
    before = queue.machine.digest()
    assert told(queue.enqueue(ANNA, 5)) == [f"Gap({ANNA}, 1, 4)", "EntryDead(3)"]
    assert queue.machine.digest() == before


def test_a_gap_on_the_control_lane_changes_nothing(queue: QueueLog) -> None:
    empty = queue.machine.digest()
    assert told(queue.attach(ANNA, 2, 1, 1)) == [f"Gap({ANNA}, 2, 1)", "EntryDead(1)"]
    assert queue.machine.digest() == empty


def test_the_lanes_of_a_session_are_numbered_apart(queue: QueueLog) -> None:
    queue.enqueue(ANNA, 1, 5)
    assert told(queue.attach(ANNA, 1, 1, 1))[0] == controlled(ANNA, 1, 0, 0)
    assert told(queue.enqueue(ANNA, 6)) == [f"Enqueued({ANNA}, 6)"]


# Settling


@pytest.mark.parametrize("operation", [ACCEPT, REJECT])
def test_settled_messages_are_gone(queue: QueueLog, operation: int) -> None:
    queue.enqueue(ANNA, 1, 3)
    queue.attach(BERT, 1, 1, 10)
    assert (queue.machine.unsettled_count, queue.machine.unsettled_bytes) == (3, 3)
    first = told(queue.settle(BERT, 2, operation, (1, 2, 3)))
    assert first == [controlled(BERT, 2, 0, 2), "EntryDead(3)"]
    last = told(queue.settle(BERT, 3, operation, (1, 1, 1)))
    assert last == ["EntryDead(1)", controlled(BERT, 3, 0, 1), "EntryDead(4)"]
    machine = queue.machine
    assert (machine.unsettled_count, machine.unsettled_bytes, machine.ready_count) == (0, 0, 0)


@pytest.mark.parametrize(("operation", "failed"), [(RELEASE, 0), (MODIFY_FAILED, 1)])
def test_what_comes_back_is_delivered_again_and_marked(
    queue: QueueLog, operation: int, failed: int
) -> None:
    queue.enqueue(ANNA, 1, 1)
    (first,) = messages(queue.attach(BERT, 1, 1, 1))
    (second,) = messages(queue.settle(BERT, 2, operation, (1, 1, 1)))
    (third,) = messages(queue.settle(BERT, 3, operation, (1, 2, 2)))
    counts = [(m.message_id, m.acquired_count, m.delivery_count) for m in (first, second, third)]
    assert counts == [(1, 0, 0), (1, 1, failed), (1, 2, 2 * failed)]


def test_numbers_that_are_not_unsettled_are_passed_over(queue: QueueLog) -> None:
    queue.enqueue(ANNA, 1, 5)
    queue.attach(BERT, 1, 1, 3)
    effects = queue.settle(BERT, 2, ACCEPT, (1, 2, 2), (1, 2, 2), (9, 1, 1), (1, 3, 2**62))
    assert told(effects)[0] == controlled(BERT, 2, 0, 2)
    assert queue.machine.unsettled_count == 3  # 1, and two more that the credit allowed


def test_a_repeated_settle_settles_nothing_again(queue: QueueLog) -> None:
    queue.enqueue(ANNA, 1, 2)
    queue.attach(BERT, 1, 1, 1)
    queue.settle(BERT, 2, RELEASE, (1, 1, 1))
    before = queue.machine.digest()
    repeated = queue.settle(BERT, 2, RELEASE, (1, 2, 2))
    assert told(repeated) == [controlled(BERT, 2, 0, 0), "EntryDead(4)"]
    assert queue.machine.digest() == before


# Consumers


def test_a_consumer_gets_what_its_credit_allows(queue: QueueLog) -> None:
    queue.enqueue(ANNA, 1, 5)
    assert runs(queue.attach(BERT, 1, 1, 2)) == [(BERT, 1, [1, 2])]
    assert runs(queue.settle(BERT, 2, ACCEPT, (1, 1, 1))) == [(BERT, 1, [3])]
    assert runs(queue.enqueue(ANNA, 6)) == []


def test_delivery_numbers_go_on_without_gaps(queue: QueueLog) -> None:
    queue.attach(BERT, 1, 1, 100)
    queue.enqueue(ANNA, 1, 2)
    queue.settle(BERT, 2, RELEASE, (1, 1, 2))
    queue.enqueue(ANNA, 3, 1)
    held = queue.machine.unsettled_from(BERT, 1, 0)
    assert [(number, message.message_id) for number, message in held] == [(3, 1), (4, 2), (5, 3)]
    assert [number for number, _ in queue.machine.unsettled_from(BERT, 1, 4)] == [4, 5]
    assert queue.machine.unsettled_from(BERT, 2, 1) == []
    assert queue.machine.unsettled_from(CARL, 1, 1) == []


def test_a_number_in_use_cannot_attach(queue: QueueLog) -> None:
    queue.enqueue(ANNA, 1)
    queue.attach(BERT, 1, 1, 1)
    assert told(queue.attach(BERT, 2, 1, 1))[0] == controlled(BERT, 2, 2, 0)
    queue.apply(command.encode_cancel(BERT, 3, 1))
    assert told(queue.attach(BERT, 4, 1, 1))[0] == controlled(BERT, 4, 2, 0)
    queue.settle(BERT, 5, ACCEPT, (1, 1, 1))
    assert told(queue.attach(BERT, 6, 1, 1))[0] == controlled(BERT, 6, 0, 0)


def test_an_exclusive_consumer_is_alone(queue: QueueLog) -> None:
    queue.attach(ANNA, 1, 1, 1)
    assert told(queue.attach(BERT, 1, 1, 1, exclusive=True))[0] == controlled(BERT, 1, 1, 0)
    queue.apply(command.encode_cancel(ANNA, 2, 1))
    assert told(queue.attach(BERT, 2, 1, 1, exclusive=True))[0] == controlled(BERT, 2, 0, 0)
    assert told(queue.attach(ANNA, 3, 1, 1))[0] == controlled(ANNA, 3, 1, 0)
    assert queue.machine.consumer_count == 1
    queue.apply(command.encode_close(BERT))
    assert told(queue.attach(ANNA, 4, 1, 1))[0] == controlled(ANNA, 4, 0, 0)


def test_answers_are_repeated_as_they_were_given(queue: QueueLog) -> None:
    queue.enqueue(ANNA, 1, 4)
    queue.attach(ANNA, 1, 1, 1)
    queue.attach(BERT, 1, 1, 1, exclusive=True)
    queue.apply(command.encode_purge(BERT, 2))
    before = queue.machine.digest()
    assert told(queue.attach(BERT, 1, 1, 1, exclusive=True))[0] == controlled(BERT, 1, 1, 0)
    assert told(queue.apply(command.encode_purge(BERT, 2)))[0] == controlled(BERT, 2, 0, 3)
    assert told(queue.attach(ANNA, 1, 1, 1))[0] == controlled(ANNA, 1, 0, 0)
    assert queue.machine.digest() == before


def test_of_old_answers_a_bounded_number_is_kept(queue: QueueLog) -> None:
    queue.attach(ANNA, 1, 1, 1)
    for seq in range(1, ANSWERS_KEPT_MAX + 2):
        queue.attach(BERT, seq, 1, 1, exclusive=True)
    assert told(queue.attach(BERT, 1, 1, 1, exclusive=True))[0] == controlled(BERT, 1, 0, 0)
    assert told(queue.attach(BERT, 2, 1, 1, exclusive=True))[0] == controlled(BERT, 2, 1, 0)


def test_a_cancelled_consumer_keeps_what_it_has_and_gets_no_more(queue: QueueLog) -> None:
    queue.enqueue(ANNA, 1, 3)
    queue.attach(BERT, 1, 1, 2)
    effects = queue.apply(command.encode_cancel(BERT, 2, 1))
    assert told(effects) == [controlled(BERT, 2, 0, 2), "Unused()", "EntryDead(3)"]
    assert runs(queue.settle(BERT, 3, ACCEPT, (1, 1, 1))) == []
    assert (queue.machine.unsettled_count, queue.machine.ready_count) == (1, 1)
    assert queue.machine.consumers() == []
    assert runs(queue.attach(CARL, 1, 1, 9)) == [(CARL, 1, [3])]
    assert runs(queue.apply(command.encode_close(BERT))) == [(CARL, 1, [2])]


def test_consumers_are_listed_with_their_state(queue: QueueLog) -> None:
    queue.enqueue(ANNA, 1, 3)
    queue.attach(BERT, 1, 7, 2, exclusive=True)
    (info,) = queue.machine.consumers()
    assert (info.session, info.number, info.tag, info.prefetch) == (BERT, 7, b"tag", 2)
    assert (info.unsettled_count, info.exclusive, info.attached) == (2, True, True)


# Get


def test_get_acquires_one_message_and_counts_what_is_left(queue: QueueLog) -> None:
    queue.enqueue(ANNA, 1, 3)
    effects = told(queue.apply(command.encode_get(BERT, 1)))
    message = "Acquired(#1 at 1/0, 0B, acquired 0, failed 0)"
    assert effects == [f"Got({BERT}, 1, {message}, 1, 2)", "EntryDead(2)"]
    assert told(queue.settle(BERT, 2, ACCEPT, (0, 1, 1)))[0] == controlled(BERT, 2, 0, 1)
    assert queue.machine.consumer_count == 0


def test_get_of_an_empty_queue_says_so(queue: QueueLog) -> None:
    effects = told(queue.apply(command.encode_get(BERT, 1)))
    assert effects == [f"Got({BERT}, 1, None, 0, 0)", "EntryDead(1)"]


def test_a_repeated_get_gives_the_same_message(queue: QueueLog) -> None:
    queue.enqueue(ANNA, 1, 3)
    first = told(queue.apply(command.encode_get(BERT, 1)))[0]
    second = told(queue.apply(command.encode_get(BERT, 2)))[0]
    before = queue.machine.digest()
    assert told(queue.apply(command.encode_get(BERT, 2)))[0] == second
    assert told(queue.apply(command.encode_get(BERT, 1)))[0] == first.replace("1, 2)", "1, 1)")
    assert queue.machine.digest() == before
    queue.settle(BERT, 3, ACCEPT, (0, 1, 2))
    repeated = told(queue.apply(command.encode_get(BERT, 2)))[0]
    assert repeated == f"Got({BERT}, 2, None, 0, 1)"


# Purge, close, node down


def test_purge_removes_what_is_available_and_leaves_what_is_acquired(queue: QueueLog) -> None:
    queue.enqueue(ANNA, 1, 3)
    queue.enqueue(ANNA, 4, 2)
    queue.attach(BERT, 1, 1, 2)
    queue.apply(command.encode_cancel(BERT, 2, 1))
    queue.settle(BERT, 3, RELEASE, (1, 1, 1))
    effects = told(queue.apply(command.encode_purge(CARL, 1)))
    assert effects == ["EntryDead(2)", controlled(CARL, 1, 0, 4), "EntryDead(6)"]
    assert (queue.machine.ready_count, queue.machine.ready_bytes) == (0, 0)
    assert dead(queue.settle(BERT, 4, ACCEPT, (1, 2, 2))) == [1, 7]


def test_close_releases_everything_and_forgets_the_session(queue: QueueLog) -> None:
    queue.enqueue(ANNA, 1, 3)
    queue.attach(ANNA, 1, 1, 1)
    queue.apply(command.encode_get(ANNA, 2))
    effects = told(queue.apply(command.encode_close(ANNA)))
    assert effects == [controlled(ANNA, 0, 0, 2), "Unused()", "EntryDead(4)"]
    assert ANNA not in queue.machine._state.sessions
    taken = messages(queue.attach(BERT, 1, 1, 9))
    counts = [(m.message_id, m.acquired_count, m.delivery_count) for m in taken]
    assert counts == [(1, 1, 1), (2, 1, 1), (3, 0, 0)]


def test_close_of_an_unknown_session_is_answered(queue: QueueLog) -> None:
    effects = told(queue.apply(command.encode_close(ANNA)))
    assert effects == [controlled(ANNA, 0, 0, 0), "EntryDead(1)"]


def test_a_suspected_node_loses_its_messages_and_keeps_its_numbers(queue: QueueLog) -> None:
    queue.enqueue(BERT, 1, 3)
    queue.attach(BERT, 1, 1, 2)
    queue.apply(command.encode_get(CARL, 1))
    effects = told(queue.apply(command.encode_node_down(2, 0)))
    assert effects == [f"Detached({BERT}, 1)", "EntryDead(4)"]
    machine = queue.machine
    assert (machine.ready_count, machine.unsettled_count, machine.consumer_count) == (3, 0, 0)
    assert not machine.is_attached(BERT, 1)
    assert [info.attached for info in machine.consumers()] == [False]
    assert told(queue.enqueue(BERT, 2, 2))[0] == f"Enqueued({BERT}, 3)"
    # A late settle of an old delivery must not touch the new ones.
    assert runs(queue.attach(BERT, 2, 1, 2)) == [(BERT, 1, [1, 2])]
    assert machine.is_attached(BERT, 1)
    assert told(queue.settle(BERT, 3, ACCEPT, (1, 1, 2)))[0] == controlled(BERT, 3, 0, 0)
    assert [number for number, _ in machine.unsettled_from(BERT, 1, 1)] == [3, 4]


def test_a_detached_consumer_is_not_in_the_way_of_an_exclusive_one(queue: QueueLog) -> None:
    queue.attach(BERT, 1, 1, 1, exclusive=True)
    queue.apply(command.encode_node_down(2, 0))
    assert told(queue.attach(ANNA, 1, 1, 1, exclusive=True))[0] == controlled(ANNA, 1, 0, 0)
    assert told(queue.attach(BERT, 2, 1, 1))[0] == controlled(BERT, 2, 1, 0)


def test_a_node_that_came_back_loses_the_sessions_of_its_other_boots(queue: QueueLog) -> None:
    newer = session_id(2, 2, 1)
    queue.enqueue(BERT, 1, 3)
    queue.attach(BERT, 1, 1, 1)
    queue.attach(newer, 1, 1, 1)
    assert queue.machine.has_sessions_of(2, 2)
    assert runs(queue.apply(command.encode_node_down(2, 2))) == []
    assert [session in queue.machine._state.sessions for session in (BERT, newer)] == [False, True]
    assert not queue.machine.has_sessions_of(2, 2)
    assert queue.machine.has_sessions_of(2, 0)
    assert not queue.machine.has_sessions_of(1, 0)
    (again,) = messages(queue.settle(newer, 2, ACCEPT, (1, 1, 1)))
    assert (again.message_id, again.acquired_count, again.delivery_count) == (1, 1, 0)


def test_node_down_leaves_other_nodes_alone(queue: QueueLog) -> None:
    queue.attach(BERT, 1, 1, 1)
    before = queue.machine.digest()
    assert told(queue.apply(command.encode_node_down(1, 0))) == ["EntryDead(2)"]
    assert told(queue.apply(command.encode_node_down(1, 7))) == ["EntryDead(3)"]
    assert queue.machine.digest() == before


def test_unused_is_told_when_the_last_consumer_has_gone_for_good(queue: QueueLog) -> None:
    queue.attach(ANNA, 1, 1, 1)
    queue.attach(BERT, 1, 1, 1)
    assert "Unused()" not in told(queue.apply(command.encode_cancel(ANNA, 2, 1)))
    assert "Unused()" not in told(queue.apply(command.encode_node_down(2, 0)))
    assert "Unused()" in told(queue.apply(command.encode_node_down(2, 9)))
    assert "Unused()" not in told(queue.apply(command.encode_node_down(2, 9)))
    assert "Unused()" not in told(queue.apply(command.encode_close(ANNA)))


def test_what_makes_no_sense_is_rejected_and_changes_nothing(queue: QueueLog) -> None:
    queue.enqueue(ANNA, 1, 1)
    before = queue.machine.digest()
    assert told(queue.apply(b"")) == ["Rejected('shorter than its head')", "EntryDead(2)"]
    assert queue.machine.digest() == before


def test_live_entries_are_those_with_messages_waiting_held_or_returned(queue):
    queue.enqueue(ANNA, 1, 2)  # entry 1: one message held, one settled
    queue.enqueue(ANNA, 3)  # entry 2: returned
    queue.enqueue(ANNA, 4)  # entry 3: settled
    queue.enqueue(ANNA, 5)  # entry 4: waits
    assert list(queue.machine.live_entries()) == [1, 2, 3, 4]
    queue.attach(BERT, 1, 1, 4)  # entry 5
    held = [entry for entry in range(1, 6) if queue.machine.holds_out(entry)]
    assert held == [1, 2, 3]
    queue.apply(command.encode_cancel(BERT, 2, 1))
    queue.settle(BERT, 3, ACCEPT, (1, 2, 2), (1, 4, 4))
    queue.settle(BERT, 4, RELEASE, (1, 3, 3))
    assert list(queue.machine.live_entries()) == [1, 2, 4]
    assert queue.machine.live_entries().typecode == "Q"
    queue.apply(command.encode_purge(ANNA, 1))
    assert list(queue.machine.live_entries()) == [1]  # what a consumer holds is not purged


def test_nothing_lives_in_a_new_queue(queue):
    assert list(queue.machine.live_entries()) == []
