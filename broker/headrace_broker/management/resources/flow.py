"""/api/flow: stopped publishers, their limits and causes; of all nodes that answer."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aiohttp import web

from headrace_broker.catalog.access import check_sees
from headrace_broker.catalog.viewer import Viewer, viewer_of
from headrace_broker.management.http.access import caller
from headrace_broker.management.http.answer import (
    ApiError,
    bad_request,
    json_answer,
    not_found,
    partial,
)
from headrace_broker.management.http.endpoints import Endpoints
from headrace_broker.management.http.route import Parameter, got
from headrace_broker.management.view.flow_rendering import (
    render_connection,
    render_explanation,
    render_queue,
)
from headrace_broker.model.limits import FLOW_ROWS_MAX
from headrace_broker.runtime.explain.flow_report import AmbiguousNameError, UnknownNameError

COUNT_DEFAULT: Final = 50  # connections in a listing unless asked otherwise; a screen of them
COUNT_DIGITS_MAX: Final = 9

COUNT: Final = Parameter(
    "count", "Most rows.", {"type": "integer", "minimum": 1, "maximum": FLOW_ROWS_MAX}
)
WHOM: Final = (
    Parameter("connection", "Name or id of a connection, or their beginning."),
    Parameter("queue", "Name of a queue in `vhost`."),
    Parameter("name", "Of either."),
    Parameter("vhost", "'/' unless given."),
)


class FlowEndpoints(Endpoints):
    """Answers questions about flow control."""

    def _viewer(self) -> Viewer:
        return viewer_of(caller(), self._node.view)

    @got(
        "/api/flow/connections",
        "Connections that are stopped the most.",
        list[dict[str, Any]],
        query=(COUNT,),
    )
    async def _connections(self, request: web.Request) -> web.Response:
        count = _count(request)
        found = await self._node.flow_report.top(count, self._viewer())
        rows = [render_connection(row, self._node.view) for row in found.connections()]
        return json_answer(rows, headers=partial(found.missing, found.left_out))

    @got(
        "/api/flow/queues",
        "Queues, with what they hold and defer.",
        list[dict[str, Any]],
        query=(COUNT,),
    )
    async def _queues(self, request: web.Request) -> web.Response:
        found = await self._node.flow_report.queues(self._viewer())
        rows = [render_queue(row) for row in found.queues()[: _count(request, FLOW_ROWS_MAX)]]
        return json_answer(rows, headers=partial(found.missing, found.left_out))

    @got(
        "/api/flow/graph",
        "Who owes and lately brought what: edges from causes that are there to queues.",
        list[dict[str, Any]],
        query=(COUNT,),
    )
    async def _graph(self, request: web.Request) -> web.Response:
        edges, missing = await self._node.flow_report.graph(self._viewer())
        body = msgspec.to_builtins(edges[: _count(request, FLOW_ROWS_MAX)])
        return json_answer(body, headers=partial(missing))

    @got(
        "/api/flow/why",
        "Why a connection or a queue is slow, in a sentence and in figures.",
        dict[str, Any],
        query=WHOM,
        codes=(400, 404, 409),
    )
    async def _why(self, request: web.Request) -> web.Response:
        query, report = request.query, self._node.flow_report
        named = [name for name in ("connection", "queue", "name") if query.get(name)]
        if len(named) != 1:
            raise bad_request("connection, queue, name: must have exactly one of them")
        name, vhost = query[named[0]], query.get("vhost", "/")
        try:
            if named == ["queue"]:
                check_sees(caller(), self._node.view, vhost)
                queue = await self._known_queue(vhost, name)
                found = await report.why_queue(queue, self._viewer())
            elif named == ["connection"]:
                found = await report.why_connection(name, self._viewer())
            else:
                found = await report.why(name, vhost, self._viewer())
        except UnknownNameError as error:
            raise not_found(str(error).removeprefix("no ")) from None
        except AmbiguousNameError as error:
            raise ApiError(409, "ambiguous", str(error)) from None
        headers = partial(found.missing)
        return json_answer(render_explanation(found, self._node.view), headers=headers)


def _count(request: web.Request, default: int = COUNT_DEFAULT) -> int:
    """Return how many rows are asked for; ApiError 400 for a number that may not be."""
    value = request.query.get("count", str(default))
    known = value.isascii() and value.isdigit() and len(value) <= COUNT_DIGITS_MAX
    if not known or not 1 <= int(value) <= FLOW_ROWS_MAX:
        raise bad_request(f"count: must be an integer from 1 to {FLOW_ROWS_MAX}, not '{value}'")
    return int(value)
