"""Three nodes that ask each other; a kind of question is answered when the test says so."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest
from tests.broker.runtime.rpc_links import Links

from headrace_broker.runtime.rpc.protocol import COMMANDS, Question, RpcError


class Double(Question[int], frozen=True, tag="double"):
    number: int


class Later(Question[str], frozen=True, tag="later"):
    text: str = ""


class Command(Question[str], frozen=True, tag="command"):
    pool: ClassVar[str] = COMMANDS
    text: str = ""


class Nodes:
    """Nodes 1 to 3; a `Later` is answered when the test says so."""

    def __init__(self, **how: bool) -> None:
        self.links = Links((1, 2, 3), **how)
        self.rpcs = self.links.rpcs
        self.working: list[Later | Command] = []
        self.go_on = asyncio.Event()
        for rpc in self.rpcs.values():
            rpc.serve(Double, lambda _, question: 2 * question.number)
            rpc.serve(Later, self._later)
            rpc.serve(Command, self._later)

    async def _later(self, _source: int, question: Later | Command) -> str:
        self.working.append(question)
        try:
            await self.go_on.wait()
        finally:
            self.working.remove(question)
        return question.text


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def failure_of(work: Any) -> RpcError:
    with pytest.raises(RpcError) as refused:
        await work
    return refused.value
