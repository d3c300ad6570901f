"""A single message into an exchange, for people."""

from __future__ import annotations

import asyncio
from typing import final

from headrace_broker.flow.account import Account
from headrace_broker.model.definition import Queue
from headrace_broker.model.flow import REPUBLISH, Cause
from headrace_broker.model.limits import REQUEST_SECONDS_MAX
from headrace_broker.model.message import Publish
from headrace_broker.model.reply_code import (
    ACCESS_REFUSED,
    INTERNAL_ERROR,
    NOT_FOUND,
    PRECONDITION_FAILED,
    AmqpError,
)
from headrace_broker.runtime.broker_port import Broker
from headrace_broker.runtime.contract.port import QueueClient
from headrace_broker.runtime.inspect.message_service import Confirms

_ANY_CHANNEL = 1


@final
class PublishService:
    """Publishes one message at a time, and waits until its queues have it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._count = 0

    async def publish(
        self, vhost: str, route: bytes, properties: bytes, body: bytes, user: str
    ) -> bool:
        """Publish a message and wait until every queue has confirmed it.

        Args:
            vhost: where.
            route: exchange and routing key as in `Publish.route`.
            properties: property flags and list.
            body: all of it.
            user: who is charged for it.

        Returns:
            False when it leads to no queue.

        Raises AmqpError: NOT_FOUND there is no such exchange, ACCESS_REFUSED it is internal,
        PRECONDITION_FAILED a queue refused the message or its route costs too much, INTERNAL_ERROR
        a queue does not answer, or publishers are blocked.
        """
        reason = self._broker.blocked.now.reason
        if reason:
            raise AmqpError(INTERNAL_ERROR, f"publishers are blocked: {reason}")
        queues = await self._queues(vhost, route, properties)
        if not queues:
            return False
        account = self._broker.ledger.open(self._cause(vhost, user))
        try:
            publish = Publish(_ANY_CHANNEL, route, False, False, properties, body)
            await self._hand_over(queues, publish, account)
        finally:
            self._broker.ledger.close(account)
        return True

    async def _queues(self, vhost: str, route: bytes, properties: bytes) -> tuple[Queue, ...]:
        broker = self._broker
        found = broker.router.route(vhost, route)
        if not found.known or not found.queues:
            await broker.catch_up()  # it may have been declared elsewhere a moment ago
            found = broker.router.route(vhost, route)
        if not found.known:
            raise AmqpError(NOT_FOUND, f"no exchange '{found.exchange}' in vhost '{vhost}'")
        if found.internal:
            text = f"cannot publish to internal exchange '{found.exchange}' in vhost '{vhost}'"
            raise AmqpError(ACCESS_REFUSED, text)
        if found.needs_message:
            found = broker.router.route_message(vhost, route, properties)
        if found.problem:
            raise AmqpError(PRECONDITION_FAILED, f"invalid message: {found.problem}")
        return found.queues

    async def _hand_over(
        self, queues: tuple[Queue, ...], publish: Publish, account: Account
    ) -> None:
        confirms = Confirms()
        pending_confirm, future = confirms.pending_confirm(len(queues))
        clients: list[QueueClient] = []
        try:
            for queue in queues:
                client = self._broker.open_queue(queue, confirms, account)
                clients.append(client)
                client.publish([publish], pending_confirm)
                client.flush()
            try:
                async with asyncio.timeout(REQUEST_SECONDS_MAX):
                    taken = await future
            except TimeoutError:
                text = f"a queue has not confirmed the message within {REQUEST_SECONDS_MAX} s"
                raise AmqpError(INTERNAL_ERROR, text) from None
        finally:
            for client in clients:
                client.close()
        if not taken:
            raise AmqpError(PRECONDITION_FAILED, "a queue has refused the message")

    def _cause(self, vhost: str, user: str) -> Cause:
        self._count += 1
        node = self._broker.node_name
        account = f"{node}/{REPUBLISH}/http.{self._broker.boot}.{self._count}"
        cause = Cause(account, REPUBLISH, "publish over HTTP", node)
        cause.user, cause.vhost = user, vhost
        return cause
