"""Clients of RabbitMQ's API against ours: rabbitmqadmin and KEDA."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pika
import pika.exceptions
import pytest
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.debian import NotToBeHadError, program


@pytest.fixture(scope="module")
def rabbitmqadmin() -> Path:
    """The script of RabbitMQ, which is not under test."""
    try:
        return program("rabbitmq-server", "usr/bin/rabbitmqadmin")
    except NotToBeHadError as error:
        pytest.skip(f"rabbitmqadmin is not to be had: {error}")


@pytest.fixture
def port(shared_cluster: Cluster) -> str:
    return shared_cluster.node("n2").http.rpartition(":")[2]


def test_rabbitmqadmin_declares_publishes_gets_exports_and_deletes(
    rabbitmqadmin: Path, port: str, tmp_path: Path
) -> None:
    def admin(*words: str) -> str:
        command = [sys.executable, str(rabbitmqadmin), "-H", "127.0.0.1", "-P", port, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    admin("declare", "vhost", "name=ra")
    admin("declare", "permission", "vhost=ra", "user=guest", "configure=.*", "write=.*", "read=.*")
    admin("-V", "ra", "declare", "exchange", "name=x", "type=topic")
    admin("-V", "ra", "declare", "queue", "name=q", "durable=true")
    admin("-V", "ra", "declare", "binding", "source=x", "destination=q", "routing_key=a.#")
    admin("-V", "ra", "declare", "policy", "name=p", "pattern=^q", 'definition={"max-length":9}')
    assert "published" in admin(
        "-V", "ra", "publish", "exchange=x", "routing_key=a.b", "payload=hi"
    )
    assert "NOT" in admin("-V", "ra", "publish", "exchange=x", "routing_key=b", "payload=hi")
    got = json.loads(
        admin("-V", "ra", "-f", "raw_json", "get", "queue=q", "ackmode=ack_requeue_false")
    )
    assert [message["payload"] for message in got] == ["hi"]
    for what in ("overview", "nodes", "vhosts", "queues", "exchanges", "bindings", "users"):
        admin("show" if what == "overview" else "list", what)
    for what in ("permissions", "policies", "parameters", "connections", "channels", "consumers"):
        admin("list", what)
    file = tmp_path / "definitions.json"
    admin("export", str(file))
    admin("-V", "ra", "delete", "queue", "name=q")
    admin("import", str(file))
    assert "q" in admin("-V", "ra", "list", "queues", "name")
    admin("-V", "ra", "purge", "queue", "name=q")
    admin("delete", "vhost", "name=ra")


def test_an_autoscaler_reads_length_and_rates(shared_cluster: Cluster, queue_name: Any) -> None:
    """KEDA asks for one queue by name, or for a page of those that fit an expression."""
    name = queue_name("scaled")
    connection = shared_cluster.connect("n1")
    channel = connection.channel()
    channel.queue_declare(name, durable=True)
    api = shared_cluster.node("n3").api
    query = f"page=1&use_regex=true&pagination=false&name=^{name[:12]}&page_size=100"

    def one() -> Any:
        status, queue = api.get(f"/api/queues/%2F/{quote(name, safe='')}")
        assert status == 200
        return queue

    def of_page() -> Any:
        status, page = api.get(f"/api/queues/%2F?{query}")
        assert (status, page["page_count"]) == (200, 1)
        [queue] = [item for item in page["items"] if item["name"] == name]
        return queue

    def moves(look: Any) -> bool:
        for _ in range(3):
            channel.basic_publish("", name, b"x")
        channel.basic_get(name, auto_ack=True)
        queue = look()
        stats = queue["message_stats"]
        published, delivered = (
            stats["publish_details"]["rate"],
            stats["deliver_get_details"]["rate"],
        )
        assert queue["messages"] == queue["messages_ready"] + queue["messages_unacknowledged"]
        return bool(queue["messages"] > 0 and published > delivered > 0)

    wait_for("rates of the queue", lambda: moves(one))
    wait_for("rates in the list", lambda: moves(of_page))
    channel.queue_delete(name)


def test_users_of_a_rabbitmq_log_in_with_the_passwords_they_had(shared_cluster: Cluster) -> None:
    """Their hashes, of one round of SHA, give way to slow ones at the first log-in."""
    api = shared_cluster.node("n2").api
    secret = base64.b64encode(b"salt" + hashlib.sha512(b"saltsesame").digest()).decode()
    user = {
        "name": "moved",
        "tags": ["monitoring"],
        "password_hash": secret,
        "hashing_algorithm": "rabbit_password_hashing_sha512",
    }
    rights = {"user": "moved", "vhost": "/", "configure": "", "write": "", "read": ""}
    file = {"rabbit_version": "4.1.0", "users": [user], "permissions": [rights]}
    assert api.request("POST", "/api/definitions", file).status == 204

    def shown() -> Any:
        return api.get("/api/users/moved")[1]

    assert shown()["password_hash"] == secret
    for password in ("wrong", "sesame", "sesame"):
        credentials = pika.PlainCredentials("moved", password)
        if password == "wrong":
            with pytest.raises(pika.exceptions.ProbableAuthenticationError):
                shared_cluster.connect("n3", credentials=credentials)
            assert shown()["password_hash"] == secret
        else:
            shared_cluster.connect("n3", credentials=credentials).close()
            wait_for("another hash", lambda: shown()["hashing_algorithm"] == "scrypt")
    assert shown()["tags"] == ["monitoring"]
    assert api.request("DELETE", "/api/users/moved").status == 204
