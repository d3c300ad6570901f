"""Refusal of publishes to a queue of which no leader can be reached."""

from __future__ import annotations

from headrace_broker.gateways.publishing.confirming import Confirms
from headrace_broker.gateways.publishing.publish_admission import PublishAdmission
from headrace_broker.runtime.contract.port import QueueClient, QueueListener


def refuse_unreachable(
    listener: QueueListener, admission: PublishAdmission, confirms: Confirms, client: QueueClient
) -> bool:
    """Refuse what a queue has not confirmed, and forget the session.

    Some of it may be committed all the same, as after any `basic.nack`.

    Returns:
        False where the session is needed for something else: nothing was done.
    """
    links = admission.publisher.links
    link = links.find(client)
    if link is None:
        return True
    if not confirms.enabled or link.has_consumers:
        return False
    tickets = client.abandon()
    for ticket in tickets:
        ticket.refuse(ticket.first, ticket.last)
    if tickets:
        listener.on_rejected(client, tickets)
    links.forget(link)
    admission.relieve(link)
    return True
