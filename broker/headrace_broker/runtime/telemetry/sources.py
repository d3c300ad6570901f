"""Sources of telemetry: parts of a node with figures of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from headrace_broker.catalog.event import Event
from headrace_broker.catalog.view import CatalogView
from headrace_broker.flow.account import Ledger
from headrace_broker.flow.alarm import NodeReport
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.model.definition import Queue
from headrace_broker.model.flow_status import GateFlow
from headrace_broker.runtime.alarm.alarms import AlarmStatus
from headrace_broker.runtime.contract.connection_info import ConnectionInfo
from headrace_broker.runtime.contract.traffic import Traffic
from headrace_broker.runtime.replica.queue_host import QueueHost


class Sources(NamedTuple):
    """Parts of a node.

    Attributes:
        node: its name.
        view: the catalog.
        ledger: accounts of what enters through this node.
        limits: of flow control.
        hosts: replicas on this node by group.
        traffic: messages through this node's clients.
        connections: of clients, by id.
        gate: what is under way to a queue from here, None if no session here publishes to it.
        alarms: that are on in the cluster.
        report: what this node says of its memory and disk.
        clock_us: the clock of activities.
    """

    node: str
    view: CatalogView
    ledger: Ledger
    limits: FlowLimits
    hosts: Mapping[int, QueueHost]
    traffic: Traffic
    connections: Callable[[], Mapping[str, ConnectionInfo]]
    gate: Callable[[int], GateFlow | None]
    alarms: Callable[[], Iterable[AlarmStatus]]
    report: Callable[[], NodeReport]
    clock_us: Callable[[], int]

    def place(self, group: int) -> tuple[str | None, str | None]:
        """Return vhost and name of a queue, None if it does not exist (any more)."""
        queue = self.view.queue_by_group(group) if group else None
        return (queue.vhost, queue.name) if queue is not None else (None, None)


class LeaderNews(Protocol):
    """Duties of queues that are led here; see `LeaderDuties`."""

    on_led: Callable[[QueueHost], None]
    on_dead_lettered: Callable[[Queue, int, int], None]


class Around(NamedTuple):
    """Access to the node that telemetry is about.

    Attributes:
        data_dir: directory of its log.
        address: HOST:PORT of its gRPC listener, "" without one.
        send: sends a payload to another node; False when it is dropped.
        names: of all nodes by id; they may change.
        boot: returns its boot count.
        leads: returns whether it leads the catalog and has caught up with it.
        subscribe: has a function called with events of the catalog.
        duties: told when a queue is led here, and when messages die.
    """

    data_dir: str
    address: str
    send: Callable[[int, bytes], bool]
    names: Mapping[int, str]
    boot: Callable[[], int]
    leads: Callable[[], bool]
    subscribe: Callable[[Callable[[list[Event]], None]], None]
    duties: LeaderNews


class Moment(NamedTuple):
    """When a look at the node is taken.

    Attributes:
        at_ms: Unix time.
        elapsed_ms: since the look before.
        now_us: on the clock of activities.
    """

    at_ms: int
    elapsed_ms: int
    now_us: int
