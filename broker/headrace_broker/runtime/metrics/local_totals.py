"""Sums over what one node serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace_broker.model.status import MessageCounters, ObjectTotals, QueueCounts
from headrace_broker.runtime.contract.traffic import Traffic

if TYPE_CHECKING:
    from headrace_broker.runtime.node.node import BrokerNode


def message_counters(traffic: Traffic) -> MessageCounters:
    """Return what went through a node's connections."""
    return MessageCounters(
        publish=int(traffic.publish),
        confirm=int(traffic.confirm),
        deliver=int(traffic.deliver),
        redeliver=int(traffic.redeliver),
        ack=int(traffic.ack),
    )


def local_totals(node: BrokerNode) -> tuple[ObjectTotals, QueueCounts]:
    """Return what a node has, and what is in the queues that it leads.

    It looks at each queue that the node leads: for requests that want these figures, and no others.
    """
    connections = node.broker.connections.values()
    consumers = ready = unsettled = delayed = dead = 0
    for host in node.hosting.hosts.values():
        if host.serving:
            machine = host.machine
            consumers += int(machine.consumer_count)
            ready += int(machine.ready_count)
            unsettled += int(machine.unsettled_count)
            delayed += int(machine.delayed_count)
            dead += int(machine.dead_count)
    catalog = node.catalog.catalog
    objects = ObjectTotals(
        connections=len(connections),
        channels=sum(connection.channels for connection in connections),
        consumers=consumers,
        exchanges=len(catalog.exchanges()),
        queues=len(catalog.queues()),
    )
    return objects, QueueCounts(ready, unsettled, consumers, delayed=delayed, dead=dead)
