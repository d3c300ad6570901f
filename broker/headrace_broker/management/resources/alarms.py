"""/api/health/checks/alarms and local-alarms, with the answers of RabbitMQ."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from headrace_broker.management.http.access import caller
from headrace_broker.management.http.answer import json_answer
from headrace_broker.management.http.endpoints import Endpoints
from headrace_broker.management.http.route import got
from headrace_broker.management.resources.health import State
from headrace_broker.runtime.alarm.alarms import AlarmStatus


class AlarmEndpoints(Endpoints):
    """Answers whether an alarm is on: 200 when none is, otherwise 503 and which."""

    @got("/api/health/checks/alarms", "Whether no alarm is on in the cluster.", State, codes=(503,))
    async def _all(self, request: web.Request) -> web.Response:
        caller()
        return _answer("cluster", self._source.alarms())

    @got(
        "/api/health/checks/local-alarms",
        "Whether no alarm is on at this node.",
        State,
        codes=(503,),
    )
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
