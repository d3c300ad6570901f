"""/api/vhosts and /api/vhost-limits."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

import msgspec
from aiohttp import web
from typing_extensions import TypedDict

from headrace_broker.catalog.command import DeleteVhost, PutVhost, SetVhostLimits
from headrace_broker.catalog.setting import VHOST_LIMITS
from headrace_broker.management.http.access import caller
from headrace_broker.management.http.answer import done, json_answer, not_found
from headrace_broker.management.http.body import decode
from headrace_broker.management.http.endpoints import Endpoints
from headrace_broker.management.http.listing import COLUMNS, chosen, columns, listing
from headrace_broker.management.http.route import ADMINISTRATOR, deleted, got, listed, posted, put
from headrace_broker.management.view.figures import (
    AGES,
    ANSWER_SECONDS_MAX,
    Ages,
    asked_ages,
    cut,
    lengths,
    named,
    summed,
    summed_last,
    with_deliver_get,
)
from headrace_broker.management.view.view import VhostView
from headrace_broker.model.definition import Vhost
from headrace_broker.model.shard import node_name
from headrace_broker.model.stats import (
    BYTE_FIGURES,
    CLIENT_FIGURES,
    LENGTH_FIGURES,
    VHOST_FIGURES,
    VhostStats,
)

DEFAULT_QUEUE_TYPE = "undefined"  # RabbitMQ's name for an unset queue type of a vhost

_LIMITS: Final = {"limit": {"enum": list(VHOST_LIMITS)}}


class VhostBody(msgspec.Struct):
    """Body of PUT /api/vhosts/V; absent fields keep their values."""

    description: str | None = None
    tags: str | list[str] | None = None
    default_queue_type: str | None = None


class LimitBody(msgspec.Struct):
    """Body of PUT /api/vhost-limits/V/LIMIT and /api/user-limits/U/LIMIT."""

    value: int


Row = dict[str, Any]


class LimitsView(TypedDict, total=False):
    """Limits of a vhost or a user, by name."""

    vhost: str
    user: str
    value: dict[str, int]


class VhostEndpoints(Endpoints):
    """Answers requests about vhosts."""

    @listed("/api/vhosts", "Vhosts that the user sees.", VhostView, query=AGES)
    async def _list(self, request: web.Request) -> web.Response:
        found = self._seen_vhosts()
        ages = asked_ages(request)

        async def prepare(vhosts: Sequence[Vhost]) -> list[Row]:
            return await self._rendered(vhosts, ages)

        return await listing(request, found, dict, prepare=prepare)

    async def _rendered(self, vhosts: Sequence[Vhost], ages: Ages) -> list[Row]:
        """Return vhosts as JSON, with what their queues hold and what moves there."""
        question = ages.question(vhosts=True)
        rows, _ = await self._node.stats.ask(question, ANSWER_SECONDS_MAX)
        moved = [row for row in rows if isinstance(row, VhostStats)]
        nodes = self._source.overview().nodes
        running = {node_name(node.name): "running" for node in nodes if node.running}
        return [
            {
                **render_vhost(vhost),
                **_figures([row for row in moved if row.name == vhost.name], ages),
                "cluster_state": running,
            }
            for vhost in vhosts
        ]

    @got("/api/vhosts/{vhost}", "A vhost.", VhostView, query=(*AGES, *COLUMNS))
    async def _get(self, request: web.Request) -> web.Response:
        view = self._node.view
        name = await self._known_vhost(request)
        vhost = view.vhost(name)
        assert vhost is not None
        [row] = await self._rendered([vhost], asked_ages(request))
        return json_answer(chosen(row, columns(request)))

    @put("/api/vhosts/{vhost}", "Create or change a vhost.", VhostBody, ADMINISTRATOR)
    async def _put(self, request: web.Request) -> web.Response:
        who = caller()
        body = await decode(request, VhostBody)
        name = request.match_info["vhost"]
        current = self._node.view.vhost(name)
        vhost = _changed(current or Vhost(name), body)
        await self._submit(PutVhost(vhost, creator=who.name))
        return done(created=current is None)

    @deleted("/api/vhosts/{vhost}", "Delete a vhost and all in it.", ADMINISTRATOR)
    async def _delete(self, request: web.Request) -> web.Response:
        await self._submit(DeleteVhost(request.match_info["vhost"]))
        return done()

    @posted(
        "/api/vhosts/{vhost}/start/{node}",
        "Nothing to do: vhosts are served by every node that runs.",
        None,
        ADMINISTRATOR,
        codes=(204,),
    )
    async def _start(self, request: web.Request) -> web.Response:
        await self._known_vhost(request)
        name = request.match_info["node"]
        if name not in {node.name for node in self._node.view.nodes()}:
            raise not_found(f"node '{name}'")
        return done()

    # Limits

    @listed("/api/vhost-limits", "Limits of vhosts that the user sees.", LimitsView)
    @listed("/api/vhost-limits/{vhost}", "Limits of a vhost.", LimitsView)
    async def _limits(self, request: web.Request) -> web.Response:
        vhosts = await self._asked_vhosts(request)
        found = {name: self._node.view.vhost_limits(name) for name in vhosts}
        rows = [{"vhost": name, "value": limits} for name, limits in found.items() if limits]
        return await listing(request, rows, dict, name=itemgetter("vhost"))

    @put(
        "/api/vhost-limits/{vhost}/{limit}",
        "Set a limit of a vhost.",
        LimitBody,
        ADMINISTRATOR,
        values=_LIMITS,
    )
    async def _put_limit(self, request: web.Request) -> web.Response:
        body = await decode(request, LimitBody)
        vhost, limit = request.match_info["vhost"], request.match_info["limit"]
        await self._submit(SetVhostLimits(vhost, {limit: body.value}))
        return done()

    @deleted(
        "/api/vhost-limits/{vhost}/{limit}",
        "Remove a limit of a vhost.",
        ADMINISTRATOR,
        values=_LIMITS,
    )
    async def _delete_limit(self, request: web.Request) -> web.Response:
        vhost = await self._known_vhost(request)
        limit = request.match_info["limit"]
        if limit not in VHOST_LIMITS:
            raise not_found(f"limit '{limit}' of vhosts")
        await self._submit(SetVhostLimits(vhost, {limit: -1}))
        return done()


def _changed(vhost: Vhost, body: VhostBody) -> Vhost:
    """Return a vhost with what a body says."""
    kind = body.default_queue_type
    if kind is None:
        kind = vhost.default_queue_type
    tags = list(vhost.tags) if body.tags is None else body.tags
    words = tags.split(",") if isinstance(tags, str) else tags
    return Vhost(
        vhost.name,
        "" if kind == DEFAULT_QUEUE_TYPE else kind,
        vhost.description if body.description is None else body.description,
        tuple(word.strip() for word in words if word.strip()),
    )


def _figures(rows: list[VhostStats], ages: Ages) -> dict[str, Any]:
    """Return what the queues of a vhost hold and what moves there, from what each node says."""
    last = summed_last(row.last for row in rows)
    every = summed(row.samples for row in rows)
    start, stop = len(LENGTH_FIGURES), len(LENGTH_FIGURES) + len(BYTE_FIGURES)
    byte_counts = named(
        BYTE_FIGURES, cut(last, start, stop), cut(every, start, stop), ages.rates_ms
    )
    moved = named(CLIENT_FIGURES, cut(last, stop), cut(every, stop), ages.rates_ms)
    return {
        **lengths(VHOST_FIGURES, last, every, ages),
        **byte_counts,
        "message_stats": with_deliver_get(moved),
    }


def render_vhost(vhost: Vhost) -> Row:
    """Return a vhost as JSON."""
    kind = vhost.default_queue_type or DEFAULT_QUEUE_TYPE
    return {
        "name": vhost.name,
        "description": vhost.description,
        "tags": list(vhost.tags),
        "default_queue_type": kind,
        "metadata": {
            "description": vhost.description,
            "tags": list(vhost.tags),
            "default_queue_type": kind,
        },
        "tracing": False,
    }
