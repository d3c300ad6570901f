"""/metrics: this node for Prometheus.

The number of series of /metrics does not grow with queues and clients. Single queues and
connections are told at /metrics/per-object and /metrics/detailed, where the configuration allows
that, within a bound and in pieces, so that the node does other things meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST
from typing_extensions import override

from headrace_broker.management.http.answer import bad_request, not_found
from headrace_broker.management.http.endpoints import Endpoints
from headrace_broker.management.http.route import MONITORING, Parameter, Route, got
from headrace_broker.management.view.exposition import (
    ProcessMetrics,
    families_of,
    pieces_of,
    text_of,
)
from headrace_broker.runtime.administration.administration import NodeAdministration
from headrace_broker.runtime.administration.status import NodeStatusSource
from headrace_broker.runtime.metrics.catalogue import METRICS
from headrace_broker.runtime.metrics.detailed import FAMILIES
from headrace_broker.runtime.metrics.metric import Sample

_FAMILY: Final = Parameter("family", "What is wanted, may be repeated.", {"enum": [*FAMILIES]})
_VHOST: Final = Parameter("vhost", "Only objects of this vhost, may be repeated.")
_TEXT: Final[dict[str, Any]] = {"media": "text/plain", "tag": "metrics"}
_OBJECTS: Final[dict[str, Any]] = {**_TEXT, "codes": (404,)}


class MetricEndpoints(Endpoints):
    """Answers scrapes."""

    def __init__(
        self, node: NodeAdministration, source: NodeStatusSource, role: str = MONITORING
    ) -> None:
        super().__init__(node, source)
        self._role = role  # who may scrape; `route.NOBODY` for everybody
        self._process = ProcessMetrics()

    @override
    def routes(self) -> list[Route]:
        return [row._replace(role=self._role) for row in super().routes()]

    @got("/metrics", "The node's metrics for Prometheus.", str, **_TEXT)
    async def _of_node(self, request: web.Request) -> web.Response:
        samples = [*self._node.metrics.samples(), *self._states()]
        await asyncio.sleep(0)
        text = text_of(families_of(METRICS, samples))
        return _answer(text + self._process.text())

    def _states(self) -> Iterator[Sample]:
        status = self._source
        yield Sample("ready", not status.not_ready_reason())
        yield Sample("queues_leaderless", len(status.leaderless_queues()))
        yield Sample("queues_quorum_critical", len(status.critical_queues() or ()))

    @got("/metrics/per-object", "Metrics of its queues and connections.", str, **_OBJECTS)
    async def _per_object(self, request: web.Request) -> web.Response:
        self._check_allowed()
        return await self._objects(FAMILIES, ())

    @got(
        "/metrics/detailed",
        "Some metrics of its queues and connections.",
        str,
        query=(_FAMILY, _VHOST),
        **_OBJECTS,
    )
    async def _detailed(self, request: web.Request) -> web.Response:
        self._check_allowed()
        families = request.query.getall("family", [])
        unknown = sorted(set(families) - set(FAMILIES))
        if unknown or not families:
            given = f"{unknown[0]!r:.80} is not known" if unknown else "is missing"
            raise bad_request(f"family: {given}; there are {', '.join(FAMILIES)}")
        return await self._objects(families, request.query.getall("vhost", []))

    def _check_allowed(self) -> None:
        if not self._node.metrics.per_object:
            raise not_found(
                "metrics of single objects: the configuration's metrics.per_object is false"
            )

    async def _objects(
        self, families: list[str] | tuple[str, ...], vhosts: list[str] | tuple[str, ...]
    ) -> web.Response:
        pieces: list[str] = []
        for table in self._node.metrics.objects(families, vhosts):
            for piece in pieces_of(table):
                pieces.append(piece)
                await asyncio.sleep(0)
        return _answer("".join(pieces).encode())


def _answer(text: bytes) -> web.Response:
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})
