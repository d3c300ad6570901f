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
from headrace_broker.runtime.contract.recently_applied import RecentlyApplied
from headrace_broker.runtime.contract.traffic import Traffic
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.rpc.correlator import Rpc


class Sources(NamedTuple):
    """Parts of a node."""

    node: str  # its name
    view: CatalogView  # the catalog
    ledger: Ledger  # accounts of what enters through this node
    limits: FlowLimits  # of flow control
    hosts: Mapping[int, QueueHost]  # replicas on this node by group
    recent: RecentlyApplied  # in what order something was applied to these
    traffic: Traffic  # messages through this node's clients
    connections: Callable[[], Mapping[str, ConnectionInfo]]  # of clients, by id
    gate: Callable[[int], GateFlow | None]  # of what is under way to a queue, None for nothing
    alarms: Callable[[], Iterable[AlarmStatus]]  # that are on in the cluster
    report: Callable[[], NodeReport]  # what this node says of its memory and disk
    clock_us: Callable[[], int]  # the clock of activities

    def place(self, group: int) -> tuple[str | None, str | None]:
        """Return vhost and name of a queue, None if it does not exist (any more)."""
        queue = self.view.queue_by_group(group) if group else None
        return (queue.vhost, queue.name) if queue is not None else (None, None)


class LeaderNews(Protocol):
    """Duties of queues that are led here; see `LeaderDuties`."""

    on_led: Callable[[QueueHost], None]
    on_dead_lettered: Callable[[Queue, int, int], None]


class Around(NamedTuple):
    """Access to the node that telemetry is about."""

    data_dir: str  # directory of its log
    address: str  # HOST:PORT of its gRPC listener, "" without one
    rpc: Rpc  # asks other nodes
    names: Mapping[int, str]  # of all nodes by id; they may change
    boot: Callable[[], int]  # returns its boot count
    leads: Callable[[], bool]  # returns whether it leads the catalog and has caught up with it
    subscribe: Callable[[Callable[[list[Event]], None]], None]  # to events of the catalog
    duties: LeaderNews  # told when a queue is led here, and when messages die


class Moment(NamedTuple):
    """When a look at the node is taken."""

    at_ms: int  # Unix time
    elapsed_ms: int  # since the look before
    now_us: int  # on the clock of activities
