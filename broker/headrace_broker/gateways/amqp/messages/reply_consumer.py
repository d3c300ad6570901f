"""A consumer of direct replies: of the pseudo-queue `amq.rabbitmq.reply-to`, one a channel.

Source: https://www.rabbitmq.com/docs/direct-reply-to
"""

from __future__ import annotations

from typing import final

from typing_extensions import override

from headrace_broker.catalog.permission_watch import PermissionWatch
from headrace_broker.gateways.amqp.messages.delivering import Deliveries
from headrace_broker.model.message import Publish
from headrace_broker.runtime.broker_port import Broker, ReplyListener


@final
class ReplyConsumer(ReplyListener):
    """A channel's consumer of direct replies.

    Args:
        tag: consumer tag as the client knows it.
        deliveries: of the channel.
        broker: the node.
        standing: has it judged again when a permission changes.

    Attributes:
        tag: consumer tag as the client knows it.
        name: under which replies find it.
    """

    def __init__(
        self, tag: str, deliveries: Deliveries, broker: Broker, standing: PermissionWatch
    ) -> None:
        self.tag = tag
        self._tag_bytes = tag.encode()
        self._deliveries = deliveries
        self._broker = broker
        self._standing = standing
        self.name = broker.open_replies(self)

    @override
    def on_reply(self, publish: Publish) -> None:
        """Deliver a reply, or drop it when the client does not read."""
        self._deliveries.reply(self._tag_bytes, publish)

    def close(self) -> None:
        """Take no more replies."""
        self._broker.standings.leave(self._standing)
        self._broker.close_replies(self.name)
