"""Advice that is given, told and taken back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import grpc
import pytest

from headrace_client import AdviceItem, PreconditionError, advice
from headrace_client.limits import ADVICE_ITEMS_MAX
from headrace_protos.broker.v1 import advice_pb2 as pb

ITEM = AdviceItem(
    vhost="/",
    queue="q",
    kind=advice.CONSUMERS,
    value=8,
    current=2,
    reason="two consumers are busy all the time",
    valid_until_ms=1_700_000_000_000,
    figures={"arrived": 12.5},
    author="pipeline",
)


def test_what_is_given_is_what_is_told(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        kept: list[pb.AdviceItem] = []

        def put(request: pb.PutAdviceRequest) -> pb.PutAdviceResponse:
            kept.extend(request.items)
            return pb.PutAdviceResponse()

        broker.answers = {
            "Put": put,
            "List": lambda _: pb.ListAdviceResponse(items=kept),
            "Delete": pb.DeleteAdviceResponse(items=2),
        }
        kinds = [advice.CONSUMERS, advice.PREFETCH]
        kinds += [advice.HIGH_WATERMARK, advice.HIGH_WATERMARK_BYTES]
        given = [replace(ITEM, kind=kind) for kind in kinds]
        await client.advice.put(given)
        assert [each.kind for each in kept] == [1, 2, 3, 4]
        kept[0].given_ms = 5
        given[0] = replace(given[0], given_ms=5)
        assert await client.advice.list() == tuple(given)
        kept[0].kind = 99  # type: ignore[assignment]  # of a later version
        assert (await client.advice.list())[0].kind == "99"
        assert await client.advice.delete("q", kind=advice.PREFETCH) == 2
        request = broker.calls[-1][1]
        assert (request.vhost, request.queue, request.kind) == ("/", "q", 2)

    play(scenario)


def test_a_queue_alone_is_one_of_the_clients_vhost(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.answers["List"] = pb.ListAdviceResponse()
        asked = []
        for given in ({}, {"queue": "q"}, {"vhost": "v", "queue": "q"}, {"author": "a"}):
            assert await client.advice.list(**given) == ()
            request = broker.calls[-1][1]
            asked.append((request.vhost, request.queue, request.author))
        assert asked == [("", "", ""), ("/", "q", ""), ("v", "q", ""), ("", "", "a")]

    play(scenario)


def test_much_advice_goes_in_several_calls(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.answers["Put"] = pb.PutAdviceResponse()
        begun = len(broker.calls)
        await client.advice.put(
            replace(ITEM, queue=str(number)) for number in range(ADVICE_ITEMS_MAX + 1)
        )
        requests = [request for _, request in broker.calls[begun:]]
        assert [len(each.items) for each in requests] == [ADVICE_ITEMS_MAX, 1]
        assert requests[1].items[0].queue == str(ADVICE_ITEMS_MAX)
        await client.advice.put([])
        assert len(broker.calls) == begun + 2

    play(scenario)


def test_what_cannot_be_is_not_sent_and_a_refusal_says_why(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        begun = len(broker.calls)
        with pytest.raises(ValueError, match="kind: must be one of consumers, prefetch, "):
            await client.advice.put([ITEM, replace(ITEM, kind="replicas")])
        with pytest.raises(ValueError, match=r"kind: .* not 'replicas'"):
            await client.advice.delete("q", kind="replicas")
        assert len(broker.calls) == begun
        lapsed = grpc.StatusCode.FAILED_PRECONDITION, "it has passed", "ALREADY_LAPSED"
        broker.answers["Put"] = lapsed
        with pytest.raises(PreconditionError) as caught:
            await client.advice.put([ITEM])
        assert caught.value.reason == "ALREADY_LAPSED"

    play(scenario)
