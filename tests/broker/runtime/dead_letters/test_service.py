"""Letters that are sent once, and the bound on those that wait."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pamqp.commands import Basic
from tests.broker.runtime.intake.proxies import proxies

from headrace_broker.model.flow import EXPIRY
from headrace_broker.model.limits import TIMER_WAKES_MAX
from headrace_broker.model.session import session_id
from headrace_broker.runtime.contract.dead_letter_cause import EXPIRY_CAUSE
from headrace_broker.runtime.dead_letter import service as module


@pytest.fixture
def service(network):
    """A service with a way from queue "work" to queue "dead"."""
    network.source = network.queue("work")
    network.arguments = {"dead-letter-exchange": "dlx"}
    network.queue("dead")
    network.exchange("dlx")
    network.bind("dlx", "dead")
    return network.service()


def take(service, network, *letters):
    service.accept(network.source, network.arguments, list(letters))


def test_letters_are_sent_in_order_in_the_next_turn(service, network, letter, run, turns):
    async def scenario():
        take(service, network, letter(body=b"1"), letter(body=b"2"))
        assert network.opened == []
        take(service, network, letter(body=b"3"))
        await turns()
        assert network.session("dead").bodies == [b"1", b"2", b"3"]
        assert service.held_bytes > 0
        network.session("dead").confirm()
        assert (service.sent_count, service.lost_count, service.held_bytes) == (3, 0, 0)
        service.stop()

    run(scenario)


def test_many_letters_share_the_turns_of_the_loop(service, network, letter, run, turns):
    async def scenario():
        take(service, network, *[letter(n) for n in range(TIMER_WAKES_MAX + 1)])
        await turns(1)
        assert len(network.session("dead").sent) == TIMER_WAKES_MAX
        await turns(1)
        assert len(network.session("dead").sent) == TIMER_WAKES_MAX + 1
        service.stop()

    run(scenario)


def test_letter_that_goes_nowhere_is_dropped_counted_and_told_once(
    service, network, letter, run, turns, caplog
):
    async def scenario():
        network.arguments = {"dead-letter-exchange": "none"}
        take(service, network, letter(), letter())
        await turns()
        assert (service.lost_count, service.held_bytes) == (2, 0)
        [record] = caplog.records
        assert record.levelno == logging.WARNING
        assert "'work'" in record.message
        assert "dropped, for its dead letter exchange does not exist" in record.message
        network.arguments = {"dead-letter-exchange": "dlx"}
        take(service, network, letter())
        await turns()
        network.arguments = {"dead-letter-exchange": "none"}
        take(service, network, letter())
        await turns()
        assert len(caplog.records) == 2
        service.stop()

    run(scenario)


def test_letters_whose_routes_cost_much_have_turns_of_their_own(
    service, network, letter, run, turns, monkeypatch
):
    monkeypatch.setattr(module, "ROUTING_WORK_OF_TURN", 10)

    async def scenario():
        take(service, network, *[letter(key=f"k{number}") for number in range(3)])
        await turns(1)
        assert len(network.session("dead").sent) == 1
        await turns(1)
        assert len(network.session("dead").sent) == 2
        service.stop()

    run(scenario)


def test_letter_whose_route_costs_too_much_is_dropped_and_told(
    service, network, letter, run, turns, caplog
):
    keys = [".".join("a" * 126) + f".{number}" for number in range(32)]
    network.exchange("costly", "topic")
    for number in range(900):
        network.bind("costly", "dead", "#.a." * 62 + f"w{number}")
    network.arguments = {"dead-letter-exchange": "costly"}
    headers: Any = {"CC": keys}
    properties = bytes(Basic.Properties(headers=headers).marshal())

    async def scenario():
        take(service, network, letter(properties=properties))
        await turns()
        assert (service.lost_count, service.held_bytes) == (1, 0)
        [record] = caplog.records
        assert record.levelno == logging.WARNING
        assert "dropped, for its route at its dead letter exchange takes" in record.message
        service.stop()

    run(scenario)


def test_unroutable_letter_is_no_reason_to_warn(service, network, letter, run, turns, caplog):
    async def scenario():
        network.exchange("empty")
        network.arguments = {"dead-letter-exchange": "empty"}
        take(service, network, letter())
        await turns()
        assert service.lost_count == 1
        assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
        service.stop()

    run(scenario)


def test_refused_letter_is_lost(service, network, letter, run, turns):
    async def scenario():
        take(service, network, letter())
        await turns()
        network.session("dead").refuse()
        assert (service.sent_count, service.lost_count, service.held_bytes) == (0, 1, 0)
        service.stop()

    run(scenario)


def test_what_finds_no_room_is_dropped_with_one_warning(
    service, network, letter, run, turns, caplog, monkeypatch
):
    size = int(letter(body=b"x" * 1000).byte_count)
    monkeypatch.setattr(module, "DEAD_LETTER_BYTES_MAX", 3 * size)

    async def scenario():
        letters = [letter(n, body=b"%d" % n + b"x" * 999) for n in range(6)]
        assert not service.congested
        take(service, network, *letters)
        assert service.congested
        await turns()
        assert [body[:1] for body in network.session("dead").bodies] == [b"0", b"1", b"2"]
        assert (service.lost_count, service.held_bytes) == (3, 3 * size)
        [record] = caplog.records
        assert "dead letters dropped, the last of queue 'work'" in record.message
        network.session("dead").confirm(2)
        assert not service.congested
        take(service, network, letter(body=b"x" * 1000))
        await turns()
        assert len(network.session("dead").sent) == 2
        service.stop()

    run(scenario)


def test_letter_larger_than_all_room_passes_alone(
    service, network, letter, run, turns, monkeypatch
):
    monkeypatch.setattr(module, "DEAD_LETTER_BYTES_MAX", 10)

    async def scenario():
        take(service, network, letter(body=b"x" * 1000), letter())
        await turns()
        assert len(network.session("dead").sent) == 1
        assert service.lost_count == 1
        service.stop()

    run(scenario)


def test_stopped_service_sends_nothing(service, network, letter, run, turns):
    async def scenario():
        take(service, network, letter())
        service.stop()
        take(service, network, letter())
        await turns()
        assert network.opened == []

    run(scenario)


def test_letter_is_owed_for_by_its_cause_until_all_queues_have_it(
    service, network, letter, run, turns
):
    async def scenario():
        network.queue("copy")
        network.bind("dlx", "copy")
        account, cause = network.account("a")
        one = letter()
        one.cause = cause
        take(service, network, one)
        assert (account.messages, account.byte_count) == (1, int(one.byte_count))
        [owed] = network.debts.causes(network.source.group)
        assert (owed.cause, owed.node, owed.messages) == (account.cause, 1, 1)
        await turns()
        assert (account.messages, account.byte_count) == (2, 2 * int(one.byte_count))
        assert network.session("dead").causes.of(1, 1) == [1, cause]
        network.session("dead").confirm()
        assert account.messages == 1
        network.session("copy").refuse()
        assert (account.messages, account.byte_count, network.charges.count) == (0, 0, 0)
        service.stop()

    run(scenario)


@pytest.mark.parametrize("outcome", ["confirm", "refuse", "delete", "unroutable", "stop", "idle"])
def test_nobody_owes_for_what_is_over(outcome, service, network, letter, run, turns):
    async def scenario():
        account, cause = network.account("a")
        letters = [letter(), letter()]
        for each in letters:
            each.cause = cause
        if outcome == "unroutable":
            network.arguments = {"dead-letter-exchange": "none"}
        take(service, network, *letters)
        assert account.messages == 2
        if outcome == "idle":
            service.stop()
        await turns()
        if outcome in ("confirm", "refuse", "delete"):
            assert account.messages == 2
            getattr(network.session("dead"), outcome)()
        elif outcome == "stop":
            service.stop()
            network.session("dead").confirm()
        assert (account.messages, account.byte_count, network.charges.count) == (0, 0, 0)
        service.stop()

    run(scenario)


def test_letters_that_find_no_room_are_owed_for_by_nobody(
    service, network, letter, run, turns, monkeypatch
):
    monkeypatch.setattr(module, "DEAD_LETTER_BYTES_MAX", 10)

    async def scenario():
        account, cause = network.account("a")
        letters = [letter(), letter()]
        for each in letters:
            each.cause = cause
        take(service, network, *letters)
        assert account.messages == 1
        service.stop()

    run(scenario)


def test_letter_of_a_client_elsewhere_is_told_to_its_node(service, network, letter, run, turns):
    async def scenario():
        one = letter()
        one.cause = session_id(2, 1, 1)
        take(service, network, one)
        await turns()
        assert network.debts.causes(network.catalog.queue("/", "dead").group) == []
        [proxy] = proxies(network.debts, network.catalog.queue("/", "dead").group)
        assert proxy == (one.cause, 1, int(one.byte_count))
        network.session("dead").confirm()
        service.stop()
        network.debts.stop()

    run(scenario)


def test_expired_messages_of_each_queue_have_an_account(service, network, letter, run, turns):
    network.ledger.limits.account_messages = 2
    woken: list[int] = []
    network.expiries.wake = woken.append

    async def scenario():
        other = network.queue("other")
        letters = [letter(n) for n in range(3)]
        for each in letters:
            each.cause = EXPIRY_CAUSE
        take(service, network, *letters)
        assert service.is_congested(network.source)
        assert not service.is_congested(other)
        await turns()
        [owed] = network.debts.causes(network.catalog.queue("/", "dead").group)
        assert (owed.cause.kind, owed.cause.name) == (EXPIRY, "expiry in queue 'work'")
        assert (owed.cause.vhost, owed.cause.node) == ("/", "n1")
        network.session("dead").confirm(1)
        assert woken == []
        network.session("dead").confirm(1)
        assert woken == [network.source.group]
        assert not service.is_congested(network.source)
        service.release(network.source.group)
        assert owed.cause.account in network.ledger.accounts  # it owes something
        network.session("dead").confirm()
        network.ledger.sweep()
        assert owed.cause.account not in network.ledger.accounts
        service.stop()

    run(scenario)


def test_letters_sent_once_wait_for_the_end_of_an_alarm_while_there_is_room(
    service, network, letter, run, turns, monkeypatch
):
    size = int(letter(body=b"x" * 1000).byte_count)
    monkeypatch.setattr(module, "DEAD_LETTER_BYTES_MAX", 4 * size)

    async def scenario():
        network.block(True)
        assert service.is_congested(network.source)
        take(service, network, letter(body=b"1" * 1000), letter(body=b"2" * 1000))
        await turns()
        assert network.opened == []
        take(service, network, letter(body=b"3" * 1000))
        await turns()
        assert [body[:1] for body in network.session("dead").bodies] == [b"1"]
        network.block(False)
        await turns()
        assert [body[:1] for body in network.session("dead").bodies] == [b"1", b"2", b"3"]
        assert service.lost_count == 0
        service.stop()

    run(scenario)
