"""A load over AMQP 0-9-1, with the client library that asyncio programs use."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, final
from urllib.parse import quote

import aiormq
import click
from aiormq import exceptions
from aiormq.abc import AbstractChannel, DeliveredMessage
from pamqp.commands import Basic

from headrace_broker.cli.load.pace import Pace
from headrace_broker.cli.load.plan import STAMP, Plan, Tally
from headrace_broker.cli.session.client_tls import ClientTls
from headrace_broker.cli.session.session import (
    EXIT_NOT_ALLOWED,
    EXIT_NOT_FOUND,
    EXIT_REFUSED,
    EXIT_UNAVAILABLE,
)
from headrace_broker.config.configuration import split_address

ACK_DIVISOR: Final = 4  # a consumer acknowledges when a quarter of its prefetch count has come,
ACK_BYTES: Final = 1 << 20  # or so many bytes: a queue's watermark may be in bytes,
ACK_S: Final = 0.1  # or after so many seconds: publishers may wait for what is not acknowledged

# The library checks names more narrowly than a broker does, and says so with ValueError.
ERRORS: Final[tuple[type[BaseException], ...]] = (OSError, exceptions.AMQPError, ValueError)
_NOT_ALLOWED: Final = (
    exceptions.AuthenticationError,
    exceptions.ProbableAuthenticationError,
    exceptions.ConnectionNotAllowed,
    exceptions.ChannelAccessRefused,
)


def failure(error: BaseException) -> tuple[str, int]:
    """Return what to tell of an error, with its exit code."""
    text = str(error) or type(error).__name__
    if isinstance(error, exceptions.PublishError):
        return f"the message reaches no queue: {text}", EXIT_NOT_FOUND
    if isinstance(error, exceptions.DeliveryError):
        return f"a queue refuses the message: {text}", EXIT_REFUSED
    if isinstance(error, exceptions.ChannelNotFoundEntity):
        return text, EXIT_NOT_FOUND
    if isinstance(error, _NOT_ALLOWED):
        return text, EXIT_NOT_ALLOWED
    if isinstance(error, ValueError):
        return f"{text}, says the AMQP client; --protocol grpc takes all names", EXIT_REFUSED
    if isinstance(error, exceptions.AMQPChannelError):
        return text, EXIT_REFUSED
    return text, EXIT_UNAVAILABLE


logging.getLogger("aiormq").setLevel(logging.CRITICAL)  # what goes wrong is raised as well


@contextlib.asynccontextmanager
async def open_channel(
    address: str,  # HOST:PORT
    login: tuple[str, str],
    vhost: str,
    confirms: bool,  # whether publishes wait until they are safe
    tls: ClientTls | None = None,  # how the node is known, None in the clear
) -> AsyncIterator[AbstractChannel]:
    """Open a connection with one channel, and close both.

    Raises OSError, AMQPError: refused; click.BadParameter: the address cannot be one.
    """
    try:
        split_address(address)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--address") from None
    user, password = (quote(each, safe="") for each in login)
    scheme = "amqp" if tls is None else "amqps"
    url = f"{scheme}://{user}:{password}@{address}/{quote(vhost, safe='')}"
    connection = await aiormq.connect(
        url,
        client_properties={"connection_name": "headrace"},
        context=tls.context() if tls is not None else None,
    )
    try:
        yield await connection.channel(publisher_confirms=confirms)
    finally:
        await connection.close()


@final
class Acks:
    """Deliveries received and not acknowledged: a part of the prefetch, and not for long.

    A queue that holds what is not acknowledged may be at its watermark, and then its publishers
    wait for that.
    """

    def __init__(
        self, prefetch: int, send: Callable[[int], Awaitable[None]], bytes_max: int = ACK_BYTES
    ) -> None:
        self._prefetch = prefetch  # messages that it may hold
        self._send = send  # acknowledges all up to a delivery tag
        self._bytes_max = bytes_max  # bytes of bodies that it acknowledges at the latest
        self._tag = 0
        self._count = 0
        self._byte_count = 0

    async def add(self, tag: int, byte_count: int) -> None:
        """Take a delivery, and acknowledge it with those before where they are enough."""
        self._tag = tag
        self._count += 1
        self._byte_count += byte_count
        if self._count * ACK_DIVISOR >= self._prefetch or self._byte_count >= self._bytes_max:
            await self.flush()

    async def flush(self) -> None:
        """Acknowledge what has come."""
        if self._count:
            self._count = self._byte_count = 0
            await self._send(self._tag)

    async def run(self) -> None:
        """Acknowledge again and again what has come, until cancelled."""
        while True:
            await asyncio.sleep(ACK_S)
            await self.flush()


@final
class AmqpLoad:
    """Publishers and consumers of a plan."""

    def __init__(self, plan: Plan, tally: Tally, ended: asyncio.Event) -> None:
        self._plan = plan
        self._tally = tally
        self._ended = ended  # set when publishers shall end

    def _channel(self, confirms: bool) -> AbstractAsyncContextManager[AbstractChannel]:
        plan = self._plan
        return open_channel(plan.address, plan.login, plan.vhost, confirms, plan.tls)

    async def declare(self, arguments: dict[str, object]) -> None:
        """Declare the queues of the plan."""
        async with self._channel(confirms=False) as channel:
            for name in self._plan.queues:
                await channel.queue_declare(name, durable=True, arguments=arguments)  # type: ignore[arg-type]

    async def delete(self) -> None:
        """Delete the queues of the plan."""
        async with self._channel(confirms=False) as channel:
            for name in self._plan.queues:
                await channel.queue_delete(name)

    async def publish(self, queue: str) -> None:
        """Publish to a queue until the end, then wait for the confirms of what was sent."""
        plan, tally = self._plan, self._tally
        pace = Pace(plan.rate)
        padding = bytes(plan.body_bytes - STAMP.size)
        properties = Basic.Properties(delivery_mode=2 if plan.persistent else 1)
        window = asyncio.Semaphore(plan.window or 1)

        async def one(channel: AbstractChannel) -> None:
            body = STAMP.pack(time.monotonic_ns()) + padding
            try:
                await channel.basic_publish(body, routing_key=queue, properties=properties)
                tally.confirmed += 1
            finally:
                window.release()

        async with self._channel(plan.window > 0) as channel, asyncio.TaskGroup() as group:
            while not self._ended.is_set():
                await pace.wait()
                await window.acquire()
                if plan.window:
                    group.create_task(one(channel))
                else:
                    await one(channel)
                tally.sent += 1

    async def consume(self, queue: str) -> None:
        """Consume from a queue until cancelled."""
        plan, tally = self._plan, self._tally
        async with self._channel(confirms=False) as channel, asyncio.TaskGroup() as group:
            acks = Acks(plan.prefetch, lambda tag: channel.basic_ack(tag, multiple=True))

            async def take(message: DeliveredMessage) -> None:
                tally.receive(message.body, time.monotonic_ns())
                if plan.prefetch:
                    assert message.delivery_tag is not None  # only gets of an empty queue lack it
                    await acks.add(message.delivery_tag, len(message.body))

            if plan.prefetch:
                await channel.basic_qos(prefetch_count=plan.prefetch)
            acking = group.create_task(acks.run())
            await channel.basic_consume(queue, take, no_ack=plan.prefetch == 0)
            await channel.closing
            acking.cancel()
