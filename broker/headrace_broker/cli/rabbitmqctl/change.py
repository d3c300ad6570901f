"""Commands that change users, vhosts, permissions, policies and limits."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from headrace_broker.cli.rabbitmqctl.command import command
from headrace_broker.cli.rabbitmqctl.session import EX_DATAERR, EX_NOPERM, CommandError, Session
from headrace_broker.cli.session.api_client import path_of


def _json_object(name: str, text: str) -> dict[str, Any]:
    """Return an argument that is a JSON object; CommandError with EX_DATAERR for others."""
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise CommandError(f"{name}: is not JSON: {error}", EX_DATAERR) from None
    if not isinstance(value, dict):
        raise CommandError(f"{name}: must be a JSON object", EX_DATAERR)
    return value


# Vhosts


@command("add_vhost")
@click.argument("vhost_name", metavar="VHOST")
@click.option("--description", default="", help="For people.")
@click.option("--tags", default="", help="For people, joined by commas.")
@click.option("--default-queue-type", help="quorum or classic, for queues that do not say.")
def add_vhost(
    session: Session, vhost_name: str, description: str, tags: str, default_queue_type: str | None
) -> None:
    """Create a virtual host; one that exists is left as it is."""
    session.say(f'Adding vhost "{vhost_name}" ...')
    path = path_of("vhosts", vhost_name)
    body = {"description": description, "tags": tags, "default_queue_type": default_queue_type}
    if session.ask("GET", path).status == 404:
        session.change("PUT", path, body)


@command("delete_vhost")
@click.argument("vhost_name", metavar="VHOST")
def delete_vhost(session: Session, vhost_name: str) -> None:
    """Delete a virtual host and everything in it."""
    session.say(f'Deleting vhost "{vhost_name}" ...')
    session.change("DELETE", path_of("vhosts", vhost_name))


@command("set_vhost_limits")
@click.argument("limits")
def set_vhost_limits(session: Session, limits: str) -> None:
    """Set limits of a vhost: a JSON object; a negative value removes one."""
    vhost = session.settings.vhost
    session.say(f'Setting vhost limits to "{limits}" for vhost "{vhost}" ...')
    for name, value in _json_object("limits", limits).items():
        session.change("PUT", path_of("vhost-limits", vhost, name), {"value": value})


@command("clear_vhost_limits")
def clear_vhost_limits(session: Session) -> None:
    """Remove all limits of a vhost."""
    vhost = session.settings.vhost
    session.say(f'Clearing vhost "{vhost}" limits ...')
    for row in session.get(path_of("vhost-limits", vhost)):
        for name in row["value"]:
            session.change("DELETE", path_of("vhost-limits", vhost, name))


# Users


@command("add_user")
@click.argument("user")
@click.argument("password", required=False)
def add_user(session: Session, user: str, password: str | None) -> None:
    """Create a user; without a password on the command line it is read from the terminal."""
    secret = password if password is not None else click.prompt("Password", hide_input=True)
    session.say(f'Adding user "{user}" ...')
    path = path_of("users", user)
    if session.ask("GET", path).status == 200:
        raise CommandError(f'User "{user}" already exists')
    session.change("PUT", path, {"password": secret, "tags": []})
    session.say(
        "Done. Don't forget to grant the user permissions to some virtual hosts! "
        "See 'rabbitmqctl set_permissions --help' to learn more."
    )


@command("delete_user")
@click.argument("user")
def delete_user(session: Session, user: str) -> None:
    """Delete a user."""
    session.say(f'Deleting user "{user}" ...')
    session.change("DELETE", path_of("users", user))


@command("change_password")
@click.argument("user")
@click.argument("password", required=False)
@click.option("--end-sessions", is_flag=True, help="End what the user has open (Headrace's own).")
def change_password(session: Session, user: str, password: str | None, end_sessions: bool) -> None:
    """Change a user's password; as with RabbitMQ what is open goes on unless told otherwise."""
    secret = password if password is not None else click.prompt("Password", hide_input=True)
    session.say(f'Changing password for user "{user}" ...')
    known = session.get(path_of("users", user))
    body = {"password": secret, "tags": known["tags"]}
    if end_sessions:
        body["end_sessions"] = True
    session.change("PUT", path_of("users", user), body)


@command("clear_password")
@click.argument("user")
def clear_password(session: Session, user: str) -> None:
    """Take a user's password away: only its certificate lets it in."""
    session.say(f'Clearing password for user "{user}" ...')
    known = session.get(path_of("users", user))
    session.change("PUT", path_of("users", user), {"password_hash": "", "tags": known["tags"]})


@command("set_user_tags")
@click.argument("user")
@click.argument("tags", nargs=-1)
def set_user_tags(session: Session, user: str, tags: tuple[str, ...]) -> None:
    """Replace a user's tags; the password stays."""
    session.say(f'Setting tags for user "{user}" to [{", ".join(tags)}] ...')
    known = session.get(path_of("users", user))
    body = {
        "password_hash": known["password_hash"],
        "hashing_algorithm": known["hashing_algorithm"],
        "tags": list(tags),
    }
    session.change("PUT", path_of("users", user), body)


@command("authenticate_user")
@click.argument("user")
@click.argument("password")
def authenticate_user(session: Session, user: str, password: str) -> None:
    """Check a user's password, as far as its tags let it use the API."""
    session.say(f'Authenticating user "{user}" ...')
    settings = msgspec.structs.replace(session.settings, user=user, password=password)
    try:
        Session(settings).get("/api/whoami")
    except CommandError as error:
        if error.exit_code != EX_NOPERM:
            raise
        raise CommandError(f'failed to authenticate user "{user}"', EX_DATAERR) from None
    session.say("Success")


@command("set_user_limits")
@click.argument("user")
@click.argument("limits")
def set_user_limits(session: Session, user: str, limits: str) -> None:
    """Set limits of a user: a JSON object; a negative value removes one."""
    session.say(f'Setting user limits to "{limits}" for user "{user}" ...')
    for name, value in _json_object("limits", limits).items():
        session.change("PUT", path_of("user-limits", user, name), {"value": value})


@command("clear_user_limits")
@click.argument("user")
@click.argument("limit")
def clear_user_limits(session: Session, user: str, limit: str) -> None:
    """Remove a limit of a user, or "all"."""
    session.say(f'Clearing "{limit}" limit for user "{user}" ...')
    known = [name for row in session.get(path_of("user-limits", user)) for name in row["value"]]
    for name in known if limit == "all" else [limit]:
        session.change("DELETE", path_of("user-limits", user, name))


# Permissions


@command("set_permissions")
@click.argument("user")
@click.argument("configure")
@click.argument("write")
@click.argument("read")
def set_permissions(session: Session, user: str, configure: str, write: str, read: str) -> None:
    """Set what a user may do in a vhost: three regular expressions for names."""
    vhost = session.settings.vhost
    session.say(f'Setting permissions for user "{user}" in vhost "{vhost}" ...')
    body = {"configure": configure, "write": write, "read": read}
    session.change("PUT", path_of("permissions", vhost, user), body)


@command("clear_permissions")
@click.argument("user")
def clear_permissions(session: Session, user: str) -> None:
    """Take away what a user may do in a vhost."""
    vhost = session.settings.vhost
    session.say(f'Clearing permissions for user "{user}" in vhost "{vhost}" ...')
    session.change("DELETE", path_of("permissions", vhost, user))


@command("set_topic_permissions")
@click.argument("user")
@click.argument("exchange")
@click.argument("write")
@click.argument("read")
def set_topic_permissions(
    session: Session, user: str, exchange: str, write: str, read: str
) -> None:
    """Set which routing keys a user may use at a topic exchange: two regular expressions."""
    vhost = session.settings.vhost
    session.say(
        f'Setting topic permissions on "{exchange}" for user "{user}" in vhost "{vhost}" ...'
    )
    body = {"exchange": exchange, "write": write, "read": read}
    session.change("PUT", path_of("topic-permissions", vhost, user), body)


@command("clear_topic_permissions")
@click.argument("user")
@click.argument("exchange", required=False)
def clear_topic_permissions(session: Session, user: str, exchange: str | None) -> None:
    """Lift the topic permission of a user: at an exchange, or in a vhost."""
    vhost = session.settings.vhost
    on = f' on "{exchange}"' if exchange is not None else ""
    session.say(f'Clearing topic permissions{on} for user "{user}" in vhost "{vhost}" ...')
    ends = (user,) if exchange is None else (user, exchange)
    session.change("DELETE", path_of("topic-permissions", vhost, *ends))


# Policies


def _policy_options(handler: Any) -> Any:
    for option in (
        click.option("--apply-to", default="all", show_default=True),
        click.option("--priority", type=int, default=0, show_default=True),
        click.argument("definition"),
        click.argument("pattern"),
        click.argument("name"),
    ):
        handler = option(handler)
    return handler


def _set_policy(session: Session, what: tuple[str, str], name: str, body: dict[str, Any]) -> None:
    title, kind = what
    vhost, definition = session.settings.vhost, body["definition"]
    session.say(
        f'Setting {title} "{name}" for pattern "{body["pattern"]}" to "{definition}" '
        f'with priority "{body["priority"]}" for vhost "{vhost}" ...'
    )
    parsed = body | {"definition": _json_object("definition", definition)}
    session.change("PUT", path_of(kind, vhost, name), parsed)


@command("set_policy")
@_policy_options
def set_policy(session: Session, name: str, apply_to: str, **body: Any) -> None:
    """Set a policy; the definition is a JSON object."""
    _set_policy(session, ("policy", "policies"), name, {**body, "apply-to": apply_to})


@command("set_operator_policy")
@_policy_options
def set_operator_policy(session: Session, name: str, apply_to: str, **body: Any) -> None:
    """Set an operator policy, which bounds what policies set."""
    what = ("operator policy override", "operator-policies")
    _set_policy(session, what, name, {**body, "apply-to": apply_to})


@command("clear_policy")
@click.argument("name")
def clear_policy(session: Session, name: str) -> None:
    """Delete a policy."""
    session.say(f'Clearing policy "{name}" on vhost "{session.settings.vhost}" ...')
    session.change("DELETE", path_of("policies", session.settings.vhost, name))


@command("clear_operator_policy")
@click.argument("name")
def clear_operator_policy(session: Session, name: str) -> None:
    """Delete an operator policy."""
    session.say(f'Clearing operator policy "{name}" on vhost "{session.settings.vhost}" ...')
    session.change("DELETE", path_of("operator-policies", session.settings.vhost, name))
