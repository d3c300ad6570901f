"""Answers of queues to the publishes of a channel or stream."""

from __future__ import annotations

from typing_extensions import override

from headrace_broker.gateways.publishing.publish_admission import InputOwner, PublishAdmission
from headrace_broker.runtime.contract.port import PendingConfirm, QueueClient, QueueListener


class PublishListener(QueueListener, InputOwner):
    """Passes answers of queues to the confirms of a publisher."""

    admission: PublishAdmission  # says which publishes pass

    def confirm(self) -> None:
        """Answer what is done at the end of the turn."""
        raise AssertionError("abstract")

    def deferred_changed(self) -> None:
        """Take note that other confirms are deferred than before."""
        raise AssertionError("abstract")

    @override
    def on_confirmed(self, client: QueueClient, pending_confirms: list[PendingConfirm]) -> None:
        publisher = self.admission.publisher
        link = publisher.links.find(client)
        if link is not None:
            link.pending_confirms -= len(pending_confirms)
            publisher.confirms.settle(pending_confirms)
            self.confirm()

    @override
    def on_rejected(self, client: QueueClient, pending_confirms: list[PendingConfirm]) -> None:
        publisher = self.admission.publisher
        link = publisher.links.find(client)
        if link is not None:
            link.pending_confirms -= len(pending_confirms)
            publisher.confirms.refuse(pending_confirms)
            self.confirm()

    @override
    def on_deferred(self, client: QueueClient, pending_confirms: list[PendingConfirm]) -> None:
        publisher = self.admission.publisher
        if publisher.links.find(client) is not None:
            publisher.confirms.defer(client.queue.group, pending_confirms)
            self.deferred_changed()
            self.confirm()

    @override
    def on_completed(
        self, client: QueueClient, pending_confirms: list[PendingConfirm], over: int
    ) -> None:
        publisher = self.admission.publisher
        link = publisher.links.find(client)
        if link is not None:
            link.pending_confirms -= over
            publisher.confirms.complete(client.queue.group, pending_confirms, over)
            self.deferred_changed()
            self.confirm()

    @override
    def on_writable(self, client: QueueClient) -> None:
        link = self.admission.publisher.links.find(client)
        if link is not None:
            self.admission.relieve(link)

    def refuse_unreachable(self, client: QueueClient, text: str) -> bool:
        """Refuse what a queue without a leader has not confirmed, and forget the session.

        Some of it may be committed all the same, as after any `basic.nack`. `text` says why.

        Returns:
            False where the session is needed for something else: nothing was done.
        """
        publisher = self.admission.publisher
        link = publisher.links.find(client)
        if link is None:
            return True
        if not publisher.confirms.enabled or link.has_consumers:
            return False
        pending_confirms = client.abandon()
        for pending_confirm in pending_confirms:
            pending_confirm.unreachable = text
            pending_confirm.refuse(pending_confirm.first, pending_confirm.last)
        if pending_confirms:
            self.on_rejected(client, pending_confirms)
        publisher.links.forget(link)
        self.admission.relieve(link)
        return True
