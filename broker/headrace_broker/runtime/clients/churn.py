"""Counters of opened and closed connections, channels and queues of a node since its start."""

from __future__ import annotations

from headrace_broker.catalog.event import Event, QueueAdded, QueueRemoved
from headrace_broker.runtime.contract.connection_info import ConnectionInfo


class Churn:
    """Counters that only grow."""

    def __init__(self) -> None:
        self.connection_created = 0
        self.connection_closed = 0
        self.queue_created = 0
        self.queue_deleted = 0
        self._channels_of_closed = 0  # channels that were on connections which are closed
        self._open: dict[str, ConnectionInfo] = {}

    def opened(self, info: ConnectionInfo) -> None:
        """Count a connection."""
        self.connection_created += 1
        self._open[info.id] = info

    def closed(self, info: ConnectionInfo) -> None:
        """Count the end of a connection that was opened; others are none."""
        if self._open.pop(info.id, None) is not None:
            self.connection_closed += 1
            self._channels_of_closed += info.channels_opened

    def channels(self) -> tuple[int, int]:
        """Return how many channels were opened, and how many of those are closed."""
        infos = self._open.values()
        opened = self._channels_of_closed + sum(info.channels_opened for info in infos)
        return opened, opened - sum(info.channels for info in infos)

    def on_events(self, node: int, events: list[Event]) -> None:
        """Count the queues whose first replica is on a node, so that a sum is the cluster's."""
        for event in events:
            if isinstance(event, QueueAdded) and event.queue.members[:1] == (node,):
                self.queue_created += 1
            elif isinstance(event, QueueRemoved) and event.queue.members[:1] == (node,):
                self.queue_deleted += 1
