"""Common part of all calls about a cluster's definitions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import grpc

from headrace_client.limits import PAGE_ROWS
from headrace_client.link import Link
from headrace_protos.broker.v1 import topology_pb2 as pb
from headrace_protos.broker.v1.topology_pb2_grpc import TopologyStub

if TYPE_CHECKING:
    from headrace_protos.broker.v1.topology_pb2_grpc import TopologyAsyncStub

T = TypeVar("T")


class _Page(Protocol):
    next_token: str


Answer = TypeVar("Answer", bound=_Page)


class TopologyCalls:
    """Calls the service Topology.

    Args:
        link: to the cluster.
        vhost: where none is given.
    """

    def __init__(self, link: Link, vhost: str) -> None:
        self._link = link
        self._vhost = vhost

    async def _call(self, pick: Callable[[TopologyAsyncStub], Any], request: Any) -> Any:
        def method(channel: grpc.aio.Channel) -> Any:
            return pick(TopologyStub(channel))

        return await self._link.call(method, request)

    async def _listed(
        self,
        page: Callable[[pb.PageRequest], Awaitable[Answer]],
        rows: Callable[[Answer], Iterable[T]],
    ) -> AsyncIterator[T]:
        """Go through all pages of a listing."""
        token = ""
        while True:
            answer = await page(pb.PageRequest(size=PAGE_ROWS, token=token))
            for row in rows(answer):
                yield row
            token = answer.next_token
            if not token:
                return

    def _where(self, vhost: str | None) -> str:
        return self._vhost if vhost is None else vhost
