"""Consumers of a channel, registered to be judged again when a permission changes.

A consumer that has lost its permission ends with its channel: channel.close has a text that says
why, basic.cancel has none. Its unsettled messages go back to the queue.
"""

from __future__ import annotations

from typing import final

from headrace_broker.catalog.access import QUEUE, refused, stranger_text
from headrace_broker.catalog.permission import READ
from headrace_broker.catalog.permission_watch import PermissionWatch
from headrace_broker.gateways.amqp.methods.method_channel import MethodChannel
from headrace_broker.gateways.publishing.authorization import check
from headrace_broker.model.reply_code import AmqpError


@final
class ConsumerRight:
    """Permission of a consumer, and its end without it."""

    def __init__(self, channel: MethodChannel, queue: str) -> None:
        self._channel = channel  # of the consumer
        # that it may read; "" for one of direct replies, which has to be let into the vhost
        self._queue = queue

    def judge(self) -> None:
        """Ask again.

        Raises:
            AmqpError: ACCESS_REFUSED.
        """
        output = self._channel.output
        if self._queue:
            check(output, READ, QUEUE, self._queue)
        elif not output.broker.permissions.may_enter(output.user, output.vhost):
            raise refused(stranger_text(output.user, output.vhost))

    def end(self, error: AmqpError) -> None:
        """Close the channel, or the connection of a deleted user."""
        self._channel.fail(error, 0)


def stand(channel: MethodChannel, queue: str) -> PermissionWatch:
    """Check a consumer's permissions from now on.

    Args:
        channel: of the consumer.
        queue: as `ConsumerRight`.

    Raises:
        AmqpError: it may not consume.
    """
    right = ConsumerRight(channel, queue)
    output = channel.output
    standing = PermissionWatch(output.user, output.vhost, right.judge, right.end)
    output.broker.standings.enter(standing)
    return standing
