"""Commands about the running cluster: its state, connections and queues."""

from __future__ import annotations

import time
from typing import Any, Final

import click
import msgspec

from headrace_broker.cli.rabbitmqctl.command import command
from headrace_broker.cli.rabbitmqctl.session import EX_UNAVAILABLE, EX_USAGE, CommandError, Session
from headrace_broker.cli.session.api_client import path_of
from headrace_broker.model import build_info

POLL_SECONDS: Final = 0.2  # between looks whether the node is ready


def _print_overview(overview: dict[str, Any]) -> None:
    running = [node["name"] for node in overview["nodes"] if node["running"]]
    down = [node["name"] for node in overview["nodes"] if not node["running"]]
    up = [node for node in overview["nodes"] if node["running"]]
    shards = [each for node in up for each in node.get("shards", ())]  # older nodes do not say
    lacking = [each["name"] for each in shards if not each["running"]]
    drained = [node["name"] for node in up if node["being_drained"]]
    drained += [
        each["name"]
        for node in up
        if not node["being_drained"]
        for each in node.get("shards", ())
        if each.get("being_drained")
    ]
    totals, messages = overview["object_totals"], overview["queue_totals"]
    for name, value in (
        ("Node name", overview["node"]),
        ("Cluster name", overview["cluster_name"]),
        ("Headrace version", overview["product_version"]),
        ("Compiled", "yes" if overview["compiled"] else "no"),
        ("Leader of the catalog", overview["leader"] or "none"),
        ("Running nodes", ", ".join(running)),
        ("Nodes that are down", ", ".join(down) or "none"),
        *([("Shards that are down", ", ".join(lacking))] if lacking else []),
        *([("In maintenance", ", ".join(drained))] if drained else []),
        ("Connections", totals["connections"]),
        ("Channels", totals["channels"]),
        ("Queues", totals["queues"]),
        ("Messages in queues", messages["messages"]),
    ):
        click.echo(f"{name}: {value}")


def _show_overview(session: Session, title: str) -> None:
    session.say(f"{title} ...")
    overview = session.get("/api/overview")
    if session.settings.formatter == "json":
        click.echo(msgspec.json.encode(overview).decode())
    else:
        _print_overview(overview)


@command("status")
def status(session: Session) -> None:
    """Show how the node is."""
    _show_overview(session, f"Status of node at {session.settings.api}")


@command("cluster_status")
def cluster_status(session: Session) -> None:
    """Show how the cluster is, as this node sees it."""
    _show_overview(session, f"Cluster status of node at {session.settings.api}")


@command("version")
def version(session: Session) -> None:
    """Print the version of this command."""
    click.echo(build_info.VERSION)


@command("ping")
def ping(session: Session) -> None:
    """Ask whether the node answers."""
    session.say(f"Will ping {session.settings.api}. Timeout: {session.settings.seconds} s.")
    session.get("/api/health/live")
    session.say("Ping succeeded")


@command("await_startup")
def await_startup(session: Session) -> None:
    """Wait until the node is ready for clients, --timeout seconds at most."""
    deadline = time.monotonic() + session.settings.seconds
    while True:
        try:
            answer = session.ask("GET", "/api/health/ready")
            if answer.status == 200:
                return
            reason = answer.reason
        except CommandError as error:
            if error.exit_code != EX_UNAVAILABLE:
                raise
            reason = error.message
        if time.monotonic() > deadline:
            raise CommandError(f"the node is not ready: {reason}", EX_UNAVAILABLE)
        time.sleep(POLL_SECONDS)


@command("close_connection")
@click.argument("connection")
@click.argument("reason")
def close_connection(session: Session, connection: str, reason: str) -> None:
    """Close a connection, by its pid or name as listed; the client is told the reason."""
    session.say(f"Closing connection {connection}, reason: {reason}...")
    session.change("DELETE", path_of("connections", connection), headers=_reason(reason))


@command("close_all_connections")
@click.argument("reason")
@click.option("--global", "everywhere", is_flag=True, help="Those of all vhosts.")
@click.option("--limit", type=click.IntRange(min=0), default=0, help="So many at most; 0 for all.")
@click.option("--per-connection-delay", type=click.IntRange(min=0), default=0, help="Milliseconds.")
def close_all_connections(
    session: Session, reason: str, everywhere: bool, limit: int, per_connection_delay: int
) -> None:
    """Close the connections of a vhost, or all."""
    vhost = session.settings.vhost
    where = "" if everywhere else f" in vhost {vhost}"
    session.say(f"Closing all connections{where}, reason: {reason}...")
    path = "/api/connections" if everywhere else path_of("vhosts", vhost, "connections")
    _close(session, [row["id"] for row in session.get(path)], reason, limit, per_connection_delay)


@command("close_all_user_connections")
@click.argument("user")
@click.argument("reason")
def close_all_user_connections(session: Session, user: str, reason: str) -> None:
    """Close the connections of a user."""
    session.say(f"Closing all connections of user {user}, reason: {reason}...")
    rows = session.get("/api/connections")
    _close(session, [row["id"] for row in rows if row["user"] == user], reason, 0, 0)


def _close(session: Session, ids: list[str], reason: str, limit: int, delay_ms: int) -> None:
    closed = 0
    for connection in ids[: limit or None]:
        answer = session.ask("DELETE", path_of("connections", connection), headers=_reason(reason))
        if answer.status == 204:
            closed += 1
        elif answer.status != 404:  # it has gone by itself
            session.fail(answer)
        time.sleep(delay_ms / 1000)
    session.say(f"Closed {closed} connections")


def _reason(text: str) -> dict[str, str]:
    """Return the header for a reason; a header is one line of bytes."""
    return {"X-Reason": " ".join(text.split()).encode().decode("latin-1")}


@command("purge_queue")
@click.argument("queue")
def purge_queue(session: Session, queue: str) -> None:
    """Drop the messages of a queue that nobody holds."""
    vhost = session.settings.vhost
    session.say(f"Purging queue '{queue}' in vhost '{vhost}' ...")
    session.change("DELETE", path_of("queues", vhost, queue, "contents"))


@command("delete_queue")
@click.argument("queue")
@click.option("-e", "--if-empty", is_flag=True, help="Only when it holds no messages.")
@click.option("-u", "--if-unused", is_flag=True, help="Only when it has no consumers.")
def delete_queue(session: Session, queue: str, if_empty: bool, if_unused: bool) -> None:
    """Delete a queue."""
    vhost = session.settings.vhost
    session.say(f"Deleting queue '{queue}' on vhost '{vhost}' ...")
    path = path_of("queues", vhost, queue)
    flags = {"if-empty": if_empty, "if-unused": if_unused}
    query = "&".join(f"{name}=true" for name, given in flags.items() if given)
    session.change("DELETE", f"{path}?{query}" if query else path)


@command("eval")
@click.argument("expression", nargs=-1)
def evaluate(session: Session, expression: tuple[str, ...]) -> None:
    """Not supported: there is no Erlang here."""
    raise CommandError("eval is not supported: Headrace does not run on Erlang", EX_USAGE)


@command("set_log_level")
@click.argument("level", type=click.Choice(["debug", "info", "warning", "error", "critical"]))
def set_log_level(session: Session, level: str) -> None:
    """Set the level of the lines that the node writes, until it stops."""
    session.say(f'Setting log level to "{level}" ...')
    session.change("PUT", "/api/log-level", {"level": level})
