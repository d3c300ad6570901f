"""How this node and what moves on it fare: rows of FLOW_SAMPLES."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable
from typing import Final

from headrace_broker.flow.account import Account
from headrace_broker.flow.activity import Activity
from headrace_broker.model import flow
from headrace_broker.model.flow import LIMIT_NAMES
from headrace_broker.model.status import ChannelStatus
from headrace_broker.runtime.connection_info import ConnectionInfo
from headrace_broker.runtime.flow_state import state_name
from headrace_broker.runtime.queue_host import QueueHost
from headrace_broker.runtime.telemetry.edges import Brought
from headrace_broker.runtime.telemetry.schema import (
    ACCOUNT,
    CHANNEL,
    CONNECTION,
    NODE,
    QUEUE,
    Sample,
)
from headrace_broker.runtime.telemetry.sources import Moment, Sources

NOTHING: Final = Brought(0, 0)
WINDOW: Final = 0  # the shortest of `flow.activity.WINDOWS_S`
SHARE_SECONDS: Final = 1  # that it has
BUSY_CONSUMERS_MAX: Final = 256  # of a queue, that are looked at one by one


class SampleTaker:
    """Looks at what moves; what stands still costs nothing but a look.

    Args:
        sources: what is looked at.
        rows_max: most rows of a look.
    """

    def __init__(self, sources: Sources, rows_max: int) -> None:
        self._sources = sources
        self._rows_max = rows_max
        self._counts: dict[int, tuple[int, int, int]] = {}
        self._moved: frozenset[int] = frozenset()
        self._traffic = self._traffic_now()
        self._cpu_ns = time.process_time_ns()

    def take(
        self, moment: Moment, brought: dict[str, Brought], lag_ms: int, left_out: int
    ) -> list[Sample]:
        """Return rows, the node's first.

        Args:
            moment: when.
            brought: what accounts have brought since the last look.
            lag_ms: by how much the look is late.
            left_out: rows of other logs that there was no room for.
        """
        queues = self._moving_queues()
        connections = self._moving_connections(moment, brought)
        accounts = self._other_accounts(brought)
        room = self._rows_max - 1
        quota = max(room // 4, room - len(connections) - len(accounts))
        rows = [self._queue(moment, *each) for each in heapq.nlargest(quota, queues, key=_load)]
        room -= len(rows)
        accounts_kept = accounts[: max(room // 4, 1)]
        rows += [self._account(moment, each, brought) for each in accounts_kept]
        room -= len(accounts_kept)
        kept = heapq.nlargest(room, connections, key=_held)
        rows += [self._connection(moment, each, brought) for each in kept]
        room -= len(kept)
        channels = self._channels(moment, kept)
        rows += channels[:room]
        left_out += len(queues) + len(accounts) + len(connections) + len(channels)
        left_out -= len(rows)
        return [self._node(moment, lag_ms, left_out), *rows]

    # The node

    def _traffic_now(self) -> tuple[int, int, int, int, int]:
        found = self._sources.traffic
        counts = (found.publish, found.confirm, found.deliver, found.redeliver, found.ack)
        published, confirmed, delivered, redelivered, settled = map(int, counts)
        return published, confirmed, delivered, redelivered, settled

    def _node(self, moment: Moment, lag_ms: int, left_out: int) -> Sample:
        before, self._traffic = self._traffic, self._traffic_now()
        cpu_ns = time.process_time_ns()
        used_ns, self._cpu_ns = cpu_ns - self._cpu_ns, cpu_ns
        published, confirmed, delivered, redelivered, settled = (
            now - then for now, then in zip(self._traffic, before, strict=True)
        )
        sources = self._sources
        report = sources.report()
        connections = sources.connections().values()
        return self._row(moment, NODE, sources.node, sources.node)._replace(
            published=published,
            confirmed=confirmed,
            delivered=delivered,
            redelivered=redelivered,
            settled=settled,
            memory_used=report.memory_used,
            memory_limit=report.memory_limit,
            disk_free=report.disk_free,
            disk_limit=report.disk_limit,
            cpu_ms=used_ns // 1_000_000,
            loop_lag_ms=lag_ms,
            connections=len(connections),
            channels=sum(connection.channels for connection in connections),
            queues=sum(host.serving for host in sources.hosts.values()),
            left_out=left_out,
        )

    def _row(self, moment: Moment, kind: str, entity: str, name: str) -> Sample:
        return Sample(moment.at_ms, moment.elapsed_ms, self._sources.node, kind, entity, name)

    # Queues

    def _moving_queues(self) -> list[tuple[QueueHost, tuple[int, int, int]]]:
        """Return queues that are led here in which something moves or waits, with what moved.

        One that stands still is told once more, so that its last figures are told.
        """
        found: list[tuple[QueueHost, tuple[int, int, int]]] = []
        counts: dict[int, tuple[int, int, int]] = {}
        moved: set[int] = set()
        for group, host in self._sources.hosts.items():
            now = host.moves.counts()
            counts[group] = now
            if not host.serving:
                continue
            then = self._counts.get(group, (0, 0, 0))
            change = (now[0] - then[0], now[1] - then[1], now[2] - then[2])
            machine = host.machine
            if any(change) or machine.ready_count or machine.unsettled_count or machine.saturated:
                moved.add(group)
            elif group not in self._moved:
                continue
            found.append((host, change))
        self._counts = counts
        self._moved = frozenset(moved)
        return found

    def _queue(self, moment: Moment, host: QueueHost, moved: tuple[int, int, int]) -> Sample:
        machine, queue, settings = host.machine, host.queue, host.machine.settings
        gate = self._sources.gate(queue.group)
        oldest_ms = int(machine.oldest_ms())
        count = int(machine.consumer_count)
        return Sample(
            moment.at_ms,
            moment.elapsed_ms,
            self._sources.node,
            QUEUE,
            str(queue.group),
            queue.name,
            queue.vhost,
            published=moved[0],
            delivered=moved[1],
            settled=moved[2],
            pending_octets=gate.octets if gate is not None else None,
            pending_octets_max=gate.octets_max if gate is not None else None,
            ready=int(machine.ready_count),
            ready_octets=int(machine.ready_octets),
            unacked=int(machine.unsettled_count),
            unacked_octets=int(machine.unsettled_octets),
            oldest_ready_ms=max(moment.at_ms - oldest_ms, 0) if oldest_ms else None,
            consumers=count,
            consumers_busy=_busy(host) if count <= BUSY_CONSUMERS_MAX else None,
            saturated=machine.saturated,
            withheld=int(machine.withheld_count),
            high_messages=int(settings.high_watermark),
            high_octets=int(settings.high_watermark_octets),
        )

    # Connections and other accounts

    def _moving_connections(
        self, moment: Moment, brought: dict[str, Brought]
    ) -> list[ConnectionInfo]:
        now_us = moment.now_us
        return [
            info
            for info in self._sources.connections().values()
            if info.id in brought
            or info.held_messages
            or info.flow.in_flow(now_us)
            or info.state in (flow.BLOCKED, flow.BLOCKING)
            or (info.account is not None and info.account.messages)
        ]

    def _connection(
        self, moment: Moment, info: ConnectionInfo, brought: dict[str, Brought]
    ) -> Sample:
        row = self._row(moment, CONNECTION, info.id, info.name)._replace(
            vhost=info.vhost,
            user=info.user,
            account=info.id,
            account_kind=info.kind,
            state=state_name(info.state, info.flow, moment.now_us),
            held_messages=info.held_messages,
            held_octets=info.held_octets,
            channels=info.channels,
        )
        row = self._blocked(row, info.flow, moment)
        account = info.account
        if account is None:
            return row
        return self._owed(row, account, brought.get(info.id, NOTHING))

    def _blocked(self, row: Sample, activity: Activity, moment: Moment) -> Sample:
        """Say for how long an activity was stopped in the last second, and by what mostly."""
        total_us, longest_us, worst = 0, 0, 0
        for limit in activity.limits():
            stopped_us = int(activity.stopped_us(limit, WINDOW, moment.now_us))
            total_us += stopped_us
            if stopped_us > longest_us:
                longest_us, worst = stopped_us, limit
        if not worst:
            return row._replace(blocked_ms=0)
        vhost, queue = self._sources.place(int(activity.latest_group(worst)))
        return row._replace(
            blocked_ms=min(total_us // 1000, 1000 * SHARE_SECONDS),
            blocked_by=LIMIT_NAMES[worst],
            blocked_vhost=vhost,
            blocked_queue=queue,
        )

    def _owed(self, row: Sample, account: Account, brought: Brought) -> Sample:
        limits = self._sources.limits
        return row._replace(
            published=brought.messages,
            published_octets=brought.octets,
            debt_messages=int(account.messages),
            debt_octets=int(account.octets),
            debt_messages_max=int(limits.scaled(limits.account_messages)),
            debt_octets_max=int(limits.scaled(limits.account_octets)),
            in_debt=account.in_debt,
        )

    def _other_accounts(self, brought: dict[str, Brought]) -> list[Account]:
        """Return accounts that owe or bring something and are no connection's that is open."""
        connections = self._sources.connections()
        return [
            account
            for name, account in self._sources.ledger.accounts.items()
            if name not in connections and (account.messages or name in brought)
        ]

    def _account(self, moment: Moment, account: Account, brought: dict[str, Brought]) -> Sample:
        cause = account.cause
        row = self._row(moment, ACCOUNT, cause.account, cause.name)._replace(
            vhost=cause.vhost, user=cause.user, account=cause.account, account_kind=cause.kind
        )
        return self._owed(row, account, brought.get(cause.account, NOTHING))

    # Channels

    def _channels(self, moment: Moment, connections: Iterable[ConnectionInfo]) -> list[Sample]:
        """Return the channels of connections that something stops, which say more than these."""
        found: list[Sample] = []
        for info in connections:
            if info.control is None or not info.flow.in_flow(moment.now_us):
                continue
            channels: list[ChannelStatus] = info.control.channels(moment.now_us)
            found += [self._channel(moment, info, channel) for channel in channels]
        return found

    def _channel(self, moment: Moment, info: ConnectionInfo, channel: ChannelStatus) -> Sample:
        activity = channel.flow
        worst = max(activity.by_limit, key=lambda each: activity.by_limit[each][0], default="")
        group = activity.by_limit[worst][3] if worst else 0
        vhost, queue = self._sources.place(group)
        entity = f"{info.id}/{channel.number}"
        name = f"{info.name} ({channel.number})"
        return self._row(moment, CHANNEL, entity, name)._replace(
            vhost=info.vhost,
            user=info.user,
            account=info.id,
            account_kind=info.kind,
            state=channel.state,
            blocked_ms=int(1000 * SHARE_SECONDS * activity.shares[0]),
            blocked_by=worst or None,
            blocked_vhost=vhost,
            blocked_queue=queue,
            credit_left=channel.credit_left,
            unacked=channel.messages_unacknowledged,
            consumers=len(channel.consumers),
        )


def _busy(host: QueueHost) -> int:
    """Return how many consumers hold all that they may."""
    return sum(
        each.attached and each.unsettled_count >= each.prefetch for each in host.machine.consumers()
    )


def _load(entry: tuple[QueueHost, tuple[int, int, int]]) -> tuple[bool, int, int]:
    host, moved = entry
    machine = host.machine
    octets = int(machine.ready_octets) + int(machine.unsettled_octets)
    return machine.saturated, sum(moved), octets


def _held(info: ConnectionInfo) -> tuple[bool, int]:
    owed = int(info.account.messages) if info.account is not None else 0
    return bool(info.flow.limits()), owed + info.held_messages
