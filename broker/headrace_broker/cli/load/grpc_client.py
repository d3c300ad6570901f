"""Single messages over gRPC."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from typing import Any, Final, final

from headrace_broker.cli.load.grpc import GIVE_UP_S, connect
from headrace_broker.cli.load.load_client import LoadMessage, Show, Taken
from headrace_broker.cli.session.client_tls import ClientTls
from headrace_client import Client, Confirm, Delivery, Properties

PREFETCH: Final = 100
MILLISECOND: Final = timedelta(milliseconds=1)


@contextlib.asynccontextmanager
async def open_client(
    address: str, login: tuple[str, str], vhost: str, tls: ClientTls | None
) -> AsyncIterator[GrpcLoadClient]:
    """Open a connection, and close it; raises as `connect`."""
    async with await connect(address, login, vhost, tls) as client:
        yield GrpcLoadClient(client)


@final
class GrpcLoadClient:
    """See `LoadClient`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def publish(self, letters: Iterable[LoadMessage]) -> None:
        """See `LoadClient`."""
        confirms: list[Confirm] = []
        async with self._client.publisher(
            mandatory=True, name="headrace", give_up_after_s=GIVE_UP_S
        ) as publisher:
            for letter in letters:
                confirm = await publisher.publish(
                    letter.body,
                    letter.routing_key,
                    exchange=letter.exchange,
                    properties=_properties(letter),
                )
                confirms.append(confirm)
            for confirm in confirms:
                await confirm

    async def take(self, queue: str, count: int, until_empty: bool, show: Show) -> None:
        """See `LoadClient`."""
        left = count
        async with self._client.consumer(
            queue,
            prefetch=min(count or PREFETCH, PREFETCH),
            name="headrace",
            until_empty=until_empty,
            give_up_after_s=GIVE_UP_S,
        ) as consumer:
            async for delivery in consumer:
                show(_taken(delivery))
                delivery.accept()
                left -= 1
                if left == 0:
                    return  # what came ahead goes back to the queue


def _properties(letter: LoadMessage) -> Properties:
    values: dict[str, Any] = dict(letter.properties)
    if "expiration" in values:
        values["expiration"] = values["expiration"] * MILLISECOND
    return Properties(headers=letter.headers, **values)


def _taken(delivery: Delivery) -> Taken:
    given = delivery.properties
    values = {each.name: getattr(given, each.name) for each in dataclasses.fields(given)}
    found = {name: value for name, value in values.items() if value not in (None, "", {})}
    if given.expiration is not None:
        found["expiration"] = str(given.expiration // MILLISECOND)
    return Taken(
        delivery.body, delivery.exchange, delivery.routing_key, delivery.redelivered, found
    )
