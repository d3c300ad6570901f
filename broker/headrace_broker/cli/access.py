"""`headrace user|permission|policy`: who may do what, and what queues are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click
import msgspec

from headrace_broker.cli.session.api_client import path_of
from headrace_broker.cli.session.progress import gauge
from headrace_broker.cli.session.session import Session, SessionGroup, change_limits, pairs, refusal

NOT_FOUND: Final = 404


@click.group(cls=SessionGroup)
def user() -> None:
    """List, declare and delete users."""


@user.command("list")
def list_users(session: Session) -> None:
    """List the users and their tags."""
    session.print_rows(session.get("/api/users"), {"name": "name", "tags": "tags"})


_password_file = click.option(
    "--password-file",
    type=click.File("r"),
    help="Whose first line is the password; - is standard input. Else it is asked for.",
)


def _password(name: str, file: Any) -> str:
    """Return the password in a file, or ask for one."""
    if file is not None:
        return str(file.readline().rstrip("\r\n"))
    text = f"Password for {name}"
    return str(click.prompt(text, hide_input=True, confirmation_prompt=True, err=True))


def _split(tags: str) -> list[str]:
    return [tag for tag in tags.split(",") if tag]


def _tags_of(session: Session, name: str) -> list[str]:
    """Return the tags of a user, none for one that is not there."""
    answer = session.ask("GET", path_of("users", name))
    if answer.status == NOT_FOUND:
        return []
    if answer.status >= 300:
        raise refusal(answer)
    return list(answer.body["tags"])


@user.command("declare")
@click.argument("name")
@click.option(
    "--tags",
    help="Joined by commas: administrator, monitoring, ... Left out, tags stay; '' takes all away.",
)
@_password_file
@click.option("--no-password", is_flag=True, help="Only its certificate lets it in.")
@click.option("--end-sessions", is_flag=True, help="End what it has open, on all nodes.")
def declare_user(
    session: Session,
    name: str,
    tags: str | None,
    password_file: Any,
    no_password: bool,
    end_sessions: bool,
) -> None:
    """Create the user NAME, or change its password, and its tags where they are given."""
    body: dict[str, Any] = {"tags": _tags_of(session, name) if tags is None else _split(tags)}
    if no_password:
        body["password_hash"] = ""
    else:
        body["password"] = _password(name, password_file)
    if end_sessions:
        body["end_sessions"] = True
    session.request("PUT", path_of("users", name), body)
    ended = "; its sessions from before end" if end_sessions else ""
    session.done(f"user '{name}' is declared{ended}; see `headrace permission grant`")


@user.command("rotate")
@click.argument("name")
@_password_file
@click.option("--keep-sessions", is_flag=True, help="Let what it has open go on.")
def rotate_user(session: Session, name: str, password_file: Any, keep_sessions: bool) -> None:
    """Give the user NAME another password, and end what it has open on all nodes."""
    tags = session.get(path_of("users", name))["tags"]
    body: dict[str, Any] = {"tags": tags, "password": _password(name, password_file)}
    if not keep_sessions:
        body["end_sessions"] = True
    session.request("PUT", path_of("users", name), body)
    sessions = "go on" if keep_sessions else "end"
    session.done(f"user '{name}' has another password; its sessions from before {sessions}")


@user.command("delete")
@click.argument("name")
def delete_user(session: Session, name: str) -> None:
    """Delete the user NAME and close its connections."""
    session.request("DELETE", path_of("users", name))
    session.done(f"user '{name}' is deleted")


@user.command("limits")
@click.argument("name")
@click.argument("limits", metavar="[LIMIT=NUMBER...]", nargs=-1)
def user_limits(session: Session, name: str, limits: tuple[str, ...]) -> None:
    """List the limits of the user NAME, or set some: max-connections, max-channels, ...

    LIMIT=none takes a limit away.
    """
    change_limits(session, path_of("user-limits", name), limits)


@click.group(cls=SessionGroup)
def permission() -> None:
    """List, grant and revoke permissions in a virtual host."""


@permission.command("list")
@click.option("--of", "name", help="Only those of this user, in all virtual hosts.")
def list_permissions(session: Session, name: str | None) -> None:
    """List who may do what in the virtual host."""
    path = path_of("vhosts", session.vhost, "permissions")
    if name is not None:
        path = path_of("users", name, "permissions")
    columns = {each: each for each in ("user", "vhost", "configure", "write", "read")}
    session.print_rows(session.get(path), columns)


@permission.command("grant")
@click.argument("name")
@click.option("--configure", default="", help="Pattern of names to declare and delete.")
@click.option("--write", default="", help="Pattern of names to publish and bind to.")
@click.option("--read", default="", help="Pattern of names to consume and bind from.")
def grant(session: Session, name: str, configure: str, write: str, read: str) -> None:
    """Let the user NAME into the virtual host; an empty pattern allows nothing, `.*` all."""
    body = {"configure": configure, "write": write, "read": read}
    session.request("PUT", path_of("permissions", session.vhost, name), body)
    session.done(f"'{name}' may enter '{session.vhost}'")


@permission.command("revoke")
@click.argument("name")
def revoke(session: Session, name: str) -> None:
    """Shut the user NAME out of the virtual host."""
    session.request("DELETE", path_of("permissions", session.vhost, name))
    session.done(f"'{name}' may no longer enter '{session.vhost}'")


@permission.group("topic", cls=SessionGroup)
def topic_permission() -> None:
    """List, grant and revoke what narrows a user's routing keys at topic exchanges."""


@topic_permission.command("list")
@click.option("--of", "name", help="Only those of this user, in all virtual hosts.")
def list_topic_permissions(session: Session, name: str | None) -> None:
    """List who may use which routing keys in the virtual host; who is not listed may use all."""
    path = path_of("vhosts", session.vhost, "topic-permissions")
    if name is not None:
        path = path_of("users", name, "topic-permissions")
    columns = {each: each for each in ("user", "vhost", "exchange", "write", "read")}
    session.print_rows(session.get(path), columns)


@topic_permission.command("grant")
@click.argument("name")
@click.argument("exchange")
@click.option("--write", default="", help="Pattern of routing keys to publish with.")
@click.option("--read", default="", help="Pattern of routing keys to bind with.")
def grant_topic(session: Session, name: str, exchange: str, write: str, read: str) -> None:
    """Let the user NAME use only these routing keys at the topic exchange EXCHANGE.

    {username} and {vhost} in a pattern stand for the names.
    """
    body = {"exchange": exchange, "write": write, "read": read}
    session.request("PUT", path_of("topic-permissions", session.vhost, name), body)
    session.done(f"routing keys of '{name}' at '{exchange}' are set")


@topic_permission.command("revoke")
@click.argument("name")
@click.argument("exchange", required=False)
def revoke_topic(session: Session, name: str, exchange: str | None) -> None:
    """Let the user NAME use any routing key at EXCHANGE again, or at all of the virtual host."""
    ends = (name,) if exchange is None else (name, exchange)
    session.request("DELETE", path_of("topic-permissions", session.vhost, *ends))
    where = f"at '{exchange}'" if exchange is not None else f"in '{session.vhost}'"
    session.done(f"'{name}' may use any routing key {where}")


@click.group(cls=SessionGroup)
def policy() -> None:
    """List, declare and delete policies."""


_operator = click.option("--operator", is_flag=True, help="An operator policy.")


def _policies(operator: bool) -> str:
    return "operator-policies" if operator else "policies"


@policy.command("list")
@_operator
def list_policies(session: Session, operator: bool) -> None:
    """List the policies of the virtual host."""
    columns = {
        **{each: each for each in ("name", "pattern", "apply-to", "priority")},
        "definition": lambda row: msgspec.json.encode(row["definition"]).decode(),
    }
    session.print_rows(session.get(path_of(_policies(operator), session.vhost)), columns)


@policy.command("declare")
@click.argument("name")
@click.argument("pattern")
@click.argument("definition", metavar="KEY=VALUE...", nargs=-1, required=True)
@click.option("--priority", type=int, default=0, show_default=True, help="The highest applies.")
@click.option("--apply-to", default="all", show_default=True, help="queues, exchanges, ...")
@_operator
def declare_policy(
    session: Session,
    name: str,
    pattern: str,
    definition: tuple[str, ...],
    priority: int,
    apply_to: str,
    operator: bool,
) -> None:
    """Tell all queues whose names match PATTERN what KEY=VALUE... says, at once."""
    body = {
        "pattern": pattern,
        "definition": pairs("KEY=VALUE", definition),
        "priority": priority,
        "apply-to": apply_to,
    }
    session.request("PUT", path_of(_policies(operator), session.vhost, name), body)
    session.done(f"policy '{name}' is declared")


@policy.command("delete")
@click.argument("name")
@_operator
def delete_policy(session: Session, name: str, operator: bool) -> None:
    """Delete the policy NAME."""
    session.request("DELETE", path_of(_policies(operator), session.vhost, name))
    session.done(f"policy '{name}' is deleted")


@click.group(cls=SessionGroup)
def definitions() -> None:
    """Export and import what is declared: users, virtual hosts, policies, queues, ..."""


_only = click.option("--only-vhost", is_flag=True, help="Those of --vhost, without users.")


def _definitions(session: Session, only_vhost: bool) -> str:
    return path_of("definitions", session.vhost) if only_vhost else "/api/definitions"


@definitions.command("export")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@_only
def export(session: Session, file: Path, only_vhost: bool) -> None:
    """Write definitions to FILE; - is standard output. It holds hashes of passwords."""
    found = session.get(_definitions(session, only_vhost))
    text = msgspec.json.format(msgspec.json.encode(found)).decode() + "\n"
    if str(file) == "-":
        click.echo(text, nl=False)
        return
    file.touch(mode=0o600)
    file.write_text(text, encoding="utf-8")
    session.done(f"definitions are in {file}")


@definitions.command("import")
@click.argument("file", type=click.File("rb"))
@_only
def import_(session: Session, file: Any, only_vhost: bool) -> None:
    """Declare what FILE says; what exists and is not named there stays."""
    try:
        wanted = msgspec.json.decode(file.read())
    except msgspec.DecodeError as error:
        raise click.BadParameter(f"is not JSON: {error}", param_hint="FILE") from None
    with gauge(f"declaring {_amounts(wanted)}", session.as_json):
        session.request("POST", _definitions(session, only_vhost), wanted)
    session.done("definitions are declared")


def _amounts(wanted: Any) -> str:
    """Return how much there is of each kind."""
    kinds = wanted.items() if isinstance(wanted, dict) else ()
    told = [f"{len(rows):,} {kind}" for kind, rows in kinds if rows and isinstance(rows, list)]
    return ", ".join(told) or "nothing"
