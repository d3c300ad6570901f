"""Consumers of direct replies: of the pseudo-queue `amq.rabbitmq.reply-to`, one a channel.

Source: https://www.rabbitmq.com/docs/direct-reply-to; texts as in RabbitMQ, which clients know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from pamqp import commands
from typing_extensions import override

from headrace_broker.codecs.method import queue_declare_ok
from headrace_broker.gateways.amqp.handler_port import server_name
from headrace_broker.model.message import Publish
from headrace_broker.model.reply_code import NOT_ALLOWED, PRECONDITION_FAILED, AmqpError
from headrace_broker.model.reply_queue import REPLY_PREFIX, REPLY_QUEUE
from headrace_broker.runtime.port import ReplyListener

if TYPE_CHECKING:
    from headrace_broker.gateways.amqp.channel import Channel


@final
class ReplyConsumer(ReplyListener):
    """A channel's consumer of direct replies.

    Attributes:
        tag: consumer tag as the client knows it.
        name: under which replies find it.
    """

    def __init__(self, channel: Channel, tag: str) -> None:
        self.tag = tag
        self._tag_octets = tag.encode()
        self._deliveries = channel.deliveries
        self._broker = channel.outlet.broker
        self.name = self._broker.open_replies(self)

    @override
    def on_reply(self, publish: Publish) -> None:
        """Deliver a reply, or drop it when the client does not read."""
        self._deliveries.reply(self._tag_octets, publish)

    def close(self) -> None:
        """Take no more replies."""
        self._broker.close_replies(self.name)


def consume_replies(channel: Channel, command: commands.Basic.Consume) -> bool:
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
    channel.set_replies(ReplyConsumer(channel, tag))
    if not command.nowait:
        channel.send(commands.Basic.ConsumeOk(tag))
    return True


def cancel_replies(channel: Channel, command: commands.Basic.Cancel) -> bool:
    """Handle basic.cancel where it is of a consumer of replies; False where it is not."""
    if channel.replies is None or channel.replies.tag != command.consumer_tag:
        return False
    channel.set_replies(None)
    if not command.nowait:
        channel.send(commands.Basic.CancelOk(command.consumer_tag))
    return True


async def declare_replies(channel: Channel, command: commands.Queue.Declare) -> bool:
    """Handle queue.declare of the pseudo-queue, or of a consumer's name while that is there."""
    name = command.queue
    if name != REPLY_QUEUE and not name.startswith(REPLY_PREFIX):
        return False
    if name != REPLY_QUEUE and not await channel.outlet.broker.replies_open(name):
        return False
    channel.last_queue = name
    if not command.nowait:
        channel.send(queue_declare_ok(name, 0, 1))
    return True
