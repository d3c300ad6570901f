"""Answers of queues to the publishes of a channel or stream."""

from __future__ import annotations

from typing_extensions import override

from headrace_broker.gateways.publishing.publish_admission import InputOwner, PublishAdmission
from headrace_broker.runtime.contract.port import PendingConfirm, QueueClient, QueueListener


class PublishListener(QueueListener, InputOwner):
    """Passes answers of queues to the confirms of a publisher.

    Attributes:
        admission: says which publishes pass.
    """

    admission: PublishAdmission

    def confirm(self) -> None:
        """Answer what is done at the end of the turn."""
        raise AssertionError("abstract")

    def withheld_changed(self) -> None:
        """Take note that other confirms are withheld than before."""
        raise AssertionError("abstract")

    @override
    def on_confirmed(self, client: QueueClient, tickets: list[PendingConfirm]) -> None:
        publisher = self.admission.publisher
        link = publisher.links.find(client)
        if link is not None:
            link.tickets -= len(tickets)
            publisher.confirms.settle(tickets)
            self.confirm()

    @override
    def on_rejected(self, client: QueueClient, tickets: list[PendingConfirm]) -> None:
        publisher = self.admission.publisher
        link = publisher.links.find(client)
        if link is not None:
            link.tickets -= len(tickets)
            publisher.confirms.refuse(tickets)
            self.confirm()

    @override
    def on_withheld(self, client: QueueClient, tickets: list[PendingConfirm]) -> None:
        publisher = self.admission.publisher
        if publisher.links.find(client) is not None:
            publisher.confirms.withhold(client.queue.group, tickets)
            self.withheld_changed()
            self.confirm()

    @override
    def on_completed(self, client: QueueClient, tickets: list[PendingConfirm], over: int) -> None:
        publisher = self.admission.publisher
        link = publisher.links.find(client)
        if link is not None:
            link.tickets -= over
            publisher.confirms.complete(client.queue.group, tickets, over)
            self.withheld_changed()
            self.confirm()

    @override
    def on_writable(self, client: QueueClient) -> None:
        link = self.admission.publisher.links.find(client)
        if link is not None:
            self.admission.relieve(link)

    def refuse_unreachable(self, client: QueueClient) -> bool:
        """Refuse what a queue without a leader has not confirmed, and forget the session.

        Some of it may be committed all the same, as after any `basic.nack`.

        Returns:
            False where the session is needed for something else: nothing was done.
        """
        publisher = self.admission.publisher
        link = publisher.links.find(client)
        if link is None:
            return True
        if not publisher.confirms.enabled or link.has_consumers:
            return False
        tickets = client.abandon()
        for ticket in tickets:
            ticket.refuse(ticket.first, ticket.last)
        if tickets:
            self.on_rejected(client, tickets)
        publisher.links.forget(link)
        self.admission.relieve(link)
        return True
