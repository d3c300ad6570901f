"""`headrace queue`: queues, and single messages of one."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

import click

from headrace_broker.cli.session.api_client import path_of
from headrace_broker.cli.session.session import (
    Column,
    Row,
    Session,
    SessionGroup,
    pairs,
    print_json,
)

SHOWN_CHARACTERS_MAX: Final = 60  # of a body, in a table
LIMIT_DEFAULT: Final = 10
LIMIT_MAX: Final = 500  # messages of one page


@click.group(cls=SessionGroup)
def queue() -> None:
    """List, declare and delete queues; look at, remove and move messages that wait."""


@queue.command("list")
def list_queues(session: Session) -> None:
    """List the queues of the virtual host."""
    columns = {
        "name": "name",
        "type": "type",
        "state": "state",
        "ready": "messages_ready",
        "unacked": "messages_unacknowledged",
        "delayed": "messages_delayed",
        "messages": "messages",
        "consumers": "consumers",
        "saturated": "saturated",
        "leader": "leader",
        "members": "members",
    }
    session.print_rows(session.get(path_of("queues", session.vhost)), columns)


@queue.command()
@click.argument("name")
def show(session: Session, name: str) -> None:
    """Show what there is to say of queue NAME."""
    found = session.get(path_of("queues", session.vhost, name))
    session.print_object(found, {key: key for key in found})


@queue.command()
@click.argument("name")
@click.option("--type", "kind", type=click.Choice(["quorum", "classic"]), help="quorum by default.")
@click.option(
    "-a", "--argument", "arguments", multiple=True, metavar="KEY=VALUE", help="An x-argument."
)
@click.option("--transient", is_flag=True, help="In the memory of one node.")
@click.option("--auto-delete", is_flag=True, help="Gone with its last consumer.")
def declare(
    session: Session,
    name: str,
    kind: str | None,
    arguments: tuple[str, ...],
    transient: bool,
    auto_delete: bool,
) -> None:
    """Create the queue NAME; one that exists must be the same."""
    given = pairs("--argument", arguments)
    if kind is not None:
        given["x-queue-type"] = kind
    body = {"durable": not transient, "auto_delete": auto_delete, "arguments": given}
    session.request("PUT", path_of("queues", session.vhost, name), body)
    session.done(f"queue '{name}' is declared")


@queue.command()
@click.argument("name")
@click.option("--if-empty", is_flag=True, help="Only without messages.")
@click.option("--if-unused", is_flag=True, help="Only without consumers.")
def delete(session: Session, name: str, if_empty: bool, if_unused: bool) -> None:
    """Delete the queue NAME and the messages in it."""
    wanted = {"if-empty": if_empty, "if-unused": if_unused}
    query = urlencode({key: "true" for key, value in wanted.items() if value})
    path = path_of("queues", session.vhost, name) + (f"?{query}" if query else "")
    session.request("DELETE", path)
    session.done(f"queue '{name}' is deleted")


@queue.command()
@click.argument("name")
def purge(session: Session, name: str) -> None:
    """Drop the messages of queue NAME that wait; those at consumers stay theirs."""
    session.request("DELETE", path_of("queues", session.vhost, name, "contents"))
    session.done(f"queue '{name}' is purged")


@queue.command()
@click.argument("name")
@click.option("--after", type=click.IntRange(0), default=0, help="Only messages behind this id.")
@click.option(
    "--limit",
    type=click.IntRange(1, LIMIT_MAX),
    default=LIMIT_DEFAULT,
    show_default=True,
    help="How many messages.",
)
def peek(session: Session, name: str, after: int, limit: int) -> None:
    """Show the first messages of queue NAME without taking them."""
    page = session.get(_messages(session, name) + f"?after={after}&limit={limit}")
    if session.as_json:
        print_json(page)
        return
    session.print_rows(page["messages"], COLUMNS)
    if page["next_after"] is not None:
        click.echo(f"more: --after {page['next_after']}")


@queue.command()
@click.argument("name")
def archive(session: Session, name: str) -> None:
    """Show what queue NAME keeps of settled messages, and how far its readers have come."""
    found = session.get(path_of("queues", session.vhost, name, "archive"))
    if session.as_json:
        print_json(found)
        return
    groups = found.pop("groups")
    session.print_object(found, {key: key for key in found})
    columns = {"group": "name", "committed": "committed", "lag": "lag", "epoch": "epoch"}
    session.print_rows(groups, columns)


@queue.command("delete-message")
@click.argument("name")
@click.argument("ids", type=click.IntRange(1), nargs=-1, required=True)
def delete_message(session: Session, name: str, ids: tuple[int, ...]) -> None:
    """Remove messages of queue NAME by their IDS, which `peek` shows."""
    for number in ids:
        session.request("DELETE", _messages(session, name) + f"/{number}")
    session.done(f"removed {len(ids)}")


@queue.command()
@click.argument("name")
@click.argument("ids", type=click.IntRange(1), nargs=-1, required=True)
@click.option("--to", "to_queue", help="Queue to move them to.")
@click.option("--exchange", help="Exchange to publish them to instead.")
@click.option("--routing-key", default="", help="For --exchange.")
def move(
    session: Session,
    name: str,
    ids: tuple[int, ...],
    to_queue: str | None,
    exchange: str | None,
    routing_key: str,
) -> None:
    """Move messages of queue NAME by their IDS to another queue, or to an exchange.

    A message is taken out once every queue has confirmed it. When a node fails in between, it may
    be in both places, and it is never in none.
    """
    if (to_queue is None) == (exchange is None):
        raise click.UsageError("say either --to or --exchange")
    body: dict[str, Any] = {"ids": list(ids)}
    if to_queue is not None:
        body["queue"] = to_queue
    else:
        body |= {"exchange": exchange, "routing_key": routing_key}
    moved = session.request("POST", _messages(session, name) + "/move", body)
    if session.as_json:
        print_json(moved)
    session.done(f"moved {len(moved['moved'])}")
    left = [f"{what}: {_list(moved[what])}" for what in ("missing", "unrouted", "refused")]
    left = [line for line in left if not line.endswith(": ")]
    if left:
        raise click.ClickException("not moved: " + "; ".join(left))


def _messages(session: Session, name: str) -> str:
    return path_of("queues", session.vhost, name, "messages")


def _body(message: Row) -> str:
    """Return the beginning of a body."""
    body = message["payload"]
    if message["payload_encoding"] == "base64" and body:
        body = f"base64 {body}"
    head = "".join(each if each.isprintable() else "." for each in body[:SHOWN_CHARACTERS_MAX])
    return head + ("..." if len(body) > len(head) or message.get("truncated", False) else "")


COLUMNS: Final[dict[str, Column]] = {
    "id": "id",
    "age": lambda row: f"{row['age_ms'] / 1000:.1f} s",
    "priority": "priority",
    "delivered": "acquired_count",
    "bytes": "payload_bytes",
    "routing key": "routing_key",
    "body": _body,
}


def _list(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
