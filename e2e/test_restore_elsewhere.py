"""A backup of one cluster is put into another one that was never there before."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pika
import pytest
from e2e.harness.cluster import Cluster
from e2e.harness.command import run_command

from headrace_broker.cli.session.api_client import ApiClient

HEADRACE = [sys.executable, "-m", "headrace_broker.cli"]
VHOST = "shop"
MESSAGES = 300


def declare(cluster: Cluster) -> None:
    """Make a vhost, a user, a policy, a bound queue, and messages in it."""
    api = cluster.node("n1").api
    for path, body in (
        (f"vhosts/{VHOST}", {"description": "orders"}),
        ("users/ann", {"password": "opensesame", "tags": "monitoring"}),
        (f"permissions/{VHOST}/ann", {"configure": "", "write": ".*", "read": ".*"}),
        (f"policies/{VHOST}/keep", {"pattern": "^orders", "definition": {"max-length": 1000}}),
        (f"exchanges/{VHOST}/in", {"type": "topic", "durable": True}),
        (f"queues/{VHOST}/orders", {"durable": True}),
    ):
        assert api.request("PUT", f"/api/{path}", body, seconds=60).status in (201, 204)
    bound = api.request("POST", f"/api/bindings/{VHOST}/e/in/q/orders", {"routing_key": "#"})
    assert bound.status == 201
    channel = cluster.connect("n1", **as_ann()).channel()
    channel.confirm_delivery()
    for number in range(MESSAGES):
        properties = pika.BasicProperties(headers={"n": number}, message_id=f"m{number}")
        channel.basic_publish("in", f"order.{number}", b"%d" % number, properties)


def as_ann() -> dict[str, object]:
    return {"virtual_host": VHOST, "credentials": pika.PlainCredentials("ann", "opensesame")}


@pytest.mark.full
def test_definitions_and_messages_come_back_in_a_fresh_cluster(tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    with Cluster(tmp_path / "first") as first:
        declare(first)
        run_command(first, [*HEADRACE, "backup", str(backup)])
        first.close_connections()
    with Cluster(tmp_path / "second") as second:
        api: ApiClient = second.node("n1").api
        assert api.request("GET", f"/api/vhosts/{VHOST}").status == 404
        words = ["restore", str(backup), "--definitions", "all", "-o", "json"]
        [row] = msgspec.json.decode(run_command(second, [*HEADRACE, *words]))
        assert (row["queue"], row["messages"], row["before"]) == ("orders", MESSAGES, 0)

        policy = api.request("GET", f"/api/policies/{VHOST}/keep").body
        assert policy["definition"] == {"max-length": 1000}
        assert api.request("GET", "/api/users/ann").body["tags"] == ["monitoring"]
        channel = second.connect("n2", **as_ann()).channel()
        for number in range(MESSAGES):
            method, properties, body = channel.basic_get("orders", auto_ack=True)
            assert (method.exchange, method.routing_key) == ("in", f"order.{number}")
            assert (properties.headers, properties.message_id) == ({"n": number}, f"m{number}")
            assert body == b"%d" % number
        assert channel.basic_get("orders")[0] is None
        channel.basic_publish("in", "order.new", b"new")  # its binding is there, too
        [_, _, body] = next(channel.consume("orders"))
        assert body == b"new"
        second.close_connections()
