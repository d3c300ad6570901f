"""A channel's sessions with queues, for its publishes and its consumers."""

from __future__ import annotations

from typing import final

from typing_extensions import override

from headrace_broker.gateways.amqp.messages.consumer import ConsumerLink
from headrace_broker.gateways.publishing.link import Link
from headrace_broker.gateways.publishing.links import Links
from headrace_broker.model.definition import Queue
from headrace_broker.runtime.contract.port import QueueClient


@final
class ChannelLinks(Links):
    """Sessions that have consumers as well."""

    @override
    def new_link(self, client: QueueClient) -> Link:
        return ConsumerLink(client)

    @override
    def open(self, queue: Queue) -> ConsumerLink:
        link = super().open(queue)
        assert isinstance(link, ConsumerLink), "made by new_link"
        return link

    @override
    def find(self, client: QueueClient) -> ConsumerLink | None:
        link = super().find(client)
        if link is None:
            return None
        assert isinstance(link, ConsumerLink), "made by new_link"
        return link
