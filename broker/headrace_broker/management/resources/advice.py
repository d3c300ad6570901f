"""/api/flow/advice: what those who watch the cluster think that limits and consumers should be."""

from __future__ import annotations

import time
from typing import Any

from aiohttp import web

from headrace_broker.catalog.access import check_manages
from headrace_broker.catalog.advice import Advice
from headrace_broker.management.http.access import caller, check_sees
from headrace_broker.management.http.administration import Administration
from headrace_broker.management.http.answer import bad_request, json_answer
from headrace_broker.management.http.route import Parameter, Route, got

WHICH = (
    Parameter("vhost", "Only on queues in this one."),
    Parameter("queue", "Only on this queue; with `vhost`."),
    Parameter("author", "Only of who advises under this name."),
)


class AdviceEndpoints:
    """Read access to advice; it is given over gRPC."""

    def __init__(self, node: Administration) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        """Return the route table."""
        return [
            got(
                "/api/flow/advice",
                self._list,
                "Advice on limits and numbers of consumers that has not lapsed.",
                list[dict[str, Any]],
                query=WHICH,
            )
        ]

    async def _list(self, request: web.Request) -> web.Response:
        who, view, query = caller(), self._node.view, request.query
        check_manages(who)
        vhost, queue = query.get("vhost", ""), query.get("queue", "")
        if queue and not vhost:
            raise bad_request("vhost: must be given with a queue")
        if vhost:
            check_sees(who, view, vhost)
        now_ms = time.time_ns() // 1_000_000
        found = view.advice.valid(now_ms, vhost, queue, query.get("author", ""))
        return json_answer([render(each) for each in found if who.sees(view, each.vhost)])


def render(advice: Advice) -> dict[str, Any]:
    """Return advice for JSON."""
    return {
        "vhost": advice.vhost,
        "queue": advice.queue,
        "kind": advice.kind,
        "value": advice.value,
        "current": advice.current,
        "reason": advice.reason,
        "figures": {name: float(text) for name, text in advice.figures},
        "valid_until_ms": advice.valid_until_ms,
        "author": advice.author,
        "given_ms": advice.given_ms,
    }
