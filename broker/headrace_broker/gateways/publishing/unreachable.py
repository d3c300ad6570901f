"""Publishes to a queue of which no leader can be reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace_broker.codecs.frame import BASIC_PUBLISH
from headrace_broker.gateways.amqp.confirming import Confirms
from headrace_broker.gateways.amqp.links import Links
from headrace_broker.model.reply_code import PRECONDITION_FAILED, AmqpError
from headrace_broker.runtime.port import QueueClient, QueueListener

if TYPE_CHECKING:
    from headrace_broker.gateways.amqp.channel import Channel


def refuse_unreachable(
    listener: QueueListener, links: Links, confirms: Confirms, client: QueueClient
) -> bool:
    """Refuse what a queue has not confirmed, and forget the session.

    Some of it may be committed all the same, as after any `basic.nack`.

    Returns:
        False where the session is needed for something else: nothing was done.
    """
    link = links.find(client)
    if link is None:
        return True
    if not confirms.enabled or link.consumers:
        return False
    tickets = client.abandon()
    for ticket in tickets:
        ticket.refuse(ticket.first, ticket.last)
    if tickets:
        listener.on_rejected(client, tickets)
    links.forget(link)
    return True


def give_up_publishes(channel: Channel, client: QueueClient, text: str) -> None:
    """Refuse publishes that wait for confirms, and go on with those that are held.

    Without confirms, or where the session has deliveries as well, the channel closes.
    """
    whole = channel.deliveries.unsettled.count > 0
    if whole or not refuse_unreachable(channel, channel.links, channel.confirms, client):
        channel.fail(AmqpError(PRECONDITION_FAILED, text), BASIC_PUBLISH)
    else:
        channel.outlet.brake.wake()
