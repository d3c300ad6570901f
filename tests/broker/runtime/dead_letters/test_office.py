"""Letters that are sent once, and the bound on those that wait."""

from __future__ import annotations

import logging

import pytest

from headrace_broker.model.limits import TIMER_WAKES_MAX
from headrace_broker.runtime import dead_letter_office as module
from headrace_broker.runtime.dead_letter_office import DeadLetterOffice


@pytest.fixture
def office(network):
    """An office with a way from queue "work" to queue "dead"."""
    network.source = network.queue("work")
    network.arguments = {"dead-letter-exchange": "dlx"}
    network.queue("dead")
    network.exchange("dlx")
    network.bind("dlx", "dead")
    return DeadLetterOffice(network.router, network.carrier)


def take(office, network, *letters):
    office.take(network.source, network.arguments, list(letters))


def test_letters_are_sent_in_order_in_the_next_turn(office, network, letter, run, turns):
    async def scenario():
        take(office, network, letter(body=b"1"), letter(body=b"2"))
        assert network.opened == []
        take(office, network, letter(body=b"3"))
        await turns()
        assert network.session("dead").bodies == [b"1", b"2", b"3"]
        assert office.held_octets > 0
        network.session("dead").confirm()
        assert (office.sent_count, office.lost_count, office.held_octets) == (3, 0, 0)
        office.stop()

    run(scenario)


def test_many_letters_share_the_turns_of_the_loop(office, network, letter, run, turns):
    async def scenario():
        take(office, network, *[letter(n) for n in range(TIMER_WAKES_MAX + 1)])
        await turns(1)
        assert len(network.session("dead").sent) == TIMER_WAKES_MAX
        await turns(1)
        assert len(network.session("dead").sent) == TIMER_WAKES_MAX + 1
        office.stop()

    run(scenario)


def test_letter_that_goes_nowhere_is_dropped_counted_and_told_once(
    office, network, letter, run, turns, caplog
):
    async def scenario():
        network.arguments = {"dead-letter-exchange": "none"}
        take(office, network, letter(), letter())
        await turns()
        assert (office.lost_count, office.held_octets) == (2, 0)
        [record] = caplog.records
        assert record.levelno == logging.WARNING
        assert "'work'" in record.message
        assert "dropped, for its dead letter exchange does not exist" in record.message
        network.arguments = {"dead-letter-exchange": "dlx"}
        take(office, network, letter())
        await turns()
        network.arguments = {"dead-letter-exchange": "none"}
        take(office, network, letter())
        await turns()
        assert len(caplog.records) == 2
        office.stop()

    run(scenario)


def test_unroutable_letter_is_no_reason_to_warn(office, network, letter, run, turns, caplog):
    async def scenario():
        network.exchange("empty")
        network.arguments = {"dead-letter-exchange": "empty"}
        take(office, network, letter())
        await turns()
        assert office.lost_count == 1
        assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
        office.stop()

    run(scenario)


def test_refused_letter_is_lost(office, network, letter, run, turns):
    async def scenario():
        take(office, network, letter())
        await turns()
        network.session("dead").refuse()
        assert (office.sent_count, office.lost_count, office.held_octets) == (0, 1, 0)
        office.stop()

    run(scenario)


def test_what_finds_no_room_is_dropped_with_one_warning(
    office, network, letter, run, turns, caplog, monkeypatch
):
    size = int(letter(body=b"x" * 1000).octets)
    monkeypatch.setattr(module, "DEAD_LETTER_OCTETS_MAX", 3 * size)

    async def scenario():
        letters = [letter(n, body=b"%d" % n + b"x" * 999) for n in range(6)]
        assert not office.congested
        take(office, network, *letters)
        assert office.congested
        await turns()
        assert [body[:1] for body in network.session("dead").bodies] == [b"0", b"1", b"2"]
        assert (office.lost_count, office.held_octets) == (3, 3 * size)
        [record] = caplog.records
        assert "dead letters dropped, the last of queue 'work'" in record.message
        network.session("dead").confirm(2)
        assert not office.congested
        take(office, network, letter(body=b"x" * 1000))
        await turns()
        assert len(network.session("dead").sent) == 2
        office.stop()

    run(scenario)


def test_letter_larger_than_all_room_passes_alone(office, network, letter, run, turns, monkeypatch):
    monkeypatch.setattr(module, "DEAD_LETTER_OCTETS_MAX", 10)

    async def scenario():
        take(office, network, letter(body=b"x" * 1000), letter())
        await turns()
        assert len(network.session("dead").sent) == 1
        assert office.lost_count == 1
        office.stop()

    run(scenario)


def test_stopped_office_sends_nothing(office, network, letter, run, turns):
    async def scenario():
        take(office, network, letter())
        office.stop()
        take(office, network, letter())
        await turns()
        assert network.opened == []

    run(scenario)
