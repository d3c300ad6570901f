"""`headrace queue`: single messages of a queue."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headrace_broker.cli.api_client import ApiClient
from headrace_broker.cli.local_cluster import BASE_PORT, HTTP_OFFSET

REQUEST_S_MAX: Final = 60.0  # seconds; a move waits for confirms
SHOWN_CHARACTERS_MAX: Final = 60  # of a body, in a table
LIMIT_DEFAULT: Final = 10
LIMIT_MAX: Final = 500  # messages of one page


class Target:
    """A queue of a cluster, reached through one node's API."""

    def __init__(self, api: ApiClient, vhost: str) -> None:
        self._api = api
        self._vhost = vhost

    def request(self, method: str, queue: str, rest: str, body: Any = None) -> Any:
        """Make a request about a queue and return the answer's body.

        Raises:
            click.ClickException: the node did not answer, or refused.
        """
        path = f"/api/queues/{quote(self._vhost, safe='')}/{quote(queue, safe='')}/messages{rest}"
        return self._api.demand(method, path, body, REQUEST_S_MAX).body


@click.group()
@click.option(
    "--api",
    "address",
    default=f"127.0.0.1:{BASE_PORT + HTTP_OFFSET}",
    show_default=True,
    help="HOST:PORT of a node's HTTP API.",
)
@click.option("--user", default="guest", show_default=True)
@click.option("--password", default="guest", envvar="HEADRACE_PASSWORD", help="Theirs.")
@click.option("--vhost", default="/", show_default=True)
@click.pass_context
def queue(context: click.Context, address: str, user: str, password: str, vhost: str) -> None:
    """Look at, remove and move single messages that wait in a queue."""
    context.obj = Target(ApiClient(address, user, password), vhost)


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
@click.pass_obj
def peek(target: Target, name: str, after: int, limit: int) -> None:
    """Show the first messages of queue NAME without taking them."""
    page = target.request("GET", name, f"?after={after}&limit={limit}")
    Console().print(_table(page["messages"]))
    if page["next_after"] is not None:
        click.echo(f"more: --after {page['next_after']}")


@queue.command("delete-message")
@click.argument("name")
@click.argument("ids", type=click.IntRange(1), nargs=-1, required=True)
@click.pass_obj
def delete_message(target: Target, name: str, ids: tuple[int, ...]) -> None:
    """Remove messages of queue NAME by their IDS, which `peek` shows."""
    for number in ids:
        target.request("DELETE", name, f"/{number}")
    click.echo(f"removed {len(ids)}")


@queue.command()
@click.argument("name")
@click.argument("ids", type=click.IntRange(1), nargs=-1, required=True)
@click.option("--to", "to_queue", help="Queue to move them to.")
@click.option("--exchange", help="Exchange to publish them to instead.")
@click.option("--routing-key", default="", help="For --exchange.")
@click.pass_obj
def move(
    target: Target,
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
    moved = target.request("POST", name, "/move", body)
    click.echo(f"moved {len(moved['moved'])}")
    left = [f"{what}: {_list(moved[what])}" for what in ("missing", "unrouted", "refused")]
    left = [line for line in left if not line.endswith(": ")]
    if left:
        raise click.ClickException("not moved: " + "; ".join(left))


def _table(messages: list[dict[str, Any]]) -> Table:
    table = Table(box=None)
    for title in ("id", "age", "priority", "delivered", "octets", "routing key", "body"):
        table.add_column(title, no_wrap=True)
    for message in messages:
        body = message["payload"]
        if message["payload_encoding"] == "base64" and body:
            body = f"base64 {body}"
        shown = "".join(each if each.isprintable() else "." for each in body)
        cut = len(shown) > SHOWN_CHARACTERS_MAX or message.get("truncated", False)
        table.add_row(
            str(message["id"]),
            f"{message['age_ms'] / 1000:.1f} s",
            str(message["priority"]),
            str(message["acquired_count"]),
            str(message["payload_bytes"]),
            escape(message["routing_key"]),
            escape(shown[:SHOWN_CHARACTERS_MAX]) + ("..." if cut else ""),
        )
    return table


def _list(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
