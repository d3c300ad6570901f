"""Questions to a queue's leader: which refusals are asked about again, and which are told."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.runtime.rpc_links import Links

from headrace_broker.model.definition import QUEUE_QUORUM, Queue
from headrace_broker.runtime.rpc import leader as module
from headrace_broker.runtime.rpc.leader import (
    NOT_LEADING,
    LeaderQuestion,
    Leaders,
    LeaderUnavailableError,
)
from headrace_broker.runtime.rpc.protocol import FAILED, TOO_LARGE, UNKNOWN, NoAnswerError, RpcError

QUEUE = Queue("/", "work", QUEUE_QUORUM, 7, (1, 2))


class Look(LeaderQuestion[int], frozen=True, tag="look"):
    pass


class World:
    """Node 2 leads a queue and answers or refuses; node 1 asks."""

    def __init__(self, *refusals: RpcError) -> None:
        self.asked = 0
        self.refusals = list(refusals)
        self.links = Links((1, 2), soon=True)
        host: Any = SimpleNamespace(serving=True, queue=QUEUE, log=None)
        self.hosts = {7: host}
        self.leaders = {
            node: Leaders(rpc, self.hosts if node == 2 else {}, lambda q: 2, lambda q: True)
            for node, rpc in self.links.rpcs.items()
        }
        for each in self.leaders.values():
            each.serve(Look, lambda _, question: self._answer())

    def _answer(self) -> int:
        self.asked += 1
        if self.refusals:
            raise self.refusals.pop(0)
        return 5


def ask(world: World, slots: asyncio.Semaphore | None = None) -> int:
    return asyncio.run(world.leaders[1].ask(QUEUE, Look(7), slots))


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(module, "ATTEMPT_SECONDS", 0.02)
    monkeypatch.setattr(module, "ANSWER_SECONDS_MAX", 0.1)


@pytest.mark.parametrize("failure", [UNKNOWN, TOO_LARGE])
def test_a_refusal_that_stays_is_told_at_once(failure: str) -> None:
    world = World(NoAnswerError(failure, "because"))
    with pytest.raises(LeaderUnavailableError) as refused:
        ask(world)
    assert str(refused.value) == "no leader of queue 'work' answers: because"
    assert world.asked == 1


def test_a_failure_is_asked_about_once_more() -> None:
    world = World(NoAnswerError(FAILED, "first"), NoAnswerError(FAILED, "second"))
    with pytest.raises(LeaderUnavailableError) as refused:
        ask(world)
    assert str(refused.value) == "no leader of queue 'work' answers: second"
    assert world.asked == 2
    assert ask(World(NoAnswerError(FAILED, "first"))) == 5


def test_the_last_reason_is_told_when_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(*[RpcError(module.NOT_NOW, "the log takes no more now")] * 1000)
    with pytest.raises(LeaderUnavailableError) as refused:
        ask(world)
    assert str(refused.value).endswith("answers: the log takes no more now")
    assert world.asked > 2


def test_the_wait_for_a_place_counts() -> None:
    world = World()
    with pytest.raises(LeaderUnavailableError) as refused:
        ask(world, asyncio.Semaphore(0))
    text = "a question to the leader of queue 'work' had no turn: too many others wait"
    assert str(refused.value) == text
    assert world.asked == 0
    slots = asyncio.Semaphore(1)
    assert ask(world, slots) == 5
    assert not slots.locked()


def test_a_reader_whose_queue_is_led_again_is_refused_with_the_leader() -> None:
    """The replica that was read is another one by then: no object of the node is an answer."""
    world = World()

    class Read(LeaderQuestion[int], frozen=True, tag="read"):
        pass

    old: Any = world.hosts[7]
    old.log = SimpleNamespace(give_up=lambda landed: None)

    def cut(host: Any, entries: Any, question: Read) -> int:
        entries.missing[1] = None
        world.hosts[7] = SimpleNamespace(serving=True, queue=QUEUE)
        return 5

    world.leaders[2].serve_reading(Read, cut)
    with pytest.raises(RpcError) as refused:
        asyncio.run(world.links.rpcs[1].ask(2, Read(7)))
    assert (refused.value.failure, refused.value.detail) == (NOT_LEADING, 2)
