"""Samples of this node and its active objects: rows of FLOW_SAMPLES.

Rows of one kind stand together, as tuples of what that kind has: most columns are nothing to most
kinds, and a second may have thousands of rows.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from headrace_broker.flow.account import Account
from headrace_broker.flow.activity import Activity
from headrace_broker.model import flow
from headrace_broker.model.flow import LIMIT_NAMES, NO_LIMIT
from headrace_broker.model.limits import SAMPLE_TURN_ROWS
from headrace_broker.model.status import ChannelStatus
from headrace_broker.runtime.clients.flow_state import state_name
from headrace_broker.runtime.contract.connection_info import ConnectionInfo
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.telemetry.edges import Brought
from headrace_broker.runtime.telemetry.schema import ACCOUNT, CHANNEL, CONNECTION, NODE, QUEUE
from headrace_broker.runtime.telemetry.sources import Moment, Sources

NOTHING: Final = Brought(0, 0)
WINDOW: Final = 0  # the shortest of `flow.activity.WINDOWS_S`, a second
BUSY_CONSUMERS_MAX: Final = 256  # of a queue, that are sampled one by one
SCANNED_ROWS: Final = 500  # connections that are looked at in one turn of the loop; some 0.7 ms

Fields = tuple[str, ...]
Moves = tuple[int, int, int]

NOTHING_MOVED: Final[Moves] = (0, 0, 0)

OWED: Final[Fields] = (
    *("published", "published_octets", "debt_messages", "debt_octets"),
    *("debt_messages_max", "debt_octets_max", "in_debt"),
)
BLOCKED: Final[Fields] = ("blocked_ms", "blocked_by", "blocked_vhost", "blocked_queue")
WHOSE: Final[Fields] = ("id", "name", "vhost", "user", "account", "account_kind")
NODE_FIELDS: Final[Fields] = (
    *("id", "name", "published", "confirmed", "delivered", "redelivered", "settled"),
    *("memory_used", "memory_limit", "disk_free", "disk_limit", "cpu_ms", "loop_lag_ms"),
    *("connections", "channels", "queues", "left_out"),
)
QUEUE_FIELDS: Final[Fields] = (
    *("id", "name", "vhost", "published", "delivered", "settled"),
    *("ready", "ready_octets", "unacked", "unacked_octets", "oldest_ready_ms"),
    *("consumers", "consumers_busy", "saturated", "withheld", "high_messages", "high_octets"),
    *("pending_octets", "pending_octets_max"),
    *("pending_commands", "pending_command_octets", "pending_command_octets_max"),
    *("commit_ms_p50", "commit_ms_p99", "consumer_busy_ms"),
)
CONNECTION_FIELDS: Final[Fields] = (
    *WHOSE,
    *("state", "held_messages", "held_octets", "channels"),
    *BLOCKED,
    *OWED,
)
ACCOUNT_FIELDS: Final[Fields] = (*WHOSE, *OWED)
CHANNEL_FIELDS: Final[Fields] = (
    *WHOSE,
    *("state", "unacked", "consumers", "credit_left"),
    *BLOCKED,
)


class Part(NamedTuple):
    """Rows of one kind."""

    kind: str  # likewise
    fields: Fields  # that they have, in this order
    rows: list[tuple[Any, ...]]  # of the values


class SampleTaker:
    """Sampler of active objects; inactive ones cost nothing but a comparison."""

    def __init__(self, sources: Sources, rows_max: int) -> None:
        self._sources = sources  # what is looked at
        self._rows_max = rows_max  # most rows of a look
        self._recent = sources.recent.reader()
        self._counts: dict[int, Moves] = {}  # of queues in which something has moved
        self._moved: frozenset[int] = frozenset()
        self._traffic = self._traffic_now()
        self._cpu_ns = time.process_time_ns()

    def take(
        self, moment: Moment, brought: dict[str, Brought], lag_ms: int, left_out: int
    ) -> Iterator[list[Part]]:
        """Return rows in pieces of a ms at most, between which others may have their turn.

        `lag_ms` is how late the look is, `left_out` how many rows had no room.
        """
        queues = self._moving_queues()
        connections: list[ConnectionInfo] = []
        there = dict(self._sources.connections())
        for at, info in enumerate(there.values(), 1):
            if self._moves(info, moment.now_us, brought):
                connections.append(info)
            if at % SCANNED_ROWS == 0:
                yield []
        accounts = self._other_accounts(there, brought)
        found = len(queues) + len(connections) + len(accounts)
        yield []
        room = self._rows_max - 1
        kept = _largest(max(room // 4, room - len(connections) - len(accounts)), queues, _load)
        for some in _pieces(kept):
            yield [Part(QUEUE, QUEUE_FIELDS, [self._queue(moment, *each) for each in some])]
        room -= len(kept)
        others = accounts[: max(room // 4, 1)]
        rows = [self._account(each, brought) for each in others]
        yield [Part(ACCOUNT, ACCOUNT_FIELDS, rows)]
        room -= len(others)
        clients = _largest(room, connections, _held)
        for some_clients in _pieces(clients):
            rows = [self._connection(moment, each, brought) for each in some_clients]
            yield [Part(CONNECTION, CONNECTION_FIELDS, rows)]
        room -= len(clients)
        channels = self._channels(moment, clients)
        yield [Part(CHANNEL, CHANNEL_FIELDS, channels[:room])]
        found += len(channels)
        left_out += found - len(kept) - len(others) - len(clients) - len(channels[:room])
        yield [Part(NODE, NODE_FIELDS, [self._node(lag_ms, left_out)])]

    # The node

    def _traffic_now(self) -> tuple[int, int, int, int, int]:
        found = self._sources.traffic
        counts = (found.publish, found.confirm, found.deliver, found.redeliver, found.ack)
        published, confirmed, delivered, redelivered, settled = map(int, counts)
        return published, confirmed, delivered, redelivered, settled

    def _node(self, lag_ms: int, left_out: int) -> tuple[Any, ...]:
        before, self._traffic = self._traffic, self._traffic_now()
        cpu_ns = time.process_time_ns()
        used_ns, self._cpu_ns = cpu_ns - self._cpu_ns, cpu_ns
        sources = self._sources
        report = sources.report()
        connections = sources.connections().values()
        return (
            sources.node,
            sources.node,
            *(now - then for now, then in zip(self._traffic, before, strict=True)),
            report.memory_used,
            report.memory_limit,
            report.disk_free,
            report.disk_limit,
            used_ns // 1_000_000,
            lag_ms,
            len(connections),
            sum(connection.channels for connection in connections),
            sum(host.serving for host in sources.hosts.values()),
            left_out,
        )

    # Queues

    def _moving_queues(self) -> list[tuple[QueueHost, Moves]]:
        """Return queues that are led here in which something moves or waits, with what moved.

        One that stands still is told once more, so that its last figures are told.
        """
        found: list[tuple[QueueHost, Moves]] = []
        hosts = self._sources.hosts
        moved: set[int] = set()
        before = self._moved
        self._moved = before.union(self._recent())  # should this sample fail, the next has them
        for group in self._moved:
            host = hosts.get(group)
            if host is None:
                continue
            now = host.moves.counts()
            then = self._counts.get(group, NOTHING_MOVED)
            if now != then:
                self._counts[group] = now
            if not host.serving:
                continue
            change = (now[0] - then[0], now[1] - then[1], now[2] - then[2])
            machine = host.machine
            if any(change) or machine.ready_count or machine.unsettled_count or machine.saturated:
                moved.add(group)
            elif group not in before:
                continue
            found.append((host, change))
        for gone in self._counts.keys() - hosts.keys():
            del self._counts[gone]
        self._moved = frozenset(moved)
        return found

    def _queue(self, moment: Moment, host: QueueHost, moved: Moves) -> tuple[Any, ...]:
        machine, queue, settings = host.machine, host.queue, host.machine.settings
        gate = self._sources.gate(queue.group)
        oldest_ms = int(machine.oldest_ms())
        count = int(machine.consumer_count)
        return (
            str(queue.group),
            queue.name,
            queue.vhost,
            *moved,
            int(machine.ready_count),
            int(machine.ready_bytes),
            int(machine.unsettled_count),
            int(machine.unsettled_bytes),
            max(int(host.time.stamp()) - oldest_ms, 0) if oldest_ms else None,
            count,
            _busy(host) if count <= BUSY_CONSUMERS_MAX else None,
            machine.saturated,
            int(machine.deferred_count),
            int(settings.high_watermark),
            int(settings.high_watermark_bytes),
            gate.byte_count if gate is not None else None,
            gate.bytes_max if gate is not None else None,
            *_metered(host, count * moment.elapsed_ms),
        )

    # Connections and other accounts

    @staticmethod
    def _moves(info: ConnectionInfo, now_us: int, brought: dict[str, Brought]) -> bool:
        return bool(
            info.id in brought
            or info.buffered_messages
            or info.flow.in_flow(now_us)
            or info.state in (flow.BLOCKED, flow.BLOCKING)
            or (info.account is not None and info.account.messages)
        )

    def _connection(
        self, moment: Moment, info: ConnectionInfo, brought: dict[str, Brought]
    ) -> tuple[Any, ...]:
        account = info.account
        return (
            info.id,
            info.name,
            info.vhost,
            info.user,
            info.id,
            info.kind,
            state_name(info.state, info.flow, moment.now_us),
            info.buffered_messages,
            info.buffered_bytes,
            info.channels,
            *self._blocked(info.flow, moment),
            *self._owed(account, brought.get(info.id, NOTHING)),
        )

    def _blocked(self, activity: Activity, moment: Moment) -> tuple[Any, ...]:
        """Return for how long an activity was stopped in the last second, and by what mostly."""
        total_us, longest_us, worst = 0, 0, NO_LIMIT
        for limit in activity.limits():
            stopped_us = int(activity.stopped_us(limit, WINDOW, moment.now_us))
            total_us += stopped_us
            if stopped_us > longest_us:
                longest_us, worst = stopped_us, limit
        if worst == NO_LIMIT:
            return 0, None, None, None
        place = self._sources.place(int(activity.latest_group(worst)))
        return min(total_us // 1000, 1000), LIMIT_NAMES[worst], *place

    def _owed(self, account: Account | None, brought: Brought) -> tuple[Any, ...]:
        if account is None:
            return (None,) * len(OWED)
        limits = self._sources.limits
        return (
            brought.messages,
            brought.byte_count,
            int(account.messages),
            int(account.byte_count),
            int(limits.scaled(limits.account_messages)),
            int(limits.scaled(limits.account_bytes)),
            account.in_debt,
        )

    def _other_accounts(
        self, connections: dict[str, ConnectionInfo], brought: dict[str, Brought]
    ) -> list[Account]:
        """Return accounts that owe or bring something and are none of these connections'."""
        return [
            account
            for name, account in self._sources.ledger.accounts.items()
            if name not in connections and (account.messages or name in brought)
        ]

    def _account(self, account: Account, brought: dict[str, Brought]) -> tuple[Any, ...]:
        cause = account.cause
        whose = (cause.account, cause.name, cause.vhost, cause.user, cause.account, cause.kind)
        return (*whose, *self._owed(account, brought.get(cause.account, NOTHING)))

    # Channels

    def _channels(
        self, moment: Moment, connections: Iterable[ConnectionInfo]
    ) -> list[tuple[Any, ...]]:
        """Return the channels of connections that something stops, which say more than these."""
        found: list[tuple[Any, ...]] = []
        for info in connections:
            if info.control is None or not info.flow.in_flow(moment.now_us):
                continue
            channels: list[ChannelStatus] = info.control.channels(moment.now_us)
            found += [self._channel(info, channel) for channel in channels]
        return found

    def _channel(self, info: ConnectionInfo, channel: ChannelStatus) -> tuple[Any, ...]:
        activity = channel.flow
        worst = max(activity.by_limit, key=lambda each: activity.by_limit[each][0], default="")
        place = self._sources.place(activity.by_limit[worst][3] if worst else 0)
        return (
            f"{info.id}/{channel.number}",
            f"{info.name} ({channel.number})",
            info.vhost,
            info.user,
            info.id,
            info.kind,
            channel.state,
            channel.messages_unacknowledged,
            len(channel.consumers),
            channel.credit_left,
            int(1000 * activity.shares[0]),
            worst or None,
            *place,
        )


def _largest(count: int, entries: list[Any], weight: Any) -> list[Any]:
    """Return so many entries, the largest ones where there are more."""
    return entries if len(entries) <= count else heapq.nlargest(count, entries, key=weight)


def _pieces(entries: list[Any]) -> Iterator[list[Any]]:
    starts = range(0, len(entries), SAMPLE_TURN_ROWS)
    return (entries[start : start + SAMPLE_TURN_ROWS] for start in starts)


def _busy(host: QueueHost) -> int:
    """Return how many consumers hold all that they may."""
    return sum(
        each.attached and each.unsettled_count >= each.prefetch for each in host.machine.consumers()
    )


def _metered(host: QueueHost, busy_ms_max: int) -> tuple[Any, ...]:
    """Return what a leader has measured of its commands, and of consumers up to a time."""
    if host.lead is None:
        return (None,) * 6
    found = host.lead.meter.take()
    return (
        found.commands,
        found.byte_count,
        int(host.log.window_bytes()),
        found.percentile_ms(50),
        found.percentile_ms(99),
        min(found.busy_us // 1000, busy_ms_max),
    )


def _load(entry: tuple[QueueHost, Moves]) -> tuple[bool, int, int]:
    host, moved = entry
    machine = host.machine
    byte_count = int(machine.ready_bytes) + int(machine.unsettled_bytes)
    return machine.saturated, sum(moved), byte_count


def _held(info: ConnectionInfo) -> tuple[bool, int]:
    owed = int(info.account.messages) if info.account is not None else 0
    return bool(info.flow.limits()), owed + info.buffered_messages
