"""A load over gRPC, with the Python client."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Final, final

import click

from headrace_broker.cli.load.pace import Pace
from headrace_broker.cli.load.plan import STAMP, Plan, Tally
from headrace_broker.cli.session.client_tls import ClientTls
from headrace_broker.cli.session.session import (
    EXIT_NOT_ALLOWED,
    EXIT_NOT_FOUND,
    EXIT_REFUSED,
    EXIT_UNAVAILABLE,
)
from headrace_client import (
    PERSISTENT,
    TRANSIENT,
    AccessRefusedError,
    Client,
    Confirm,
    HeadraceError,
    NotAuthenticatedError,
    NotFoundError,
    Properties,
    PublishRefusedError,
    Tls,
    TooLateError,
    UnavailableError,
    UnroutableError,
)

GIVE_UP_S: Final = 30.0  # seconds without a node after which a load ends
DELIVERIES_AT_ONCE: Final = 256  # counted and settled between looks at the clock
PREFETCH_UNSETTLED: Final = 1000  # deliveries on their way to a consumer that does not settle

ERRORS: Final[tuple[type[BaseException], ...]] = (HeadraceError,)


def failure(error: BaseException) -> tuple[str, int]:
    """Return what to tell of an error, with its exit code."""
    text = str(error) or type(error).__name__
    if isinstance(error, UnroutableError):
        return f"the message reaches no queue: {text}", EXIT_NOT_FOUND
    if isinstance(error, PublishRefusedError):
        return f"a queue refuses the message: {text}", EXIT_REFUSED
    if isinstance(error, NotFoundError):
        return text, EXIT_NOT_FOUND
    if isinstance(error, AccessRefusedError | NotAuthenticatedError):
        return text, EXIT_NOT_ALLOWED
    if isinstance(error, UnavailableError | TooLateError):
        return text, EXIT_UNAVAILABLE
    return text, EXIT_REFUSED


async def connect(
    address: str, login: tuple[str, str], vhost: str, tls: ClientTls | None
) -> Client:
    """Return a client of HOST:PORT, or of several joined by commas; None for TLS in the clear.

    Raises HeadraceError: no node answers, or it refuses; click.BadParameter: a wrong address.
    """
    user, password = login
    proof = _proof(tls) if tls is not None else None
    try:
        return await Client.connect(address, user=user, password=password, vhost=vhost, tls=proof)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--address") from None


def _proof(tls: ClientTls) -> Tls:
    """Return files as the client takes them; raises as `ClientTls.context`."""
    tls.context()
    key = (tls.key_file or tls.cert_file) or None
    return Tls(tls.ca_file or None, tls.cert_file or None, key)


@final
class GrpcLoad:
    """Publishers and consumers of a plan."""

    def __init__(self, plan: Plan, tally: Tally, ended: asyncio.Event) -> None:
        self._plan = plan
        self._tally = tally
        self._ended = ended  # set when publishers shall end

    async def _client(self) -> Client:
        plan = self._plan
        return await connect(plan.address, plan.login, plan.vhost, plan.tls)

    async def declare(self, arguments: dict[str, object]) -> None:
        """Declare the queues of the plan."""
        async with await self._client() as client:
            for name in self._plan.queues:
                await client.topology.declare_queue(name, arguments=arguments)

    async def delete(self) -> None:
        """Delete the queues of the plan."""
        async with await self._client() as client:
            for name in self._plan.queues:
                await client.topology.delete_queue(name)

    async def publish(self, queue: str) -> None:
        """Publish to a queue until the end, then wait for the confirms of what was sent."""
        plan, tally = self._plan, self._tally
        pace = Pace(plan.rate)
        padding = bytes(plan.body_bytes - STAMP.size)
        properties = Properties(delivery_mode=PERSISTENT if plan.persistent else TRANSIENT)
        waiting: deque[Confirm] = deque()
        async with (
            await self._client() as client,
            client.publisher(
                routing_key=queue,
                confirms=plan.window > 0,
                unconfirmed_max=plan.window or PREFETCH_UNSETTLED,
                name="headrace",
                give_up_after_s=GIVE_UP_S,
            ) as publisher,
        ):
            while not self._ended.is_set():
                await pace.wait()
                body = STAMP.pack(time.monotonic_ns()) + padding
                confirm = await publisher.publish(body, properties=properties)
                tally.sent += 1
                if plan.window:
                    waiting.append(confirm)
                    while waiting and waiting[0].is_done:
                        await waiting.popleft()
                        tally.confirmed += 1
            for confirm in waiting:
                await confirm
                tally.confirmed += 1

    async def consume(self, queue: str) -> None:
        """Consume from a queue until cancelled."""
        plan, tally = self._plan, self._tally
        async with (
            await self._client() as client,
            client.consumer(
                queue,
                prefetch=plan.prefetch or PREFETCH_UNSETTLED,
                no_ack=plan.prefetch == 0,
                name="headrace",
                give_up_after_s=GIVE_UP_S,
            ) as consumer,
        ):
            while deliveries := await consumer.next_many(DELIVERIES_AT_ONCE):
                now_ns = time.monotonic_ns()
                for delivery in deliveries:
                    tally.receive(delivery.body, now_ns)
                    if plan.prefetch:
                        delivery.accept()
