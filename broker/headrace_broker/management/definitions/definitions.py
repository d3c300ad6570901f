"""/api/definitions: everything that was declared, out of the cluster and into it."""

from __future__ import annotations

import asyncio
import re
from typing import Final

from aiohttp import web

from headrace_broker.management.definitions.export import cluster_definitions, vhost_definitions
from headrace_broker.management.definitions.file import DefinitionFile, VhostFile, check_size
from headrace_broker.management.definitions.importing import (
    Step,
    apply_steps,
    cluster_steps,
    rehearse,
    vhost_steps,
)
from headrace_broker.management.http.access import caller, check_enters
from headrace_broker.management.http.administration import Administration, known_vhost
from headrace_broker.management.http.answer import bad_request, done, json_answer
from headrace_broker.management.http.body import LargeBodies
from headrace_broker.management.http.route import ADMINISTRATOR, Parameter, Route, got, posted

DOWNLOAD: Final = (Parameter("download", "Name of the file that a browser makes of it."),)
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")


class DefinitionEndpoints:
    """Answers requests about definitions."""

    def __init__(self, node: Administration, bodies: LargeBodies) -> None:
        self._node = node
        self._bodies = bodies

    def routes(self) -> list[Route]:
        """Return the route table."""
        every, one = "/api/definitions", "/api/definitions/{vhost}"
        return [
            got(
                every,
                self._export,
                "All definitions.",
                DefinitionFile,
                ADMINISTRATOR,
                query=DOWNLOAD,
            ),
            posted(
                every,
                self._import,
                "Import definitions: all of them, or none if one is wrong.",
                DefinitionFile,
                ADMINISTRATOR,
                codes=(204,),
            ),
            got(one, self._export_vhost, "Of a vhost.", VhostFile, ADMINISTRATOR, query=DOWNLOAD),
            posted(
                one,
                self._import_vhost,
                "Import what a vhost holds, likewise.",
                VhostFile,
                ADMINISTRATOR,
                codes=(204,),
            ),
        ]

    async def _export(self, request: web.Request) -> web.Response:
        await self._node.catch_up()
        return json_answer(cluster_definitions(self._node.view), headers=_download(request))

    async def _export_vhost(self, request: web.Request) -> web.Response:
        await self._node.catch_up()
        vhost = await known_vhost(self._node, request)
        return json_answer(vhost_definitions(self._node.view, vhost), headers=_download(request))

    async def _import(self, request: web.Request) -> web.Response:
        async with self._bodies.decoded(request, DefinitionFile, check_size) as file:
            await self._node.catch_up()
            view = self._node.view
            await self._do(await asyncio.to_thread(lambda: list(cluster_steps(file, view))))
        return done()

    async def _import_vhost(self, request: web.Request) -> web.Response:
        vhost = await known_vhost(self._node, request)
        check_enters(caller(), self._node.view, vhost)
        async with self._bodies.decoded(request, VhostFile, check_size) as file:
            await self._node.catch_up()
            await self._do(list(vhost_steps(file, vhost)))
        return done()

    async def _do(self, steps: list[Step]) -> None:
        snapshot = self._node.snapshot()
        await apply_steps(self._node, await asyncio.to_thread(rehearse, snapshot, steps))


def _download(request: web.Request) -> dict[str, str] | None:
    name = request.query.get("download")
    if name is None:
        return None
    if not _FILE_NAME.fullmatch(name):
        raise bad_request("download: must be 1 to 100 letters, digits, '.', '_' or '-'")
    return {"Content-Disposition": f'attachment; filename="{name}"'}
