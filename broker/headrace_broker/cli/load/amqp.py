"""A load over AMQP 0-9-1."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Final, final
from urllib.parse import quote

import aiormq
import click
from aiormq import exceptions
from aiormq.abc import AbstractChannel
from pamqp import commands

from headrace_broker.cli.load.amqp_wire import CHANNEL, AmqpWire, message_parts, open_wire
from headrace_broker.cli.load.pace import Pace
from headrace_broker.cli.load.plan import STAMP, Plan, Tally
from headrace_broker.cli.load.settling import Acks, Window
from headrace_broker.cli.session.client_tls import ClientTls
from headrace_broker.cli.session.session import (
    EXIT_NOT_ALLOWED,
    EXIT_NOT_FOUND,
    EXIT_REFUSED,
    EXIT_UNAVAILABLE,
)
from headrace_broker.codecs.event import Acked, Rejected
from headrace_broker.codecs.method import encode_method
from headrace_broker.codecs.reply_parser import Delivered, Reply
from headrace_broker.config.configuration import split_address

DELETE_S_MAX: Final = 30.0  # seconds until all queues are deleted
SEND_MESSAGES: Final = 64  # of a publisher in one go,
SEND_BYTES: Final = 1 << 18  # or so many bytes of bodies, or one message

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
class AmqpLoad:
    """Publishers and consumers of a plan."""

    def __init__(self, plan: Plan, tally: Tally, ended: asyncio.Event) -> None:
        self._plan = plan
        self._tally = tally
        self._ended = ended  # set when publishers shall end

    def _channel(self) -> AbstractAsyncContextManager[AbstractChannel]:
        plan = self._plan
        return open_channel(plan.address, plan.login, plan.vhost, False, plan.tls)

    def _wire(self) -> AbstractAsyncContextManager[AmqpWire]:
        plan = self._plan
        return open_wire(plan.address, plan.login, plan.vhost, plan.tls)

    async def declare(self, arguments: dict[str, object]) -> None:
        """Declare the queues of the plan."""
        async with self._channel() as channel:
            for name in self._plan.queues:
                await channel.queue_declare(name, durable=True, arguments=arguments)  # type: ignore[arg-type]

    async def delete(self) -> None:
        """Delete the queues of the plan."""
        async with asyncio.timeout(DELETE_S_MAX), self._channel() as channel:
            for name in self._plan.queues:
                await channel.queue_delete(name)

    async def publish(self, queue: str) -> None:
        """Publish to a queue until the end, then wait for the confirms of what was sent."""
        window = Window(self._plan.window)
        async with self._wire() as wire:
            if self._plan.window:
                await wire.ask(commands.Confirm.Select(), commands.Confirm.SelectOk)
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(self._confirms(wire, window))
                await self._send(wire, window, queue)
                await window.wait_empty()
                reading.cancel()

    async def _send(self, wire: AmqpWire, window: Window, queue: str) -> None:
        plan, tally = self._plan, self._tally
        pace = Pace(plan.rate)
        properties = commands.Basic.Properties(delivery_mode=2 if plan.persistent else 1)
        before, after = message_parts(
            queue, properties, plan.body_bytes, STAMP.size, wire.frame_max
        )
        most = 1 if plan.rate else max(1, min(SEND_MESSAGES, SEND_BYTES // plan.body_bytes))
        while not self._ended.is_set():
            await pace.wait()
            count = await window.room(most)
            stamp, now = STAMP.pack, time.monotonic_ns
            wire.write(b"".join([before + stamp(now()) + after for _ in range(count)]))
            window.sent(count)
            tally.sent += count
            await wire.drain()
            await asyncio.sleep(0)  # what has come is looked at

    async def _confirms(self, wire: AmqpWire, window: Window) -> None:
        """Take the confirms of a publisher until cancelled."""
        while True:
            for event in await wire.events():
                if isinstance(event, Acked):
                    self._tally.confirmed += window.confirm(event.delivery_tag, event.multiple)
                elif isinstance(event, Rejected):
                    nack = commands.Basic.Nack(event.delivery_tag, event.multiple)
                    raise exceptions.DeliveryError(None, nack)

    async def consume(self, queue: str) -> None:
        """Consume from a queue until cancelled."""
        plan = self._plan
        async with self._wire() as wire, asyncio.TaskGroup() as group:

            def send(tag: int) -> None:
                wire.write(encode_method(CHANNEL, commands.Basic.Ack(tag, True)))

            acks = Acks(plan.prefetch, send)
            if plan.prefetch:
                await wire.ask(commands.Basic.Qos(0, plan.prefetch), commands.Basic.QosOk)
                group.create_task(acks.run())
            consume = commands.Basic.Consume(no_ack=plan.prefetch == 0)
            consume.queue = queue
            await wire.ask(consume, commands.Basic.ConsumeOk)
            try:
                while True:
                    self._receive(await wire.events(), acks)
            finally:
                acks.flush()

    def _receive(self, events: list[Reply], acks: Acks) -> None:
        settles = self._plan.prefetch > 0
        now_ns = time.monotonic_ns()
        for event in events:
            if isinstance(event, Delivered):
                self._tally.receive(event.body, now_ns)
                if settles:
                    acks.add(event.delivery_tag, len(event.body))
