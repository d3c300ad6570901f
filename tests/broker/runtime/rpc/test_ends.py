"""Questions whose askers go before there is an answer, and answers that go wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, ClassVar

import msgspec
import pytest
from tests.broker.runtime.rpc_nodes import Command, Double, Later, Nodes, failure_of, turns

from headrace_broker.runtime.archive import archiving
from headrace_broker.runtime.backup.question import (
    ClosePoint,
    KeepPoint,
    OpenPoint,
    Probe,
    ReadPoint,
)
from headrace_broker.runtime.cluster.counts import AskCounts
from headrace_broker.runtime.contract.payload import encode
from headrace_broker.runtime.inspect.browsing import Browse
from headrace_broker.runtime.lease import leasing
from headrace_broker.runtime.lease.group_commands import ArchiveCommand, LeaseCommand
from headrace_broker.runtime.rpc import answering
from headrace_broker.runtime.rpc import correlator as module
from headrace_broker.runtime.rpc.protocol import (
    BACKUPS,
    BUSY,
    COMMANDS,
    FAILED,
    GONE,
    READS,
    SHORT,
    SILENT,
    Answer,
    Ask,
    Cancel,
    Question,
    RpcError,
)
from headrace_broker.runtime.rpc.question import Close, List
from headrace_broker.runtime.security.page_logins import Login
from headrace_broker.runtime.telemetry.question import AskRows

WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


async def cancelled(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await turns()


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(value))


def served(nodes: Nodes, handler: Callable[[], Any]) -> type[Question[Any]]:
    """Make node 2 answer a kind of question."""

    class Odd(Question[int], frozen=True, tag="odd"):
        pass

    nodes.rpcs[2].serve(Odd, lambda _, question: handler())
    return Odd


def test_work_ends_at_the_other_node_when_its_asker_goes() -> None:
    async def scenario() -> None:
        nodes = Nodes()
        for _ in range(3):
            asked = asyncio.ensure_future(nodes.rpcs[1].ask(2, Later()))
            await turns()
            assert len(nodes.working) == len(nodes.rpcs[2].answering._tasks) == 1
            await cancelled(asked)
            assert nodes.working == []
            assert len(nodes.rpcs[2].answering._tasks) == 0
        assert nodes.rpcs[1].outstanding == 0

    asyncio.run(scenario())


def test_a_question_and_its_cancellation_may_come_in_one_turn(recwarn: Any) -> None:
    async def scenario() -> None:
        nodes = Nodes(held=True)
        asked = asyncio.ensure_future(nodes.rpcs[1].ask(2, Later()))
        await turns()
        await cancelled(asked)
        nodes.links.carry()
        await turns()
        assert len(nodes.rpcs[2].answering._tasks) == 0
        assert nodes.links.sent == [(1, 2, "later"), (1, 2, "cancel")]

    asyncio.run(scenario())
    assert [str(each.message) for each in recwarn] == []


def test_only_the_asker_ends_its_question() -> None:
    async def scenario() -> None:
        nodes = Nodes()
        asked = asyncio.ensure_future(nodes.rpcs[1].ask(2, Later("a")))
        await turns()
        [number] = nodes.rpcs[1]._waiting
        nodes.links.deliver(3, 2, encode(Cancel(number)))
        nodes.links.deliver(1, 2, encode(Cancel(number + 1)))
        await turns()
        nodes.go_on.set()
        assert await asked == "a"

    asyncio.run(scenario())


def test_a_place_is_kept_until_the_deadline_when_the_node_cannot_be_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RPC_CALLER_QUESTIONS_MAX", 1)

    async def scenario() -> None:
        nodes = Nodes()
        rpc = nodes.rpcs[1]
        rpc._caller = lambda: "client"
        asked = asyncio.ensure_future(rpc.ask(2, Later(), 0.05))
        await turns()
        nodes.links.down = {2}
        await cancelled(asked)
        assert (await failure_of(rpc.ask(3, Double(1), 0.01))).failure == BUSY
        assert await rpc.ask(3, Double(1), 1) == 2

    asyncio.run(scenario())


def test_a_question_that_was_never_sent_had_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RPC_PEER_QUESTIONS_MAX", 1)

    async def scenario() -> None:
        nodes = Nodes()
        asked = asyncio.ensure_future(nodes.rpcs[1].ask(2, Later()))
        await turns()
        error = await failure_of(nodes.rpcs[1].ask(2, Double(1), 0.01))
        assert error.failure == BUSY
        assert "a question to node 2 had no turn within 0.01 s" in str(error)
        assert nodes.links.sent == [(1, 2, "later")]
        await cancelled(asked)

    asyncio.run(scenario())


def test_questions_of_one_pool_take_no_place_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in (module, answering):
        monkeypatch.setattr(each, "RPC_PEER_QUESTIONS_MAX", 2)
    monkeypatch.setattr(module, "RPC_CALLER_QUESTIONS_MAX", 2)

    async def scenario() -> None:
        nodes = Nodes()
        rpc = nodes.rpcs[1]
        rpc._caller = lambda: "client"
        asked = [asyncio.ensure_future(rpc.ask(2, Command())) for _ in range(3)]
        await turns()
        assert await rpc.ask(2, Double(1), 0.01) == 2
        asked.append(asyncio.ensure_future(rpc.ask(2, Later())))
        await turns()
        assert len(nodes.working) == 3
        nodes.go_on.set()
        await asyncio.gather(*asked)

    asyncio.run(scenario())


def test_questions_that_may_wait_for_long_have_pools_of_their_own() -> None:
    pools = {
        COMMANDS: (LeaseCommand, ArchiveCommand),
        READS: (Browse, leasing.Fetch, archiving.Fetch, AskRows),
        BACKUPS: (OpenPoint, ReadPoint, Probe),
        SHORT: (AskCounts, Login, Close, List, ClosePoint, KeepPoint),
    }
    for pool, kinds in pools.items():
        assert {kind.pool for kind in kinds} == {pool}


def test_an_answer_that_cannot_be_encoded_is_refused(caplog: Any) -> None:
    async def later() -> object:
        return object()

    async def scenario(handler: Callable[[], Any]) -> None:
        nodes = Nodes()
        error = await failure_of(nodes.rpcs[1].ask(2, served(nodes, handler)(), 0.1))
        assert error.failure == FAILED
        assert str(error).startswith("node 2 failed: NotImplementedError: object")

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario(object))
        asyncio.run(scenario(later))
    assert [each.getMessage() for each in caplog.records] == ["a question of node 1 failed"] * 2


def test_a_refusal_may_quote_any_bytes() -> None:
    def refuse() -> int:
        raise RpcError("odd", "no file \udcff")

    async def scenario() -> None:
        nodes = Nodes()
        error = await failure_of(nodes.rpcs[1].ask(2, served(nodes, refuse)(), 0.1))
        assert (error.failure, str(error)) == ("odd", "no file ?")

    asyncio.run(scenario())


def test_a_time_out_of_the_handler_s_own_is_a_failure() -> None:
    async def late() -> int:
        raise TimeoutError(110, "the disk is slow" + "x" * 5000)

    async def scenario() -> None:
        nodes = Nodes()
        error = await failure_of(nodes.rpcs[1].ask(2, served(nodes, late)(), 0.1))
        assert error.failure == FAILED
        assert str(error).startswith("node 2 failed: TimeoutError: [Errno 110] the disk is slowx")
        assert len(str(error)) < 300

    asyncio.run(scenario())


def test_what_is_not_understood_is_quoted_in_part() -> None:
    async def scenario() -> None:
        nodes = Nodes(held=True)
        nodes.rpcs[2].receive_ask(1, Ask(5, 1000, raw({"type": "x" * 5000})))
        [(_, _, data)] = nodes.links._held
        assert len(data) < 400

    asyncio.run(scenario())


def test_an_answer_that_comes_as_its_asker_goes_is_undone() -> None:
    async def scenario(number_of_turns: int) -> None:
        nodes = Nodes()
        rpc = nodes.rpcs[1]
        nodes.links.deaf = {2}
        undone: list[str] = []
        asked = asyncio.ensure_future(rpc.ask(2, Later(), 1, undone.append))
        await turns()
        [number] = rpc._waiting
        answer = Answer(number, raw("point"))
        if number_of_turns:
            rpc.receive_answer(2, answer)
            asked.cancel()
        else:
            asked.cancel()
            rpc.receive_answer(2, answer)
        await asyncio.gather(asked, return_exceptions=True)
        assert undone == ["point"]
        assert rpc.counts == {"late": 1}
        assert rpc._late == {}

    asyncio.run(scenario(0))
    asyncio.run(scenario(1))


def test_an_answer_after_a_link_that_flapped_is_undone() -> None:
    async def scenario() -> None:
        nodes = Nodes()
        rpc = nodes.rpcs[1]
        rpc.peer_changed(2, True, 5)
        undone: list[str] = []
        asked = asyncio.ensure_future(rpc.ask(2, Later("point"), 1, undone.append))
        await turns()
        rpc.peer_changed(2, False, 5)
        assert (await failure_of(asked)).failure == GONE
        rpc.peer_changed(2, True, 5)
        nodes.go_on.set()
        await turns()
        assert undone == ["point"]

    asyncio.run(scenario())


def test_work_for_a_process_that_is_gone_ends() -> None:
    async def scenario() -> None:
        nodes = Nodes()
        nodes.rpcs[2].peer_changed(1, True, 5)
        asked = asyncio.ensure_future(nodes.rpcs[1].ask(2, Later(), 1))
        await turns()
        for up, boot in ((False, 5), (True, 5)):
            nodes.rpcs[2].peer_changed(1, up, boot)
            await turns()
            assert len(nodes.working) == 1
        nodes.rpcs[2].peer_changed(1, False, 5)
        nodes.rpcs[2].peer_changed(1, True, 6)
        await turns()
        assert nodes.working == []
        await cancelled(asked)

    asyncio.run(scenario())


def test_questions_to_the_node_itself_are_not_counted() -> None:
    async def scenario() -> None:
        nodes = Nodes()
        assert (await failure_of(nodes.rpcs[1].ask(1, Later(), 0.01))).failure == SILENT
        assert nodes.rpcs[1].counts == {}

    asyncio.run(scenario())


def test_work_for_another_node_is_in_nobody_s_name() -> None:
    async def who() -> str:
        return WHO.get()

    class Who(Question[str], frozen=True, tag="who"):
        unused: ClassVar[int] = 0

    async def scenario() -> None:
        nodes = Nodes()
        nodes.rpcs[2].serve(Who, lambda _, question: who())
        WHO.set("a client")
        assert await nodes.rpcs[1].ask(2, Who()) == "nobody"

    asyncio.run(scenario())
