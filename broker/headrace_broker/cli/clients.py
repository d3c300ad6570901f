"""`headrace connection|channel|consumer|alarm`: who is there, and what stands in the way."""

from __future__ import annotations

import click

from headrace_broker.cli.session.api_client import path_of
from headrace_broker.cli.session.session import Column, Session, SessionGroup, refusal


@click.group(cls=SessionGroup)
def connection() -> None:
    """List and close client connections."""


@connection.command("list")
def list_connections(session: Session) -> None:
    """List the connections of all nodes."""
    columns: dict[str, Column] = {
        "name": "name",
        "user": "user",
        "vhost": "vhost",
        "node": "node",
        "state": "state",
        "channels": "channels",
        "protocol": "protocol",
    }
    session.print_rows(session.get("/api/connections"), columns)


@connection.command("close")
@click.argument("name")
@click.option("--reason", default="closed by an administrator", show_default=True)
def close_connection(session: Session, name: str, reason: str) -> None:
    """Close the connections of this NAME; their clients are told the reason."""
    session.request("DELETE", path_of("connections", name), headers={"X-Reason": reason})
    session.done(f"connection '{name}' is closed")


@click.group(cls=SessionGroup)
def channel() -> None:
    """List channels."""


@channel.command("list")
def list_channels(session: Session) -> None:
    """List the channels of all nodes."""
    columns: dict[str, Column] = {
        "channel": "name",
        "user": "user",
        "node": "node",
        "state": "state",
        "consumers": "consumer_count",
        "unacked": "messages_unacknowledged",
        "unconfirmed": "messages_unconfirmed",
        "prefetch": "prefetch_count",
    }
    session.print_rows(session.get("/api/channels"), columns)


@click.group(cls=SessionGroup)
def consumer() -> None:
    """List consumers."""


@consumer.command("list")
def list_consumers(session: Session) -> None:
    """List the consumers of the virtual host."""
    columns: dict[str, Column] = {
        "queue": lambda row: row["queue"]["name"],
        "tag": "consumer_tag",
        "channel": lambda row: row["channel_details"]["name"],
        "acks": "ack_required",
        "prefetch": "prefetch_count",
        "active": "active",
        "arguments": "arguments",
    }
    session.print_rows(session.get(path_of("consumers", session.vhost)), columns)


@click.group(cls=SessionGroup)
def alarm() -> None:
    """Show the alarms of memory and disk."""


@alarm.command("list")
def list_alarms(session: Session) -> None:
    """List the alarms that are on, of all nodes; while there are any, publishers are held."""
    answer = session.ask("GET", "/api/health/checks/alarms")
    if answer.status not in (200, 503):
        raise refusal(answer)
    rows = answer.body.get("alarms", [])
    if not rows and not session.as_json:
        click.echo("no alarms")
        return
    session.print_rows(rows, {"node": "node", "resource": "resource", "reason": "reason"})
