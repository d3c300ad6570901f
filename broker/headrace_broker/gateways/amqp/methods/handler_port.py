"""What a handler of a method is, and what all of them need."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace_broker.catalog.access import QUEUE
from headrace_broker.catalog.permission import READ
from headrace_broker.gateways.amqp.authorization import check
from headrace_broker.model.definition import Queue
from headrace_broker.model.reply_code import NOT_FOUND, RESOURCE_LOCKED, AmqpError

if TYPE_CHECKING:
    from headrace_broker.gateways.amqp.channel import Channel

Operation: TypeAlias = Coroutine[Any, Any, None]

# Takes the channel and the decoded method; what it returns is awaited before the channel's next
# method. Raises AmqpError, as the operation may.
Handler: TypeAlias = "Callable[[Channel, Any], Operation | None]"

_NAME_OCTETS = 16  # random octets of a name that the server gives


def server_name(prefix: str) -> str:
    """Return a name that nobody else has: the prefix and random characters."""
    return f"{prefix}{secrets.token_urlsafe(_NAME_OCTETS)}"


def queue_name(channel: Channel, name: str) -> str:
    """Return the name, or for "" that of the queue the channel declared last.

    Raises:
        AmqpError: NOT_FOUND, it has declared none.
    """
    if name:
        return name
    if not channel.last_queue:
        raise AmqpError(NOT_FOUND, "no previously declared queue")
    return channel.last_queue


def find_queue(channel: Channel, name: str) -> Queue:
    """Return a queue that this connection may read; "" is the one declared last.

    Raises:
        AmqpError: ACCESS_REFUSED, NOT_FOUND, or RESOURCE_LOCKED for another connection's exclusive
            queue.
    """
    name = queue_name(channel, name)
    check(channel.outlet, READ, QUEUE, name)
    return known_queue(channel, name)


def known_queue(channel: Channel, name: str) -> Queue:
    """Return a queue by its name, whatever the user may do with it.

    Raises:
        AmqpError: NOT_FOUND, or RESOURCE_LOCKED for another connection's exclusive queue.
    """
    outlet = channel.outlet
    queue = outlet.broker.queue(outlet.vhost, name)
    if queue is None:
        raise AmqpError(NOT_FOUND, f"no queue '{name}' in vhost '{outlet.vhost}'")
    check_owner(channel, queue)
    return queue


def check_owner(channel: Channel, queue: Queue) -> None:
    """Refuse another connection's exclusive queue.

    Raises:
        AmqpError: RESOURCE_LOCKED.
    """
    if queue.exclusive and queue.owner != channel.outlet.owner:
        raise AmqpError(
            RESOURCE_LOCKED,
            f"cannot obtain exclusive access to locked queue '{queue.name}' in vhost "
            f"'{queue.vhost}', which belongs to another connection",
        )
