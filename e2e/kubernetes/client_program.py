"""Program of the scenario's pods, in the broker's image, which has clients of both protocols.

    client_program.py publish amqp --exchange events --key order.new --first 1
    client_program.py work tasks --to done
    client_program.py collect grpc orders

Bodies are numbers. What becomes of them is written to standard output, as intervals, one line of
JSON a second at most: that is the record by which it is judged whether anything was lost. A line
is written after the fact, so what a pod wrote is true even if it was killed a moment later.

The variables HEADRACE_HOST, HEADRACE_USER, HEADRACE_PASSWORD and HEADRACE_VHOST say where and who.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

import aiormq
from aiormq.abc import AbstractChannel, DeliveredMessage
from aiormq.exceptions import AMQPError, ChannelInvalidStateError, DeliveryError
from pamqp.commands import Basic

from headrace_client import Client, HeadraceError, PublishRefusedError, UnroutableError
from headrace_client import Consumer as GrpcConsumer
from headrace_client import Publisher as GrpcPublisher

STOP: Final = Path("/tmp/stop")  # a publisher ends when this is there
WRITE_SECONDS: Final = 1.0  # between two lines
AGAIN_SECONDS: Final = 0.5  # between two connections
HEARTBEAT_SECONDS: Final = 5  # of a node that was killed nothing else is heard
WINDOW: Final = 50  # publishes that are not confirmed: more would only wait in the client
PREFETCH: Final = 50  # deliveries that are not settled
AMQP_PORT: Final = 5672
GRPC_PORT: Final = 7672
LOST: Final = (OSError, AMQPError, ChannelInvalidStateError, TimeoutError)


class Login(NamedTuple):
    """Address and credentials, from the environment."""

    host: str
    user: str
    password: str
    vhost: str


class Record:
    """Numbers by what became of them, written down as intervals."""

    def __init__(self) -> None:
        self._new: dict[str, set[int]] = {}

    def note(self, what: str, number: int) -> None:
        """Note what became of a number."""
        self._new.setdefault(what, set()).add(number)

    def write(self) -> None:
        """Write new lines."""
        if self._new:
            print(json.dumps({what: intervals(each) for what, each in self._new.items()}))
            sys.stdout.flush()
            self._new.clear()

    async def keep_writing(self) -> None:
        """Write new lines, again and again, until cancelled."""
        while True:
            await asyncio.sleep(WRITE_SECONDS)
            self.write()


def intervals(numbers: set[int]) -> list[list[int]]:
    """Return numbers as intervals, first and last included."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


@asynccontextmanager
async def amqp_channel(login: Login, confirms: bool) -> AsyncIterator[AbstractChannel]:
    """Open a connection with one channel, and close both."""
    user, password, vhost = (quote(each, safe="") for each in login[1:])
    url = f"amqp://{user}:{password}@{login.host}:{AMQP_PORT}/{vhost}"
    connection = await aiormq.connect(f"{url}?heartbeat={HEARTBEAT_SECONDS}")
    try:
        yield await connection.channel(publisher_confirms=confirms)
    finally:
        await connection.close()


async def again(what: Callable[[], Awaitable[None]], is_over: Callable[[], bool]) -> None:
    """Do something over as many connections as it takes."""
    while not is_over():
        try:
            await what()
        except* LOST as lost:
            print(f"connects again after {lost.exceptions[0]!r}", file=sys.stderr, flush=True)
            await asyncio.sleep(AGAIN_SECONDS)


async def publish_amqp(login: Login, plan: argparse.Namespace, record: Record) -> None:
    """Publish numbers over AMQP until told to stop, each once.

    What is lost on its way is not confirmed, and not sent again.
    """
    numbers = itertools.count(plan.first)
    properties = Basic.Properties(delivery_mode=2)

    async def one(channel: AbstractChannel, window: asyncio.Semaphore, number: int) -> None:
        body = str(number).encode()
        try:
            await channel.basic_publish(
                body,
                exchange=plan.exchange,
                routing_key=plan.key,
                properties=properties,
                mandatory=True,
            )
            record.note("confirmed", number)
        except DeliveryError:
            record.note("refused", number)
        finally:
            window.release()

    async def connected() -> None:
        window = asyncio.Semaphore(WINDOW)
        async with amqp_channel(login, True) as channel, asyncio.TaskGroup() as group:
            while not STOP.exists():
                await window.acquire()
                group.create_task(one(channel, window, next(numbers)))
                await asyncio.sleep(1 / plan.rate)

    await again(connected, STOP.exists)


async def publish_grpc(login: Login, plan: argparse.Namespace, record: Record) -> None:
    """Publish numbers over gRPC until told to stop; the client resends lost ones."""

    async def one(publisher: GrpcPublisher, window: asyncio.Semaphore, number: int) -> None:
        try:
            await (await publisher.publish(str(number).encode()))
            record.note("confirmed", number)
        except (PublishRefusedError, UnroutableError):
            record.note("refused", number)
        finally:
            window.release()

    window = asyncio.Semaphore(WINDOW)
    async with (
        await grpc_client(login) as client,
        client.publisher(exchange=plan.exchange, routing_key=plan.key, mandatory=True) as publisher,
        asyncio.TaskGroup() as group,
    ):
        for number in until_stopped(plan.first):
            await window.acquire()
            group.create_task(one(publisher, window, number))
            await asyncio.sleep(1 / plan.rate)


def until_stopped(first: int) -> Iterator[int]:
    """Give numbers until there is a reason to stop."""
    return itertools.takewhile(lambda _: not STOP.exists(), itertools.count(first))


async def grpc_client(login: Login) -> Client:
    """Return a client; it begins when a node answers, and finds others by itself."""
    endpoint = f"{login.host}:{GRPC_PORT}"
    while True:
        try:
            return await Client.connect(
                endpoint, user=login.user, password=login.password, vhost=login.vhost
            )
        except HeadraceError as error:
            print(f"connects again after {error!r}", file=sys.stderr, flush=True)
            await asyncio.sleep(AGAIN_SECONDS)


async def work(login: Login, plan: argparse.Namespace, record: Record) -> None:
    """Move messages from one queue to another, until cancelled.

    Each is there before it is away here, so that none is lost, and some come twice.
    """

    async def take(message: DeliveredMessage) -> None:
        assert message.delivery_tag is not None  # only a get of an empty queue has none
        channel, properties = message.channel, Basic.Properties(delivery_mode=2)
        await channel.basic_publish(
            message.body, routing_key=plan.to, properties=properties, mandatory=True
        )
        await channel.basic_ack(message.delivery_tag)
        record.note("moved", int(message.body))

    await amqp_consume(login, plan.queue, take)


async def collect_amqp(login: Login, plan: argparse.Namespace, record: Record) -> None:
    """Take all that is in a queue over AMQP, until cancelled."""

    async def take(message: DeliveredMessage) -> None:
        assert message.delivery_tag is not None
        record.note("seen", int(message.body))
        await message.channel.basic_ack(message.delivery_tag)

    await amqp_consume(login, plan.queue, take)


async def amqp_consume(
    login: Login, queue: str, take: Callable[[DeliveredMessage], Awaitable[None]]
) -> None:
    """Consume a queue over as many connections as it takes, until cancelled."""

    async def checked(message: DeliveredMessage) -> None:
        try:
            await take(message)
        except LOST as error:  # the connection's own end says so, too; the message comes again
            print(f"not settled: {error!r}", file=sys.stderr, flush=True)

    async def connected() -> None:
        async with amqp_channel(login, True) as channel:
            await channel.basic_qos(prefetch_count=PREFETCH)
            await channel.basic_consume(queue, checked)
            await channel.closing

    await again(connected, lambda: False)


async def collect_grpc(login: Login, plan: argparse.Namespace, record: Record) -> None:
    """Take all that is in a queue over gRPC, until cancelled."""

    async def taken(consumer: GrpcConsumer) -> None:
        async for delivery in consumer:
            record.note("seen", int(delivery.body))
            delivery.accept()

    async with (
        await grpc_client(login) as client,
        client.consumer(plan.queue, prefetch=PREFETCH) as consumer,
    ):
        await taken(consumer)


ROLES: Final = {
    ("publish", "amqp"): publish_amqp,
    ("publish", "grpc"): publish_grpc,
    ("work", "amqp"): work,
    ("collect", "amqp"): collect_amqp,
    ("collect", "grpc"): collect_grpc,
}


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    roles = parser.add_subparsers(dest="role", required=True)
    publish, worker, collect = (roles.add_parser(name) for name in ("publish", "work", "collect"))
    publish.add_argument("protocol", choices=("amqp", "grpc"))
    publish.add_argument("--exchange", default="")
    publish.add_argument("--key", required=True)
    publish.add_argument("--first", type=int, default=1, help="number to begin with")
    publish.add_argument("--rate", type=float, default=50.0, help="messages a second at most")
    collect.add_argument("protocol", choices=("amqp", "grpc"))
    worker.set_defaults(protocol="amqp")
    worker.add_argument("--to", required=True, help="queue to move to")
    for each in (worker, collect):
        each.add_argument("queue")
    return parser.parse_args()


async def main() -> None:
    """Do what the command line says until that is done, or SIGTERM comes."""
    plan, record = arguments(), Record()
    login = Login(*(os.environ[f"HEADRACE_{name.upper()}"] for name in Login._fields))
    done = asyncio.create_task(ROLES[plan.role, plan.protocol](login, plan, record))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, done.cancel)
    writing = asyncio.create_task(record.keep_writing())
    await asyncio.wait([done])
    writing.cancel()
    record.write()
    if not done.cancelled():
        done.result()  # raises what went wrong
        print(json.dumps({"ended": []}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
