"""What programs that know RabbitMQ's API do with ours: rabbitmqadmin, KEDA and Terraform."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any
from urllib.parse import quote

import pytest
from e2e.harness.cluster import Cluster, wait_for

RABBITMQADMIN = shutil.which("rabbitmqadmin")  # in Debian's package rabbitmq-server


@pytest.fixture
def port(shared_cluster: Cluster) -> str:
    return shared_cluster.node("n2").http.rpartition(":")[2]


@pytest.mark.skipif(RABBITMQADMIN is None, reason="rabbitmqadmin is not installed")
def test_rabbitmqadmin_declares_publishes_gets_exports_and_deletes(
    port: str, tmp_path: Any
) -> None:
    def admin(*words: str) -> str:
        command = [str(RABBITMQADMIN), "-H", "127.0.0.1", "-P", port, *words]
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
    name = queue_name("scaled")
    connection = shared_cluster.connect("n1")
    channel = connection.channel()
    channel.queue_declare(name, durable=True)
    api = shared_cluster.node("n3").api

    def read() -> Any:
        channel.basic_publish("", name, b"x")
        status, queue = api.get(f"/api/queues/%2F/{quote(name, safe='')}")
        assert status == 200
        stats = queue["message_stats"]
        assert stats["deliver_get_details"]["rate"] >= 0
        return queue["messages"] > 0 and stats["publish_details"]["rate"] > 0

    wait_for("a rate", read)
    query = f"page=1&use_regex=true&pagination=false&name=^{name[:12]}&page_size=100"
    status, page = api.get(f"/api/queues/%2F?{query}")
    assert status == 200
    assert name in [item["name"] for item in page["items"]]
    channel.queue_delete(name)
