"""/api/queues/V/Q/lease-groups: groups that lease a queue's messages."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from headrace_broker.catalog.permission import READ
from headrace_broker.management.http.access import caller, check_allowed, check_enters, check_sees
from headrace_broker.management.http.administration import Administration, known_queue, known_vhost
from headrace_broker.management.http.answer import done
from headrace_broker.management.http.listing import listing
from headrace_broker.management.http.route import Route, deleted, listed
from headrace_broker.model.status import LeaseGroupStatus


class LeaseEndpoints:
    """Answers requests about groups."""

    def __init__(self, node: Administration) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        """Return the route table."""
        path = "/api/queues/{vhost}/{queue}/lease-groups"
        return [
            listed(path, self._list, "Groups that lease the queue's messages.", LeaseGroupStatus),
            deleted(
                path + "/{group}",
                self._close,
                "Close a group: what it holds goes back to the queue.",
                codes=(503,),
            ),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        vhost = await known_vhost(self._node, request)
        check_sees(caller(), self._node.view, vhost)
        queue = await known_queue(self._node, vhost, request.match_info["queue"])
        rows = await self._node.leases.of(queue)
        return await listing(request, rows, msgspec.to_builtins, name=_name)

    async def _close(self, request: web.Request) -> web.Response:
        vhost, name = await known_vhost(self._node, request), request.match_info["queue"]
        who = caller()
        check_enters(who, self._node.view, vhost)
        check_allowed(who, self._node.view, vhost, READ, "queue", name)
        queue = await known_queue(self._node, vhost, name)
        await self._node.leases.close(queue, request.match_info["group"])
        return done()


def _name(row: LeaseGroupStatus) -> str:
    return row.name


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
