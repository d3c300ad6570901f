"""/api/health/checks: whether all is well, 503 and a reason when not; RabbitMQ's answers."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from aiohttp import web
from typing_extensions import TypedDict

from headrace_broker.catalog.pattern import matches, pattern_problem
from headrace_broker.management.http.access import caller
from headrace_broker.management.http.administration import Administration, known_vhost
from headrace_broker.management.http.answer import bad_request, json_answer
from headrace_broker.management.http.listing import searched
from headrace_broker.management.http.query import checked_number
from headrace_broker.management.http.route import Route, got
from headrace_broker.management.http.status_source import StatusSource
from headrace_broker.management.view.figures import NO_AGES
from headrace_broker.model.stats import Listener, NodeStats

DAY_S: Final = 86_400
UNITS: Final = {"days": 1, "weeks": 7, "months": 28, "years": 365}  # in days, as RabbitMQ has it
WITHIN_MAX: Final = 10_000
_PORT: Final = {"type": "integer", "minimum": 1, "maximum": 65535}
# Names that clients know protocols by, and ours.
_PROTOCOLS: Final = {
    "amqp091": "amqp",
    "amqp0.9.1": "amqp",
    "amqp0-9-1": "amqp",
    "amqps": "amqp/ssl",
    "amqp/tls": "amqp/ssl",
    "http/ssl": "https",
    "http/tls": "https",
    "grpcs": "grpc/ssl",
    "grpc/tls": "grpc/ssl",
}


class _State(TypedDict):
    status: str


class State(_State, total=False):
    """Health: `status` is "ok", or "failed" with a reason."""

    reason: str


class CheckedQueue(TypedDict):
    """A queue that is not as it should be."""

    name: str
    virtual_host: str
    type: str


class ExpiringCertificate(TypedDict):
    """A certificate that ends soon."""

    expires_in_s: int


class Check(_State, total=False):
    """Passed check: `status` is "ok"."""

    reason: str
    port: int
    protocol: str


class FailedCheck(_State, total=False):
    """Failed check: `status` is "failed" with a reason."""

    reason: str
    missing: int | str
    ports: list[int]
    protocols: list[str]
    expired: list[ExpiringCertificate]
    queues: list[CheckedQueue]
    current: int
    limit: int


class HealthEndpoints:
    """Answers health checks of this node."""

    def __init__(self, node: Administration, source: StatusSource) -> None:
        self._node = node
        self._source = source

    def routes(self) -> list[Route]:
        """Return the route table."""
        checks = "/api/health/checks"

        def check(path: str, handler: Any, summary: str, **values: dict[str, Any]) -> Route:
            path = f"{checks}/{path}"
            return got(path, handler, summary, Check, failed=FailedCheck, values=values)

        return [
            check("ready-to-serve-clients", self._ready, "Whether the node takes clients."),
            check("is-in-service", self._ready, "Whether the node is up and not being drained."),
            check("virtual-hosts", self._ready, "Whether vhosts are served."),
            check(
                "metadata-store/initialized",
                self._ready,
                "Whether the node's copy of the catalog is up to date.",
            ),
            check("metadata-store/initialized/with-data", self._ready, "The same."),
            check(
                "port-listener/{port}",
                self._port,
                "Whether the node listens on a port.",
                port=_PORT,
            ),
            check(
                "protocol-listener/{protocol}",
                self._protocol,
                "Whether it speaks a protocol, or one of several with commas between.",
            ),
            check(
                "certificate-expiration/{within}/{unit}",
                self._certificate,
                "Whether its certificates are valid for so many days, weeks, months or years.",
                within={"type": "integer", "minimum": 1, "maximum": WITHIN_MAX},
                unit={"enum": list(UNITS)},
            ),
            check(
                "node-is-quorum-critical",
                self._quorum_critical,
                "Whether all replicated queues would have a quorum without this node.",
            ),
            check("node-is-mirror-sync-critical", self._mirrors, "There are no mirrored queues."),
            check(
                "below-node-connection-limit",
                self._connections,
                "Whether the node takes further connections.",
            ),
            check(
                "quorum-queues-without-elected-leaders/all-vhosts",
                self._leaders,
                "Whether all replicated queues have a leader.",
            ),
            check(
                "quorum-queues-without-elected-leaders/vhost/{vhost}",
                self._leaders,
                "Likewise in a vhost.",
            ),
            check(
                "quorum-queues-without-elected-leaders/all-vhosts/pattern/{pattern}",
                self._leaders,
                "Likewise, of queues whose name has an expression.",
            ),
            check(
                "quorum-queues-without-elected-leaders/vhost/{vhost}/pattern/{pattern}",
                self._leaders,
                "Likewise in a vhost.",
            ),
        ]

    async def _ready(self, request: web.Request) -> web.Response:
        reason = self._source.not_ready_reason()
        return _failed(reason) if reason else _fine()

    async def _own(self) -> NodeStats | None:
        rows, _ = await self._node.stats.ask(NO_AGES.question(node=True))
        own = self._source.overview().node
        return next((row for row in rows if isinstance(row, NodeStats) and row.name == own), None)

    async def _listeners(self) -> tuple[Listener, ...]:
        own = await self._own()
        return own.listeners if own is not None else ()

    async def _port(self, request: web.Request) -> web.Response:
        port = checked_number("port", request.match_info["port"], 1, 65535)
        ports = sorted({each.port for each in await self._listeners()})
        if port in ports:
            return _fine(port=port)
        return _failed("No active listener", missing=port, ports=ports)

    async def _protocol(self, request: web.Request) -> web.Response:
        asked = request.match_info["protocol"]
        protocols = sorted({each.protocol for each in await self._listeners()})
        for name in asked.lower().split(","):
            protocol = _PROTOCOLS.get(name, name)
            if protocol in protocols:
                return _fine(protocol=protocol)
        return _failed("No active listener", missing=asked, protocols=protocols)

    async def _certificate(self, request: web.Request) -> web.Response:
        unit = request.match_info["unit"]
        if unit not in UNITS:
            raise bad_request(f"unit: must be one of {', '.join(UNITS)}, not '{unit:.40}'")
        within = checked_number("within", request.match_info["within"], 1, WITHIN_MAX)
        ends_s = self._source.certificate_ends_s()
        left_s = None if ends_s is None else ends_s - time.time()
        if left_s is None or left_s > within * UNITS[unit] * DAY_S:
            return _fine()
        return _failed("Certificates expiring", expired=[{"expires_in_s": int(left_s)}])

    async def _quorum_critical(self, request: web.Request) -> web.Response:
        queues = self._source.critical_queues()
        if queues is None:
            return _fine(reason="single node cluster")
        if not queues:
            return _fine()
        reason = (
            "There are quorum queues that would lose their quorum if the target node is shut down"
        )
        shown = [
            {"name": name, "virtual_host": vhost, "type": "quorum"}
            for vhost, name in self._seen(queues)
        ]
        return _failed(reason, queues=shown)

    def _seen(self, queues: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the queues, as vhost and name, in vhosts that the asker may look at."""
        who, view = caller(), self._node.view
        return [(vhost, name) for vhost, name in queues if who.sees(view, vhost)]

    async def _mirrors(self, request: web.Request) -> web.Response:
        return _fine(reason="there are no mirrored queues")

    async def _connections(self, request: web.Request) -> web.Response:
        own = await self._own()
        if own is None or own.totals.connections < own.sockets_total:
            return _fine()
        reason = f"{own.totals.connections} connections, at most {own.sockets_total}"
        return _failed(reason, current=own.totals.connections, limit=own.sockets_total)

    async def _leaders(self, request: web.Request) -> web.Response:
        vhost = None
        if "vhost" in request.match_info:
            vhost = await known_vhost(self._node, request)
        pattern = request.match_info.get("pattern", "")
        problem = pattern_problem("pattern", pattern)
        if problem:
            raise bad_request(problem)
        seen = self._seen(self._source.leaderless_queues())
        named = [each for each in seen if vhost in (None, each[0])]
        missing = [
            {"name": name, "virtual_host": place, "type": "quorum"}
            for place, name in await searched(
                "pattern", named, lambda each: matches(pattern, each[1])
            )
        ]
        if not missing:
            return _fine()
        return _failed("Some quorum queues have no leader", queues=missing)


def _fine(**more: Any) -> web.Response:
    return json_answer({"status": "ok", **more})


def _failed(reason: str, **more: Any) -> web.Response:
    return json_answer({"status": "failed", "reason": reason, **more}, status=503)
