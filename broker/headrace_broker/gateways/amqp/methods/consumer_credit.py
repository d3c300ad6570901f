"""Prefetch of a channel's consumers: deliveries that queues may give them.

Source: RabbitMQ's documentation of "Consumer Prefetch"; its limiter (3.10) for consumers without
acknowledgements, which wait while the channel is at its limit and do not count towards it.
"""

from __future__ import annotations

from headrace_broker.gateways.amqp.messages.consumer import Consumer, ConsumerLink
from headrace_broker.gateways.amqp.methods.method_channel import MethodChannel
from headrace_broker.model.limits import NO_ACK_HELD_MAX, PREFETCH_UNLIMITED


def credit_of(channel: MethodChannel, consumer: Consumer) -> int:
    """Return how many deliveries a consumer may have unsettled at its queue.

    More than the channel may have is only taken away from other consumers.
    """
    limit = int(channel.deliveries.limit)
    if consumer.no_ack:
        return max(limit, NO_ACK_HELD_MAX) if limit else PREFETCH_UNLIMITED
    return min(int(consumer.prefetch) or PREFETCH_UNLIMITED, limit or PREFETCH_UNLIMITED)


def renew_credit(channel: MethodChannel) -> None:
    """Send changed credits of running consumers to their queues."""
    changed: dict[ConsumerLink, list[tuple[int, int]]] = {}
    for consumer in channel.consumers.values():
        attachment = consumer.attachment
        credit = credit_of(channel, consumer)
        if attachment is not None and attachment.prefetch != credit:
            changed.setdefault(consumer.link, []).append((int(consumer.number), credit))
    for link, prefetches in changed.items():
        if not link.closed:
            link.client.set_prefetch(prefetches)
