"""A log of which every node has a shard, for those who read it through this node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, Final, get_args

from headrace_broker.catalog.access import Caller, check_monitors
from headrace_broker.runtime.export.log import (
    Block,
    ExportError,
    Group,
    GroupListing,
    Shard,
    ShardListing,
    ShardUnavailableError,
    UnknownShardError,
)
from headrace_broker.runtime.rpc.correlator import Rpc
from headrace_broker.runtime.rpc.protocol import RpcError
from headrace_broker.runtime.telemetry.question import (
    AskClose,
    AskCommit,
    AskGroups,
    AskOpen,
    AskRows,
    AskShard,
    LogQuestion,
    Result,
    WireBlock,
    error_of,
    refusal_of,
)

ANSWER_SECONDS_MAX: Final = 10.0  # then a node counts as not answering; a slow disk takes seconds


class Nodes:
    """Puts questions to nodes by their names, and answers theirs."""

    def __init__(
        self,
        own: str,
        names: Mapping[int, str],
        answer: Callable[[LogQuestion], Awaitable[Result]],
        rpc: Rpc,
    ) -> None:
        self._own = own  # name of this node
        self._names = names  # of all nodes by id; they may change
        self._answer = answer  # answers a question about this node's logs
        self._rpc = rpc  # asks the others
        for kind in get_args(LogQuestion):
            rpc.serve(kind, lambda _, question: self._answered(question))

    async def _answered(self, question: LogQuestion) -> Any:
        try:
            found = await self._answer(question)
        except ExportError as error:
            raise refusal_of(error) from error
        if isinstance(found, list):
            return [WireBlock.of(each) if isinstance(each, Block) else each for each in found]
        return found

    def all(self) -> list[str]:
        """Return the names of all nodes, ascending."""
        return sorted({self._own, *self._names.values()})

    async def ask(self, name: str, question: LogQuestion) -> Any:
        """Return what a node answers.

        Raises ExportError: that which it answers, UnknownShardError where there is no such node.
        """
        node = self._rpc.node
        if name != self._own:
            node = next((each for each, other in self._names.items() if other == name), 0)
        if not node:
            raise UnknownShardError(f"there is no node '{name}'")
        try:
            found: Any = await self._rpc.ask(node, question, ANSWER_SECONDS_MAX)
        except RpcError as error:
            raise error_of(error) from error
        return [each.block() for each in found] if isinstance(question, AskRows) else found

    async def ask_all(self, question: LogQuestion) -> tuple[list[Any], tuple[str, ...]]:
        """Return what those nodes answer that do, and the names of the others."""
        names = self.all()
        answers = await asyncio.gather(*(self._asked(name, question) for name in names))
        found = [each for answer in answers if answer is not None for each in answer]
        silent = [name for name, each in zip(names, answers, strict=True) if each is None]
        return found, tuple(silent)

    async def _asked(self, name: str, question: LogQuestion) -> list[Any] | None:
        """Return the answer, nothing of a node without such a log, None of one that is silent."""
        try:
            return [await self.ask(name, question)]
        except UnknownShardError:
            return []
        except ShardUnavailableError:
            return None


class NodeLog:
    """See `ExportLog`; a shard has the name of its node."""

    def __init__(self, log: str, nodes: Nodes) -> None:
        self._log = log  # its name in stores
        self._nodes = nodes  # that have its shards

    def check(self, caller: Caller, shard: str) -> None:
        """Refuse, by ACCESS_REFUSED, who may not look at everything."""
        del shard  # all are alike
        check_monitors(caller)

    async def shards(self, caller: Caller, vhost: str = "", queue: str = "") -> ShardListing:
        """Return the shards of all nodes; none of them is a queue's."""
        del caller
        if vhost or queue:
            return ShardListing([])
        found, missing = await self._nodes.ask_all(AskShard(self._log))
        shards: list[Shard] = found
        return ShardListing(shards, missing)

    async def read(
        self, shard: str, incarnation: int, start: int, end: int
    ) -> AsyncGenerator[Block, None]:
        """Return blocks; see `ExportLog.read`."""
        index = start
        while True:
            question = AskRows(self._log, incarnation, index, end)
            blocks: list[Block] = await self._nodes.ask(shard, question)
            for block in blocks:
                yield block
            if not blocks or blocks[-1].end_index >= end:
                return  # who reads no row has been told as well whether the shard is the one meant
            index = blocks[-1].end_index

    async def open_group(self, shard: str, group: str, opener: bytes) -> Group:
        """Open a group; see `ExportLog.open_group`."""
        found: Group = await self._nodes.ask(shard, AskOpen(self._log, group, opener))
        return found

    async def commit(
        self, shard: str, group: str, epoch: int, incarnation: int, up_to: int
    ) -> Group:
        """Note how far a group has come; see `ExportLog.commit`."""
        question = AskCommit(self._log, group, epoch, incarnation, up_to)
        found: Group = await self._nodes.ask(shard, question)
        return found

    async def groups(self, caller: Caller, shard: str = "", group: str = "") -> GroupListing:
        """Return groups of one shard, or of all."""
        del caller
        question = AskGroups(self._log, group)
        if shard:
            return GroupListing(await self._nodes.ask(shard, question))
        found, missing = await self._nodes.ask_all(question)
        return GroupListing([each for groups in found for each in groups], missing)

    async def close_group(self, shard: str, group: str, epoch: int) -> None:
        """Forget a group; see `ExportLog.close_group`."""
        await self._nodes.ask(shard, AskClose(self._log, group, epoch))
