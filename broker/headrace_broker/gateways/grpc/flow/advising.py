# ruff: noqa: N802  (names of gRPC methods)
"""The service Advice: what those who watch a cluster think that its limits should be."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import grpc

from headrace_broker.catalog.access import (
    Caller,
    check_author,
    check_makes_policies,
    check_manages,
    taken_back_by,
)
from headrace_broker.catalog.advice import (
    CONSUMERS,
    HIGH_WATERMARK,
    HIGH_WATERMARK_BYTES,
    PREFETCH,
    Advice,
    advice_problem,
)
from headrace_broker.catalog.command import DeleteAdvice, PutAdvice
from headrace_broker.catalog.governance import ADVICE_FULL
from headrace_broker.catalog.result import Refused
from headrace_broker.gateways.grpc.server.call import Admission
from headrace_broker.gateways.grpc.server.errors import RETRY_MS, CallError, bad_field
from headrace_broker.gateways.grpc.server.lookup import LookupService, check_name, done
from headrace_broker.gateways.grpc.server.unary import unary
from headrace_broker.model.limits import ADVICE_AUTHOR_BYTES_MAX
from headrace_protos.broker.v1 import advice_pb2 as pb
from headrace_protos.broker.v1.advice_pb2_grpc import AdviceServicer, add_AdviceServicer_to_server

_KINDS: Final = {
    pb.ADVICE_KIND_CONSUMERS: CONSUMERS,
    pb.ADVICE_KIND_PREFETCH: PREFETCH,
    pb.ADVICE_KIND_HIGH_WATERMARK: HIGH_WATERMARK,
    pb.ADVICE_KIND_HIGH_WATERMARK_OCTETS: HIGH_WATERMARK_BYTES,
}
_NUMBERS: Final = {name: number for number, name in _KINDS.items()}


def _unix_ms() -> int:
    return time.time_ns() // 1_000_000


class AdviceService(AdviceServicer):
    """Keeps advice in the catalog."""

    name = pb.DESCRIPTOR.services_by_name["Advice"].full_name

    def __init__(
        self, lookup: LookupService, admission: Admission, clock_ms: Callable[[], int] = _unix_ms
    ) -> None:
        self._lookup = lookup  # looks things up
        self.admission = admission  # lets calls in
        self._clock_ms = clock_ms  # Unix time

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register with a server."""
        add_AdviceServicer_to_server(self, server)

    async def stop(self, reason: str) -> None:
        """Calls have nothing that must end by itself."""

    @unary
    async def Put(self, who: Caller, request: pb.PutAdviceRequest) -> pb.PutAdviceResponse:
        """Keep advice."""
        check_makes_policies(who)
        for given in request.items:
            check_author(who, given.author or who.name)
        now_ms = self._clock_ms()
        items = tuple(
            _advice(f"items[{number}]", item, who.name, now_ms)
            for number, item in enumerate(request.items)
        )
        problem = advice_problem(items, now_ms)
        if problem:
            raise _refused(problem, items, now_ms)
        for number, item in enumerate(items):
            await self._lookup.enter(who, item.vhost, f"items[{number}].vhost")
            await self._lookup.known_queue(item.vhost, item.queue, f"items[{number}].queue")
        result = await self._lookup.node.submit(PutAdvice(items, now_ms))
        if isinstance(result, Refused) and result.reason == ADVICE_FULL:
            code, reason = grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MUCH_ADVICE"
            raise CallError(code, reason, result.reason, retry_ms=RETRY_MS)
        done(result, "items")
        return pb.PutAdviceResponse()

    @unary
    async def List(self, who: Caller, request: pb.ListAdviceRequest) -> pb.ListAdviceResponse:
        """List valid advice."""
        check_manages(who)
        if request.queue and not request.vhost:
            raise bad_field("vhost", "must be given with a queue")
        check_name("queue", request.queue, low=0)
        _check_author(request.author)
        vhosts = await self._lookup.seen_vhosts(who, request.vhost)
        found = self._lookup.view.advice.valid(
            self._clock_ms(), request.vhost, request.queue, request.author
        )
        return pb.ListAdviceResponse(items=[_item(each) for each in found if each.vhost in vhosts])

    @unary
    async def Delete(self, who: Caller, request: pb.DeleteAdviceRequest) -> pb.DeleteAdviceResponse:
        """Drop advice."""
        check_makes_policies(who)
        author = taken_back_by(who, request.author)
        check_name("queue", request.queue)
        _check_author(author)
        kind = "" if not request.kind else _kind("kind", request.kind)
        await self._lookup.enter(who, request.vhost)
        command = DeleteAdvice(request.vhost, request.queue, kind, author)
        count: int = done(await self._lookup.node.submit(command), "queue")
        return pb.DeleteAdviceResponse(items=count)


def _advice(field: str, item: pb.AdviceItem, user: str, now_ms: int) -> Advice:
    """Return advice as the catalog keeps it; its values are not checked.

    Raises:
        CallError: it has no such form.
    """
    check_name(f"{field}.vhost", item.vhost)
    check_name(f"{field}.queue", item.queue)
    return Advice(
        vhost=item.vhost,
        queue=item.queue,
        kind=_kind(f"{field}.kind", item.kind),
        value=item.value,
        current=item.current,
        reason=item.reason,
        valid_until_ms=item.valid_until_ms,
        author=user,
        given_ms=now_ms,
        figures=tuple((name, repr(value)) for name, value in sorted(item.figures.items())),
    )


def _kind(field: str, number: pb.AdviceKind.ValueType) -> str:
    kind = _KINDS.get(number)
    if kind is None:
        names = ", ".join(pb.AdviceKind.Name(each) for each in _KINDS)
        raise bad_field(field, f"must be one of {names}")
    return kind


def _check_author(author: str) -> None:
    if len(author.encode()) > ADVICE_AUTHOR_BYTES_MAX:
        raise bad_field("author", f"must have at most {ADVICE_AUTHOR_BYTES_MAX} bytes")


def _refused(problem: str, items: tuple[Advice, ...], now_ms: int) -> CallError:
    """Return the refusal of advice, which is another one where the advice came too late."""
    field, _, rule = problem.partition(": ")
    if field.endswith("valid_until_ms"):
        late = [each for each in items if each.valid_until_ms <= now_ms]
        if late:
            text = f"{field}: {late[0].valid_until_ms} has passed: it is {now_ms} now"
            code, reason = grpc.StatusCode.FAILED_PRECONDITION, "ALREADY_LAPSED"
            return CallError(code, reason, text, [(field, rule)], {"now_ms": str(now_ms)})
    return bad_field(field, rule)


def _item(advice: Advice) -> pb.AdviceItem:
    return pb.AdviceItem(
        vhost=advice.vhost,
        queue=advice.queue,
        kind=_NUMBERS[advice.kind],
        value=advice.value,
        current=advice.current,
        reason=advice.reason,
        figures={name: float(text) for name, text in advice.figures},
        valid_until_ms=advice.valid_until_ms,
        author=advice.author,
        given_ms=advice.given_ms,
    )
