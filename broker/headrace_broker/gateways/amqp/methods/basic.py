"""Methods of the classes basic, channel and confirm that the parser leaves to `pamqp`."""

from __future__ import annotations

from typing import Final

from pamqp import commands

from headrace_broker.catalog.access import QUEUE
from headrace_broker.catalog.permission import READ
from headrace_broker.gateways.amqp.messages.consumer import Consumer
from headrace_broker.gateways.amqp.methods.consumer_credit import credit_of, renew_credit
from headrace_broker.gateways.amqp.methods.handler_port import Handler, Operation, find_queue
from headrace_broker.gateways.amqp.methods.method_channel import MethodChannel
from headrace_broker.gateways.amqp.methods.replying import cancel_replies, consume_replies
from headrace_broker.gateways.amqp.methods.standing import stand
from headrace_broker.gateways.amqp.model.states import (
    CONSUMER_ACTIVE,
    CONSUMER_ENDED,
    CONSUMER_INPUT_ATTACHED,
    CONSUMER_INPUT_CANCEL,
    CONSUMER_INPUT_CANCELLED,
    CONSUMER_INPUT_LOST,
)
from headrace_broker.gateways.consuming.consumer_argument import attachment, check_arguments
from headrace_broker.gateways.consuming.server_name import server_name
from headrace_broker.gateways.publishing.authorization import check
from headrace_broker.model.limits import CHANNEL_CONSUMERS_MAX
from headrace_broker.model.reply_code import (
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    RESOURCE_LOCKED,
    AmqpError,
)

SINGLE_ACTIVE: Final = "x-single-active-consumer"


def _qos(channel: MethodChannel, command: commands.Basic.Qos) -> None:
    if command.prefetch_size:
        raise AmqpError(NOT_IMPLEMENTED, f"prefetch_size {command.prefetch_size}, not 0")
    if command.global_:
        channel.deliveries.limit = command.prefetch_count
        renew_credit(channel)
        channel.deliveries.resume()
    else:
        channel.prefetch = command.prefetch_count
        if channel.output.qos_running:
            for consumer in channel.consumers.values():
                consumer.prefetch = channel.prefetch
            renew_credit(channel)
    channel.send(commands.Basic.QosOk())


def _consume(channel: MethodChannel, command: commands.Basic.Consume) -> Operation | None:
    if consume_replies(channel, command):
        return None
    queue = find_queue(channel, command.queue)
    tag = command.consumer_tag or server_name("amq.ctag-")
    if tag in channel.consumers:
        raise AmqpError(NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
    if len(channel.consumers) >= CHANNEL_CONSUMERS_MAX:
        raise AmqpError(NOT_ALLOWED, f"more than {CHANNEL_CONSUMERS_MAX} consumers on a channel")
    check_arguments(queue, command.arguments or {})
    link = channel.links.open(queue)
    consumer = Consumer(link, link.next_number, tag, command.no_ack)
    consumer.prefetch = channel.prefetch
    consumer.standing = stand(channel, queue.name)
    link.next_number += 1
    link.consumers[int(consumer.number)] = consumer
    channel.consumers[tag] = consumer
    return _attach(channel, consumer, command)


async def _attach(
    channel: MethodChannel, consumer: Consumer, command: commands.Basic.Consume
) -> None:
    client = consumer.link.client
    credit = credit_of(channel, consumer)
    try:
        arguments = command.arguments or {}
        asked = attachment(consumer.tag, credit, command.exclusive, consumer.no_ack, arguments)
        consumer.attachment = asked
        consumer.arguments = arguments
        await client.attach(int(consumer.number), asked)
    except AmqpError:
        channel.forget_consumer(consumer, CONSUMER_INPUT_LOST)
        raise
    consumer.enter(CONSUMER_INPUT_ATTACHED)
    if not command.nowait:
        channel.send(commands.Basic.ConsumeOk(consumer.tag))
    if consumer.state == CONSUMER_ENDED:
        channel.notify_cancel(consumer)
    channel.deliveries.resume()


def _cancel(channel: MethodChannel, command: commands.Basic.Cancel) -> Operation | None:
    if cancel_replies(channel, command):
        return None
    consumer = channel.consumers.get(command.consumer_tag or "")
    if consumer is None or consumer.state != CONSUMER_ACTIVE:
        _cancelled(channel, command)
        return None
    consumer.enter(CONSUMER_INPUT_CANCEL)
    return _detach(channel, consumer, command)


async def _detach(
    channel: MethodChannel, consumer: Consumer, command: commands.Basic.Cancel
) -> None:
    await consumer.link.client.cancel(int(consumer.number))
    channel.forget_consumer(consumer, CONSUMER_INPUT_CANCELLED)
    _cancelled(channel, command)


def _cancelled(channel: MethodChannel, command: commands.Basic.Cancel) -> None:
    if not command.nowait:
        channel.send(commands.Basic.CancelOk(command.consumer_tag))


def _cancel_ok(channel: MethodChannel, command: commands.Basic.CancelOk) -> None:
    """The answer to our basic.cancel, which asks for none."""


async def _get(channel: MethodChannel, command: commands.Basic.Get) -> None:
    queue = find_queue(channel, command.queue)
    if queue.arguments.get(SINGLE_ACTIVE) is True:
        text = (
            f"cannot obtain access to locked queue '{queue.name}' in vhost '{queue.vhost}'. "
            "basic.get operations are not supported by queues with single active consumer"
        )
        raise AmqpError(RESOURCE_LOCKED, text)
    link = channel.links.open(queue)
    found = await link.client.get()
    if link.closed:
        return
    check(channel.output, READ, QUEUE, queue.name)  # it may have been taken away meanwhile
    if found is None:
        channel.deliveries.traffic.get_empty += 1
        channel.send(commands.Basic.GetEmpty())
        return
    run, left = found
    channel.deliveries.got(link, run, left, command.no_ack)


def _recover(channel: MethodChannel, command: commands.Basic.Recover) -> None:
    _recover_async(channel, command)
    channel.send(commands.Basic.RecoverOk())


def _recover_async(
    channel: MethodChannel, command: commands.Basic.Recover | commands.Basic.RecoverAsync
) -> None:
    if not command.requeue:
        raise AmqpError(NOT_IMPLEMENTED, "basic.recover with requeue=false")
    channel.deliveries.release_all()


def _flow(channel: MethodChannel, command: commands.Channel.Flow) -> None:
    channel.deliveries.flowing = bool(command.active)
    channel.deliveries.resume()
    channel.send(commands.Channel.FlowOk(command.active))


def _flow_ok(channel: MethodChannel, command: commands.Channel.FlowOk) -> None:
    """Ignore the answer to our channel.flow; later publishes are buffered all the same."""


def _confirm_select(channel: MethodChannel, command: commands.Confirm.Select) -> None:
    if channel.transaction.selected:
        raise AmqpError(PRECONDITION_FAILED, "cannot switch from tx to confirm mode")
    channel.confirms.enabled = True
    if not command.nowait:
        channel.send(commands.Confirm.SelectOk())


BASIC_HANDLERS: Final[dict[int, Handler]] = {
    commands.Basic.Qos.index: _qos,
    commands.Basic.Consume.index: _consume,
    commands.Basic.Cancel.index: _cancel,
    commands.Basic.CancelOk.index: _cancel_ok,
    commands.Basic.Get.index: _get,
    commands.Basic.Recover.index: _recover,
    commands.Basic.RecoverAsync.index: _recover_async,
    commands.Channel.Flow.index: _flow,
    commands.Channel.FlowOk.index: _flow_ok,
    commands.Confirm.Select.index: _confirm_select,
}
