"""`headrace node`: nodes of the cluster join, are drained and are forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from headrace_broker.cli.session.api_client import path_of
from headrace_broker.cli.session.progress import gauge, poll, wait_option
from headrace_broker.cli.session.session import Column, CommandError, Row, Session, SessionGroup
from headrace_broker.model.shard import node_name

QUEUES_SHOWN_MAX: Final = 5  # of those that a node was to hand over


class TooLateError(CommandError):
    """A node is not as it should be in time."""


@click.group(cls=SessionGroup)
def node() -> None:
    """List the nodes of the cluster; drain, revive, admit and forget them."""


def state_of(row: Row) -> str:
    """Return how a node is, in a word or two."""
    if not row["running"]:
        return "down, in maintenance" if row["being_drained"] else "down"
    if row["drained"]:
        return "drained"
    if row["being_drained"]:
        return "draining"
    shards = row.get("shards", ())
    down = [each["name"] for each in shards if not each["running"]]
    drained = [each["name"] for each in shards if each["running"] and each["being_drained"]]
    states = [f"shard {', '.join(down)} down"] if down else []
    states += [f"shard {', '.join(drained)} in maintenance"] if drained else []
    return ", but ".join(["running", *states])


def clock_of(row: Row) -> str:
    """Return how far a node's wall clock is from the cluster's, with "!" for a warning."""
    skew = row.get("clock_skew_ms")  # older nodes do not say
    if skew is None:
        return "-"
    return f"{skew:+d} ms" + (" !" if row.get("clock_warning") else "")


@node.command("list")
def list_nodes(session: Session) -> None:
    """List the nodes of the cluster and what they do.

    The clock is how far a node's wall clock is from the median; "!" marks one that is too far, or
    whose queues are, of which the log of every node says more.
    """
    columns: dict[str, Column] = {
        "id": "id",
        "name": "name",
        "address": "address",
        "state": state_of,
        "leaders": "leaders",
        "replicas": "replicas",
        "leaving": "leaving",
        "connections": "connections",
        "clock": clock_of,
        "shards": lambda row: len(row.get("shards", "1")),  # older nodes do not say
        "zone": lambda row: row.get("zone") or "-",  # likewise
    }
    session.print_rows(session.get(path_of("cluster", "nodes")), columns)


@node.command()
@click.argument("name")
@wait_option
def drain(session: Session, name: str, seconds: float) -> None:
    """Take node NAME out of service: others lead its queues, and its clients are sent away.

    It stays so, over restarts too, until `headrace node revive`. Its replicas go on receiving what
    is published.
    """
    session.request("POST", path_of("cluster", "nodes", name, "drain"))
    if seconds:
        try:
            row = wait(session, name, lambda row: bool(row["drained"]), seconds, "drained")
        except TooLateError as error:
            raise TooLateError("\n".join([str(error), *_led_still(session, name)])) from None
        session.done(f"node '{name}' is drained; it has {row['replicas']} replicas")
        if row["alone"]:
            session.done(f"{row['alone']} of them lead queues that have no other replica")
    else:
        session.done(f"node '{name}' is being drained")


def _led_still(session: Session, name: str) -> list[str]:
    """Return lines about queues that a node, or one process of it, has not handed over.

    Each says how the nodes are that could lead it; there is none about queues without another
    replica, which keep nobody waiting, and none without answers.
    """
    try:
        states = {row["name"]: state_of(row) for row in session.get(path_of("cluster", "nodes"))}
        queues = session.get(path_of("queues"))
    except CommandError:
        return []
    found = []
    for queue in queues:
        others = {node_name(each) for each in queue["members"]} - {node_name(name)}
        if others and name in (queue["leader"], node_name(queue["leader"])):
            where = ", ".join(f"{each} ({states.get(each, 'gone')})" for each in sorted(others))
            text = f"queue '{queue['name']}' in vhost '{queue['vhost']}', also on {where}"
            found.append(f"it leads {text}")
    more = len(found) - QUEUES_SHOWN_MAX
    return [*found[:QUEUES_SHOWN_MAX], *([f"and {more} more"] if more > 0 else [])]


@node.command()
@click.argument("name")
def revive(session: Session, name: str) -> None:
    """Let node NAME serve again after `drain`. `headrace queue rebalance` gives it leaders."""
    session.request("POST", path_of("cluster", "nodes", name, "revive"))
    session.done(f"node '{name}' serves again")


@node.command()
@click.argument("name")
@click.option("--id", "number", type=click.IntRange(1, 1023), required=True, help="Its node.id.")
@click.option("--address", required=True, help="HOST:PORT at which other nodes reach it.")
@wait_option
def join(session: Session, name: str, number: int, address: str, seconds: float) -> None:
    """Announce node NAME, and wait until it belongs to the cluster.

    Start it with an empty data directory and a configuration that names itself and at least one
    node of the cluster, and with its join secret or a certificate. With cluster.admit_nodes = true
    it need not be announced.
    """
    body = {"id": number, "name": name, "address": address}
    session.request("POST", path_of("cluster", "nodes"), body)
    if seconds:
        wait(session, name, lambda row: row["leaders"] is not None, seconds, "running")
        session.done(f"node '{name}' runs")
    else:
        session.done(f"node '{name}' is announced: start it")


@node.command()
@click.argument("name")
@click.option(
    "--replicas",
    type=click.Choice(["keep", "move", "shrink"]),
    default="keep",
    show_default=True,
    help="What becomes of its replicas: keep refuses to forget it while there are any, move brings "
    "each to another node, shrink leaves queues with one less.",
)
@wait_option
def forget(session: Session, name: str, replicas: str, seconds: float) -> None:
    """Remove node NAME from the cluster. It must be drained or stopped.

    It may come back with an empty data directory only, as a new node.
    """
    path = path_of("cluster", "nodes", name) + f"?replicas={replicas}"
    with gauge(f"node '{name}' gives up its replicas", session.as_json) as shown:
        found: dict[str, Any] = {}

        def is_over() -> bool:
            found.update(session.request("DELETE", path))
            shown.show(f"node '{name}' has {found['replicas']} replicas left")
            shown.remain(found["replicas"])
            return bool(found["forgotten"]) or len(found["problems"]) >= found["replicas"]

        poll(is_over, seconds)
    if not found["forgotten"]:
        left = f"node '{name}' still has {found['replicas']} replicas"
        raise CommandError("\n".join([left, *found["problems"]]))
    session.done(f"node '{name}' is forgotten")


def wait(
    session: Session, name: str, check: Callable[[Row], bool], seconds: float, what: str
) -> dict[str, Any]:
    """Ask for a node until it is as it should be, and return it; TooLateError when too late."""
    row: dict[str, Any] = {}
    with gauge(f"waiting for node '{name}'", session.as_json) as shown:

        def is_so() -> bool:
            row.update(session.get(path_of("cluster", "nodes", name)))
            shown.show(f"node '{name}' is {state_of(row)}: {_figures(row)}")
            shown.remain((row["leaders"] or 0) + (row["connections"] or 0))
            return check(row)

        if poll(is_so, seconds):
            return row
    text = f"node '{name}' is not {what} after {seconds:g} s: {_figures(row)}"
    raise TooLateError(text)


def _figures(row: Row) -> str:
    return f"leads {row['leaders']}, {row['connections']} clients"
