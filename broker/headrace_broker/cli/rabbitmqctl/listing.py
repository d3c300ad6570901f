"""Commands that list."""

from __future__ import annotations

from typing import Any, Final

import click
import msgspec

from headrace_broker.cli.rabbitmqctl.command import command
from headrace_broker.cli.rabbitmqctl.output import Column, Words, chosen, print_rows
from headrace_broker.cli.rabbitmqctl.session import Session
from headrace_broker.cli.session.api_client import path_of


def _same(names: str) -> dict[str, Column]:
    """Return columns that have the API's names."""
    return {name: name for name in names.split()}


QUEUES: Final[dict[str, Column]] = {
    **_same("name durable auto_delete arguments policy operator_policy"),
    **_same("effective_policy_definition exclusive messages_ready messages_unacknowledged"),
    **_same("messages consumers state type leader members"),
    **_same("message_bytes saturated confirms_deferred"),
    "pid": "leader",
}
EXCHANGES: Final = _same("name type durable auto_delete internal arguments policy")
BINDINGS: Final[dict[str, Column]] = {
    "source_name": "source",
    "source_kind": lambda row: "exchange",
    "destination_name": "destination",
    "destination_kind": "destination_type",
    **_same("routing_key arguments vhost"),
}
CONNECTIONS: Final[dict[str, Column]] = {
    "pid": "id",
    **_same("name port host peer_port peer_host ssl ssl_protocol ssl_cipher peer_cert_subject"),
    **_same("peer_cert_issuer peer_cert_validity state channels protocol auth_mechanism user"),
    **_same("vhost timeout frame_max channel_max client_properties connected_at node"),
    "user_provided_name": lambda row: row.get("user_provided_name") or "",
    **_same("recv_oct recv_cnt send_oct send_cnt"),
}
CHANNELS: Final[dict[str, Column]] = {
    "pid": "id",
    "connection": lambda row: row["connection_details"]["name"],
    **_same("name number user vhost confirm consumer_count messages_unacknowledged"),
    **_same("messages_unconfirmed prefetch_count global_prefetch_count state node"),
}
CONSUMERS: Final[dict[str, Column]] = {
    "queue_name": lambda row: row["queue"]["name"],
    # A group that leases messages has no channel.
    "channel_pid": lambda row: row["channel_details"].get("id", ""),
    **_same("consumer_tag ack_required exclusive prefetch_count active arguments"),
}
VHOSTS: Final = _same("name description tags default_queue_type tracing")
USERS: Final[dict[str, Column]] = {"user": "name", "tags": lambda row: Words(row["tags"])}
POLICIES: Final[dict[str, Column]] = {
    **_same("vhost name pattern apply-to"),
    "definition": lambda row: msgspec.json.encode(row["definition"]).decode(),
    "priority": "priority",
}

_columns = click.argument("columns", nargs=-1)


@command("list_queues")
@_columns
@click.option("--online", is_flag=True, help="Only those that have a leader.")
@click.option("--offline", is_flag=True, help="Only those that have none.")
def list_queues(session: Session, columns: tuple[str, ...], online: bool, offline: bool) -> None:
    """List the queues of a vhost."""
    names = chosen(QUEUES, columns, "name messages")
    session.say(f"Timeout: {session.settings.seconds} seconds ...")
    session.say(f"Listing queues for vhost {session.settings.vhost} ...")
    rows = session.get(path_of("queues", session.settings.vhost))
    if online != offline:
        rows = [row for row in rows if (row["state"] == "running") == online]
    print_rows(session, rows, QUEUES, names)


@command("list_exchanges")
@_columns
def list_exchanges(session: Session, columns: tuple[str, ...]) -> None:
    """List the exchanges of a vhost."""
    names = chosen(EXCHANGES, columns, "name type")
    session.say(f"Listing exchanges for vhost {session.settings.vhost} ...")
    rows = session.get(path_of("exchanges", session.settings.vhost))
    print_rows(session, rows, EXCHANGES, names)


@command("list_bindings")
@_columns
def list_bindings(session: Session, columns: tuple[str, ...]) -> None:
    """List the bindings of a vhost, those of the default exchange too."""
    default = "source_name source_kind destination_name destination_kind routing_key arguments"
    names = chosen(BINDINGS, columns, default)
    session.say(f"Listing bindings for vhost {session.settings.vhost}...")
    rows = session.get(path_of("bindings", session.settings.vhost))
    print_rows(session, rows, BINDINGS, names)


@command("list_connections")
@_columns
def list_connections(session: Session, columns: tuple[str, ...]) -> None:
    """List the client connections of all nodes."""
    names = chosen(CONNECTIONS, columns, "user peer_host peer_port state")
    session.say("Listing connections ...")
    print_rows(session, session.get("/api/connections"), CONNECTIONS, names)


@command("list_channels")
@_columns
def list_channels(session: Session, columns: tuple[str, ...]) -> None:
    """List the channels of all nodes."""
    names = chosen(CHANNELS, columns, "pid user consumer_count messages_unacknowledged")
    session.say("Listing channels ...")
    print_rows(session, session.get("/api/channels"), CHANNELS, names)


@command("list_consumers")
@_columns
def list_consumers(session: Session, columns: tuple[str, ...]) -> None:
    """List the consumers of a vhost."""
    default = "queue_name channel_pid consumer_tag ack_required prefetch_count active arguments"
    names = chosen(CONSUMERS, columns, default)
    session.say(f"Listing consumers in vhost {session.settings.vhost} ...")
    rows = session.get(path_of("consumers", session.settings.vhost))
    print_rows(session, rows, CONSUMERS, names)


@command("list_vhosts")
@_columns
def list_vhosts(session: Session, columns: tuple[str, ...]) -> None:
    """List the virtual hosts."""
    names = chosen(VHOSTS, columns, "name")
    session.say("Listing vhosts ...")
    print_rows(session, session.get("/api/vhosts"), VHOSTS, names)


@command("list_users")
def list_users(session: Session) -> None:
    """List the users and their tags."""
    _list_all(session, "users", "/api/users", USERS)


def _list_all(session: Session, what: str, path: str, columns: dict[str, Column]) -> None:
    """List rows of the API with all columns."""
    session.say(f"Listing {what} ...")
    print_rows(session, session.get(path), columns, list(columns))


@command("list_permissions")
def list_permissions(session: Session) -> None:
    """List who may do what in a vhost."""
    vhost = session.settings.vhost
    path = path_of("vhosts", vhost, "permissions")
    _list_all(session, f'permissions for vhost "{vhost}"', path, _same("user configure write read"))


@command("list_user_permissions")
@click.argument("user")
def list_user_permissions(session: Session, user: str) -> None:
    """List what a user may do where."""
    path = path_of("users", user, "permissions")
    _list_all(session, f'permissions for user "{user}"', path, _same("vhost configure write read"))


@command("list_topic_permissions")
def list_topic_permissions(session: Session) -> None:
    """List who may use which routing keys in a vhost."""
    vhost = session.settings.vhost
    path = path_of("vhosts", vhost, "topic-permissions")
    columns = _same("user exchange write read")
    _list_all(session, f'topic permissions for vhost "{vhost}"', path, columns)


@command("list_user_topic_permissions")
@click.argument("user")
def list_user_topic_permissions(session: Session, user: str) -> None:
    """List which routing keys a user may use where."""
    path = path_of("users", user, "topic-permissions")
    columns = _same("vhost exchange write read")
    _list_all(session, f'topic permissions for user "{user}"', path, columns)


@command("list_policies")
def list_policies(session: Session) -> None:
    """List the policies of a vhost."""
    vhost = session.settings.vhost
    _list_all(session, f'policies for vhost "{vhost}"', path_of("policies", vhost), POLICIES)


@command("list_operator_policies")
def list_operator_policies(session: Session) -> None:
    """List the operator policies of a vhost."""
    vhost = session.settings.vhost
    what = f'operator policy overrides for vhost "{vhost}"'
    _list_all(session, what, path_of("operator-policies", vhost), POLICIES)


@command("list_vhost_limits")
@click.option("--global", "everywhere", is_flag=True, help="Of all vhosts.")
def list_vhost_limits(session: Session, everywhere: bool) -> None:
    """List the limits of a vhost, or of all."""
    vhost = session.settings.vhost
    if everywhere:
        session.say("Listing limits for all vhosts ...")
        _print_limits(session, session.get("/api/vhost-limits"), "vhost")
    else:
        session.say(f'Listing limits for vhost "{vhost}" ...')
        _print_limits(session, session.get(path_of("vhost-limits", vhost)), "")


@command("list_user_limits")
@click.option("--user", help="Of this one.")
@click.option("--global", "everywhere", is_flag=True, help="Of all users, as without --user.")
def list_user_limits(session: Session, user: str | None, everywhere: bool) -> None:
    """List the limits of users."""
    if user is not None and not everywhere:
        session.say(f'Listing limits for user "{user}" ...')
        _print_limits(session, session.get(path_of("user-limits", user)), "")
    else:
        session.say("Listing limits for all users ...")
        _print_limits(session, session.get("/api/user-limits"), "user")


def _print_limits(session: Session, rows: list[dict[str, Any]], key: str) -> None:
    """Print limits: with the names of their owners, or when `key` is "" just the limits."""
    if key:
        columns: dict[str, Column] = {
            key: key,
            "limits": lambda row: msgspec.json.encode(row["value"]).decode(),
        }
        print_rows(session, rows, columns, list(columns))
        return
    limits = rows[0]["value"] if rows else {}
    click.echo(msgspec.json.encode(limits).decode())
