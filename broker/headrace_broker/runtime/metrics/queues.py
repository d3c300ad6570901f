"""The queues that a node leads, added up in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headrace_broker.catalog.view import CatalogView
from headrace_broker.core.queue.state.lease_effect import HELD
from headrace_broker.runtime.clients.churn import Churn
from headrace_broker.runtime.metrics.metric import Sample
from headrace_broker.runtime.replica.queue_host import QueueHost


class _Sums:
    """Sums over all queues."""

    def __init__(self) -> None:
        self.led = self.consumers = self.ready = self.unsettled = self.delayed = 0
        self.dead = self.byte_count = self.groups = self.leases = self.leased = 0
        self.archived = self.archived_bytes = 0

    def add(self, host: QueueHost) -> None:
        """Add a queue."""
        machine = host.machine
        self.led += 1
        self.consumers += machine.consumer_count
        self.ready += machine.ready_count
        self.unsettled += machine.unsettled_count
        self.delayed += machine.delayed_count
        self.dead += machine.dead_count
        self.byte_count += machine.held_bytes
        groups = machine.lease_groups()
        if groups:
            self.groups += len(groups)
            self.leases += sum(each.state == HELD for group in groups for each in group.leases)
            self.leased += machine.leased_count
        archive = machine.archive()
        self.archived += archive.following - archive.first
        self.archived_bytes += archive.byte_count


def queue_samples(hosts: Iterable[QueueHost], view: CatalogView, churn: Churn) -> Iterator[Sample]:
    """Return sums over the replicas that lead, and counts of the catalog."""
    sums = _Sums()
    for host in hosts:
        if host.serving:
            sums.add(host)
    yield Sample("queues", len(view.queues()))
    yield Sample("queues_led", sums.led)
    yield Sample("queues_created_total", churn.queue_created)
    yield Sample("queues_deleted_total", churn.queue_deleted)
    yield Sample("exchanges", len(view.exchanges()))
    yield Sample("consumers", sums.consumers)
    yield Sample("queue_messages_ready", sums.ready)
    yield Sample("queue_messages_unacknowledged", sums.unsettled)
    yield Sample("queue_messages_delayed", sums.delayed)
    yield Sample("queue_dead_letters", sums.dead)
    yield Sample("queue_messages_bytes", sums.byte_count)
    yield Sample("queue_archived_messages", sums.archived)
    yield Sample("queue_archived_bytes", sums.archived_bytes)
    yield Sample("lease_groups", sums.groups)
    yield Sample("leases", sums.leases)
    yield Sample("leased_messages", sums.leased)
