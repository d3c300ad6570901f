"""Letters that a queue keeps until they have arrived."""

from __future__ import annotations

import asyncio
import logging

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.core.queue.messages.effect import REASON_EXPIRED, Acquired
from headrace_broker.flow.charges import NO_CAUSE
from headrace_broker.model.limits import DEAD_LETTERS_IN_FLIGHT_MAX
from headrace_broker.runtime.dead_letter import at_least_once
from headrace_broker.runtime.dead_letter import service as service_module


class Source:
    """The leading replica of a queue; FORGET takes effect once `apply` is called."""

    def __init__(self, queue, letter):
        self.queue = queue
        self.arguments = {"dead-letter-exchange": "dlx"}
        self.machine: dict[int, Acquired] = {}
        self.busy = False
        self.proposed: list[list[int]] = []
        self.looks: list[int] = []
        self.gone: set[int] = set()
        self.reads = 0
        self.slow, self.reading = False, None
        self._letter = letter

    def add(self, *ids, entry=None):
        for message_id in ids:
            self.machine[message_id] = Acquired(message_id, entry or message_id, 0, 4, 0, 0)

    def kept(self, limit):
        self.looks.append(limit)
        return [(message, REASON_EXPIRED) for message in list(self.machine.values())[:limit]]

    def dead_letters(self, messages, reason, done):
        if self.slow:
            self.reading = done
            return None
        self.reads += 1
        if any(int(message.message_id) in self.gone for message in messages):
            raise KeyError(1)
        return [self._letter(int(m.message_id), b"%d" % m.message_id) for m in messages]

    def forget(self, ids):
        if not self.busy:
            self.proposed.append(list(ids))
        return not self.busy

    def apply(self, service):
        proposed, self.proposed = self.proposed, []
        for ids in proposed:
            for message_id in ids:
                self.machine.pop(message_id, None)
            service.forgotten(self.queue.group, ids)


@pytest.fixture
def service(network):
    """A service with a way to queue "dead"."""
    network.queue("dead")
    network.exchange("dlx")
    network.bind("dlx", "dead")
    return network.service()


@pytest.fixture
def source(network, letter):
    """The queue "work" and its kept dead letters."""
    return Source(network.queue("work"), letter)


@pytest.fixture
def hurried(monkeypatch):
    """Try again at once."""
    monkeypatch.setattr(at_least_once, "RETRY_SECONDS_MIN", 0.0)


async def until(condition):
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


def test_letter_is_forgotten_once_it_has_arrived(service, source, network, run, turns):
    async def scenario():
        source.add(1, 2)
        service.keep(source)
        await turns()
        assert network.session("dead").bodies == [b"1", b"2"]
        assert source.proposed == []
        network.session("dead").confirm()
        await turns()
        assert source.proposed == [[1, 2]]
        assert service.queue_count == 1
        source.apply(service)
        await turns()
        assert (service.queue_count, service.held_bytes, service.sent_count) == (0, 0, 2)
        service.stop()

    run(scenario)


def test_letters_of_one_entry_are_read_together(service, source, network, run, turns):
    async def scenario():
        source.add(1, 2, 3, entry=10)
        source.add(4, 5, entry=11)
        service.keep(source)
        await turns()
        assert len(network.session("dead").bodies) == 5
        assert source.reads == 2
        service.stop()

    run(scenario)


def test_further_letters_are_sent_and_none_twice(service, source, network, run, turns):
    async def scenario():
        source.add(1)
        service.keep(source)
        await turns()
        source.add(2)
        service.keep(source)
        await turns()
        assert network.session("dead").bodies == [b"1", b"2"]
        network.session("dead").confirm(1)
        await turns()
        source.add(3)
        service.keep(source)
        await turns()
        assert network.session("dead").bodies == [b"2", b"3"]
        source.apply(service)
        network.session("dead").confirm()
        await turns()
        source.apply(service)
        await turns()
        assert (source.machine, service.queue_count) == ({}, 0)
        service.stop()

    run(scenario)


def test_letters_under_way_are_bounded_and_the_rest_stays_in_the_machine(
    service, source, network, run, turns
):
    async def scenario():
        count = 3 * DEAD_LETTERS_IN_FLIGHT_MAX
        source.add(*range(1, count + 1))
        service.keep(source)
        await turns()
        dead = network.session("dead")
        assert len(dead.sent) == DEAD_LETTERS_IN_FLIGHT_MAX
        assert source.looks == [DEAD_LETTERS_IN_FLIGHT_MAX]
        seen = list(dead.bodies)
        while source.machine:
            dead.confirm(50)
            await turns()
            source.apply(service)
            await turns()
            assert len(dead.sent) <= DEAD_LETTERS_IN_FLIGHT_MAX
            seen += [body for body in dead.bodies if body not in seen]
        assert seen == [b"%d" % number for number in range(1, count + 1)]
        assert len(source.looks) < 20
        service.stop()

    run(scenario)


def test_bytes_under_way_are_bounded_over_all_queues(
    network, letter, run, turns, monkeypatch, source
):
    monkeypatch.setattr(service_module, "DEAD_LETTER_KEPT_BYTES_MAX", 40)
    network.queue("dead")
    network.exchange("dlx")
    network.bind("dlx", "dead")
    service = network.service()
    other = Source(network.queue("other"), letter)

    async def scenario():
        source.add(1, 2, 3, 4)
        other.add(5, 6)
        service.keep(source)
        service.keep(other)
        await turns()
        dead = network.session("dead")
        seen = list(dead.bodies)
        assert 1 <= len(seen) < 6
        assert service.held_bytes <= 40
        while source.machine or other.machine:
            dead.confirm()
            await turns()
            source.apply(service)
            other.apply(service)
            await turns()
            assert service.held_bytes <= 40
            seen += dead.bodies
        assert sorted(seen) == [b"1", b"2", b"3", b"4", b"5", b"6"]
        service.stop()

    run(scenario)


def test_letter_without_a_way_waits_for_one(service, source, network, run, turns, hurried, caplog):
    async def scenario():
        source.arguments = {"dead-letter-exchange": "later"}
        source.add(1)
        service.keep(source)
        await turns(50)
        assert (source.proposed, service.lost_count) == ([], 0)
        [record] = caplog.records
        assert record.levelno == logging.WARNING
        assert "kept, for its dead letter exchange does not exist" in record.message
        network.exchange("later")
        network.bind("later", "dead")
        await until(lambda: any(each.queue.name == "dead" for each in network.opened))
        network.session("dead").confirm()
        await turns()
        assert source.proposed == [[1]]
        service.stop()

    run(scenario)


def test_way_that_appears_is_taken_before_a_long_pause_is_over(
    service, source, network, run, turns, monkeypatch
):
    monkeypatch.setattr(at_least_once, "RETRY_SECONDS_MIN", 3600.0)

    async def scenario():
        source.arguments = {"dead-letter-exchange": "later"}
        source.add(1)
        service.keep(source)
        await turns()
        network.exchange("later")
        network.bind("later", "dead")
        monkeypatch.setattr(at_least_once, "RETRY_SECONDS_MIN", 0.0)
        service.on_events(network.events)
        await until(lambda: network.opened)
        assert network.session("dead").bodies == [b"1"]
        service.stop()

    run(scenario)


def test_queue_that_has_a_letter_does_not_get_it_twice(
    service, source, network, run, turns, hurried
):
    async def scenario():
        network.queue("full")
        network.bind("dlx", "full")
        source.add(1)
        service.keep(source)
        await turns()
        network.session("dead").confirm()
        network.session("full").refuse()
        await until(lambda: network.session("full").sent)
        assert network.session("dead").sent == []
        assert source.proposed == []
        network.session("full").confirm()
        await turns()
        assert source.proposed == [[1]]
        service.stop()

    run(scenario)


def test_letter_is_done_when_the_queue_that_lacked_it_is_gone(
    service, source, network, run, turns, hurried
):
    async def scenario():
        network.queue("full")
        network.bind("dlx", "full")
        source.add(1)
        service.keep(source)
        await turns()
        network.session("dead").confirm()
        network.do(commands.DeleteQueue("/", "full", network.catalog.queue("/", "full").group))
        network.session("full").delete()
        await until(lambda: source.proposed)
        assert source.proposed == [[1]]
        service.stop()

    run(scenario)


def test_only_queue_deleted_under_way_leaves_the_letter_kept(
    service, source, network, run, turns, hurried
):
    async def scenario():
        source.add(1)
        service.keep(source)
        await turns()
        network.do(commands.DeleteQueue("/", "dead", network.catalog.queue("/", "dead").group))
        network.session("dead").delete()
        await turns(20)
        assert source.proposed == []
        network.queue("dead")
        network.bind("dlx", "dead")
        await until(lambda: len(network.opened) == 2 and network.opened[1].sent)
        network.opened[1].confirm()
        await turns()
        assert source.proposed == [[1]]
        service.stop()

    run(scenario)


def test_letters_are_dropped_when_dead_lettering_is_switched_off(
    service, source, network, run, turns, monkeypatch, caplog
):
    monkeypatch.setattr(at_least_once, "RETRY_SECONDS_MIN", 3600.0)

    async def scenario():
        source.arguments = {"dead-letter-exchange": "later"}
        source.add(1)
        service.keep(source)
        await turns()
        assert source.proposed == []
        monkeypatch.setattr(at_least_once, "RETRY_SECONDS_MIN", 0.0)
        source.arguments = {}
        service.reconfigured(source.queue.group)
        await until(lambda: source.proposed)
        assert source.proposed == [[1]]
        assert "a dead letter is dropped" in caplog.records[-1].message
        assert (service.sent_count, service.lost_count) == (0, 1)
        service.stop()

    run(scenario)


def test_forgetting_is_tried_again_when_the_log_takes_nothing(
    service, source, network, run, turns, monkeypatch
):
    monkeypatch.setattr(at_least_once, "TIMER_STEP_MS", 0)

    async def scenario():
        source.busy = True
        source.add(1)
        service.keep(source)
        await turns()
        network.session("dead").confirm()
        await turns()
        assert source.proposed == []
        source.busy = False
        await until(lambda: source.proposed)
        assert source.proposed == [[1]]
        service.stop()

    run(scenario)


def test_letter_that_the_machine_let_go_meanwhile_is_passed_over(
    service, source, network, run, turns
):
    async def scenario():
        source.add(1, 2)
        source.gone = {1}
        service.keep(source)
        await turns()
        assert network.session("dead").bodies == [b"2"]
        service.stop()

    run(scenario)


def test_released_queue_is_left_to_its_next_leader(service, source, network, run, turns):
    async def scenario():
        source.add(1)
        service.keep(source)
        await turns()
        service.release(source.queue.group)
        assert service.held_bytes > 0
        network.session("dead").confirm()
        await turns()
        assert (source.proposed, service.held_bytes, service.queue_count) == ([], 0, 0)
        service.keep(source)  # it is led here again
        await turns()
        assert network.session("dead").bodies == [b"1"]
        service.stop()

    run(scenario)


def test_kept_letters_stay_in_their_queue_during_an_alarm(service, source, network, run, turns):
    async def scenario():
        network.block(True)
        source.add(1)
        service.keep(source)
        await turns()
        assert network.opened == []
        network.block(False)
        await turns()
        assert network.session("dead").bodies == [b"1"]
        service.stop()

    run(scenario)


def test_kept_letter_is_owed_for_while_it_is_under_way(service, source, network, run, turns):
    async def scenario():
        account, cause = network.account("a")
        source.add(1, 2)
        service.note_causes(source.queue, [1], [cause])
        service.keep(source)
        await turns()
        assert (account.messages, network.debts.unknown.messages) == (1, 1)
        assert network.session("dead").causes.of(1, 2) == [1, cause, 1, NO_CAUSE]
        network.session("dead").confirm()
        assert (account.messages, network.debts.unknown.messages) == (0, 0)
        service.stop()

    run(scenario)


def test_kept_letter_is_owed_for_again_when_it_is_sent_again(
    service, source, network, run, turns, hurried
):
    async def scenario():
        account, cause = network.account("a")
        source.add(1)
        service.note_causes(source.queue, [1], [cause])
        service.keep(source)
        await turns()
        network.session("dead").refuse()
        assert account.messages == 0
        await until(lambda: network.session("dead").sent)
        assert account.messages == 1
        service.stop()
        assert account.messages == 0

    run(scenario)


def test_causes_of_kept_letters_are_remembered_within_a_bound(
    service, source, network, run, turns, monkeypatch
):
    monkeypatch.setattr(service_module, "DEAD_LETTER_CAUSES_MAX", 2)

    async def scenario():
        account, cause = network.account("a")
        other = network.queue("other")
        service.note_causes(source.queue, [1, 2, 3], [cause] * 3)
        assert [service.cause(source.queue.group, n) for n in (3, 1)] == [NO_CAUSE, cause]
        service.note_causes(other, [1], [cause])
        service.release(source.queue.group)
        service.release(other.group)
        service.note_causes(source.queue, [1, 2, 3], [cause] * 3)
        assert [service.cause(source.queue.group, n) for n in (1, 2, 3)] == [cause, cause, NO_CAUSE]
        assert account.messages == 0
        service.stop()

    run(scenario)


def test_letters_of_nobody_go_one_at_a_time_while_too_many_are_under_way(
    service, source, network, run, turns
):
    network.ledger.limits.account_messages = 10

    async def scenario():
        slow = network.queue("slow")
        stuck = network.charges.charge(NO_CAUSE, slow.group)
        stuck.borrow(11, 11)
        assert network.debts.unknown.in_debt
        source.add(*range(1, 20), entry=5)
        service.keep(source)
        await turns()
        dead = network.session("dead")
        assert dead.bodies == [b"1"]
        dead.confirm()
        await turns()
        assert dead.bodies == [b"2"]
        stuck.repay(11, 11)
        await turns()
        assert len(dead.bodies) == 18
        service.stop()

    run(scenario)


def test_letters_leave_in_order_once_their_entry_was_read(service, source, network, run, turns):
    async def scenario():
        source.add(1, 2)
        source.slow = True
        service.keep(source)
        await turns()
        source.slow = False
        source.reading()
        await turns()
        assert network.session("dead").bodies == [b"1", b"2"]
        service.stop()

    run(scenario)
