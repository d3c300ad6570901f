"""Commands of `rabbitmq-queues`, `rabbitmq-upgrade` and `rabbitmqctl` about replicas and nodes."""

from __future__ import annotations

from typing import Any

import click

from headrace_broker.cli.rabbitmqctl.command import command
from headrace_broker.cli.rabbitmqctl.output import Column, print_rows
from headrace_broker.cli.rabbitmqctl.session import EX_UNAVAILABLE, CommandError, Session
from headrace_broker.cli.session.api_client import path_of


def _replicas(session: Session, queue: str, *rest: str) -> str:
    return path_of("queues", "quorum", session.settings.vhost, queue, *rest)


@command("add_member")
@click.argument("queue")
@click.argument("node_name", metavar="NODE")
def add_member(session: Session, queue: str, node_name: str) -> None:
    """Give a quorum queue a replica on a node."""
    session.say(f"Adding a replica for queue {queue} on node {node_name} ...")
    session.change("POST", _replicas(session, queue, "replicas", "add"), {"node": node_name})


@command("delete_member")
@click.argument("queue")
@click.argument("node_name", metavar="NODE")
def delete_member(session: Session, queue: str, node_name: str) -> None:
    """Take a quorum queue's replica off a node."""
    session.say(f"Removing a replica of queue {queue} on node {node_name} ...")
    session.change("DELETE", _replicas(session, queue, "replicas", "delete"), {"node": node_name})


@command("quorum_status")
@click.argument("queue")
def quorum_status(session: Session, queue: str) -> None:
    """Show the replicas of a quorum queue."""
    session.say(f"Status of quorum queue {queue} on node {session.settings.api} ...")
    columns: dict[str, Column] = {
        "Node Name": "node",
        "Raft State": lambda row: "leader" if row["leader"] else "follower",
        "Membership": "role",
        "Match Index": "match",
        "Lag": "lag",
        "Online": "online",
    }
    print_rows(session, session.get(_replicas(session, queue, "status")), columns, list(columns))


def _print_steps(session: Session, rows: list[dict[str, Any]]) -> None:
    columns = {name: name for name in ("vhost", "name", "size", "result", "reason")}
    print_rows(session, rows, columns, list(columns))
    failed = sum(row["result"] != "ok" for row in rows)
    if failed:
        raise CommandError(f"{failed} of {len(rows)} queues stay as they are")


@command("grow")
@click.argument("node_name", metavar="NODE")
@click.argument("strategy", type=click.Choice(["all", "even"]))
@click.option("--vhost-pattern", default=".*", help="Regular expression for vhosts.")
@click.option("--queue-pattern", default=".*", help="Regular expression for queues.")
def grow(
    session: Session, node_name: str, strategy: str, vhost_pattern: str, queue_pattern: str
) -> None:
    """Give quorum queues a replica on a node."""
    session.say(f"Growing {strategy} quorum queues on {node_name} ...")
    path = path_of("queues", "quorum", "replicas", "on", node_name, "grow")
    body = {"strategy": strategy, "vhost_pattern": vhost_pattern, "queue_pattern": queue_pattern}
    _print_steps(session, session.change("POST", path, body).body)


@command("shrink")
@click.argument("node_name", metavar="NODE")
def shrink(session: Session, node_name: str) -> None:
    """Take all replicas off a node."""
    session.say(f"Shrinking quorum queues on {node_name} ...")
    path = path_of("queues", "quorum", "replicas", "on", node_name, "shrink")
    _print_steps(session, session.change("DELETE", path, {}).body)


@command("rebalance")
@click.argument("kind", type=click.Choice(["all", "quorum"]), metavar="all|quorum")
@click.option("--vhost-pattern", default=".*", help="Regular expression for vhosts.")
@click.option("--queue-pattern", default=".*", help="Regular expression for queues.")
def rebalance(session: Session, kind: str, vhost_pattern: str, queue_pattern: str) -> None:
    """Begin to spread the leaders of queues over nodes."""
    session.say(f"Rebalancing type '{kind}' ...")
    body = {"vhost_pattern": vhost_pattern, "queue_pattern": queue_pattern}
    session.change("POST", path_of("rebalance", "queues"), body)


@command("check_if_node_is_quorum_critical")
def check_if_node_is_quorum_critical(session: Session) -> None:
    """Fail if queues would be without a majority were this node stopped."""
    answer = session.ask("GET", path_of("health", "checks", "node-is-quorum-critical"))
    if answer.status >= 300:
        raise CommandError(answer.reason, EX_UNAVAILABLE)
    session.say("There are no queues that would lose their quorum without this node.")


def _own(session: Session) -> str:
    return str(session.get("/api/overview")["node"])


@command("drain")
def drain(session: Session) -> None:
    """Take the node out of service: others lead its queues, and its clients are sent away."""
    name = _own(session)
    session.say(f"Will put node {name} into maintenance mode ...")
    session.change("POST", path_of("cluster", "nodes", name, "drain"))


@command("revive")
def revive(session: Session) -> None:
    """Let the node serve again."""
    name = _own(session)
    session.say(f"Will return node {name} from maintenance mode ...")
    session.change("POST", path_of("cluster", "nodes", name, "revive"))


@command("forget_cluster_node")
@click.argument("node_name", metavar="NODE")
def forget_cluster_node(session: Session, node_name: str) -> None:
    """Remove a node that is stopped or drained, and has no replicas any more."""
    session.say(f"Removing node {node_name} from the cluster ...")
    session.change("DELETE", path_of("cluster", "nodes", node_name))
