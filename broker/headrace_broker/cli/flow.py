"""`headrace flow`: why publishers are slow, who causes it, and the limits behind that."""

from __future__ import annotations

import os
import sys
from typing import Any, Final
from urllib.parse import quote, urlencode

import click
import msgspec
from rich.console import Console

from headrace_broker.cli.api_client import ApiAnswer, ApiClient
from headrace_broker.cli.flow_view import connections_table, explanation_view, limits_table
from headrace_broker.cli.local_cluster import BASE_PORT, HTTP_OFFSET

REQUEST_S_MAX: Final = 15.0  # seconds; a node waits some seconds for others that do not answer
PLAIN_COLUMNS: Final = 1000  # of what is printed into a file or a pipe
COUNT_DEFAULT: Final = 50
COUNT_MAX: Final = 500


class Source:
    """A cluster, reached through one node's API.

    Attributes:
        address: of that.
        vhost: of queues.
    """

    def __init__(self, api: ApiClient, vhost: str) -> None:
        self.address = api.address
        self.vhost = vhost
        self._api = api

    def request(self, method: str, path: str, body: Any = None) -> ApiAnswer:
        """Make a request.

        Raises:
            click.ClickException: the node did not answer, or refused.
        """
        return self._api.demand(method, path, body, REQUEST_S_MAX)


@click.group()
@click.option(
    "--api",
    "address",
    default=f"127.0.0.1:{BASE_PORT + HTTP_OFFSET}",
    show_default=True,
    envvar="HEADRACE_API",
    help="HOST:PORT of a node's HTTP API.",
)
@click.option("--user", default="guest", show_default=True)
@click.option("--password", default="guest", envvar="HEADRACE_PASSWORD", help="Theirs.")
@click.option("--vhost", default="/", show_default=True, help="Of queues.")
@click.pass_context
def flow(context: click.Context, address: str, user: str, password: str, vhost: str) -> None:
    """Say who is slowed down, by what, and who causes it."""
    context.obj = Source(ApiClient(address, user, password), vhost)


@flow.command()
@click.argument("name", metavar="CONNECTION|QUEUE")
@click.option("--vhost", help="Of the queue.")
@click.option("--json", "as_json", is_flag=True, help="What the API answers.")
@click.pass_obj
def why(source: Source, name: str, vhost: str | None, as_json: bool) -> None:
    """Explain why a connection or a queue is slow.

    A connection goes by its name, its id, its client's address or the name that its client gave it;
    the beginning is enough where it is clear.
    """
    query = urlencode({"name": name, "vhost": vhost if vhost is not None else source.vhost})
    found = source.request("GET", f"/api/flow/why?{query}").body
    if as_json:
        _print_json(found)
    else:
        console = _console()
        console.print(found["sentence"], markup=False, soft_wrap=not sys.stdout.isatty())
        console.print()
        console.print(explanation_view(found))


@flow.command()
@click.option("--once", is_flag=True, help="Print the table and end.")
@click.option(
    "--count",
    type=click.IntRange(1, COUNT_MAX),
    default=COUNT_DEFAULT,
    show_default=True,
    help="How many connections.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what the API answers and end.")
@click.pass_obj
def top(source: Source, once: bool, count: int, as_json: bool) -> None:
    """Show the connections that are stopped the most, anew each second; q quits."""
    path = f"/api/flow/connections?count={count}"
    if as_json:
        _print_json(source.request("GET", path).body)
        return
    console = _console()
    if once or not sys.stdout.isatty() or not sys.stdin.isatty():
        answer = source.request("GET", path)
        console.print(connections_table(answer.body, console.width))
        if answer.partial:
            click.echo(answer.partial, err=True)
        return
    # Its modules are those of Unix terminals only.
    from headrace_broker.cli.flow_top import LiveTop, Picture

    def fetch() -> Picture:
        try:
            answer = source.request("GET", path)
        except click.ClickException as error:
            return Picture([], error.message)
        return Picture(answer.body, answer.partial)

    LiveTop(fetch, source.address, console).run()


@flow.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="What the API answers.")
@click.pass_context
def limits(context: click.Context, as_json: bool) -> None:
    """List the limits of flow control, show one, or change it at run time."""
    if context.invoked_subcommand is None:
        rows = context.obj.request("GET", "/api/flow/limits").body
        if as_json:
            _print_json(rows)
        else:
            _console().print(limits_table(rows))


@limits.command("get")
@click.argument("name")
@click.pass_obj
def get_limit(source: Source, name: str) -> None:
    """Print the value of the limit NAME."""
    click.echo(source.request("GET", _path_of(name)).body["value"])


@limits.command("set")
@click.argument("name")
@click.argument("value")
@click.pass_obj
def set_limit(source: Source, name: str, value: str) -> None:
    """Change the limit NAME in the whole cluster, at once and for open connections too.

    VALUE is a number, and for memory and disk also a fraction of what the node has.
    """
    source.request("PUT", _path_of(name), {"value": _number(value)})


@limits.command("reset")
@click.argument("name")
@click.pass_obj
def reset_limit(source: Source, name: str) -> None:
    """Have the limit NAME as the configuration or the default says."""
    source.request("DELETE", _path_of(name))


def _path_of(name: str) -> str:
    return f"/api/flow/limits/{quote(name, safe='')}"


def _number(text: str) -> int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise click.BadParameter(f"'{text}' is no number", param_hint="VALUE")


def _console() -> Console:
    """Return the terminal, or something wide where nothing limits lines."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return Console(highlight=False)
    return Console(highlight=False, width=PLAIN_COLUMNS)


def _print_json(found: Any) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(found)).decode())
