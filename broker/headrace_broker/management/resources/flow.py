"""/api/flow: stopped publishers, their limits and causes; of all nodes that answer."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aiohttp import web

from headrace_broker.catalog.viewer import Viewer, viewer_of
from headrace_broker.management.http.access import caller, check_sees
from headrace_broker.management.http.administration import Administration, known_queue
from headrace_broker.management.http.answer import (
    PARTIAL_HEADER,
    ApiError,
    bad_request,
    json_answer,
    not_found,
)
from headrace_broker.management.http.route import Parameter, Route, got
from headrace_broker.management.view.flow_rendering import (
    render_connection,
    render_explanation,
    render_queue,
)
from headrace_broker.model.limits import FLOW_ROWS_MAX
from headrace_broker.runtime.explain.flow_report import (
    AmbiguousNameError,
    Listing,
    UnknownNameError,
)

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


class FlowEndpoints:
    """Answers questions about flow control."""

    def __init__(self, node: Administration) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        """Return the route table."""
        return [
            got(
                "/api/flow/connections",
                self._connections,
                "Connections that are stopped the most.",
                list[dict[str, Any]],
                query=(COUNT,),
            ),
            got(
                "/api/flow/queues",
                self._queues,
                "Queues, with what they hold and withhold.",
                list[dict[str, Any]],
                query=(COUNT,),
            ),
            got(
                "/api/flow/graph",
                self._graph,
                "Who owes and lately brought what: edges from causes that are there to queues.",
                list[dict[str, Any]],
                query=(COUNT,),
            ),
            got(
                "/api/flow/why",
                self._why,
                "Why a connection or a queue is slow, in a sentence and in figures.",
                dict[str, Any],
                query=WHOM,
                codes=(400, 404, 409),
            ),
        ]

    def _viewer(self) -> Viewer:
        return viewer_of(caller(), self._node.view)

    async def _connections(self, request: web.Request) -> web.Response:
        count = _count(request)
        found = await self._node.flow_report.top(count, self._viewer())
        rows = [render_connection(row, self._node.view) for row in found.connections()]
        return json_answer(rows, headers=_partial(found))

    async def _queues(self, request: web.Request) -> web.Response:
        found = await self._node.flow_report.queues(self._viewer())
        rows = [render_queue(row) for row in found.queues()[: _count(request, FLOW_ROWS_MAX)]]
        return json_answer(rows, headers=_partial(found))

    async def _graph(self, request: web.Request) -> web.Response:
        edges, missing = await self._node.flow_report.graph(self._viewer())
        body = msgspec.to_builtins(edges[: _count(request, FLOW_ROWS_MAX)])
        return json_answer(body, headers=_partial(Listing([], missing)))

    async def _why(self, request: web.Request) -> web.Response:
        query, report = request.query, self._node.flow_report
        named = [name for name in ("connection", "queue", "name") if query.get(name)]
        if len(named) != 1:
            raise bad_request("connection, queue, name: must have exactly one of them")
        name, vhost = query[named[0]], query.get("vhost", "/")
        try:
            if named == ["queue"]:
                check_sees(caller(), self._node.view, vhost)
                queue = await known_queue(self._node, vhost, name)
                found = await report.why_queue(queue, self._viewer())
            elif named == ["connection"]:
                found = await report.why_connection(name, self._viewer())
            else:
                found = await report.why(name, vhost, self._viewer())
        except UnknownNameError as error:
            raise not_found(str(error).removeprefix("no ")) from None
        except AmbiguousNameError as error:
            raise ApiError(409, "ambiguous", str(error)) from None
        headers = _partial(Listing([], found.missing))
        return json_answer(render_explanation(found, self._node.view), headers=headers)


def _count(request: web.Request, default: int = COUNT_DEFAULT) -> int:
    """Return how many rows are asked for.

    Raises:
        ApiError: 400, the parameter is none of the numbers that it may be.
    """
    value = request.query.get("count", str(default))
    known = value.isascii() and value.isdigit() and len(value) <= COUNT_DIGITS_MAX
    if not known or not 1 <= int(value) <= FLOW_ROWS_MAX:
        raise bad_request(f"count: must be an integer from 1 to {FLOW_ROWS_MAX}, not '{value}'")
    return int(value)


def _partial(listing: Listing) -> dict[str, str]:
    lacks = []
    if listing.missing:
        lacks.append(f"no answer from {', '.join(listing.missing)}")
    if listing.left_out:
        lacks.append(f"{listing.left_out} rows or more left out")
    return {PARTIAL_HEADER: "; ".join(lacks)} if lacks else {}
