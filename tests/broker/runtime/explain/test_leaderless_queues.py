"""Queues without a leader, as a node knows them, in its explanations; no sockets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.broker.runtime.flow_world import World, bring

from headrace_broker.catalog.viewer import EVERYBODY, Viewer
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.management.view.flow_rendering import render_explanation
from headrace_broker.model.definition import Queue
from headrace_broker.model.flow import BLOCKING, LIMIT_CREDIT
from headrace_broker.model.flow_status import Explanation
from headrace_broker.runtime.explain.leaderless_queues import LeaderlessQueues
from headrace_broker.runtime.session.reachability import LeaderView, Reachability


class Logs:
    """Knows no leader."""

    def leader(self, group: int) -> int:
        return 0


class Session:
    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.answered = False


class Lost:
    """A queue whose nodes are gone, seen from n1, where one publishes."""

    def __init__(self) -> None:
        self.world = World()
        host = self.world.lead(2, "live")
        self.queue = host.queue
        self.publisher = self.world.connect(1, 5)
        bring(self.publisher, host, 3, 300, kept=3)
        self.world.links.down = {2, 3}
        self.now_ms = 1000
        limits = FlowLimits()
        limits.leaderless_ms = 60_000
        leaders = LeaderView(1, Logs(), {}, {}, {2: 0, 3: 0})
        self.reachability = Reachability(limits, leaders.has_leader, lambda: self.now_ms)
        found = LeaderlessQueues(leaders, self.reachability, limits, {2: "n2", 3: "n3"})
        self.world.nodes[1].facts.leaderless = found.find

    def poll(self) -> None:
        session: Any = Session(self.queue)
        self.reachability.poll({self.queue.group: {1: session}})

    def why(self, name: str, viewer: Viewer = EVERYBODY) -> Explanation:
        return asyncio.run(self.world.nodes[1].report.why(name, "/", viewer))


@pytest.fixture
def lost() -> Lost:
    return Lost()


REASON = (
    "queue 'live' (vhost /) has had no leader that can be reached for 12 s: its publishes wait "
    "for one and are refused after leaderless-ms, 60 s; its only replica is down or cut off (n2)"
)


def test_a_queue_is_explained_by_the_leader_that_it_lacks(lost: Lost) -> None:
    lost.poll()
    lost.now_ms += 12_000
    found = lost.why("live")
    assert (found.sentence, found.limit) == (REASON, "leaderless")
    body = render_explanation(found, lost.world.catalog)
    assert body["leader"] is None
    assert body["details"]["leaderless"] == {
        "vhost": "/", "name": "live", "since_ms": 12_000, "refused_after_ms": 60_000,
        "replicas": 1, "down": ("n2",),
    }  # fmt: skip


def test_a_queue_that_no_session_here_uses_has_no_leader_for_a_time_that_is_not_known(
    lost: Lost,
) -> None:
    assert lost.why("live").sentence.startswith("queue 'live' (vhost /) has no leader that can be")


def test_a_connection_is_explained_by_the_queue_that_its_publishes_wait_at(lost: Lost) -> None:
    lost.poll()
    lost.now_ms += 12_000
    found = lost.why(lost.publisher.id)
    assert found.sentence.endswith(f" has messages that wait: {REASON}")
    assert (found.limit, found.queue) == ("leaderless", "live")


def test_a_hidden_queue_without_a_leader_is_not_named(lost: Lost) -> None:
    viewer = Viewer("app", False, lambda vhost: False)
    found = asyncio.run(lost.world.nodes[1].report.why_connection(lost.publisher.id, viewer))
    assert " has messages that wait: a queue of another vhost has no leader " in found.sentence
    assert "live" not in f"{found}"
    assert "n2" not in f"{found.sentence}{found.details}"


def test_what_stops_a_connection_now_counts_before_a_leader_that_it_waits_for(lost: Lost) -> None:
    lost.publisher.flow.stop(LIMIT_CREDIT, 0, lost.world.now)
    lost.world.pass_time(0.5)
    assert lost.why(lost.publisher.id).limit == "credit"


def test_a_connection_that_an_alarm_waits_for_is_told_of_the_alarm(lost: Lost) -> None:
    lost.publisher.state = BLOCKING
    assert "may not publish" in lost.why(lost.publisher.id).sentence


def test_a_leader_that_answers_is_believed(lost: Lost) -> None:
    lost.world.links.down = set()
    found = lost.why("live")
    assert (found.limit, found.leader) == ("", "n2")
