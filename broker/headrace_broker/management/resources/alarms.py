"""/api/health/checks/alarms and local-alarms, with the answers of RabbitMQ."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from headrace_broker.management.http.access import caller
from headrace_broker.management.http.answer import json_answer
from headrace_broker.management.http.route import Route, got
from headrace_broker.management.http.status_source import StatusSource
from headrace_broker.management.resources.health import State
from headrace_broker.runtime.alarm.alarms import AlarmStatus


class AlarmEndpoints:
    """Answers whether an alarm is on: 200 when none is, otherwise 503 and which."""

    def __init__(self, source: StatusSource) -> None:
        self._source = source

    def routes(self) -> list[Route]:
        """Return the route table."""
        return [
            got(
                "/api/health/checks/alarms",
                self._all,
                "Whether no alarm is on in the cluster.",
                State,
                codes=(503,),
            ),
            got(
                "/api/health/checks/local-alarms",
                self._local,
                "Whether no alarm is on at this node.",
                State,
                codes=(503,),
            ),
        ]

    async def _all(self, request: web.Request) -> web.Response:
        caller()
        return _answer("cluster", self._source.alarms())

    async def _local(self, request: web.Request) -> web.Response:
        caller()
        own = self._source.overview().node
        return _answer("node", [each for each in self._source.alarms() if each.node == own])


def _answer(where: str, alarms: Sequence[AlarmStatus]) -> web.Response:
    if not alarms:
        return json_answer({"status": "ok"})
    shown = [
        {"node": each.node, "resource": each.resource, "reason": each.reason} for each in alarms
    ]
    reason = f"There are alarms in effect in the {where}"
    return json_answer({"status": "failed", "reason": reason, "alarms": shown}, status=503)
