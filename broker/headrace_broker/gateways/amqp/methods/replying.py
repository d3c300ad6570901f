"""Methods on the pseudo-queue of direct replies, `amq.rabbitmq.reply-to`.

Source: https://www.rabbitmq.com/docs/direct-reply-to; texts as in RabbitMQ, which clients know.
"""

from __future__ import annotations

from pamqp import commands

from headrace_broker.codecs.method import queue_declare_ok
from headrace_broker.gateways.amqp.messages.reply_consumer import ReplyConsumer
from headrace_broker.gateways.amqp.methods.method_channel import MethodChannel
from headrace_broker.gateways.amqp.methods.standing import stand
from headrace_broker.gateways.consuming.server_name import server_name
from headrace_broker.model.reply_code import NOT_ALLOWED, PRECONDITION_FAILED, AmqpError
from headrace_broker.model.reply_queue import REPLY_PREFIX, REPLY_QUEUE


def consume_replies(channel: MethodChannel, command: commands.Basic.Consume) -> bool:
    """Handle basic.consume where it is from the pseudo-queue; False where it is not.

    Raises:
        AmqpError: NOT_ALLOWED (consumer tag in use), PRECONDITION_FAILED (with acknowledgements, or
            the second one of the channel).
    """
    if (command.queue or channel.last_queue) != REPLY_QUEUE:
        return False
    tag = command.consumer_tag or server_name("amq.ctag-")
    if tag in channel.consumers or (channel.replies is not None and channel.replies.tag == tag):
        raise AmqpError(NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
    if not command.no_ack:
        raise AmqpError(PRECONDITION_FAILED, "reply consumer cannot acknowledge")
    if channel.replies is not None:
        raise AmqpError(PRECONDITION_FAILED, "reply consumer already set")
    channel.set_replies(
        ReplyConsumer(tag, channel.deliveries, channel.output.broker, stand(channel, ""))
    )
    if not command.nowait:
        channel.send(commands.Basic.ConsumeOk(tag))
    return True


def cancel_replies(channel: MethodChannel, command: commands.Basic.Cancel) -> bool:
    """Handle basic.cancel where it is of a consumer of replies; False where it is not."""
    if channel.replies is None or channel.replies.tag != command.consumer_tag:
        return False
    channel.set_replies(None)
    if not command.nowait:
        channel.send(commands.Basic.CancelOk(command.consumer_tag))
    return True


async def declare_replies(channel: MethodChannel, command: commands.Queue.Declare) -> bool:
    """Handle queue.declare of the pseudo-queue, or of a consumer's name while that is there."""
    name = command.queue
    if name != REPLY_QUEUE and not name.startswith(REPLY_PREFIX):
        return False
    if name != REPLY_QUEUE and not await channel.output.broker.replies.exists(name):
        return False
    channel.last_queue = name
    if not command.nowait:
        channel.send(queue_declare_ok(name, 0, 1))
    return True
