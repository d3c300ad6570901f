"""Handlers of methods, and what they share."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from headrace_broker.catalog.access import QUEUE
from headrace_broker.catalog.permission import READ
from headrace_broker.gateways.amqp.methods.method_channel import MethodChannel
from headrace_broker.gateways.publishing.authorization import check
from headrace_broker.model.definition import Queue
from headrace_broker.model.reply_code import NOT_FOUND, RESOURCE_LOCKED, AmqpError

Operation: TypeAlias = Coroutine[Any, Any, None]

# Takes the channel and the decoded method; what it returns is awaited before the channel's next
# method. Raises AmqpError, as the operation may.
Handler: TypeAlias = Callable[[MethodChannel, Any], Operation | None]


def queue_name(channel: MethodChannel, name: str) -> str:
    """Return the name, or for "" that of the queue the channel declared last.

    Raises:
        AmqpError: NOT_FOUND, it has declared none.
    """
    if name:
        return name
    if not channel.last_queue:
        raise AmqpError(NOT_FOUND, "no previously declared queue")
    return channel.last_queue


def find_queue(channel: MethodChannel, name: str) -> Queue:
    """Return a queue that this connection may read; "" is the one declared last.

    Raises:
        AmqpError: ACCESS_REFUSED, NOT_FOUND, or RESOURCE_LOCKED for another connection's exclusive
            queue.
    """
    name = queue_name(channel, name)
    check(channel.output, READ, QUEUE, name)
    return known_queue(channel, name)


def known_queue(channel: MethodChannel, name: str) -> Queue:
    """Return a queue by its name, whatever the user may do with it.

    Raises:
        AmqpError: NOT_FOUND, or RESOURCE_LOCKED for another connection's exclusive queue.
    """
    output = channel.output
    queue = output.broker.queue(output.vhost, name)
    if queue is None:
        raise AmqpError(NOT_FOUND, f"no queue '{name}' in vhost '{output.vhost}'")
    check_owner(channel, queue)
    return queue


def check_owner(channel: MethodChannel, queue: Queue) -> None:
    """Refuse another connection's exclusive queue.

    Raises:
        AmqpError: RESOURCE_LOCKED.
    """
    if queue.exclusive and queue.owner != channel.output.owner:
        raise AmqpError(
            RESOURCE_LOCKED,
            f"cannot obtain exclusive access to locked queue '{queue.name}' in vhost "
            f"'{queue.vhost}', which belongs to another connection",
        )
