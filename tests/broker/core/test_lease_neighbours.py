"""Leases beside consumers, limits and everything else that a queue does."""

from __future__ import annotations

import pytest
from tests.broker.core.conftest import ANNA, BERT, QueueLog, properties, runs
from tests.broker.core.lease_queue import TTL, Leasing, group_of, states

from headrace_broker.core.queue.command import command, lease_command
from headrace_broker.core.queue.command.command import ACCEPT, RELEASE
from headrace_broker.core.queue.messages.effect import (
    STATUS_EXCLUSIVE_IN_USE,
    STATUS_OK,
    Controlled,
    EntryDead,
    Got,
    Rejected,
)
from headrace_broker.core.queue.state.lease_effect import HELD, LEASE_GONE, LEASE_IN_USE, LEASE_OK


@pytest.fixture
def queue() -> Leasing:
    return Leasing()


@pytest.fixture
def filled(queue: Leasing) -> Leasing:
    return queue.fill()


def test_consumers_get_what_is_not_leased_and_what_comes_back(filled: Leasing) -> None:
    filled.lease(1, 8)
    assert runs(filled.attach(BERT, 1, 1, 5)) == [(BERT, 1, [9, 10])]
    filled.release()
    assert runs(filled.effects) == [(BERT, 1, [1, 2, 3])]


def test_exclusive_consumer_and_leases_keep_each_other_out(filled: Leasing) -> None:
    filled.lease(1, 1)
    (refused,) = [e for e in filled.attach(BERT, 1, 1, 1, True) if isinstance(e, Controlled)]
    assert refused.status == STATUS_EXCLUSIVE_IN_USE
    filled.settle_to(1)
    (taken,) = [e for e in filled.attach(BERT, 2, 1, 1, True) if isinstance(e, Controlled)]
    assert taken.status == STATUS_OK
    assert filled.lease(2).status == LEASE_IN_USE


def test_single_active_consumer_may_be_a_group(queue: Leasing) -> None:
    queue.configure(3, single_active=True)
    queue.enqueue(ANNA, 1, 4)
    queue.open()
    queue.open(name=b"h")
    assert queue.lease(1, 1).status == LEASE_OK
    assert queue.lease(2, 1).status == LEASE_OK  # its own do not matter
    assert queue.lease(1, 1, epoch=2, name=b"h").status == LEASE_IN_USE
    assert runs(queue.attach(BERT, 1, 1, 9)) == []
    assert queue.lease(3, 1).status == LEASE_IN_USE
    queue.turn_over()
    queue.settle_to(1)
    assert runs(queue.effects) == []
    queue.settle_to(2)
    assert runs(queue.effects) == [(BERT, 1, [3, 4])]


def test_messages_of_one_group_stay_together(queue: Leasing) -> None:
    queue.configure(3, group_key=b"group")
    one, two = properties(headers={b"group": 1}), properties(headers={b"group": 2})
    queue.publish((one, b""), (two, b""), (one, b""))
    queue.open()
    queue.lease(1, 1)
    queue.turn_over()
    assert runs(queue.attach(BERT, 1, 1, 9)) == [(BERT, 1, [2])]
    queue.lease(2, 9)
    assert queue.held(2) == [3]
    queue.close()
    assert runs(queue.effects) == [(BERT, 1, [1, 3])]


def test_get_and_purge_pass_over_what_is_leased(filled: Leasing) -> None:
    filled.lease(1, 3)
    (got,) = [e for e in filled.apply(command.encode_get(BERT, 1)) if isinstance(e, Got)]
    assert got.message is not None
    assert got.message.message_id == 4
    filled.apply(command.encode_purge(BERT, 2))
    assert filled.figures() == (0, 4, 3)
    filled.release()
    assert filled.ids() == [1, 2, 3]


def test_newer_value_replaces_one_that_was_leased(queue: Leasing) -> None:
    queue.configure(3, last_value_key=b"last")
    value = properties(headers={b"last": 1})
    queue.publish((value, b"old"))
    queue.open()
    queue.lease(1)
    queue.publish((value, b"new"))
    queue.release()
    assert queue.ids() == [2]


def test_leases_come_through_a_snapshot(filled: Leasing) -> None:
    filled.lease(1, 2)
    filled.tick(TTL)
    filled.lease(2, 3)
    filled.lease(3, 1)
    filled.settle_to(2)
    filled.turn_over()
    assert states(filled.open(b"a")) == [(3, HELD, 1)]
    assert filled.settle_to(2).status == LEASE_GONE
    assert filled.settle_to(3).count == 1
    assert group_of(filled.open(b"b")).epoch == 2


def test_machine_of_an_earlier_version_knows_no_leases() -> None:
    queue = QueueLog()
    queue.configure(2)
    before = queue.machine.digest()
    for encoded in (
        lease_command.encode_open_group(1, b"g", TTL, b"a"),
        lease_command.encode_close_group(1, b"g", 0),
    ):
        assert [type(e) for e in queue.apply(encoded)] == [Rejected, EntryDead]
    assert queue.machine.digest() == before


def test_unsettled_consumers_and_leases_are_told_apart(filled: Leasing) -> None:
    filled.attach(BERT, 1, 1, 2)
    filled.lease(1, 3)
    assert filled.figures() == (5, 5, 3)
    filled.settle(BERT, 2, ACCEPT, (1, 1, 1))
    filled.settle(BERT, 3, RELEASE, (1, 2, 2))
    assert filled.machine.consumer_count == 1
    assert filled.machine.leased_count == 3
