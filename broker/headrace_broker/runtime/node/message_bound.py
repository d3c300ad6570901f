"""Largest message that clients may publish: the least that any node of the cluster takes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from headrace_broker.catalog.cluster_version import in_force
from headrace_broker.catalog.command import AnnounceNode
from headrace_broker.catalog.event import ClusterVersionRaised, Event, NodeAdded, NodeRemoved
from headrace_broker.catalog.message_bound import bound_of
from headrace_broker.catalog.version import CATALOG_VERSION, ZONES
from headrace_broker.config.configuration import Config
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.model.client_limits import ClientLimits
from headrace_broker.model.limits import MESSAGE_BYTES_PLAIN, MESSAGE_MEMORY_PARTS
from headrace_broker.runtime.alarm.memory_watch import MemoryWatch
from headrace_broker.runtime.cluster.catalog_service import CatalogService
from headrace_broker.runtime.intake.flow_settings import FlowSettings

log: Final = logging.getLogger("headrace.node")


def own_message_bytes(config: Config, memory: MemoryWatch) -> int:
    """Return the bytes of the largest message that this node lets its clients send.

    It is what the configuration says, and less where that is more than MESSAGE_BYTES_PLAIN and the
    memory up to the watermark, as far as it is known, does not hold it MESSAGE_MEMORY_PARTS times.
    """
    configured = config.limits.message_bytes_max
    room = memory.limit // MESSAGE_MEMORY_PARTS
    if not room or configured <= MESSAGE_BYTES_PLAIN:
        return configured
    return min(configured, max(room, MESSAGE_BYTES_PLAIN))


class Bounded(NamedTuple):
    """A node with a bound on its clients' messages."""

    config: Config  # of the node
    disk: int  # of the node; see `AnnounceNode`
    catalog: CatalogService  # cluster metadata
    memory: MemoryWatch  # what this node may use
    flow_settings: FlowSettings  # limits that change at run time
    limits: ClientLimits  # of clients; the bound is set there
    caught_up: Callable[[], bool]  # whether it has applied what was decided before its start
    limits_changed: Callable[[], None]  # tells connections that the bound is another one


class MessageBound:
    """Lets clients send no larger messages than this node and all others take."""

    def __init__(self, node: Bounded) -> None:
        self._node = node
        self._own = 0

    def announcement(self) -> AnnounceNode:
        """Return what this node tells the catalog of itself: disk, address, versions, bound, zone.

        Without the zone while the cluster uses no zones yet.
        """
        config = self._node.config
        own, address, disk = config.node, config.address, self._node.disk
        taken = max(own_message_bytes(config, self._node.memory), MESSAGE_BYTES_PLAIN)
        zone = own.zone if in_force(self._node.catalog.catalog).catalog >= ZONES else ""
        known = (MACHINE_VERSION, disk, own.name, address, CATALOG_VERSION, taken, zone)
        return AnnounceNode(own.id, *known)

    def start(self) -> None:
        """Set the bound, and follow the values that it depends on."""
        self._node.catalog.subscribe(self._on_events)
        self._node.flow_settings.watch(self._update)
        self._update()

    def _on_events(self, events: list[Event]) -> None:
        if any(isinstance(event, NodeAdded | NodeRemoved) for event in events):
            self._update()
        raised = any(isinstance(event, ClusterVersionRaised) for event in events)
        if raised and self._node.config.node.zone and self._node.caught_up():
            self._node.catalog.announce(self.announcement())

    def _update(self) -> None:
        node, limits = self._node, self._node.limits
        own, rule = own_message_bytes(node.config, node.memory), ""
        if own < limits.message_bytes_configured:
            rule = "it needs more memory below limits.memory_high_watermark"
        if own != self._own:
            self._own = own
            if rule:
                self._warn(own)
            if node.caught_up():
                node.catalog.announce(self.announcement())
        found = bound_of(node.catalog.catalog, node.config.node.id, own, rule)
        if found != (limits.message_bytes_max, limits.rule):
            limits.message_bytes_max, limits.rule = found
            log.info("clients may send messages of up to %d bytes. %s", *found)
            node.limits_changed()

    def _warn(self, own: int) -> None:
        log.warning(
            "limits.message_bytes_max is %d: such a message needs %d times as many bytes of memory "
            "below limits.memory_high_watermark, which is %d bytes here. Messages of more than %d "
            "bytes are refused, on all nodes. Raise the memory or lower limits.message_bytes_max",
            *(self._node.config.limits.message_bytes_max, MESSAGE_MEMORY_PARTS),
            *(self._node.memory.limit, own),
        )
