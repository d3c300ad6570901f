"""`headrace publish` and `headrace consume`: single messages from and to a shell."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import aiormq
import click
import msgspec
from aiormq.abc import AbstractChannel, DeliveredMessage
from aiormq.exceptions import AMQPError, DeliveryError, PublishError
from pamqp.commands import Basic

from headrace_broker.cli.load.amqp import open_channel
from headrace_broker.cli.load.command import AMQP_ADDRESS
from headrace_broker.cli.session import (
    EXIT_NOT_FOUND,
    EXIT_REFUSED,
    EXIT_UNAVAILABLE,
    ClientCommand,
    CommandError,
    Session,
    pairs,
)

PREFETCH_COUNT = 100

_address = click.option(
    "--address", default=AMQP_ADDRESS, show_default=True, help="HOST:PORT for AMQP."
)


@click.command(cls=ClientCommand)
@click.argument("routing_key")
@click.argument("body", required=False)
@_address
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
@click.pass_obj
def publish(session: Session, /, routing_key: str, **given: Any) -> None:
    """Publish BODY, or what --file holds, and wait until it is safe.

    Ends with 3 when the message reaches no queue, and with 1 when a queue refuses it.
    """
    if (given["body"] is None) == (given["file"] is None):
        raise click.UsageError("say either BODY or --file")
    properties = functools.partial(_properties, given)
    properties()  # wrong ones are told before anything is sent
    bodies = list(_bodies(given["body"], given["file"], given["lines"])) * given["count"]

    async def send(channel: AbstractChannel) -> None:
        for body in bodies:
            await channel.basic_publish(
                body,
                exchange=given["exchange"],
                routing_key=routing_key,
                properties=properties(),
                mandatory=True,
            )

    _with_channel(session, given["address"], send)
    session.done(f"published {len(bodies)}")


def _properties(given: dict[str, Any]) -> Basic.Properties:
    values: dict[str, Any] = {"delivery_mode": 1 if given["transient"] else 2}
    values |= pairs("--property", given["properties"])
    try:
        return Basic.Properties(headers=pairs("--header", given["headers"]), **values)
    except (TypeError, ValueError) as error:
        raise click.BadParameter(str(error), param_hint="--property") from None


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
@_address
@click.option("--count", type=click.IntRange(0), default=0, help="End after so many; 0 for never.")
@click.option("--until-empty", is_flag=True, help="End when nothing waits any more.")
@click.pass_obj
def consume(session: Session, queue: str, address: str, count: int, until_empty: bool) -> None:
    """Take messages of QUEUE and print them: a body a line, or with -o json an object a line.

    A message is acknowledged once it is printed. To look without taking: `headrace queue peek`.
    """
    show = _json_line if session.as_json else _text_line

    async def take(channel: AbstractChannel) -> None:
        if until_empty:
            await _take_waiting(channel, queue, count, show)
        else:
            await _take_forever(channel, queue, count, show)

    with contextlib.suppress(KeyboardInterrupt):
        _with_channel(session, address, take)


Show = Callable[[DeliveredMessage], str]


async def _take_waiting(channel: AbstractChannel, queue: str, count: int, show: Show) -> None:
    """Print what waits, at most `count` messages; 0 for all."""
    taken = 0
    while not count or taken < count:
        message = await channel.basic_get(queue)
        if message.delivery_tag is None:
            return
        await _print(message, show)
        taken += 1


async def _take_forever(channel: AbstractChannel, queue: str, count: int, show: Show) -> None:
    """Print what comes, until `count` messages have come; 0 for ever."""
    left = count
    enough = asyncio.Event()
    await channel.basic_qos(prefetch_count=min(count or PREFETCH_COUNT, PREFETCH_COUNT))

    async def take(message: DeliveredMessage) -> None:
        nonlocal left
        if enough.is_set():
            return  # it goes back to the queue with the channel
        await _print(message, show)
        left -= 1
        if left == 0:
            enough.set()

    await channel.basic_consume(queue, take)
    waiting = asyncio.ensure_future(enough.wait())
    closing = asyncio.ensure_future(channel.closing)
    try:
        await asyncio.wait({waiting, closing}, return_when=asyncio.FIRST_COMPLETED)
        if closing.done():
            closing.result()
    finally:
        waiting.cancel()


async def _print(message: DeliveredMessage, show: Show) -> None:
    click.echo(show(message))
    assert message.delivery_tag is not None  # it is a message
    await message.channel.basic_ack(message.delivery_tag)


def _text_line(message: DeliveredMessage) -> str:
    return message.body.decode("utf-8", "backslashreplace")


def _json_line(message: DeliveredMessage) -> str:
    """Return all there is of a message; a body that is no text in base64."""
    properties = {
        name: value for name, value in message.header.properties if value not in (None, "")
    }
    try:
        body = {"body": message.body.decode("utf-8"), "encoding": "string"}
    except UnicodeDecodeError:
        body = {"body": base64.b64encode(message.body).decode(), "encoding": "base64"}
    found = {
        "exchange": message.exchange or "",
        "routing_key": message.routing_key or "",
        "redelivered": bool(message.redelivered),
        "properties": properties,
        **body,
    }
    return msgspec.json.encode(found, enc_hook=str).decode()


def _with_channel(session: Session, address: str, work: Callable[[AbstractChannel], Any]) -> None:
    """Run something with a channel.

    Raises:
        CommandError: the listener is not there, or what was refused.
    """

    async def run() -> None:
        async with open_channel(address, session.login, session.vhost, confirms=True) as channel:
            await work(channel)

    try:
        asyncio.run(run())
    except PublishError as error:
        raise CommandError(f"the message reaches no queue: {error}", EXIT_NOT_FOUND) from None
    except DeliveryError as error:
        raise CommandError(f"a queue refuses the message: {error}", EXIT_REFUSED) from None
    except aiormq.exceptions.ChannelNotFoundEntity as error:
        raise CommandError(str(error), EXIT_NOT_FOUND) from None
    except (OSError, AMQPError) as error:
        text = f"{address}: {str(error) or type(error).__name__}"
        raise CommandError(text, EXIT_UNAVAILABLE) from None
