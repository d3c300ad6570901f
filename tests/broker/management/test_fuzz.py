"""Random requests: whatever comes is answered, and nothing is a fault of the server."""

from __future__ import annotations

import asyncio
import base64
import random
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest

from headrace_broker.catalog.command import DeclareQueue
from headrace_broker.management.server import ManagementServer

LOGIN = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
PATHS = (
    "vhosts/{}",
    "users/{}",
    "permissions/%2F/{}",
    "policies/%2F/{}",
    "operator-policies/%2F/{}",
    "vhost-limits/%2F/{}",
    "user-limits/guest/{}",
    "queues/%2F/{}",
    "queues/%2F/{}/contents",
    "exchanges/%2F/{}",
    "bindings/%2F/e/amq.topic/e/{}",
    "bindings/%2F/e/amq.topic/e/amq.fanout/{}",
    "connections/{}",
    "channels/{}",
    "consumers/{}",
    "queues/%2F/q/messages?after={}",
    "queues/%2F/q/messages?limit={}&truncate={}",
    "queues/%2F/q/messages/{}",
    "queues/%2F/q/messages/move",
    "queues/%2F/q/get",
    "bindings/%2F/e/amq.topic/q/q",
)
FIELDS = (
    *("description", "tags", "default_queue_type", "password_hash", "configure", "write"),
    *("read", "pattern", "definition", "priority", "apply-to", "value", "durable", "type"),
    *(
        "auto_delete",
        "arguments",
        "internal",
        "routing_key",
        "count",
        "ids",
        "truncate",
        "exchange",
    ),
    *("queue", "password", "hashing_algorithm"),
)
NAMES: tuple[str, ...] = (
    "q",
    "amq.topic",
    "",
    "/",
    "..",
    "a b",
    "x" * 300,
    "\N{SNOWMAN}",
    "\0",
    "%",
    "max-queues",
)
NAMES += ("7", "9" * 5000, "-1", "1" * 20)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1 << 70, -(1 << 63), 1.5, 1e308, "", "x", "\0", "(", "all"),
    *("administrator", "topic", "true", "7", [], [1], {}, {"max-length": 1 << 65}, {"": None}),
    *({"x-max-length": -1}, {"x-match": [[[]]]}, {"a": {"b": {"c": [1, {"d": "\ud83d"}]}}}),
    *({"alternate-exchange": 1}, {"x-expires": "soon"}, {"max-length": 5}, ".*"),
)

REASONS = ("", "too loud", "x" * 4000, "\N{SNOWMAN}")


def random_request(pick: random.Random) -> tuple[str, str, Any]:
    name = quote(pick.choice(NAMES), safe="")
    path = pick.choice(PATHS).format(name, name)
    body = {pick.choice(FIELDS): pick.choice(VALUES) for _ in range(pick.randrange(7))}
    return pick.choice(("GET", "PUT", "PUT", "POST", "DELETE")), f"/api/{path}", body


@pytest.mark.parametrize("seed", range(6))
def test_random_requests_are_answered_and_never_a_fault_of_the_server(node, seed):
    pick = random.Random(seed)
    node.do(DeclareQueue("/", "q", "quorum"))

    async def talk() -> list[tuple[str, str, Any, int]]:
        server = ManagementServer(node, node)
        port = await server.start("127.0.0.1", 0)
        faults = []
        try:
            async with aiohttp.ClientSession(headers=LOGIN) as session:
                for _ in range(250):
                    method, path, body = random_request(pick)
                    url = f"http://127.0.0.1:{port}{path}"
                    more = {"X-Reason": pick.choice(REASONS)}
                    async with session.request(method, url, json=body, headers=more) as answer:
                        if answer.status >= 500:
                            faults.append((method, path, body, answer.status))
        finally:
            await server.stop()
        return faults

    assert asyncio.run(talk()) == []
