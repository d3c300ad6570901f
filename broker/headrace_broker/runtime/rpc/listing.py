"""Rows of one node, page by page, and of all nodes of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

from headrace_broker.model.limits import ANSWER_BYTES_MAX, LISTING_ROWS_MAX, LISTING_TURN_ROWS
from headrace_broker.runtime.contract.payload import MALFORMED
from headrace_broker.runtime.rpc.codec import ENCODER
from headrace_broker.runtime.rpc.correlator import Rpc
from headrace_broker.runtime.rpc.protocol import UNKNOWN, NoAnswerError, Question, RpcError


class Page(msgspec.Struct, frozen=True):
    """Some rows of a node."""

    rows: list[msgspec.Raw] = []  # one after the other, encoded
    # rows among these that are too large to be sent
    left_out: Annotated[int, msgspec.Meta(ge=0, le=LISTING_ROWS_MAX)] = 0
    more: bool = False  # there are rows after these


class Listing(Question[Page], frozen=True, kw_only=True):
    """A question about rows."""

    skip: Annotated[int, msgspec.Meta(ge=0)] = 0  # rows that the asker has already
    most: Annotated[int, msgspec.Meta(ge=1)] = LISTING_ROWS_MAX  # rows that it needs


class Found(NamedTuple):
    """Rows of all nodes that answered."""

    rows: list[Any]  # this node's, then the others'
    missing: tuple[str, ...]  # names of the nodes that did not answer
    left_out: int  # rows that were too large to be sent


class Asked(NamedTuple):
    """Question to other nodes."""

    question: Listing  # about all rows
    kind: Any  # type of a row
    rows_max: int = LISTING_ROWS_MAX  # most rows of each node, and of this one
    # for a node's whole answer; None for as long as each piece of it may take
    seconds: float | None = None


L = TypeVar("L", bound=Listing)


def serve_rows(rpc: Rpc, kind: type[L], rows: Callable[[L], Iterator[msgspec.Struct]]) -> None:
    """Answer one kind of listing.

    Args:
        rpc: answers other nodes.
        kind: of listing.
        rows: this node's rows, one after the other as they are needed.
    """

    def answer(_: int, question: L) -> Page:
        return _page(islice(rows(question), question.skip, None), question.most)

    rpc.serve(kind, answer)


def _page(rows: Iterable[msgspec.Struct], most: int) -> Page:
    """Return the first rows, as many as fit into an answer and `most` at most."""
    taken: list[msgspec.Raw] = []
    byte_count = left_out = 0
    for row in rows:
        encoded = ENCODER.encode(row)
        if len(encoded) > ANSWER_BYTES_MAX:
            left_out += 1
            continue
        byte_count += len(encoded)
        if byte_count > ANSWER_BYTES_MAX or len(taken) == most:
            return Page(taken, left_out, True)
        taken.append(msgspec.Raw(encoded))
    return Page(taken, left_out)


async def rows_of(
    rpc: Rpc, node: int, question: Listing, kind: Any, rows_max: int = LISTING_ROWS_MAX
) -> tuple[list[Any], int]:
    """Return a node's rows, at most `rows_max`, and how many were too large to be sent.

    Rows come and go meanwhile: one may be missed, or be in the list twice.

    Args:
        rpc: asks.
        node: who is asked.
        question: about all rows.
        kind: type of a row.
        rows_max: most rows.

    Raises RpcError: it did not answer, or refuses.
    """
    found: list[Any] = []
    left_out = 0
    while len(found) < rows_max:
        skip, most = len(found) + left_out, rows_max - len(found)
        following = msgspec.structs.replace(question, skip=skip, most=most)
        page = await rpc.ask(node, following)
        try:
            found += [msgspec.msgpack.decode(row, type=kind) for row in page.rows]
        except MALFORMED as error:
            text = f"a row of node {node} is not understood: {error}"
            raise NoAnswerError(UNKNOWN, text) from error
        left_out += page.left_out
        if not page.more or not page.rows:
            break
    return found[:rows_max], left_out


async def ask_everywhere(
    rpc: Rpc, peers: Mapping[int, str], asked: Asked, own: Iterable[Any]
) -> Found:
    """Return the rows of all nodes that answer; other work has its turn meanwhile.

    Args:
        rpc: asks the other nodes.
        peers: names of these by id; they may change meanwhile.
        asked: what they are asked.
        own: this node's rows.
    """
    rows: list[Any] = []
    for row in islice(own, asked.rows_max):
        rows.append(row)
        if len(rows) % LISTING_TURN_ROWS == 0:
            await asyncio.sleep(0)
    others = dict(peers)
    answers = await asyncio.gather(*(ask_node(rpc, peer, asked) for peer in others))
    missing: list[str] = []
    left_out = 0
    for name, answer in zip(others.values(), answers, strict=True):
        if answer is None:
            missing.append(name)
        else:
            rows += answer[0]
            left_out += answer[1]
    return Found(rows, tuple(missing), left_out)


async def ask_node(rpc: Rpc, peer: int, asked: Asked) -> tuple[list[Any], int] | None:
    """Return another node's rows, and how many were too large; None when it does not."""
    try:
        async with asyncio.timeout(asked.seconds):
            return await rows_of(rpc, peer, asked.question, asked.kind, asked.rows_max)
    except (RpcError, TimeoutError):
        return None
