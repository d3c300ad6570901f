"""/api/queues/V/Q/lease-groups: groups that lease a queue's messages."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from headrace_broker.management.http.answer import done
from headrace_broker.management.http.endpoints import Endpoints
from headrace_broker.management.http.listing import listing
from headrace_broker.management.http.route import deleted, listed
from headrace_broker.model.status import LeaseGroupStatus


class LeaseEndpoints(Endpoints):
    """Answers requests about groups."""

    @listed(
        "/api/queues/{vhost}/{queue}/lease-groups",
        "Groups that lease the queue's messages.",
        LeaseGroupStatus,
    )
    async def _list(self, request: web.Request) -> web.Response:
        queue = await self._path_queue(request)
        rows = await self._node.leases.of(queue)
        return await listing(request, rows, msgspec.to_builtins)

    @deleted(
        "/api/queues/{vhost}/{queue}/lease-groups/{group}",
        "Close a group: what it holds goes back to the queue.",
        codes=(503,),
    )
    async def _close(self, request: web.Request) -> web.Response:
        queue = await self._readable_queue(request)
        await self._node.leases.close(queue, request.match_info["group"])
        return done()


def render_group(group: LeaseGroupStatus) -> dict[str, Any]:
    """Return a group as a row of GET /api/consumers: it belongs to no channel."""
    return {
        "consumer_tag": group.name,
        "queue": {"name": group.queue, "vhost": group.vhost},
        "channel_details": {},
        "ack_required": True,
        "exclusive": False,
        "prefetch_count": 0,
        "arguments": {},
        "active": True,
        "lease_group": msgspec.to_builtins(group),
    }
