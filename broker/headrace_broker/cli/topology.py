"""`headrace vhost|exchange|binding`: what messages go through."""

from __future__ import annotations

from typing import Any

import click

from headrace_broker.cli.session.api_client import path_of
from headrace_broker.cli.session.session import (
    EXIT_NOT_FOUND,
    Column,
    CommandError,
    Session,
    SessionGroup,
    change_limits,
    pairs,
)

_arguments = click.option(
    "-a", "--argument", "arguments", multiple=True, metavar="KEY=VALUE", help="An x-argument."
)


@click.group(cls=SessionGroup)
def vhost() -> None:
    """List, declare and delete virtual hosts."""


@vhost.command("list")
def list_vhosts(session: Session) -> None:
    """List the virtual hosts."""
    columns: dict[str, Column] = {
        "name": "name",
        "description": "description",
        "tags": "tags",
        "default queue type": "default_queue_type",
    }
    session.print_rows(session.get("/api/vhosts"), columns)


@vhost.command("limits")
@click.argument("limits", metavar="[LIMIT=NUMBER...]", nargs=-1)
def vhost_limits(session: Session, limits: tuple[str, ...]) -> None:
    """List the limits of the virtual host, or set some: max-connections, max-queues, ...

    LIMIT=none takes a limit away.
    """
    change_limits(session, path_of("vhost-limits", session.vhost), limits)


@vhost.command("declare")
@click.argument("name")
@click.option("--description", default="", help="For people.")
@click.option("--tags", default="", help="For people, joined by commas.")
@click.option(
    "--default-queue-type",
    type=click.Choice(["quorum", "classic"]),
    help="Of queues that do not say theirs.",
)
def declare_vhost(
    session: Session, name: str, description: str, tags: str, default_queue_type: str | None
) -> None:
    """Create the virtual host NAME, or change what is said of it."""
    body = {"description": description, "tags": tags, "default_queue_type": default_queue_type}
    session.request("PUT", path_of("vhosts", name), body)
    session.done(f"vhost '{name}' is declared")


@vhost.command("delete")
@click.argument("name")
@click.confirmation_option("--yes", prompt="Delete it with all its queues and their messages?")
def delete_vhost(session: Session, name: str) -> None:
    """Delete the virtual host NAME and everything in it."""
    session.request("DELETE", path_of("vhosts", name))
    session.done(f"vhost '{name}' is deleted")


@click.group(cls=SessionGroup)
def exchange() -> None:
    """List, declare and delete exchanges."""


@exchange.command("list")
def list_exchanges(session: Session) -> None:
    """List the exchanges of the virtual host."""
    columns: dict[str, Column] = {
        "name": lambda row: row["name"] or "(default)",
        "type": "type",
        "durable": "durable",
        "auto-delete": "auto_delete",
        "internal": "internal",
        "policy": "policy",
        "arguments": "arguments",
    }
    session.print_rows(session.get(path_of("exchanges", session.vhost)), columns)


@exchange.command("declare")
@click.argument("name")
@click.option("--type", "kind", default="direct", show_default=True, help="topic, fanout, ...")
@click.option("--transient", is_flag=True, help="Gone when the cluster stops.")
@click.option("--auto-delete", is_flag=True, help="Gone with its last binding.")
@click.option("--internal", is_flag=True, help="Takes messages of other exchanges only.")
@_arguments
def declare_exchange(
    session: Session,
    name: str,
    kind: str,
    transient: bool,
    auto_delete: bool,
    internal: bool,
    arguments: tuple[str, ...],
) -> None:
    """Create the exchange NAME; one that exists must be the same."""
    body = {
        "type": kind,
        "durable": not transient,
        "auto_delete": auto_delete,
        "internal": internal,
        "arguments": pairs("--argument", arguments),
    }
    session.request("PUT", path_of("exchanges", session.vhost, name), body)
    session.done(f"exchange '{name}' is declared")


@exchange.command("delete")
@click.argument("name")
@click.option("--if-unused", is_flag=True, help="Only without bindings.")
def delete_exchange(session: Session, name: str, if_unused: bool) -> None:
    """Delete the exchange NAME."""
    rest = "?if-unused=true" if if_unused else ""
    session.request("DELETE", path_of("exchanges", session.vhost, name) + rest)
    session.done(f"exchange '{name}' is deleted")


@click.group(cls=SessionGroup)
def binding() -> None:
    """List, declare and delete bindings."""


@binding.command("list")
def list_bindings(session: Session) -> None:
    """List the bindings of the virtual host, those of the default exchange too."""
    columns: dict[str, Column] = {
        "source": lambda row: row["source"] or "(default)",
        "to": "destination_type",
        "destination": "destination",
        "routing key": "routing_key",
        "arguments": "arguments",
        "key": "properties_key",
    }
    session.print_rows(session.get(path_of("bindings", session.vhost)), columns)


_to_exchange = click.option("--to-exchange", is_flag=True, help="DESTINATION is an exchange.")


def _ends(session: Session, source: str, destination: str, to_exchange: bool) -> str:
    kind = "e" if to_exchange else "q"
    return path_of("bindings", session.vhost, "e", source, kind, destination)


@binding.command("declare")
@click.argument("source")
@click.argument("destination")
@_to_exchange
@click.option("--routing-key", default="", help="Or pattern, as the exchange takes it.")
@_arguments
def declare_binding(
    session: Session,
    source: str,
    destination: str,
    to_exchange: bool,
    routing_key: str,
    arguments: tuple[str, ...],
) -> None:
    """Bind the queue DESTINATION to the exchange SOURCE."""
    body = {"routing_key": routing_key, "arguments": pairs("--argument", arguments)}
    session.request("POST", _ends(session, source, destination, to_exchange), body)
    session.done(f"'{destination}' is bound to '{source}'")


@binding.command("delete")
@click.argument("source")
@click.argument("destination")
@_to_exchange
@click.option("--routing-key", default="", help="Of the binding.")
@_arguments
def delete_binding(
    session: Session,
    source: str,
    destination: str,
    to_exchange: bool,
    routing_key: str,
    arguments: tuple[str, ...],
) -> None:
    """Remove the binding of DESTINATION to SOURCE with this routing key and these arguments."""
    path = _ends(session, source, destination, to_exchange)
    wanted: dict[str, Any] = pairs("--argument", arguments)
    for row in session.get(path):
        if row["routing_key"] == routing_key and row["arguments"] == wanted:
            session.request("DELETE", f"{path}/{row['properties_key']}")
            session.done(f"'{destination}' is no longer bound to '{source}'")
            return
    raise CommandError(f"'{destination}' is not bound to '{source}' like that", EXIT_NOT_FOUND)
