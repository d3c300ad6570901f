"""/api/queues/V/Q/archive: a queue's archive, and its readers."""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from headrace_broker.catalog.permission import READ
from headrace_broker.management.http.access import caller, check_allowed, check_enters, check_sees
from headrace_broker.management.http.administration import Administration, known_queue, known_vhost
from headrace_broker.management.http.answer import done, json_answer
from headrace_broker.management.http.route import Route, deleted, got
from headrace_broker.model.archive import ArchiveGroupStatus, ArchiveStatus

_MODES: Final = ("none", "headers", "full")


class ArchiveView(msgspec.Struct):
    """An archive.

    Attributes:
        archive: what is kept of messages that are settled now: none, headers or full.
        shard: its name in the log of archives (gRPC, Export).
        messages: that it has.
        message_bytes: of their bodies.
        first_index: of the first row that can be read.
        next_index: of the next row.
        since_ms: Unix time at which the queue had an archive first; the shard's incarnation.
        first_settled_ms: Unix time at which the first of the messages was settled, 0 for none.
        last_settled_ms: and the last.
        groups: that read it.
    """

    vhost: str
    queue: str
    node: str
    archive: str
    shard: str
    messages: int
    message_bytes: int
    first_index: int
    next_index: int
    since_ms: int
    first_settled_ms: int
    last_settled_ms: int
    groups: list[ArchiveGroupStatus]


class ArchiveEndpoints:
    """Answers requests about archives."""

    def __init__(self, node: Administration) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        """Return the route table."""
        path = "/api/queues/{vhost}/{queue}/archive"
        return [
            got(path, self._get, "What the queue keeps of settled messages.", ArchiveView),
            deleted(
                path + "/groups/{group}",
                self._close,
                "Close a group that reads the archive: nothing is kept for it any more.",
                codes=(503,),
            ),
        ]

    async def _get(self, request: web.Request) -> web.Response:
        vhost = await known_vhost(self._node, request)
        check_sees(caller(), self._node.view, vhost)
        queue = await known_queue(self._node, vhost, request.match_info["queue"])
        return json_answer(msgspec.to_builtins(view_of(await self._node.archives.of(queue))))

    async def _close(self, request: web.Request) -> web.Response:
        vhost, name = await known_vhost(self._node, request), request.match_info["queue"]
        who = caller()
        check_enters(who, self._node.view, vhost)
        check_allowed(who, self._node.view, vhost, READ, "queue", name)
        queue = await known_queue(self._node, vhost, name)
        await self._node.archives.close_group(queue, request.match_info["group"])
        return done()


def view_of(status: ArchiveStatus) -> ArchiveView:
    """Return an archive as JSON."""
    return ArchiveView(
        vhost=status.vhost,
        queue=status.queue,
        node=status.node,
        archive=_MODES[status.mode],
        shard=str(status.group),
        messages=status.rows,
        message_bytes=status.octets,
        first_index=status.first_index,
        next_index=status.next_index,
        since_ms=status.since_ms,
        first_settled_ms=status.first_ms,
        last_settled_ms=status.last_ms,
        groups=status.groups,
    )
