"""/api/queues/V/Q/archive: a queue's archive, and its readers."""

from __future__ import annotations

from typing import Final

import msgspec
from aiohttp import web

from headrace_broker.management.http.answer import done, json_answer
from headrace_broker.management.http.endpoints import Endpoints
from headrace_broker.management.http.route import deleted, got
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


class ArchiveEndpoints(Endpoints):
    """Answers requests about archives."""

    @got(
        "/api/queues/{vhost}/{queue}/archive",
        "What the queue keeps of settled messages.",
        ArchiveView,
    )
    async def _get(self, request: web.Request) -> web.Response:
        queue = await self._path_queue(request)
        return json_answer(msgspec.to_builtins(view_of(await self._node.archives.of(queue))))

    @deleted(
        "/api/queues/{vhost}/{queue}/archive/groups/{group}",
        "Close a group that reads the archive: nothing is kept for it any more.",
        codes=(503,),
    )
    async def _close(self, request: web.Request) -> web.Response:
        queue = await self._readable_queue(request)
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
        message_bytes=status.byte_count,
        first_index=status.first_index,
        next_index=status.next_index,
        since_ms=status.since_ms,
        first_settled_ms=status.first_ms,
        last_settled_ms=status.last_ms,
        groups=status.groups,
    )
