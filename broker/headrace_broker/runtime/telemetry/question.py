"""Requests to the node that has a telemetry log, from itself or another node."""

from __future__ import annotations

from typing import Any, Final

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


class AskShard(msgspec.Struct, frozen=True, tag="shard"):
    """Request the readable range of a log."""

    log: str


class AskRows(msgspec.Struct, frozen=True, tag="rows"):
    """Which blocks hold these rows? The first ones of them will do."""

    log: str
    incarnation: int
    start: int
    end: int


class AskOpen(msgspec.Struct, frozen=True, tag="open"):
    """Open a group."""

    log: str
    group: str
    opener: bytes


class AskCommit(msgspec.Struct, frozen=True, tag="commit"):
    """Note how far a group has come."""

    log: str
    group: str
    epoch: int
    incarnation: int
    up_to: int


class AskGroups(msgspec.Struct, frozen=True, tag="groups"):
    """Request the positions of groups, or of one if named."""

    log: str
    group: str


class AskClose(msgspec.Struct, frozen=True, tag="close"):
    """Forget a group."""

    log: str
    group: str
    epoch: int


class WireBlock(msgspec.Struct, frozen=True, array_like=True):
    """A block on its way: its types are compiled, and say nothing of their fields to a decoder."""

    first_index: int
    version: int
    columns: tuple[tuple[str, int], ...]
    rows: int
    buffer_octets: tuple[int, ...]
    body: bytes
    body_octets: int
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
            columns.buffer_octets,
            columns.body,
            block.body_octets,
            block.deflated,
        )

    def block(self) -> Block:
        """Return the block that has travelled."""
        columns = ColumnBlock(self.rows, self.buffer_octets, self.body)
        schema = Schema(self.version, self.columns)
        return Block(self.first_index, schema, columns, self.body_octets, self.deflated)


Question = AskShard | AskRows | AskOpen | AskCommit | AskGroups | AskClose
Result = Shard | list[Block] | Group | list[Group] | None

_RESULTS: Final[dict[type[Question], Any]] = {
    AskShard: Shard,
    AskRows: list[WireBlock],
    AskOpen: Group,
    AskCommit: Group,
    AskGroups: list[Group],
    AskClose: type(None),
}


class Envelope(msgspec.Struct, frozen=True):
    """A question on its way."""

    request: int
    question: Question


class Answer(msgspec.Struct, frozen=True):
    """Answer of a node.

    Attributes:
        request: number of the question.
        result: of it, as its kind says.
        error: name of the error's class, "" for none.
        text: of the error.
        number: that it carries.
    """

    request: int
    result: msgspec.Raw = msgspec.Raw(b"\xc0")
    error: str = ""
    text: str = ""
    number: int = 0


_ENCODER: Final = msgspec.msgpack.Encoder()
_QUESTIONS: Final = msgspec.msgpack.Decoder(Envelope)
_ANSWERS: Final = msgspec.msgpack.Decoder(Answer)
_NUMBERS: Final = {
    OtherIncarnationError: "incarnation",
    DataGoneError: "first_index",
    NotYetError: "next_index",
    FencedError: "epoch",
}
_PLAIN: Final = (UnknownShardError, ShardUnavailableError, TooManyGroupsError, UnknownGroupError)
_BY_NAME: Final = {each.__name__: each for each in (*_PLAIN, *_NUMBERS)}


def encode_question(request: int, question: Question) -> bytes:
    """Return a question as octets."""
    return _ENCODER.encode(Envelope(request, question))


def decode_question(data: bytes) -> Envelope:
    """Return a question of another node.

    Raises:
        msgspec.DecodeError: it asks what this node does not understand.
    """
    return _QUESTIONS.decode(data)


def encode_result(request: int, result: Result) -> bytes:
    """Return an answer as octets."""
    if isinstance(result, list):
        wired = [WireBlock.of(each) if isinstance(each, Block) else each for each in result]
        return _ENCODER.encode(Answer(request, msgspec.Raw(_ENCODER.encode(wired))))
    return _ENCODER.encode(Answer(request, msgspec.Raw(_ENCODER.encode(result))))


def encode_error(request: int, error: ExportError) -> bytes:
    """Return a refusal as octets."""
    number = int(getattr(error, _NUMBERS.get(type(error), ""), 0))
    return _ENCODER.encode(
        Answer(request, error=type(error).__name__, text=str(error), number=number)
    )


def decode_answer(data: bytes) -> Answer:
    """Return another node's answer.

    Raises:
        msgspec.DecodeError: it is none.
    """
    return _ANSWERS.decode(data)


def result_of(question: Question, answer: Answer) -> Any:
    """Return what a node answers to a question.

    Raises:
        ExportError: that which it answers.
        msgspec.DecodeError: it answers something else.
    """
    if not answer.error:
        found = msgspec.msgpack.decode(answer.result, type=_RESULTS[type(question)])
        return [each.block() for each in found] if isinstance(question, AskRows) else found
    kind: Any = _BY_NAME.get(answer.error, ShardUnavailableError)
    raise kind(answer.text, answer.number) if kind in _NUMBERS else kind(answer.text)
