"""`headrace queue members|grow|shrink|transfer|rebalance`: where replicas and leaders are."""

from __future__ import annotations

from typing import Any, Final

import click

from headrace_broker.cli.moving import Move, wait_for_all, wait_for_one
from headrace_broker.cli.queue import queue
from headrace_broker.cli.session.api_client import path_of
from headrace_broker.cli.session.progress import gauge, poll, wait_option
from headrace_broker.cli.session.session import Column, CommandError, Session, print_json

__all__ = ["queue"]  # with the commands that are here

MEMBERS: Final[dict[str, Column]] = {
    "node": "node",
    "member": "member",
    "role": "role",
    "leader": "leader",
    "running": "running",
    "online": "online",
    "wanted": "wanted",
    "lag": "lag",
}
_all_vhosts = click.option(
    "--vhost-pattern", default=".*", show_default=True, help="Regular expression for vhosts."
)
_all_queues = click.option(
    "--queue-pattern", default=".*", show_default=True, help="Regular expression for queues."
)
_move = click.option(
    "--move", is_flag=True, help="Bring each replica to another node, so that none is lost."
)


@queue.group()
def members() -> None:
    """Look at the replicas of a queue; add and remove them."""


@members.command("list")
@click.argument("name")
def list_members(session: Session, name: str) -> None:
    """List the replicas of queue NAME as its leader knows them.

    The exit code is 1 while replicas are on their way, or do not answer.
    """
    found = session.get(path_of("queues", session.vhost, name, "members"))
    if session.as_json:
        print_json(found)
    else:
        session.print_rows(found["members"], MEMBERS)
    if not found["settled"]:
        raise click.exceptions.Exit(1)


@members.command()
@click.argument("name")
@click.argument("node")
@wait_option
def add(session: Session, name: str, node: str, seconds: float) -> None:
    """Give queue NAME a replica on NODE: it receives everything, then it votes."""
    session.request("PUT", path_of("queues", session.vhost, name, "members", node))
    if seconds:
        wait_for_one(session, Move(session.vhost, name, node, present=True), seconds)
        session.done(f"queue '{name}' has a replica on '{node}'")
    else:
        session.done(f"queue '{name}' gets a replica on '{node}'")


@members.command()
@click.argument("name")
@click.argument("node")
@_move
@wait_option
def remove(session: Session, name: str, node: str, move: bool, seconds: float) -> None:
    """Take the replica of queue NAME off NODE."""
    path = path_of("queues", session.vhost, name, "members", node)
    session.request("DELETE", path + ("?move=true" if move else ""))
    if seconds:
        wait_for_one(session, Move(session.vhost, name, node, present=False), seconds)
        session.done(f"queue '{name}' has no replica on '{node}' any more")
    else:
        session.done(f"the replica of queue '{name}' leaves '{node}'")


@queue.command()
@click.argument("name")
@click.argument("node")
def transfer(session: Session, name: str, node: str) -> None:
    """Transfer the leadership of queue NAME to NODE, which has a replica."""
    session.request("PUT", path_of("queues", session.vhost, name, "leader"), {"node": node})
    session.done(f"queue '{name}' is led by '{node}'")


@queue.command()
@click.argument("node")
@click.option(
    "--strategy",
    type=click.Choice(["all", "even"]),
    default="all",
    show_default=True,
    help="even: only queues with an even number of replicas.",
)
@_all_vhosts
@_all_queues
@wait_option
def grow(
    session: Session,
    node: str,
    strategy: str,
    vhost_pattern: str,
    queue_pattern: str,
    seconds: float,
) -> None:
    """Give all replicated queues, or those that match, a replica on NODE."""
    body = {"strategy": strategy, "vhost_pattern": vhost_pattern, "queue_pattern": queue_pattern}
    path = path_of("queues", "quorum", "replicas", "on", node, "grow")
    _follow(session, session.request("POST", path, body), node, True, seconds)


@queue.command()
@click.argument("node")
@_move
@_all_vhosts
@_all_queues
@wait_option
def shrink(
    session: Session, node: str, move: bool, vhost_pattern: str, queue_pattern: str, seconds: float
) -> None:
    """Take the replicas of all queues, or of those that match, off NODE."""
    body = {"vhost_pattern": vhost_pattern, "queue_pattern": queue_pattern}
    path = path_of("queues", "quorum", "replicas", "on", node, "shrink")
    rows = session.request("DELETE", path + ("?move=true" if move else ""), body)
    _follow(session, rows, node, False, seconds)


def _follow(
    session: Session, rows: list[dict[str, Any]], node: str, present: bool, seconds: float
) -> None:
    """Print what becomes of queues; CommandError where one stays as it is or it takes too long."""
    columns: dict[str, Column] = {
        "vhost": "vhost",
        "queue": "name",
        "replicas": "size",
        "result": "result",
        "reason": "reason",
    }
    session.print_rows(rows, columns)
    moves = [
        Move(row["vhost"], row["name"], node, present) for row in rows if row["result"] == "ok"
    ]
    if seconds:
        wait_for_all(session, moves, seconds)
    failed = len(rows) - len(moves)
    if failed:
        raise CommandError(f"{failed} of {len(rows)} queues stay as they are")


@queue.command()
@_all_vhosts
@_all_queues
@wait_option
@click.option("--status", "only", is_flag=True, help="Show how leaders are spread, and do nothing.")
def rebalance(
    session: Session, vhost_pattern: str, queue_pattern: str, seconds: float, only: bool
) -> None:
    """Spread the leaders of queues evenly over the nodes that run and are not drained.

    They are spread by themselves too, slowly, unless cluster.balance_leaders is off: see --status.
    """
    path = path_of("rebalance", "queues")
    if only:
        _show_balance(session, session.get(path))
        return
    body = {"vhost_pattern": vhost_pattern, "queue_pattern": queue_pattern}
    session.request("POST", path, body)
    found: dict[str, Any] = {}
    with gauge("leaders move", session.as_json) as shown:

        def is_over() -> bool:
            found.update(session.get(path))
            shown.show(f"{found['done']} of {found['total']} leaders are where they are to be")
            shown.reach(found["done"], found["total"])
            return not found["running"]

        poll(is_over, seconds)
    if session.as_json:
        print_json(found)
    elif not found["running"]:
        names = [*found["before"], *(n for n in found["after"] if n not in found["before"])]
        rows = [
            {"node": n, "before": found["before"].get(n), "after": found["after"].get(n)}
            for n in names
        ]
        session.print_rows(rows, {"node": "node", "before": "before", "after": "after"})
    if found["problem"]:
        raise CommandError(found["problem"])
    if found["running"] and seconds:
        raise CommandError(f"{found['done']} of {found['total']} leaders are where they are to be")
    if found["failed"]:
        raise CommandError(f"{found['failed']} leaders stay where they are")


def _show_balance(session: Session, found: dict[str, Any]) -> None:
    if session.as_json:
        print_json(found)
        return
    automatic = found["automatic"]
    rows = [{**automatic, "by_hand": "goes on" if found["running"] else "none goes on"}]
    names = ("state", "text", "decides", "handed_over", "failed", "by_hand")
    session.print_rows(rows, {name: name for name in names})
