"""The installed command `rabbitmqctl` against real nodes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pika
import pika.exceptions
import pytest
from e2e.harness.cluster import Cluster, wait_for
from e2e.harness.command import run_command

SCRIPT = Path(sys.executable).with_name("rabbitmqctl")
# Where the package is not installed but stands on the path, its entry point is called as the
# script would.
ENTRY = "from headrace_broker.cli.rabbitmqctl.main import main; main()"
COMMAND = [str(SCRIPT)] if SCRIPT.exists() else [sys.executable, "-P", "-c", ENTRY]

Ctl = Callable[..., str]


@pytest.fixture
def ctl(shared_cluster: Cluster) -> Ctl:
    """Runs a command against a node, checks its exit code, and returns its output."""

    def run(*arguments: str, node: str = "n1", code: int = 0) -> str:
        return run_command(shared_cluster, [*COMMAND, *arguments], node, code)

    return run


def equals(printed: Callable[[], str], text: str) -> bool:
    """Run a command and compare its output."""
    return printed() == text


def login(user: str, password: str) -> pika.PlainCredentials:
    return pika.PlainCredentials(user, password)


def test_status_is_told_by_every_node(ctl: Ctl) -> None:
    for node in ("n1", "n2", "n3"):
        assert f"Node name: {node}\n" in ctl("status", node=node)
    body = json.loads(ctl("-q", "cluster_status", "--formatter", "json"))
    assert len([each for each in body["nodes"] if each["running"]]) == 3
    ctl("-n", "127.0.0.1:1", "status", code=69)


def test_a_vhost_and_a_user_made_by_command_work_for_a_client(
    ctl: Ctl, shared_cluster: Cluster
) -> None:
    ctl("add_vhost", "ctl")
    ctl("add_user", "ctl", "sesame")
    ctl("set_permissions", "-p", "ctl", "ctl", ".*", ".*", ".*")
    assert "ctl\n" in ctl("-q", "list_vhosts", node="n2")
    parameters = {"virtual_host": "ctl", "credentials": login("ctl", "sesame")}
    channel = shared_cluster.connect("n3", **parameters).channel()
    channel.confirm_delivery()
    channel.queue_declare("q", durable=True)
    for _ in range(3):
        channel.basic_publish("", "q", b"x")
    for node in ("n1", "n2", "n3"):
        listed = partial(ctl, "-q", "list_queues", "-p", "ctl", node=node)
        wait_for(f"the listing of {node}", partial(equals, listed, "name\tmessages\nq\t3\n"))
    channel.queue_declare("mine", exclusive=True)  # lives in the memory of n3 only
    channel.basic_publish("", "mine", b"x")
    out = ctl("-s", "list_queues", "-p", "ctl", "name", "messages")
    assert sorted(out.splitlines()) == ["mine\t1", "q\t3"]
    ctl("purge_queue", "-p", "ctl", "q")
    assert channel.queue_declare("q", passive=True).method.message_count == 0
    ctl("change_password", "ctl", "other")
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        shared_cluster.connect("n1", **parameters)
    ctl("delete_vhost", "ctl")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="vhost 'ctl' was deleted"):
        channel.connection.process_data_events(time_limit=20)
    ctl("delete_user", "ctl")
    assert "no user" in ctl("delete_user", "ctl", code=67)


def test_a_policy_is_shown_where_it_applies(
    ctl: Ctl, shared_cluster: Cluster, queue_name: Callable[[str], str]
) -> None:
    name = queue_name("q")
    shared_cluster.connect("n1").channel().queue_declare(name, durable=True)
    ctl("set_policy", "cut", f"^{name}$", '{"max-length":5}', "--apply-to", "queues")
    assert f"{name}\tcut\n" in ctl("-q", "list_queues", "name", "policy")
    assert "\tcut\t" in ctl("list_policies", node="n1")
    ctl("clear_policy", "cut")
    assert f"{name}\t\n" in ctl("-q", "list_queues", "name", "policy")
    assert "pattern: " in ctl("set_policy", "bad", "(", '{"max-length":5}', code=70)


@pytest.mark.parametrize("asked", ["n1", "n2"], ids=["same node", "another node"])
def test_a_connection_is_closed_and_its_client_told_why(
    ctl: Ctl, shared_cluster: Cluster, asked: str
) -> None:
    properties = {"connection_name": f"victim of {asked}"}
    victim = shared_cluster.connect("n1", client_properties=properties)
    other = shared_cluster.connect("n1")
    listed = ctl("-s", "list_connections", "pid", "node", "client_properties", node=asked)
    [row] = [line for line in listed.splitlines() if properties["connection_name"] in line]
    pid, node, _ = row.split("\t")
    assert node == "n1"
    ctl("close_connection", pid, "too loud", node=asked)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        victim.process_data_events(time_limit=20)
    assert (caught.value.reply_code, caught.value.reply_text) == (
        320,
        "CONNECTION_FORCED - too loud",
    )
    assert other.channel().is_open
    assert f"no connection '{pid}'" in ctl("close_connection", pid, "again", node=asked, code=70)


def test_channels_and_consumers_of_all_nodes_are_listed(
    ctl: Ctl, shared_cluster: Cluster, queue_name: Callable[[str], str]
) -> None:
    name = queue_name("q")
    channel = shared_cluster.connect("n2").channel()
    channel.queue_declare(name, durable=True)
    channel.basic_qos(prefetch_count=7)
    tag = channel.basic_consume(name, lambda *_: None, arguments={"x-priority": 2})
    consumers = ctl("-s", "list_consumers", node="n3")
    [row] = [line for line in consumers.splitlines() if line.startswith(f"{name}\t")]
    assert row.split("\t")[2:] == [tag, "true", "7", "true", '[{"x-priority",2}]']
    pid = row.split("\t")[1]
    assert f"{pid}\tguest\t1\t0\n" in ctl("-s", "list_channels", node="n1")


def test_all_connections_are_closed(ctl: Ctl, shared_cluster: Cluster) -> None:
    victims = [shared_cluster.connect(node) for node in ("n1", "n2", "n3")]
    out = ctl("close_all_connections", "good night")
    assert "Closed " in out
    for victim in victims:
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="good night"):
            victim.process_data_events(time_limit=20)
