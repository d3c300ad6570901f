"""Placement of a queue's stream: at the node that leads the queue.

Any node serves any queue, by asking the one that leads it. Who is there already saves that way.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc

from headrace_client.error import HeadraceError
from headrace_client.limits import LEADER_SECONDS
from headrace_client.link import Link
from headrace_protos.broker.v1.topology_pb2 import DescribeExchangeRequest, DescribeQueueRequest
from headrace_protos.broker.v1.topology_pb2_grpc import TopologyStub

log = logging.getLogger(__name__)

KNOWN_EXCHANGE = "amq.default"  # which is in every vhost


class Placement:
    """Finds the endpoint at which a queue is led."""

    def __init__(self, link: Link, vhost: str, queue: str) -> None:
        self._link = link  # to the cluster
        self._vhost = vhost  # of the queue
        self._queue = queue  # "" for none in particular

    async def endpoint(self) -> str | None:
        """Return the endpoint; None for no other than any, also where it is not known in time.

        What goes wrong here is no failure: the stream that is opened next says it again.
        """
        if not self._queue or len(self._link.endpoints) < 2:
            return None
        try:
            async with asyncio.timeout(LEADER_SECONDS):
                leader = await self._leader()
                return await self._find(leader) if leader else None
        except (HeadraceError, TimeoutError) as error:
            log.info("the leader of queue '%s' is not known: %s", self._queue, error)
            return None

    async def at(self, node: str) -> str | None:
        """Return the endpoint of a node; None where it is none of them, or not known in time."""
        if not node or len(self._link.endpoints) < 2:
            return None
        try:
            async with asyncio.timeout(LEADER_SECONDS):
                return await self._find(node)
        except TimeoutError:
            return None

    async def _leader(self) -> str:
        def method(channel: grpc.aio.Channel) -> Any:
            return TopologyStub(channel).DescribeQueue

        request = DescribeQueueRequest(vhost=self._vhost, name=self._queue)
        link = self._link
        answer: Any = await link.attempt(link.current, method, request, LEADER_SECONDS)
        return str(answer.leader)

    async def _find(self, node: str) -> str | None:
        """Return a node's endpoint; endpoints with an unknown node are asked."""
        link = self._link
        if (known := link.endpoint_of(node)) is not None:
            return known
        unknown = [each for each in link.endpoints if each not in link.nodes]
        asking = [asyncio.create_task(self._ask(each)) for each in unknown]
        try:
            for answered in asyncio.as_completed(asking):
                await answered
                if (known := link.endpoint_of(node)) is not None:
                    return known
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        return None

    async def _ask(self, endpoint: str) -> None:
        def method(channel: grpc.aio.Channel) -> Any:
            return TopologyStub(channel).DescribeExchange

        request = DescribeExchangeRequest(vhost=self._vhost, name=KNOWN_EXCHANGE)
        try:
            await self._link.attempt(endpoint, method, request, LEADER_SECONDS)
        except HeadraceError as error:
            log.info("%s: %s", endpoint, error)
