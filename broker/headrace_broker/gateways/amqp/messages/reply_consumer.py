"""A consumer of direct replies: of the pseudo-queue `amq.rabbitmq.reply-to`, one a channel.

Source: https://www.rabbitmq.com/docs/direct-reply-to
"""

from __future__ import annotations

from typing import final

from typing_extensions import override

from headrace_broker.catalog.permission_watch import PermissionWatch
from headrace_broker.gateways.amqp.messages.delivering import Deliveries
from headrace_broker.model.message import Publish
from headrace_broker.runtime.broker_port import Broker
from headrace_broker.runtime.contract.port import ReplyListener


@final
class ReplyConsumer(ReplyListener):
    """A channel's consumer of direct replies."""

    def __init__(
        self, tag: str, deliveries: Deliveries, broker: Broker, standing: PermissionWatch
    ) -> None:
        self.tag = tag  # consumer tag as the client knows it
        self._tag_bytes = tag.encode()
        self._deliveries = deliveries  # of the channel
        self._broker = broker  # the node
        self._standing = standing  # has it judged again when a permission changes
        self.name = broker.replies.open(self)  # under which replies find it

    @override
    def on_reply(self, publish: Publish) -> None:
        """Deliver a reply, or drop it when the client does not read."""
        self._deliveries.reply(self._tag_bytes, publish)

    def close(self) -> None:
        """Take no more replies."""
        self._broker.standings.leave(self._standing)
        self._broker.replies.close(self.name)
