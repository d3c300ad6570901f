"""Methods of the classes exchange and queue.

Source: AMQP 0-9-1 specification, sections 1.6 (exchange) and 1.7 (queue); texts and the cases it
leaves open as in RabbitMQ, which clients know.
"""

from __future__ import annotations

from typing import Final

from pamqp import commands

from headrace_broker.catalog.access import (
    EXCHANGE,
    QUEUE,
    RESERVED_PREFIX,
    check_exchange_type,
    check_new_name,
    check_not_default,
    check_not_system,
)
from headrace_broker.catalog.permission import CONFIGURE
from headrace_broker.codecs.method import queue_declare_ok
from headrace_broker.gateways.amqp.methods.authorization import (
    check_any,
    check_binding,
    check_declared_exchange,
    check_declared_queue,
)
from headrace_broker.gateways.amqp.methods.handler_port import (
    Handler,
    check_owner,
    find_queue,
    known_queue,
    queue_name,
)
from headrace_broker.gateways.amqp.methods.method_channel import MethodChannel
from headrace_broker.gateways.amqp.methods.replying import declare_replies
from headrace_broker.gateways.consuming.server_name import server_name
from headrace_broker.gateways.publishing.authorization import check
from headrace_broker.model.definition import Binding, Exchange, Queue
from headrace_broker.model.reply_code import NOT_FOUND, AmqpError
from headrace_broker.runtime.security import audit

_LINE_ENDS: Final = str.maketrans("", "", "\r\n")


def _plain_queue(channel: MethodChannel, name: str) -> str:
    """Return a name without CR and LF, as RabbitMQ does where queues are declared and bound.

    Queues of earlier releases that have some in their names keep them.
    """
    output = channel.output
    plain = name.translate(_LINE_ENDS)
    if plain != name and output.broker.queue(output.vhost, name) is not None:
        return name
    return plain


def _plain_exchange(channel: MethodChannel, name: str) -> str:
    """Return a name without CR and LF. As `_plain_queue`, for exchanges."""
    output = channel.output
    plain = name.translate(_LINE_ENDS)
    if plain != name and output.broker.exchange(output.vhost, name) is not None:
        return name
    return plain


async def _declare_queue(channel: MethodChannel, command: commands.Queue.Declare) -> None:
    command.queue = _plain_queue(channel, command.queue)
    if await declare_replies(channel, command):
        return
    if command.passive:
        name = queue_name(channel, command.queue)
        check_any(channel.output, QUEUE, name)
        await channel.catch_up()
        queue = known_queue(channel, name)
    else:
        queue = await _create_queue(channel, command)
    channel.last_queue = queue.name
    if not command.nowait:
        try:
            ready, consumers = await channel.output.broker.queue_counts(queue)
        except AmqpError as error:
            if command.passive or error.code != NOT_FOUND:
                raise
            ready = consumers = 0  # deleted since; the method begun again would declare it anew
        channel.send(queue_declare_ok(queue.name, ready, consumers))


async def _create_queue(channel: MethodChannel, command: commands.Queue.Declare) -> Queue:
    output = channel.output
    broker = output.broker
    name = command.queue or server_name("amq.gen-")
    arguments = command.arguments or {}
    check_declared_queue(output, name, arguments)
    if command.queue.startswith(RESERVED_PREFIX) and broker.queue(output.vhost, name) is None:
        await channel.catch_up()
        if broker.queue(output.vhost, name) is None:
            check_new_name(QUEUE, name)
    if command.exclusive:
        output.owns_queues = True
    return await broker.topology.declare_queue(
        output.vhost,
        name,
        command.durable,
        command.exclusive,
        command.auto_delete,
        arguments,
        output.owner,
    )


async def _bind_queue(channel: MethodChannel, command: commands.Queue.Bind) -> None:
    await channel.output.broker.topology.bind(_queue_binding(channel, command))
    if not command.nowait:
        channel.send(commands.Queue.BindOk())


async def _unbind_queue(channel: MethodChannel, command: commands.Queue.Unbind) -> None:
    await channel.output.broker.topology.unbind(_queue_binding(channel, command))
    channel.send(commands.Queue.UnbindOk())


def _queue_binding(
    channel: MethodChannel, command: commands.Queue.Bind | commands.Queue.Unbind
) -> Binding:
    output = channel.output
    exchange = _plain_exchange(channel, command.exchange)
    check_not_default(exchange)
    asked = _plain_queue(channel, command.queue)
    name = queue_name(channel, asked)
    key = command.routing_key
    if not key and not asked:
        key = name
    arguments = command.arguments or {}
    binding = Binding(output.vhost, exchange, "queue", name, key, arguments)
    check_binding(output, binding)
    queue = output.broker.queue(output.vhost, name)
    if queue is not None:
        check_owner(channel, queue)
    return binding


async def _purge_queue(channel: MethodChannel, command: commands.Queue.Purge) -> None:
    queue = find_queue(channel, command.queue)
    count = await channel.links.open(queue).client.purge()
    audit.record("purge_queue", queue.name, vhost=queue.vhost, messages=count)
    if not command.nowait:
        channel.send(commands.Queue.PurgeOk(count))


async def _delete_queue(channel: MethodChannel, command: commands.Queue.Delete) -> None:
    output = channel.output
    name = queue_name(channel, _plain_queue(channel, command.queue))
    check(output, CONFIGURE, QUEUE, name)
    if output.broker.queue(output.vhost, name) is None:
        await channel.catch_up()
    queue = output.broker.queue(output.vhost, name)
    count = 0
    if queue is not None:
        check_owner(channel, queue)
        count = await output.broker.topology.delete_queue(
            queue, command.if_unused, command.if_empty
        )
    if not command.nowait:
        channel.send(commands.Queue.DeleteOk(count))


async def _declare_exchange(channel: MethodChannel, command: commands.Exchange.Declare) -> None:
    output = channel.output
    name = _plain_exchange(channel, command.exchange)
    check_not_default(name)
    arguments = command.arguments or {}
    if command.passive:
        check_any(output, EXCHANGE, name)
        await channel.catch_up()
    else:
        check_declared_exchange(output, name, arguments)
    known = output.broker.exchange(output.vhost, name) is not None
    if command.passive:
        if not known:
            raise AmqpError(NOT_FOUND, f"no exchange '{name}' in vhost '{output.vhost}'")
    else:
        check_exchange_type(command.exchange_type)
        if not known:
            check_new_name(EXCHANGE, name)
        flags = (command.durable, command.auto_delete, command.internal)
        exchange = Exchange(output.vhost, name, command.exchange_type, *flags, arguments)
        await output.broker.topology.declare_exchange(exchange)
    if not command.nowait:
        channel.send(commands.Exchange.DeclareOk())


async def _delete_exchange(channel: MethodChannel, command: commands.Exchange.Delete) -> None:
    output = channel.output
    name = _plain_exchange(channel, command.exchange)
    check_not_default(name)
    check_not_system(output.vhost, name)
    check(output, CONFIGURE, EXCHANGE, name)
    await output.broker.topology.delete_exchange(output.vhost, name, command.if_unused)
    if not command.nowait:
        channel.send(commands.Exchange.DeleteOk())


async def _bind_exchange(channel: MethodChannel, command: commands.Exchange.Bind) -> None:
    await channel.output.broker.topology.bind(_exchange_binding(channel, command))
    if not command.nowait:
        channel.send(commands.Exchange.BindOk())


async def _unbind_exchange(channel: MethodChannel, command: commands.Exchange.Unbind) -> None:
    await channel.output.broker.topology.unbind(_exchange_binding(channel, command))
    if not command.nowait:
        channel.send(commands.Exchange.UnbindOk())


def _exchange_binding(
    channel: MethodChannel, command: commands.Exchange.Bind | commands.Exchange.Unbind
) -> Binding:
    source = _plain_exchange(channel, command.source)
    destination = _plain_exchange(channel, command.destination)
    check_not_default(source)
    check_not_default(destination)
    binding = Binding(
        channel.output.vhost,
        source,
        "exchange",
        destination,
        command.routing_key,
        command.arguments or {},
    )
    check_binding(channel.output, binding)
    return binding


TOPOLOGY_HANDLERS: Final[dict[int, Handler]] = {
    commands.Queue.Declare.index: _declare_queue,
    commands.Queue.Bind.index: _bind_queue,
    commands.Queue.Unbind.index: _unbind_queue,
    commands.Queue.Purge.index: _purge_queue,
    commands.Queue.Delete.index: _delete_queue,
    commands.Exchange.Declare.index: _declare_exchange,
    commands.Exchange.Delete.index: _delete_exchange,
    commands.Exchange.Bind.index: _bind_exchange,
    commands.Exchange.Unbind.index: _unbind_exchange,
}
