"""/api/queues."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from headrace_broker.catalog.access import QUEUE, check_new_name
from headrace_broker.catalog.permission import CONFIGURE, READ
from headrace_broker.management.access import (
    caller,
    check_allowed,
    check_declares,
    check_enters,
    check_not_exclusive,
    check_sees,
)
from headrace_broker.management.administration import Administration, known_queue, known_vhost
from headrace_broker.management.answer import done, json_answer, not_found
from headrace_broker.management.body import decode, flag
from headrace_broker.management.rendering import render_queues
from headrace_broker.management.status_source import StatusSource
from headrace_broker.model.definition import Queue
from headrace_broker.model.flow_status import QueueFlow
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.model.status import QueueStatus

COUNTS_SECONDS_MAX: Final = 2.0  # for what other nodes say in a listing; the rest is without counts
FLOWS_SECONDS_MAX: Final = 1.0  # likewise for what moves in queues; the rest is listed as calm
COUNTS_AT_ONCE: Final = 64  # questions to leaders under way for one listing


def unix_ms() -> int:
    """Return Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


class QueueBody(msgspec.Struct):
    """Body of PUT /api/queues/V/Q."""

    durable: bool = True
    auto_delete: bool = False
    arguments: dict[str, Any] = {}


class QueueEndpoints:
    """Answers requests about queues."""

    def __init__(self, node: Administration, status: StatusSource) -> None:
        self._node = node
        self._status = status

    def routes(self) -> list[web.RouteDef]:
        """Return paths and handlers."""
        return [
            web.get("/api/queues", self._list),
            web.get("/api/queues/{vhost}", self._list),
            web.get("/api/queues/{vhost}/{queue}", self._get),
            web.put("/api/queues/{vhost}/{queue}", self._put),
            web.delete("/api/queues/{vhost}/{queue}", self._delete),
            web.delete("/api/queues/{vhost}/{queue}/contents", self._purge),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        who = caller()
        vhost = None
        if "vhost" in request.match_info:
            vhost = await known_vhost(self._node, request)
            check_sees(who, self._node.view, vhost)
        view = self._node.view
        found = [
            queue
            for queue in self._status.queues()
            if vhost in (None, queue.vhost) and who.sees(view, queue.vhost)
        ]
        counted, flows = await asyncio.gather(self._counted(found), self._flows())
        return json_answer(render_queues(self._with_flow(counted, flows), unix_ms()))

    async def _flows(self) -> dict[int, QueueFlow]:
        """Return the flow state of the queues in which something moves, if the nodes answer."""
        try:
            async with asyncio.timeout(FLOWS_SECONDS_MAX):
                return await self._node.flow_report.moving_queues()
        except TimeoutError:
            return {}

    def _with_flow(
        self, queues: Sequence[QueueStatus], flows: dict[int, QueueFlow]
    ) -> list[QueueStatus]:
        found = []
        for status in queues:
            queue = self._node.view.queue(status.vhost, status.name)
            flow = flows.get(queue.group) if queue is not None else None
            found.append(msgspec.structs.replace(status, flow=flow) if flow is not None else status)
        return found

    async def _counted(self, queues: Sequence[QueueStatus]) -> list[QueueStatus]:
        """Have the leaders count what is in queues without a replica here, if they answer."""
        slots = asyncio.Semaphore(COUNTS_AT_ONCE)

        async def count(status: QueueStatus) -> QueueStatus:
            queue = self._node.view.queue(status.vhost, status.name)
            if status.has_counts or queue is None:
                return status
            try:
                async with slots, asyncio.timeout_at(deadline):
                    return await self._count(status, queue)
            except (AmqpError, TimeoutError):
                return status

        deadline = asyncio.get_running_loop().time() + COUNTS_SECONDS_MAX
        return list(await asyncio.gather(*(count(status) for status in queues)))

    async def _count(self, status: QueueStatus, queue: Queue) -> QueueStatus:
        counts = await self._node.counts(queue)
        return msgspec.structs.replace(
            status,
            has_counts=True,
            messages_ready=counts.ready,
            messages_unacknowledged=counts.unsettled,
            consumers=counts.consumers,
            oldest_ms=counts.oldest_ms,
            watermark=counts.watermark,
        )

    async def _queue(self, request: web.Request) -> Queue:
        vhost = await known_vhost(self._node, request)
        return await known_queue(self._node, vhost, request.match_info["queue"])

    async def _get(self, request: web.Request) -> web.Response:
        queue = await self._queue(request)
        check_sees(caller(), self._node.view, queue.vhost)
        status = self._status.queue(queue.vhost, queue.name)
        if status is None:
            raise not_found(f"queue '{queue.name}' in vhost '{queue.vhost}'")
        # Without an answer there is only what the replica here says, if there is one.
        with contextlib.suppress(AmqpError, TimeoutError):
            async with asyncio.timeout(COUNTS_SECONDS_MAX):
                status = await self._count(status, queue)
                status = msgspec.structs.replace(
                    status, flow=await self._node.flow_report.queue(queue)
                )
        return json_answer(render_queues([status], unix_ms())[0])

    async def _put(self, request: web.Request) -> web.Response:
        vhost = await known_vhost(self._node, request)
        name = request.match_info["queue"]
        view = self._node.view
        check_enters(caller(), view, vhost)
        body = await decode(request, QueueBody)
        check_declares(caller(), view, vhost, "queue", name, body.arguments)
        created = view.queue(vhost, name) is None
        if created:
            check_new_name(QUEUE, name)
        await self._node.topology.declare_queue(
            vhost, name, body.durable, False, body.auto_delete, body.arguments, ""
        )
        return done(created)

    async def _delete(self, request: web.Request) -> web.Response:
        queue = await self._queue(request)
        self._check(request, queue, CONFIGURE)
        if_unused, if_empty = flag(request, "if-unused"), flag(request, "if-empty")
        await self._node.topology.delete_queue(queue, if_unused, if_empty)
        return done()

    async def _purge(self, request: web.Request) -> web.Response:
        queue = await self._queue(request)
        self._check(request, queue, READ)
        await self._node.purge(queue)
        return done()

    def _check(self, request: web.Request, queue: Queue, operation: str) -> None:
        who = caller()
        check_enters(who, self._node.view, queue.vhost)
        check_allowed(who, self._node.view, queue.vhost, operation, "queue", queue.name)
        check_not_exclusive(queue)
