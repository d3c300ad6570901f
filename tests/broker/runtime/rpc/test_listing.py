"""Listings of nodes that say what they should not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.broker.runtime.rpc_links import Links

from headrace_broker.model.limits import LISTING_ROWS_MAX
from headrace_broker.runtime.rpc.listing import (
    Asked,
    Listing,
    Page,
    ask_everywhere,
    rows_of,
    serve_rows,
)
from headrace_broker.runtime.rpc.protocol import UNKNOWN, RpcError


class Numbers(Listing, frozen=True, tag="numbers"):
    pass


def links_with(answer: Any) -> Links:
    """Return nodes 1 and 2; node 2 answers so, or refuses."""
    links = Links((1, 2))

    def handler(_source: int, _question: Numbers) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    links.rpcs[2].serve(Numbers, handler)
    return links


def everywhere(answer: Any) -> Any:
    async def look() -> Any:
        async with asyncio.timeout(5):
            rpc = links_with(answer).rpcs[1]
            return await ask_everywhere(rpc, {2: "n2"}, Asked(Numbers(), int), [1])

    return asyncio.run(look())


@pytest.mark.parametrize("left_out", [-1, LISTING_ROWS_MAX + 1, 2**64 - 1])
def test_a_node_that_leaves_out_an_impossible_number_is_missing(left_out: int) -> None:
    found = everywhere({"rows": [], "left_out": left_out, "more": True})
    assert found == ([1], ("n2",), 0)


@pytest.mark.parametrize("left_out", [0, 1])
def test_pages_without_rows_end_a_listing(left_out: int) -> None:
    links = links_with(Page([], left_out, True))
    found = asyncio.run(rows_of(links.rpcs[1], 2, Numbers(), int))
    assert found == ([], left_out)
    assert len(links.sent) == 2


def test_a_node_that_refuses_is_missing() -> None:
    assert everywhere(RpcError("odd", "no")) == ([1], ("n2",), 0)


def test_rows_are_not_skipped_backwards() -> None:
    links = links_with(Page())
    with pytest.raises(RpcError) as refused:
        asyncio.run(links.rpcs[1].ask(2, Numbers(skip=-1)))
    assert refused.value.failure == UNKNOWN


def test_no_more_rows_are_made_than_are_needed() -> None:
    links = Links((1, 2))
    made: list[int] = []

    class Row(msgspec.Struct, frozen=True):
        number: int

    def rows(_question: Numbers) -> Iterator[msgspec.Struct]:
        for number in range(9):
            made.append(number)
            yield Row(number)

    serve_rows(links.rpcs[2], Numbers, rows)
    found, _ = asyncio.run(rows_of(links.rpcs[1], 2, Numbers(), Row, 3))
    assert found == [Row(0), Row(1), Row(2)]
    assert made == [0, 1, 2, 3]  # one more, to know that there are more
    assert len(links.sent) == 2
    found, _ = asyncio.run(rows_of(links.rpcs[1], 2, Numbers(), Row))
    assert len(found) == 9


def test_a_page_of_rows_is_read() -> None:
    rows = [msgspec.Raw(msgspec.msgpack.encode(n)) for n in (2, 3)]
    assert everywhere(Page(rows, 1)) == ([1, 2, 3], (), 1)
