"""`headrace publish` and `headrace consume`: single messages from and to a shell."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, BinaryIO

import click

from headrace_broker.cli.load.load_client import (
    LoadClient,
    LoadMessage,
    Taken,
    json_line,
    properties_of,
    text_line,
)
from headrace_broker.cli.load.protocol import address_option, protocol_option, wire_of
from headrace_broker.cli.session.session import ClientCommand, Session, pairs

TRANSIENT = 1
PERSISTENT = 2


@click.command(cls=ClientCommand)
@click.argument("routing_key")
@click.argument("body", required=False)
@protocol_option
@address_option
@click.option("--exchange", default="", help="To publish to; else ROUTING_KEY is a queue.")
@click.option("--file", type=click.File("rb"), help="Which holds the body; - is standard input.")
@click.option("--lines", is_flag=True, help="Each line of --file is a message.")
@click.option("--count", type=click.IntRange(1), default=1, help="Publish it so many times.")
@click.option("-H", "--header", "headers", multiple=True, metavar="KEY=VALUE")
@click.option(
    "-p",
    "--property",
    "properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="As content_type=text/plain.",
)
@click.option("--transient", is_flag=True, help="It need not be kept on disk.")
def publish(session: Session, /, routing_key: str, **given: Any) -> None:
    """Publish BODY, or what --file holds, and wait until it is safe.

    Ends with 3 when the message reaches no queue, and with 1 when a queue refuses it.
    """
    if (given["body"] is None) == (given["file"] is None):
        raise click.UsageError("say either BODY or --file")
    headers = pairs("--header", given["headers"])
    properties = {"delivery_mode": TRANSIENT if given["transient"] else PERSISTENT}
    properties |= properties_of(given["properties"])
    letters = [
        LoadMessage(body, given["exchange"], routing_key, headers, properties)
        for body in _bodies(given["body"], given["file"], given["lines"])
    ] * given["count"]
    _with_client(session, given, lambda client: client.publish(letters))
    session.done(f"published {len(letters)}")


def _bodies(body: str | None, file: BinaryIO | None, lines: bool) -> Iterator[bytes]:
    if file is None:
        yield (body or "").encode()
    elif lines:
        for line in file:
            yield line.rstrip(b"\r\n")
    else:
        yield file.read()


@click.command(cls=ClientCommand)
@click.argument("queue")
@protocol_option
@address_option
@click.option("--count", type=click.IntRange(0), default=0, help="End after so many; 0 for never.")
@click.option("--until-empty", is_flag=True, help="End when nothing waits any more.")
def consume(session: Session, /, queue: str, **given: Any) -> None:
    """Take messages of QUEUE and print them: a body a line, or with -o json an object a line.

    A message is acknowledged once it is printed. To look without taking: `headrace queue peek`.
    """
    line = json_line if session.as_json else text_line

    def show(taken: Taken) -> None:
        click.echo(line(taken))

    with contextlib.suppress(KeyboardInterrupt):
        _with_client(
            session,
            given,
            lambda client: client.take(queue, given["count"], given["until_empty"], show),
        )


def _with_client(
    session: Session, given: dict[str, Any], work: Callable[[LoadClient], Coroutine[Any, Any, None]]
) -> None:
    """Do something with a connection; CommandError for what was refused."""
    wire = wire_of(given["protocol"])
    address = wire.address_for(given["address"], session.tls)

    async def run() -> None:
        async with wire.client(address, session.login, session.vhost, session.tls) as client:
            await work(client)

    try:
        asyncio.run(run())
    except wire.errors as error:
        raise wire.command_error(address, error) from None
