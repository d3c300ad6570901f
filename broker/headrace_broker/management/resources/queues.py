"""/api/queues."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from aiohttp import web

from headrace_broker.catalog.access import QUEUE, check_new_name
from headrace_broker.catalog.permission import CONFIGURE, READ
from headrace_broker.management.http.access import (
    caller,
    check_allowed,
    check_declares,
    check_enters,
    check_not_exclusive,
)
from headrace_broker.management.http.answer import done, json_answer, not_found
from headrace_broker.management.http.body import decode
from headrace_broker.management.http.endpoints import Endpoints
from headrace_broker.management.http.listing import COLUMNS, chosen, columns, listing
from headrace_broker.management.http.query import IF_EMPTY, IF_UNUSED, flag
from headrace_broker.management.http.route import deleted, got, listed, posted, put
from headrace_broker.management.view.figures import (
    AGES,
    LENGTHS,
    Ages,
    asked_ages,
    lengths_and_rates,
)
from headrace_broker.management.view.rendering import render_queue
from headrace_broker.management.view.view import QueueView
from headrace_broker.model.definition import Queue
from headrace_broker.model.flow_status import QueueFlow
from headrace_broker.model.limits import LISTING_TURN_ROWS, PAGE_ROWS_MAX
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.model.stats import QueueStats
from headrace_broker.model.status import QueueStatus

COUNTS_SECONDS_MAX: Final = 2.0  # for what other nodes say in a listing; the rest is without counts
FLOWS_SECONDS_MAX: Final = 1.0  # likewise for what moves in queues; the rest is listed as calm
COUNTS_AT_ONCE: Final = 64  # questions to leaders under way for one listing


Known = tuple[QueueStatus, QueueStats | None]


class ActionBody(msgspec.Struct):
    """Body of POST /api/queues/V/Q/actions: what RabbitMQ's mirrored queues could be told."""

    action: Literal["sync", "cancel_sync"]


class QueueBody(msgspec.Struct):
    """Body of PUT /api/queues/V/Q."""

    durable: bool = True
    auto_delete: bool = False
    arguments: dict[str, Any] = {}


class QueueEndpoints(Endpoints):
    """Answers requests about queues."""

    @listed("/api/queues", "Queues in vhosts that the user sees.", QueueView, query=AGES)
    @listed("/api/queues/detailed", "The same: a list lacks nothing.", QueueView, query=AGES)
    @listed("/api/queues/{vhost}", "Queues in vhosts that the user sees.", QueueView, query=AGES)
    async def _list(self, request: web.Request) -> web.Response:
        who = caller()
        vhost = await self._asked_vhost(request)
        view = self._node.view
        found = [queue for queue in view.queues(vhost) if who.sees(view, queue.vhost)]
        found.sort(key=lambda queue: (queue.vhost, queue.name))
        ages, now_ms = asked_ages(request), int(self._node.clock.queue_ms())

        async def prepare(queues: Sequence[Queue]) -> list[Known]:
            return await self._known(queues, ages)

        return await listing(
            request, found, lambda known: _rendered(known, ages, now_ms), prepare=prepare
        )

    async def _known(self, queues: Sequence[Queue], ages: Ages) -> list[Known]:
        """Return the facts about queues, without those that are gone meanwhile."""
        flows = asyncio.ensure_future(self._flows())
        found: list[tuple[Queue, QueueStatus]] = []
        for at, queue in enumerate(queues, 1):
            status = self._source.queue(queue.vhost, queue.name)
            if status is not None:
                found.append((queue, status))
            if at % LISTING_TURN_ROWS == 0:
                await asyncio.sleep(0)
        away = [queue.group for queue, status in found if status.counts is None]
        stats = await self._stats(queues, ages, away)
        counted = await self._counted(
            [(queue, _told(status, stats.get(queue.group))) for queue, status in found]
        )
        moving = await flows
        return [
            (_with_flow(status, moving.get(queue.group)), stats.get(queue.group))
            for queue, status in counted
        ]

    async def _stats(
        self, queues: Sequence[Queue], ages: Ages, current: Sequence[int]
    ) -> dict[int, QueueStats]:
        """Return the figures of queues over time by group, as far as their leaders answer.

        Args:
            queues: all of them.
            ages: of samples.
            current: groups of those that have no replica here; their leaders tell all of them.
        """
        groups = [queue.group for queue in queues]
        wanted = groups if len(groups) <= PAGE_ROWS_MAX else None
        question = ages.question(groups=wanted, current=current)
        rows, _ = await self._node.stats.ask(question, FLOWS_SECONDS_MAX)
        return {row.group: row for row in rows if isinstance(row, QueueStats)}

    async def _flows(self) -> dict[int, QueueFlow]:
        """Return the flow state of the queues in which something moves, if the nodes answer."""
        try:
            async with asyncio.timeout(FLOWS_SECONDS_MAX):
                return await self._node.flow_report.moving_queues()
        except TimeoutError:
            return {}

    async def _counted(
        self, queues: Sequence[tuple[Queue, QueueStatus]]
    ) -> list[tuple[Queue, QueueStatus]]:
        """Ask for the leaders and counts of queues of which no node has told."""
        slots = asyncio.Semaphore(COUNTS_AT_ONCE)

        async def count(queue: Queue, status: QueueStatus) -> tuple[Queue, QueueStatus]:
            if status.counts is None:
                with contextlib.suppress(AmqpError, TimeoutError):
                    async with slots, asyncio.timeout_at(deadline):
                        return queue, await self._count(status, queue)
            return queue, status

        deadline = asyncio.get_running_loop().time() + COUNTS_SECONDS_MAX
        return list(await asyncio.gather(*(count(*each) for each in queues)))

    async def _count(self, status: QueueStatus, queue: Queue) -> QueueStatus:
        counts, leader = await self._node.led_counts(queue)
        return msgspec.structs.replace(status, leader=leader or status.leader, counts=counts)

    @got("/api/queues/{vhost}/{queue}", "A queue.", QueueView, query=(*AGES, *COLUMNS))
    async def _get(self, request: web.Request) -> web.Response:
        queue = await self._path_queue(request)
        status = self._source.queue(queue.vhost, queue.name)
        if status is None:
            raise not_found(f"queue '{queue.name}' in vhost '{queue.vhost}'")
        ages = asked_ages(request)
        away = [queue.group] if status.counts is None else []
        stats = (await self._stats([queue], ages, away)).get(queue.group)
        status = _told(status, stats)
        # Without an answer there is only what the replica here says, if there is one.
        with contextlib.suppress(AmqpError, TimeoutError):
            async with asyncio.timeout(COUNTS_SECONDS_MAX):
                status = await self._count(status, queue)
                status = _with_flow(status, await self._node.flow_report.queue(queue))
        body = _rendered((status, stats), ages, int(self._node.clock.queue_ms()))
        return json_answer(chosen(body, columns(request)))

    @put("/api/queues/{vhost}/{queue}", "Declare a queue.", QueueBody)
    async def _put(self, request: web.Request) -> web.Response:
        vhost = await self._known_vhost(request)
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

    @deleted("/api/queues/{vhost}/{queue}", "Delete a queue.", query=(IF_UNUSED, IF_EMPTY))
    async def _delete(self, request: web.Request) -> web.Response:
        queue = await self._permitted(request, CONFIGURE)
        if_unused, if_empty = flag(request, "if-unused"), flag(request, "if-empty")
        await self._node.topology.delete_queue(queue, if_unused, if_empty)
        return done()

    @deleted("/api/queues/{vhost}/{queue}/contents", "Drop the ready messages of a queue.")
    async def _purge(self, request: web.Request) -> web.Response:
        queue = await self._permitted(request, READ)
        await self._node.purge(queue)
        return done()

    @posted(
        "/api/queues/{vhost}/{queue}/actions",
        "Nothing to do: replicas are brought up to date without being asked.",
        ActionBody,
        codes=(204,),
    )
    async def _act(self, request: web.Request) -> web.Response:
        """Do nothing: replicas are brought up to date without being asked."""
        await self._permitted(request, CONFIGURE)
        await decode(request, ActionBody)
        return done()

    async def _permitted(self, request: web.Request, operation: str) -> Queue:
        """Return the queue of a path; without the right its existence is not disclosed."""
        vhost, name = await self._known_vhost(request), request.match_info["queue"]
        who = caller()
        check_enters(who, self._node.view, vhost)
        check_allowed(who, self._node.view, vhost, operation, "queue", name)
        queue = await self._known_queue(vhost, name)
        check_not_exclusive(queue)
        return queue


def _told(status: QueueStatus, stats: QueueStats | None) -> QueueStatus:
    """Return the state of a queue by its leader where it tells that."""
    if stats is None or stats.counts is None:
        return status
    return msgspec.structs.replace(
        status, leader=stats.leader, counts=stats.counts, replicas=stats.replicas
    )


def _with_flow(status: QueueStatus, flow: QueueFlow | None) -> QueueStatus:
    return msgspec.structs.replace(status, flow=flow) if flow is not None else status


def _rendered(known: Known, ages: Ages, now_ms: int) -> dict[str, Any]:
    """Return a queue as JSON: its current content, and its figures over time."""
    status, stats = known
    body = render_queue(status, now_ms)
    last, samples = (stats.last, stats.samples) if stats is not None else ([], [])
    figures = lengths_and_rates(last, samples, ages)
    if not last:  # nothing has moved, or no node answers: then only the replica here knows
        figures = {name: value for name, value in figures.items() if name not in LENGTHS}
    return {**figures, **body}
