"""Requests to the node that has a telemetry log, from itself or another node."""

from __future__ import annotations

from typing import Any, ClassVar, Final

import msgspec

from headrace_broker.codecs.column_block import ColumnBlock, Schema
from headrace_broker.runtime.export.log import (
    Block,
    DataGoneError,
    ExportError,
    FencedError,
    Group,
    NotYetError,
    OtherIncarnationError,
    Shard,
    ShardUnavailableError,
    TooManyGroupsError,
    UnknownGroupError,
    UnknownShardError,
)
from headrace_broker.runtime.rpc.protocol import NO_ANSWER, READS, Question, RpcError


class WireBlock(msgspec.Struct, frozen=True, array_like=True):
    """A block on its way: its types are compiled, and say nothing of their fields to a decoder."""

    first_index: int
    version: int
    columns: tuple[tuple[str, int], ...]
    rows: int
    buffer_bytes: tuple[int, ...]
    body: bytes
    body_bytes: int
    deflated: bool

    @staticmethod
    def of(block: Block) -> WireBlock:
        """Return a block as it travels."""
        schema, columns = block.schema, block.columns
        return WireBlock(
            block.first_index,
            schema.version,
            schema.columns,
            columns.rows,
            columns.buffer_bytes,
            columns.body,
            block.body_bytes,
            block.deflated,
        )

    def block(self) -> Block:
        """Return the block that has travelled."""
        columns = ColumnBlock(self.rows, self.buffer_bytes, self.body)
        schema = Schema(self.version, self.columns)
        return Block(self.first_index, schema, columns, self.body_bytes, self.deflated)


class AskShard(Question[Shard], frozen=True, tag="telemetry_shard"):
    """Request the readable range of a log."""

    log: str


class AskRows(Question[list[WireBlock]], frozen=True, tag="telemetry_rows"):
    """Which blocks hold these rows? The first ones of them will do."""

    pool: ClassVar[str] = READS
    log: str
    incarnation: int
    start: int
    end: int


class AskOpen(Question[Group], frozen=True, tag="telemetry_open"):
    """Open a group."""

    log: str
    group: str
    opener: bytes


class AskCommit(Question[Group], frozen=True, tag="telemetry_commit"):
    """Note how far a group has come."""

    log: str
    group: str
    epoch: int
    incarnation: int
    up_to: int


class AskGroups(Question[list[Group]], frozen=True, tag="telemetry_groups"):
    """Request the positions of groups, or of one if named."""

    log: str
    group: str


class AskClose(Question[None], frozen=True, tag="telemetry_close"):
    """Forget a group."""

    log: str
    group: str
    epoch: int


LogQuestion = AskShard | AskRows | AskOpen | AskCommit | AskGroups | AskClose
Result = Shard | list[Block] | Group | list[Group] | None

_NUMBERS: Final = {
    OtherIncarnationError: "incarnation",
    DataGoneError: "first_index",
    NotYetError: "next_index",
    FencedError: "epoch",
}
_PLAIN: Final = (UnknownShardError, ShardUnavailableError, TooManyGroupsError, UnknownGroupError)
_BY_NAME: Final = {each.__name__: each for each in (*_PLAIN, *_NUMBERS)}


def refusal_of(error: ExportError) -> RpcError:
    """Return an error as it travels."""
    number = int(getattr(error, _NUMBERS.get(type(error), ""), 0))
    return RpcError(type(error).__name__, str(error), number)


def error_of(refusal: RpcError) -> ExportError:
    """Return an error that has travelled; a node that does not answer has no shard now."""
    if refusal.failure in NO_ANSWER:
        return ShardUnavailableError(f"its node gives no answer: {refusal}")
    kind: Any = _BY_NAME.get(refusal.failure, ShardUnavailableError)
    found: ExportError = (
        kind(str(refusal), refusal.detail) if kind in _NUMBERS else kind(str(refusal))
    )
    return found
