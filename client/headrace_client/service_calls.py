"""Calls of a gRPC service of the broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar, Generic, TypeVar

import grpc

from headrace_client.limits import CALL_SECONDS, PAGE_ROWS
from headrace_client.link import Link
from headrace_client.message_value import read_value

Stub = TypeVar("Stub")
T = TypeVar("T")


class ServiceCalls(Generic[Stub]):
    """Calls of one service, repeated at another node where one does not answer."""

    _service: ClassVar[type[Any]]  # the generated stub

    def __init__(self, link: Link, vhost: str) -> None:
        self._link = link  # to the cluster
        self._vhost = vhost  # where none is given

    async def _call(
        self, pick: Callable[[Stub], Any], request: Any, timeout_s: float = CALL_SECONDS
    ) -> Any:
        def method(channel: grpc.aio.Channel) -> Any:
            return pick(self._service(channel))

        return await self._link.call(method, request, timeout_s)

    async def _listed(
        self, pick: Callable[[Stub], Any], request: Any, rows: str, kind: type[T]
    ) -> AsyncIterator[T]:
        """Yield the rows of all pages of a listing, which `rows` names, as values of `kind`."""
        request.page.size = PAGE_ROWS
        while True:
            answer = await self._call(pick, request)
            for row in getattr(answer, rows):
                yield read_value(kind, row)
            request.page.token = answer.next_token
            if not answer.next_token:
                return

    def _where(self, vhost: str | None) -> str:
        return self._vhost if vhost is None else vhost
