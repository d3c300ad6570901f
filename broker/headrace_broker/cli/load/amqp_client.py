"""Single messages over AMQP 0-9-1."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final, final

from aiormq.abc import AbstractChannel, DeliveredMessage
from pamqp.commands import Basic

from headrace_broker.cli.load.amqp import open_channel
from headrace_broker.cli.load.load_client import LoadMessage, Show, Taken
from headrace_broker.cli.session.client_tls import ClientTls

PREFETCH_COUNT: Final = 100


@contextlib.asynccontextmanager
async def open_client(
    address: str, login: tuple[str, str], vhost: str, tls: ClientTls | None
) -> AsyncIterator[AmqpLoadClient]:
    """Open a connection, and close it; raises as `open_channel`."""
    async with open_channel(address, login, vhost, True, tls) as channel:
        yield AmqpLoadClient(channel)


@final
class AmqpLoadClient:
    """See `LoadClient`."""

    def __init__(self, channel: AbstractChannel) -> None:
        self._channel = channel

    async def publish(self, letters: Iterable[LoadMessage]) -> None:
        """See `LoadClient`."""
        for letter in letters:
            await self._channel.basic_publish(
                letter.body,
                exchange=letter.exchange,
                routing_key=letter.routing_key,
                properties=_properties(letter),
                mandatory=True,
            )

    async def take(self, queue: str, count: int, until_empty: bool, show: Show) -> None:
        """See `LoadClient`."""
        if until_empty:
            await self._take_waiting(queue, count, show)
        else:
            await self._take_forever(queue, count, show)

    async def _take_waiting(self, queue: str, count: int, show: Show) -> None:
        taken = 0
        while not count or taken < count:
            message = await self._channel.basic_get(queue)
            if message.delivery_tag is None:
                return
            await _show(message, show)
            taken += 1

    async def _take_forever(self, queue: str, count: int, show: Show) -> None:
        left = count
        enough = asyncio.Event()
        channel = self._channel
        await channel.basic_qos(prefetch_count=min(count or PREFETCH_COUNT, PREFETCH_COUNT))

        async def take(message: DeliveredMessage) -> None:
            nonlocal left
            if enough.is_set():
                return  # it goes back to the queue with the channel
            await _show(message, show)
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


def _properties(letter: LoadMessage) -> Basic.Properties:
    values: dict[str, Any] = dict(letter.properties)
    if "type" in values:
        values["message_type"] = values.pop("type")
    if "expiration" in values:
        values["expiration"] = str(values["expiration"])
    return Basic.Properties(headers=dict(letter.headers), **values)


async def _show(message: DeliveredMessage, show: Show) -> None:
    given = dict(message.header.properties)
    given["type"] = given.pop("message_type")
    properties = {name: value for name, value in given.items() if value not in (None, "")}
    taken = Taken(
        message.body,
        message.exchange or "",
        message.routing_key or "",
        bool(message.redelivered),
        properties,
    )
    show(taken)
    assert message.delivery_tag is not None  # it is a message
    await message.channel.basic_ack(message.delivery_tag)
