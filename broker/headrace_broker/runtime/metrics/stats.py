"""Figures of this node and its queues over time, and of all nodes together."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace_broker.catalog.event import Event
from headrace_broker.catalog.view import CatalogView
from headrace_broker.config.configuration import split_address
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.flow.history import FINE_MS, History
from headrace_broker.model import build_info
from headrace_broker.model.limits import CONNECTIONS_MAX, DAMAGES_MAX, HISTORY_QUEUES_MAX
from headrace_broker.model.stats import QUEUE_FIGURES, Listener, NodeStats, QueueStats, StatsRow
from headrace_broker.model.status import (
    DamageStatus,
    MessageCounters,
    ObjectTotals,
    QueueCounts,
    ReplicaStatus,
)
from headrace_broker.runtime.clients.churn import Churn
from headrace_broker.runtime.clients.histories import Histories, samples
from headrace_broker.runtime.clients.sample_turns import SampleTurns
from headrace_broker.runtime.cluster.counts import counts_of
from headrace_broker.runtime.contract.traffic import Traffic
from headrace_broker.runtime.hosting.replica_report import replica_rows
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.rpc.correlator import ANSWER_SECONDS_MAX
from headrace_broker.runtime.rpc.listing import Asked, ask_everywhere, serve_rows
from headrace_broker.runtime.rpc.question import Stats
from headrace_broker.runtime.security.authenticator import DELAYED, PROTOCOLS, REFUSED, SUCCEEDED
from headrace_raftlog.model.group import CATALOG_GROUP

if TYPE_CHECKING:
    from headrace_broker.runtime.node.node import BrokerNode


Lengths = tuple[int, int, int]  # messages that are ready, unsettled, and others

NO_LENGTHS: Final[Lengths] = (0, 0, 0)


class Standing(NamedTuple):
    """Messages in a queue."""

    vhost: str
    lengths: Lengths


def unix_ms() -> int:
    """Return Unix time in milliseconds."""
    return time.time_ns() // 1_000_000


class StatsBook:
    """Takes samples, and answers with them."""

    def __init__(self, node: BrokerNode, clock_ms: Callable[[], int] = unix_ms) -> None:
        self._node = node
        self._clock_ms = clock_ms  # Unix time
        self._started_ms = clock_ms()
        self._churn: Churn = node.broker.churn
        self._histories: Histories[int] = Histories(len(QUEUE_FIGURES), HISTORY_QUEUES_MAX)
        self._recent = node.hosting.recent.reader()
        self._standing: dict[int, Standing] = {}  # by group, of queues led here that have messages
        self._own: History | None = None
        self._lag_ms = 0
        serve_rows(node.rpc, Stats, self.rows)
        node.catalog.subscribe(self._count_churn)

    def _count_churn(self, events: list[Event]) -> None:
        if self._node.caught_up:  # before that they are of queues that were there
            self._churn.on_events(self._node.config.node.id, events)

    @property
    def lag_ms(self) -> int:
        """By how much the loop was late at the last sample."""
        return self._lag_ms

    async def sample_forever(self) -> None:
        """Take a sample every FINE_MS, until cancelled."""
        while True:
            due = time.monotonic() + FINE_MS / 1000
            await self.sample()
            due = max(due, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
            self._lag_ms = max(0, int(1000 * (time.monotonic() - due)))

    async def sample(self) -> None:
        """Take a sample of the node and of queues that moved within an hour, in pieces."""
        hosts = self._node.hosting.hosts
        turns = SampleTurns()
        for group in {*self._histories.keys(), *self._recent()}:
            host = hosts.get(group)
            if host is not None:
                self._sample_queue(host, self._clock_ms())
            await turns.row()
        self._histories.forget_others(hosts)
        for gone in self._standing.keys() - hosts.keys():
            del self._standing[gone]
        lengths: dict[str, Lengths] = {}
        total = NO_LENGTHS
        for each in self._standing.values():
            lengths[each.vhost] = _sum(lengths.get(each.vhost, NO_LENGTHS), each.lengths)
            total = _sum(total, each.lengths)
        own = self._figures(total)
        if self._own is None:
            self._own = History(own, self._clock_ms())
        else:
            self._own.sample(own, self._clock_ms())
        await self._node.broker.rates.sample(self._clock_ms, lengths, turns)

    def _sample_queue(self, host: QueueHost, now_ms: int) -> None:
        group = host.queue.group
        figures = queue_figures(host)
        self._histories.sample(group, figures, now_ms)
        lengths = (figures[0], figures[1], figures[-1])
        if host.serving and any(lengths):
            self._standing[group] = Standing(host.queue.vhost, lengths)
        else:
            self._standing.pop(group, None)

    # This node's rows

    def rows(self, question: Stats) -> Iterator[StatsRow]:
        """Return this node's figures, the node itself first."""
        if question.node:
            yield self._node_row(question)
        hosts = self._node.hosting.hosts
        groups = self._histories.keys() if question.groups is None else question.groups
        current = dict.fromkeys(question.current)
        for group in {**dict.fromkeys(groups), **current}:
            history, host = self._histories.find(group), hosts.get(group)
            if host is None or not host.serving or (history is None and group not in current):
                continue
            last = history.last() if history is not None else []
            now = self._now(host) if group in current else ("", None, ())
            yield QueueStats(group, last, samples(history, question), *now)
        yield from self._node.broker.rates.rows(question)

    def _now(self, host: QueueHost) -> tuple[str, QueueCounts, tuple[ReplicaStatus, ...]]:
        node, queue = self._node, host.queue
        members = replica_rows(node.raft, node.names, queue.group) if queue.logged else ()
        return node.config.node.name, counts_of(host), members

    def _node_row(self, question: Stats) -> NodeStats:
        node, config = self._node, self._node.config
        objects, held = local_totals(node)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return NodeStats(
            id=config.node.id,
            name=config.node.name,
            version=build_info.VERSION,
            started_ms=self._started_ms,
            os_pid=os.getpid(),
            processors=os.cpu_count() or 1,
            totals=objects,
            counters=message_counters(node.hosting.traffic),
            listeners=self._listeners(),
            last=self._own.last() if self._own is not None else [],
            samples=samples(self._own, question),
            messages_ready=held.ready,
            messages_unacknowledged=held.unsettled,
            messages_later=held.delayed + held.dead,
            messages_dlx=held.dead,
            fd_total=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            sockets_total=CONNECTIONS_MAX,
            run_queue=_run_queue(),
            lag_ms=self._lag_ms,
            gc_num=sum(each["collections"] for each in gc.get_stats()),
            context_switches=usage.ru_nvcsw + usage.ru_nivcsw,
            data_dir=config.node.data_dir,
            logins=self._logins(),
            quarantined=damage_rows(node.raft.damages(), node.catalog.catalog),
        )

    def _logins(self) -> dict[str, tuple[int, int]]:
        counts = self._node.broker.login_counts
        return {
            protocol: (
                counts[protocol, SUCCEEDED],
                counts[protocol, REFUSED] + counts[protocol, DELAYED],
            )
            for protocol in PROTOCOLS
        }

    def _listeners(self) -> tuple[Listener, ...]:
        listeners = self._node.config.listeners
        rows = (
            *(("amqp", listeners.amqp, False), ("amqp/ssl", listeners.amqps, True)),
            *(("http", listeners.http, False), ("https", listeners.https, True)),
            *(("grpc", listeners.grpc, False), ("grpc/ssl", listeners.grpcs, True)),
            ("http/prometheus", listeners.metrics, False),
            ("clustering", self._node.config.address, False),
        )
        return tuple(
            Listener(protocol, *split_address(address), tls)
            for protocol, address, tls in rows
            if address
        )

    def _figures(self, lengths: Lengths) -> tuple[int, ...]:
        """Return the figures that NODE_FIGURES names."""
        ready, unsettled, later = lengths
        counters, churn = message_counters(self._node.hosting.traffic), self._churn
        report = self._node.alarms.reports.get(self._node.config.node.id)
        return (
            *(ready, unsettled, counters.publish, counters.confirm, counters.deliver),
            *(counters.redeliver, counters.ack),
            *(churn.connection_created, churn.connection_closed, *churn.channels()),
            *(self._node.topology.declared, churn.queue_created, churn.queue_deleted),
            report.memory_used if report is not None else 0,
            open_files(),
            len(self._node.broker.connections),
            len(asyncio.all_tasks()),
            report.disk_free if report is not None else 0,
            later,
        )

    # All nodes'

    async def ask(
        self, question: Stats, seconds: float = ANSWER_SECONDS_MAX
    ) -> tuple[list[StatsRow], tuple[str, ...]]:
        """Return the rows of all nodes, and the names of those that did not answer in time."""
        own = self._node.config.node.id
        others = {each: name for each, name in self._node.names.items() if each != own}
        asked = Asked(question, StatsRow, seconds=seconds)
        found = await ask_everywhere(self._node.rpc, others, asked, self.rows(question))
        return found.rows, found.missing


def open_files() -> int:
    """Return how many files this process has open; where there is no more to be had, the most."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:  # looking takes one as well
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _run_queue() -> int:
    """Return how many threads of the machine run or could run."""
    return int(Path("/proc/loadavg").read_text(encoding="ascii").split()[3].partition("/")[0])


def queue_figures(host: QueueHost) -> tuple[int, ...]:
    """Return the figures that QUEUE_FIGURES names."""
    machine = host.machine
    lengths = (int(machine.ready_count), int(machine.unsettled_count))
    return (*lengths, *host.moves.counts(), _later(machine))


def _sum(one: Lengths, other: Lengths) -> Lengths:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _later(machine: QueueMachine) -> int:
    """Return how many messages are delayed, or dead letters that are kept."""
    return int(machine.delayed_count) + int(machine.dead_count)


def damage_rows(damages: Mapping[int, str], view: CatalogView) -> tuple[DamageStatus, ...]:
    """Return damaged replicas by group, of which the reasons are given, with people's names."""
    shown = [DamageStatus(_what(each, view), damages[each]) for each in sorted(damages)]
    if len(shown) > DAMAGES_MAX:
        shown[DAMAGES_MAX:] = [DamageStatus(f"{len(shown) - DAMAGES_MAX} more", "")]
    return tuple(shown)


def _what(group: int, view: CatalogView) -> str:
    if group == CATALOG_GROUP:
        return "the catalog"
    queue = view.queue_by_group(group)
    return f"group {group}" if queue is None else f"queue '{queue.name}' in vhost '{queue.vhost}'"


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
