"""Sessions by which dead letters are sent, and what their publishes are told."""

from __future__ import annotations

import asyncio

import pytest

from headrace_broker.flow.charges import NO_CAUSE
from headrace_broker.model.message import Publish
from headrace_broker.runtime.dead_letter import publisher as module
from headrace_broker.runtime.dead_letter.publisher import DeadLetterPublish


class Told(DeadLetterPublish):
    def __init__(self):
        super().__init__(NO_CAUSE, 10)
        self.count = 0

    def done(self):
        self.count += 1


def publish(body=b"x"):
    return Publish(0, b"\x00\x00", False, False, b"\x00\x00", body)


def send(network, dead_publish, *names, body=b"x"):
    queues = [network.catalog.queue("/", name) for name in names]
    network.publisher.send(publish(body), queues, dead_publish)


@pytest.fixture
def hurried(monkeypatch):
    """Close sessions as soon as they have nothing to do."""
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.0)


def test_dead_publish_is_told_once_all_queues_have_answered(network, run):
    async def scenario():
        for name in ("a", "b"):
            network.queue(name)
        dead_publish = Told()
        send(network, dead_publish, "a", "b")
        assert network.session("a").sent == []
        network.publisher.flush()
        assert network.session("a").bodies == [b"x"]
        network.session("a").confirm()
        assert dead_publish.count == 0
        network.session("b").confirm()
        assert dead_publish.count == 1
        assert (len(dead_publish.arrived), dead_publish.failed) == (2, [])
        network.publisher.stop()

    run(scenario)


def test_refusal_by_one_queue_does_not_count_for_another(network, run):
    async def scenario():
        groups = {name: network.queue(name).group for name in ("a", "b")}
        dead_publish = Told()
        send(network, dead_publish, "a", "b")
        network.publisher.flush()
        network.session("a").refuse()
        network.session("b").confirm()
        assert (dead_publish.arrived, dead_publish.failed) == ([groups["b"]], [groups["a"]])
        network.publisher.stop()

    run(scenario)


def test_what_a_deleted_queue_confirms_has_not_arrived(network, run, turns):
    async def scenario():
        group = network.queue("a").group
        dead_publish = Told()
        send(network, dead_publish, "a")
        network.session("a").delete()
        assert (dead_publish.count, dead_publish.failed) == (1, [group])
        await turns()
        assert len(network.publisher._lines) == 0
        network.publisher.stop()

    run(scenario)


def test_session_is_kept_for_the_next_letter(network, run):
    async def scenario():
        network.queue("a")
        for _ in range(3):
            send(network, Told(), "a")
            network.publisher.flush()
            network.session("a").confirm()
        assert len(network.opened) == 1
        assert len(network.publisher._publishes) == 0
        network.publisher.stop()

    run(scenario)


def test_idle_session_is_closed_and_a_busy_one_is_not(network, run, hurried):
    async def scenario():
        for name in ("a", "b"):
            network.queue(name)
            send(network, Told(), name)
        network.publisher.flush()
        network.session("a").confirm()
        for _ in range(1000):
            await asyncio.sleep(0)
            if len(network.publisher._lines) == 1:
                break
        closed = {session.queue.name: session.closed for session in network.opened}
        assert closed == {"a": True, "b": False}
        send(network, Told(), "a")
        network.publisher.flush()
        assert network.session("a").bodies == [b"x"]
        network.publisher.stop()

    run(scenario)


def test_sessions_are_bounded_and_the_longest_idle_goes(network, run, turns, monkeypatch):
    monkeypatch.setattr(module, "DEAD_LETTER_SESSIONS_MAX", 2)

    async def scenario():
        for name in ("a", "b", "c"):
            network.queue(name)
            send(network, Told(), name)
            network.publisher.flush()
            network.session(name).confirm()
        await turns()
        assert [each.queue.name for each in network.opened if not each.closed] == ["b", "c"]
        network.publisher.stop()

    run(scenario)
