"""Questions between nodes: who is answered, who is refused, and what is dropped."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.runtime.rpc_nodes import Double, Later, Nodes, failure_of, turns

from headrace_broker.runtime.contract.payload import encode
from headrace_broker.runtime.rpc import answering
from headrace_broker.runtime.rpc import correlator as module
from headrace_broker.runtime.rpc.correlator import Rpc
from headrace_broker.runtime.rpc.protocol import (
    BUSY,
    FAILED,
    GONE,
    SILENT,
    TOO_LARGE,
    UNKNOWN,
    UNREACHABLE,
    Answer,
    Ask,
    NoAnswerError,
    Question,
    RpcError,
)


def test_every_node_answers_at_once_or_soon() -> None:
    async def scenario() -> None:
        nodes = Nodes()
        for node in (1, 2, 3):
            assert await nodes.rpcs[1].ask(node, Double(node)) == 2 * node
        asked = [asyncio.ensure_future(nodes.rpcs[1].ask(n, Later(f"of {n}"))) for n in (1, 2)]
        await turns()
        assert [question.text for question in nodes.working] == ["of 1", "of 2"]
        nodes.go_on.set()
        assert await asyncio.gather(*asked) == ["of 1", "of 2"]
        assert nodes.rpcs[1].outstanding == 0
        assert nodes.rpcs[1].counts == {"answered": 3}

    asyncio.run(scenario())


def test_a_refusal_comes_with_its_text_and_a_number() -> None:
    async def scenario() -> None:
        nodes = Nodes()

        class Closed(Question[int], frozen=True, tag="closed"):
            pass

        def refuse(_source: int, _question: Closed) -> int:
            raise RpcError("closed", "it is closed", 7)

        nodes.rpcs[2].serve(Closed, refuse)
        error = await failure_of(nodes.rpcs[1].ask(2, Closed()))
        assert (error.failure, str(error), error.detail) == ("closed", "it is closed", 7)
        assert not isinstance(error, NoAnswerError)
        # Node 3 is of a release without such questions.
        error = await failure_of(nodes.rpcs[1].ask(3, Closed()))
        assert (error.failure, type(error)) == (UNKNOWN, NoAnswerError)
        assert "node 3 does not understand the question" in str(error)
        assert "'closed'" in str(error)

    asyncio.run(scenario())


def test_a_handler_that_fails_is_a_refusal_and_in_the_log(caplog: Any) -> None:
    async def scenario() -> None:
        nodes = Nodes()

        class Broken(Question[int], frozen=True, tag="broken"):
            late: bool = False

        async def fail_late() -> int:
            raise KeyError("gone")

        def fail(_source: int, question: Broken) -> Any:
            if question.late:
                return fail_late()
            raise KeyError("gone")

        nodes.rpcs[2].serve(Broken, fail)
        for late in (False, True):
            error = await failure_of(nodes.rpcs[1].ask(2, Broken(late)))
            assert (error.failure, str(error)) == (FAILED, "node 2 failed: KeyError: 'gone'")

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert [each.getMessage() for each in caplog.records] == ["a question of node 1 failed"] * 2


def test_a_node_that_is_down_silent_or_goes_gives_no_answer() -> None:
    async def scenario() -> None:
        nodes = Nodes()
        rpc = nodes.rpcs[1]
        nodes.links.down = {2}
        assert (await failure_of(rpc.ask(2, Double(1)))).failure == UNREACHABLE
        nodes.links.deaf = {3}
        error = await failure_of(rpc.ask(3, Double(1), 0.01))
        assert (error.failure, str(error)) == (SILENT, "node 3 does not answer within 0.01 s")
        asked = asyncio.ensure_future(rpc.ask(3, Double(1)))
        await turns()
        rpc.peer_changed(2, False, 0)
        await turns()
        assert not asked.done()
        rpc.peer_changed(3, False, 0)
        assert (await failure_of(asked)).failure == GONE
        assert rpc.outstanding == 0
        assert rpc.counts == {UNREACHABLE: 1, SILENT: 1, GONE: 1}

    asyncio.run(scenario())


def test_a_node_that_comes_back_as_another_process_does_not_answer_the_one_before() -> None:
    async def scenario() -> None:
        nodes = Nodes()
        rpc = nodes.rpcs[1]
        rpc.peer_changed(2, True, 5)
        asked = asyncio.ensure_future(rpc.ask(2, Later()))
        await turns()
        rpc.peer_changed(2, True, 5)  # another link of the same process
        await turns()
        assert not asked.done()
        rpc.peer_changed(2, True, 6)
        assert (await failure_of(asked)).failure == GONE

    asyncio.run(scenario())


def test_only_the_node_that_was_asked_answers_and_once() -> None:
    async def scenario() -> None:
        nodes = Nodes()
        rpc = nodes.rpcs[1]
        nodes.links.deaf = {2}
        asked = asyncio.ensure_future(rpc.ask(2, Double(1)))
        await turns()
        [number] = rpc._waiting
        rpc.receive_answer(3, Answer(number, msgspec.Raw(msgspec.msgpack.encode(3))))
        rpc.receive_answer(2, Answer(number - 1, msgspec.Raw(msgspec.msgpack.encode(4))))
        rpc.receive_answer(2, Answer(number, msgspec.Raw(msgspec.msgpack.encode(5))))
        rpc.receive_answer(2, Answer(number, msgspec.Raw(msgspec.msgpack.encode(6))))
        assert await asked == 5
        rpc.receive_answer(2, Answer(number, msgspec.Raw(msgspec.msgpack.encode(7))))
        assert rpc.counts["late"] == 4

    asyncio.run(scenario())


def test_numbers_of_another_process_are_others() -> None:
    numbers = {Rpc(1, lambda node, data: True)._next for _ in range(20)}
    assert len(numbers) == 20


def test_an_answer_that_is_not_understood_is_said_so() -> None:
    async def scenario() -> None:
        nodes = Nodes()
        rpc = nodes.rpcs[1]
        nodes.links.deaf = {2}
        asked = asyncio.ensure_future(rpc.ask(2, Double(1)))
        await turns()
        [number] = rpc._waiting
        rpc.receive_answer(2, Answer(number, msgspec.Raw(msgspec.msgpack.encode("text"))))
        error = await failure_of(asked)
        assert error.failure == UNKNOWN
        assert "the answer of node 2 is not understood: Expected `int`, got `str`" in str(error)
        assert await rpc.ask(3, Double(2)) == 4

    asyncio.run(scenario())


def test_what_is_too_large_is_refused_on_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        nodes = Nodes()
        rpc = nodes.rpcs[1]
        nodes.go_on.set()
        monkeypatch.setattr(answering, "PAYLOAD_BYTES_MAX", 100)
        error = await failure_of(rpc.ask(2, Later("x" * 100)))
        assert error.failure == TOO_LARGE
        assert "the maximum is 100" in str(error)
        for each in (module, answering):
            monkeypatch.setattr(each, "RPC_QUESTION_BYTES_MAX", 90)
        assert (await failure_of(rpc.ask(2, Later("x" * 100)))).failure == TOO_LARGE
        sent = len(nodes.links.sent)
        question = msgspec.msgpack.encode(Later("x" * 100))
        nodes.links.deliver(1, 2, encode(Ask(5, 1000, msgspec.Raw(question))))
        assert nodes.links.sent[sent:] == [(2, 1, "answer")]
        assert nodes.working == []

    asyncio.run(scenario())


def test_a_handler_is_given_up_when_nobody_waits_for_it() -> None:
    async def scenario() -> None:
        nodes = Nodes()
        assert (await failure_of(nodes.rpcs[1].ask(2, Later(), 0.01))).failure == SILENT
        await turns()
        assert nodes.rpcs[2].answering._tasks == {}
        assert nodes.links.sent == [(1, 2, "later"), (1, 2, "cancel")]

    asyncio.run(scenario())


def test_questions_of_one_client_wait_for_each_other_and_for_no_one_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RPC_CALLER_QUESTIONS_MAX", 2)
    caller = ""

    async def scenario() -> None:
        nonlocal caller
        nodes = Nodes()
        rpc = nodes.rpcs[1]
        rpc._caller = lambda: caller
        caller = "greedy"
        asked = [asyncio.ensure_future(rpc.ask(2, Later())) for _ in range(5)]
        await turns()
        assert len(nodes.working) == 2
        caller = "other"
        assert await rpc.ask(2, Double(3)) == 6
        caller = ""
        assert await rpc.ask(2, Double(4)) == 8
        nodes.go_on.set()
        await asyncio.gather(*asked)

    asyncio.run(scenario())


def test_questions_to_one_node_are_bounded_on_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in (module, answering):
        monkeypatch.setattr(each, "RPC_PEER_QUESTIONS_MAX", 2)

    async def scenario() -> None:
        nodes = Nodes()
        rpc = nodes.rpcs[1]
        rpc._caller = lambda: "client"
        asked = [asyncio.ensure_future(rpc.ask(2, Later())) for _ in range(3)]
        await turns()
        assert len(nodes.working) == 2
        assert await rpc.ask(3, Double(1)) == 2
        # A node that does not bound what it asks has the rest refused.
        nodes.rpcs[2].receive_ask(1, Ask(7, 1000, msgspec.Raw(msgspec.msgpack.encode(Later()))))
        assert nodes.links.sent[-1] == (2, 1, "answer")
        assert rpc.counts["late"] == 1
        assert len(nodes.working) == 2
        nodes.go_on.set()
        await asyncio.gather(*asked)

    asyncio.run(scenario())


def test_a_busy_node_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        nodes = Nodes()
        asked = asyncio.ensure_future(nodes.rpcs[1].ask(2, Later()))
        await turns()
        monkeypatch.setattr(answering, "RPC_PEER_QUESTIONS_MAX", 1)
        error = await failure_of(nodes.rpcs[1].ask(2, Later()))
        assert (error.failure, type(error)) == (BUSY, NoAnswerError)
        assert await nodes.rpcs[1].ask(2, Double(1)) == 2  # at once, and takes no place
        nodes.go_on.set()
        await asked

    asyncio.run(scenario())


def test_a_late_answer_is_taken_by_who_has_to_undo_something() -> None:
    async def scenario() -> None:
        nodes = Nodes()
        rpc = nodes.rpcs[1]
        late: list[str] = []
        nodes.links.deaf = {2}
        for _ in range(3):
            await failure_of(rpc.ask(2, Later(), 0.001, late.append))
        first, second, third = rpc._late
        text = msgspec.Raw(msgspec.msgpack.encode("late"))
        rpc.receive_answer(3, Answer(first, text))
        assert late == []
        rpc.receive_answer(2, Answer(first, text))
        rpc.receive_answer(2, Answer(first, text))
        rpc.receive_answer(2, Answer(second, failure="closed"))
        assert late == ["late"]
        assert rpc.counts == {SILENT: 3, "late": 4}
        rpc.peer_changed(2, True, 5)
        rpc.peer_changed(2, True, 6)
        rpc.receive_answer(2, Answer(third, text))
        assert late == ["late"]
        assert rpc._late == {}

    asyncio.run(scenario())


def test_a_node_that_stops_answers_nobody() -> None:
    async def scenario() -> None:
        nodes = Nodes()
        asked = asyncio.ensure_future(nodes.rpcs[1].ask(2, Later(), 0.05))
        await turns()
        await nodes.rpcs[2].stop()
        assert nodes.rpcs[2].answering._tasks == {}
        nodes.links.deliver(
            1, 2, encode(Ask(5, 1000, msgspec.Raw(msgspec.msgpack.encode(Later()))))
        )
        assert nodes.links.sent == [(1, 2, "later")]
        assert nodes.rpcs[2].answering._tasks == {}
        assert (await failure_of(asked)).failure == SILENT

    asyncio.run(scenario())


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_or_answered_and_hurt_nobody(data: bytes) -> None:
    async def scenario() -> None:
        nodes = Nodes()
        nodes.go_on.set()
        nodes.rpcs[2].receive_ask(1, Ask(0, 1000, msgspec.Raw(data)))
        nodes.rpcs[1].receive_answer(2, Answer(5, msgspec.Raw(data)))
        assert await nodes.rpcs[1].ask(2, Double(1)) == 2

    asyncio.run(scenario())
