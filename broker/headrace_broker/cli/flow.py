"""`headrace flow`: why publishers are slow, who causes it, and the limits behind that."""

from __future__ import annotations

import sys
from typing import Final
from urllib.parse import urlencode

import click

from headrace_broker.cli.flow_view import (
    advice_table,
    connections_table,
    explanation_view,
    limits_table,
)
from headrace_broker.cli.session.api_client import path_of
from headrace_broker.cli.session.printable import printable
from headrace_broker.cli.session.session import Session, SessionGroup, console, print_json

COUNT_DEFAULT: Final = 50
COUNT_MAX: Final = 500


@click.group(cls=SessionGroup)
def flow() -> None:
    """Say who is slowed down, by what, and who causes it."""


@flow.command()
@click.argument("name", metavar="CONNECTION|QUEUE")
def why(session: Session, name: str) -> None:
    """Explain why a connection or a queue is slow.

    A connection goes by its name, its id, its client's address or the name that its client gave it;
    the beginning is enough where it is clear.
    """
    query = urlencode({"name": name, "vhost": session.vhost})
    found = session.get(f"/api/flow/why?{query}")
    if session.as_json:
        print_json(found)
        return
    terminal = console()
    terminal.print(printable(found["sentence"]), markup=False, soft_wrap=not sys.stdout.isatty())
    terminal.print()
    terminal.print(explanation_view(found))


@flow.command()
@click.option("--once", is_flag=True, help="Print the table and end.")
@click.option(
    "--count",
    type=click.IntRange(1, COUNT_MAX),
    default=COUNT_DEFAULT,
    show_default=True,
    help="How many connections.",
)
def top(session: Session, once: bool, count: int) -> None:
    """Show the connections that are stopped the most, anew each second; q quits."""
    path = f"/api/flow/connections?count={count}"
    if session.as_json:
        print_json(session.get(path))
        return
    terminal = console()
    if once or not sys.stdout.isatty() or not sys.stdin.isatty():
        terminal.print(connections_table(session.get(path), terminal.width))
        return
    # Its modules are those of Unix terminals only.
    from headrace_broker.cli.flow_top import LiveTop, Picture

    def fetch() -> Picture:
        try:
            answer = session.fetch(path)
        except click.ClickException as error:
            return Picture([], error.message)
        return Picture(answer.body, answer.partial)

    LiveTop(fetch, session.address, terminal).run()


@flow.command()
@click.option("--queue", default="", help="Only on this queue.")
def advice(session: Session, queue: str) -> None:
    """List what is advised for queues: limits and numbers of consumers, and why."""
    query = urlencode({"vhost": session.vhost, "queue": queue} if queue else {})
    rows = session.get(f"/api/flow/advice?{query}" if query else "/api/flow/advice")
    if session.as_json:
        print_json(rows)
    else:
        console().print(advice_table(rows))


@flow.group(invoke_without_command=True)
@click.pass_context
def limits(context: click.Context) -> None:
    """List the limits of flow control, show one, or change it at run time."""
    if context.invoked_subcommand is not None:
        return
    session: Session = context.obj
    rows = session.get("/api/flow/limits")
    if session.as_json:
        print_json(rows)
    else:
        console().print(limits_table(rows))


@limits.command("get")
@click.argument("name")
def get_limit(session: Session, name: str) -> None:
    """Print the value of the limit NAME."""
    click.echo(session.get(_path_of(name))["value"])


@limits.command("set")
@click.argument("name")
@click.argument("value")
def set_limit(session: Session, name: str, value: str) -> None:
    """Change the limit NAME in the whole cluster, at once and for open connections too.

    VALUE is a number, and for memory and disk also a fraction of what the node has.
    """
    session.request("PUT", _path_of(name), {"value": _number(value)})


@limits.command("reset")
@click.argument("name")
def reset_limit(session: Session, name: str) -> None:
    """Reset limit NAME to the configured or default value."""
    session.request("DELETE", _path_of(name))


def _path_of(name: str) -> str:
    return path_of("flow", "limits", name)


def _number(text: str) -> int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise click.BadParameter(f"'{text}' is no number", param_hint="VALUE")
