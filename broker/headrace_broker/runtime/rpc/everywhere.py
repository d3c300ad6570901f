"""One question about rows, to all nodes of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

from headrace_broker.model.limits import LISTING_ROWS_MAX, LISTING_TURN_ROWS
from headrace_broker.runtime.rpc.inquiry import Inquiries, Listing, NoAnswerError


class Found(NamedTuple):
    """Rows of all nodes that answered.

    Attributes:
        rows: this node's, then the others'.
        missing: names of the nodes that did not answer.
        left_out: rows that were too large to be sent.
    """

    rows: list[Any]
    missing: tuple[str, ...]
    left_out: int


class Asked(NamedTuple):
    """Question to other nodes.

    Attributes:
        question: about all rows.
        kind: type of a row.
        rows_max: most rows of each node, and of this one.
        seconds: for a node's whole answer; None for as long as each piece of it may take.
    """

    question: Listing
    kind: Any
    rows_max: int = LISTING_ROWS_MAX
    seconds: float | None = None


async def ask_everywhere(
    inquiries: Inquiries, peers: Mapping[int, str], asked: Asked, own: Iterable[Any]
) -> Found:
    """Return the rows of all nodes that answer; other work has its turn meanwhile.

    Args:
        inquiries: asks the other nodes.
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
    answers = await asyncio.gather(*(ask_node(inquiries, peer, asked) for peer in others))
    missing: list[str] = []
    left_out = 0
    for name, answer in zip(others.values(), answers, strict=True):
        if answer is None:
            missing.append(name)
        else:
            rows += answer[0]
            left_out += answer[1]
    return Found(rows, tuple(missing), left_out)


async def ask_node(inquiries: Inquiries, peer: int, asked: Asked) -> tuple[list[Any], int] | None:
    """Return another node's rows, and how many were too large; None when it does not answer."""
    try:
        async with asyncio.timeout(asked.seconds):
            return await inquiries.rows(peer, asked.question, asked.kind, asked.rows_max)
    except (NoAnswerError, TimeoutError):
        return None
