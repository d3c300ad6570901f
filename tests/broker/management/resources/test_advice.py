"""/api/flow/advice."""

from __future__ import annotations

import time
from typing import Any

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.advice import CONSUMERS, Advice


def advice(now_ms: int, **fields: Any) -> Advice:
    given: dict[str, Any] = {
        "vhost": "/",
        "queue": "q",
        "kind": CONSUMERS,
        "value": 8,
        "current": 2,
    }
    more: dict[str, Any] = {
        "reason": "busy",
        "valid_until_ms": now_ms + 60_000,
        "author": "me",
        "given_ms": now_ms,
    }
    return Advice(**(given | more | fields), figures=(("rate", "0.5"),))


def test_advice_is_told_until_it_lapses(api: Any, fake_node: Any, refused: Any) -> None:
    now_ms = time.time_ns() // 1_000_000
    for queue in ("q", "r"):
        fake_node.do(commands.DeclareQueue("/", queue, "quorum"))
    over = advice(now_ms, author="old", valid_until_ms=now_ms - 1)
    items = (advice(now_ms), advice(now_ms, queue="r"), over)
    fake_node.do(commands.PutAdvice(items, now_ms - 2))
    status, rows = api("GET", "/api/flow/advice", user="mon")
    assert (status, [row["queue"] for row in rows]) == (200, ["q", "r"])
    assert rows[0] == {
        "vhost": "/",
        "queue": "q",
        "kind": "consumers",
        "value": 8,
        "current": 2,
        "reason": "busy",
        "figures": {"rate": 0.5},
        "valid_until_ms": now_ms + 60_000,
        "author": "me",
        "given_ms": now_ms,
    }
    [row] = api("GET", "/api/flow/advice?vhost=/&queue=r")[1]
    assert row["queue"] == "r"
    assert api("GET", "/api/flow/advice?author=old")[1] == []
    assert "vhost" in refused(400, "GET", "/api/flow/advice?queue=r")


def test_advice_is_told_to_who_may_look_at_the_vhost(api: Any, fake_node: Any) -> None:
    now_ms = time.time_ns() // 1_000_000
    fake_node.do(commands.DeclareQueue("/", "q", "quorum"))
    fake_node.do(commands.PutAdvice((advice(now_ms),), now_ms))
    assert api("GET", "/api/flow/advice", user="pol") == (200, [])
    assert len(api("GET", "/api/flow/advice", user="mon")[1]) == 1
