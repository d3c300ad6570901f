"""/api/health/checks: whether all is well, 503 and a reason when not; RabbitMQ's answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from aiohttp import web
from typing_extensions import TypedDict

from headrace_broker.catalog.pattern import matches, pattern_problem
from headrace_broker.management.http.access import caller
from headrace_broker.management.http.answer import bad_request, json_answer
from headrace_broker.management.http.endpoints import Endpoints
from headrace_broker.management.http.listing import searched
from headrace_broker.management.http.query import checked_number
from headrace_broker.management.http.route import H, got
from headrace_broker.management.view.figures import NO_AGES
from headrace_broker.model.stats import Listener, NodeStats

DAY_S: Final = 86_400
UNITS: Final = {"days": 1, "weeks": 7, "months": 28, "years": 365}  # in days, as RabbitMQ has it
WITHIN_MAX: Final = 10_000
_LEADERLESS: Final = "quorum-queues-without-elected-leaders"
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


def _checked(path: str, summary: str, **values: dict[str, Any]) -> Callable[[H], H]:
    path = f"/api/health/checks/{path}"
    return got(path, summary, Check, failed=FailedCheck, values=values)


class HealthEndpoints(Endpoints):
    """Answers health checks of this node."""

    @_checked("ready-to-serve-clients", "Whether the node takes clients.")
    @_checked("is-in-service", "Whether the node is up and not being drained.")
    @_checked("virtual-hosts", "Whether vhosts are served.")
    @_checked("metadata-store/initialized", "Whether the node's copy of the catalog is up to date.")
    @_checked("metadata-store/initialized/with-data", "The same.")
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

    @_checked("port-listener/{port}", "Whether the node listens on a port.", port=_PORT)
    async def _port(self, request: web.Request) -> web.Response:
        port = checked_number("port", request.match_info["port"], 1, 65535)
        ports = sorted({each.port for each in await self._listeners()})
        if port in ports:
            return _fine(port=port)
        return _failed("No active listener", missing=port, ports=ports)

    @_checked(
        "protocol-listener/{protocol}",
        "Whether it speaks a protocol, or one of several with commas between.",
    )
    async def _protocol(self, request: web.Request) -> web.Response:
        asked = request.match_info["protocol"]
        protocols = sorted({each.protocol for each in await self._listeners()})
        for name in asked.lower().split(","):
            protocol = _PROTOCOLS.get(name, name)
            if protocol in protocols:
                return _fine(protocol=protocol)
        return _failed("No active listener", missing=asked, protocols=protocols)

    @_checked(
        "certificate-expiration/{within}/{unit}",
        "Whether its certificates are valid for so many days, weeks, months or years.",
        within={"type": "integer", "minimum": 1, "maximum": WITHIN_MAX},
        unit={"enum": list(UNITS)},
    )
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

    @_checked(
        "node-is-quorum-critical",
        "Whether all replicated queues would have a quorum without this node.",
    )
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

    @_checked("node-is-mirror-sync-critical", "There are no mirrored queues.")
    async def _mirrors(self, request: web.Request) -> web.Response:
        return _fine(reason="there are no mirrored queues")

    @_checked("below-node-connection-limit", "Whether the node takes further connections.")
    async def _connections(self, request: web.Request) -> web.Response:
        own = await self._own()
        if own is None or own.totals.connections < own.sockets_total:
            return _fine()
        reason = f"{own.totals.connections} connections, at most {own.sockets_total}"
        return _failed(reason, current=own.totals.connections, limit=own.sockets_total)

    @_checked(_LEADERLESS + "/all-vhosts", "Whether all replicated queues have a leader.")
    @_checked(_LEADERLESS + "/vhost/{vhost}", "Likewise in a vhost.")
    @_checked(
        _LEADERLESS + "/all-vhosts/pattern/{pattern}",
        "Likewise, of queues whose name has an expression.",
    )
    @_checked(_LEADERLESS + "/vhost/{vhost}/pattern/{pattern}", "Likewise in a vhost.")
    async def _leaders(self, request: web.Request) -> web.Response:
        vhost = await self._asked_vhost(request)
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
