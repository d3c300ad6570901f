"""Flow control facts of this node, as rows."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, Final

import msgspec

from headrace_broker.catalog.view import CatalogView
from headrace_broker.core.queue.state.consumer import ConsumerInfo
from headrace_broker.flow.account import RECENT_S, Account, AccountBalance, Ledger
from headrace_broker.flow.brought import OTHERS, Origin
from headrace_broker.model.definition import Queue
from headrace_broker.model.flow import BLOCKED, BLOCKING
from headrace_broker.model.flow_status import (
    AccountStatus,
    AlarmStatus,
    BalanceStatus,
    BroughtStatus,
    ConnectionFlow,
    FlowRow,
    GateFlow,
    LeaderlessStatus,
    NodeFlow,
    QueueFlow,
)
from headrace_broker.model.limits import FLOW_BALANCES_MAX
from headrace_broker.runtime.clients.flow_state import activity_status, state_name
from headrace_broker.runtime.contract.port import ConnectionInfo
from headrace_broker.runtime.hosting.queue_rates import QueueRates
from headrace_broker.runtime.replica.fairness_report import fairness_rows
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.rpc.question import Flow

ACCOUNT: Final = "account"
CONNECTION: Final = "connection"
GATE: Final = "gate"
QUEUE: Final = "queue"
NODE: Final = "node"
BROUGHT: Final = "brought"


class FlowFacts:
    """Answers questions about this node."""

    def __init__(
        self,
        name: str,
        connections: Callable[[], dict[str, ConnectionInfo]],
        ledger: Ledger,
        hosts: dict[int, QueueHost],
        view: CatalogView,
        rates: QueueRates,
        clock_us: Callable[[], int],
    ) -> None:
        self.name = name
        self.gate: Callable[[int], GateFlow | None] = _no_gate  # of a queue here, or None
        self.alarms: Callable[[], Iterable[AlarmStatus]] = tuple  # that are on in the cluster
        # returns how a queue has no leader, as this node knows it, None for one that has
        self.leaderless: Callable[[Queue], LeaderlessStatus | None] = _led
        self.figures: Callable[[], dict[str, int]] = dict  # of its intake, by name
        self._connections = connections  # its open client connections by id
        self.ledger = ledger
        self._hosts = hosts  # its replicas by group
        self._view = view
        self._rates = rates  # of the queues that it leads
        self._clock_us = clock_us  # the clock of activities

    def rows(self, question: Flow) -> Iterator[FlowRow]:
        """Return this node's rows, in the order of the question's parts."""
        makers: dict[str, Callable[[Flow], Iterable[FlowRow]]] = {
            ACCOUNT: self._accounts,
            CONNECTION: self._connection_rows,
            GATE: self._gate_rows,
            QUEUE: self._queues,
            NODE: self._node,
            BROUGHT: self._brought,
        }
        found = [makers[part](question) for part in question.parts if part in makers]
        return chain.from_iterable(found)

    # Accounts

    def _accounts(self, question: Flow) -> list[FlowRow]:
        wanted: Iterable[Account] = self.ledger.accounts.values()
        if question.name:
            named = self._named(question.name)
            wanted = [info.account for info in named if info.account is not None]
        group = question.group
        loads = [
            (weight, account) for account in wanted if (weight := _load_at(account, group)) > 0
        ]
        deepest = heapq.nlargest(question.rows_max, loads, key=_first)
        infos = self._connections()
        names = {
            info.id: _client_name(info)
            for _, account in deepest
            if (info := infos.get(account.cause.account))
        }
        return [_account_status(account, group, names) for _, account in deepest]

    def _brought(self, question: Flow) -> list[FlowRow]:
        origins = self.ledger.brought.queues.get(question.group, {})
        return [self._brought_by(question.group, each) for each in origins.values()]

    def _brought_by(self, group: int, origin: Origin) -> BroughtStatus:
        now, cause = self.ledger.brought.now_s, origin.cause
        slices = tuple(
            (round((now - each.end_s) * 1000), each.messages, each.byte_count)
            for each in reversed(origin.slices)
        )
        if cause is None:
            return BroughtStatus("", OTHERS, "", self.name, "", group, slices=slices)
        who = (cause.account, cause.kind, cause.name, cause.node, cause.user, group)
        gone = not self.ledger.is_open(cause.account)
        row = BroughtStatus(*who, cause.client_name, gone, slices)
        account = self.ledger.accounts.get(cause.account)
        balance = account.balances.get(group) if account is not None else None
        if balance is None:
            return row
        rates = {
            "message_rate": round(balance.message_rate, 2),
            "byte_rate": round(balance.byte_rate, 2),
        }
        owed = {"messages": int(balance.messages), "byte_count": int(balance.byte_count)}
        return msgspec.structs.replace(row, **rates, **owed)

    # Connections

    def _named(self, name: str) -> list[ConnectionInfo]:
        return [info for info in self.connections() if _answers_to(info, name)]

    def _connection_rows(self, question: Flow) -> list[FlowRow]:
        now = self._clock_us()
        if question.name:
            named = self._named(question.name)[: question.rows_max]
            return [self.connection(info, now) for info in named]
        infos = list(self._connections().values())
        if question.stopped:
            stopped = (info for info in infos if is_stopped(info, now))
            return [self.connection(info, now) for info in islice(stopped, question.rows_max)]
        rows = [
            self.connection(info, now) for info in infos if not question.group or info.flow.limits()
        ]
        if question.group:
            rows = [row for row in rows if _is_held_at(row, question.group)]
        rows.sort(key=blocked_rank, reverse=True)
        return list(rows[: question.rows_max])

    def connection(self, info: ConnectionInfo, now_us: int) -> ConnectionFlow:
        """Return the flow state of a connection of this node."""
        account = info.account
        return ConnectionFlow(
            id=info.id,
            name=info.name,
            client_name=_client_name(info),
            node=self.name,
            user=info.user,
            vhost=info.vhost,
            state=state_name(info.state, info.flow, now_us),
            flow=activity_status(info.flow, now_us),
            buffered_messages=info.buffered_messages,
            buffered_bytes=info.buffered_bytes,
            owed_messages=int(account.messages) if account is not None else 0,
            owed_bytes=int(account.byte_count) if account is not None else 0,
        )

    # Queues

    def _gate_rows(self, question: Flow) -> list[FlowRow]:
        found = self.gate(question.group)
        return [found] if found is not None else []

    def _queues(self, question: Flow) -> list[FlowRow]:
        if question.group:
            host = self._hosts.get(question.group)
            return [self.queue(host)] if host is not None and host.serving else []
        led = self.led()
        if question.stopped:
            wanted = frozenset(question.groups)
            led = [each for each in led if each.machine.saturated or each.queue.group in wanted]
        if question.moving:
            moves = self._rates.moves
            led = [each for each in led if each.machine.saturated or moves(each.queue.group)]
        largest = heapq.nlargest(question.rows_max, led, key=_weight)
        return [self.queue(host) for host in largest]

    def queue(self, host: QueueHost) -> QueueFlow:
        """Return the flow state of a queue that is led here."""
        machine, queue, settings = host.machine, host.queue, host.machine.settings
        arrived, delivered, settled = self._rates.rates(queue.group)
        return QueueFlow(
            vhost=queue.vhost,
            name=queue.name,
            group=queue.group,
            node=self.name,
            kind=queue.kind,
            ready=int(machine.ready_count),
            ready_bytes=int(machine.ready_bytes),
            unsettled=int(machine.unsettled_count),
            unsettled_bytes=int(machine.unsettled_bytes),
            consumers=int(machine.consumer_count),
            busy=sum(1 for each in machine.consumers() if _is_busy(each)),
            arrived=arrived,
            delivered=delivered,
            settled=settled,
            saturated=machine.saturated,
            deferred=int(machine.deferred_count),
            behind=self.is_behind(host),
            high_messages=int(settings.high_watermark),
            low_messages=int(settings.low_watermark),
            high_bytes=int(settings.high_watermark_bytes),
            low_bytes=int(settings.low_watermark_bytes),
            held_messages=int(machine.held_count),
            held_bytes=int(machine.held_bytes),
            fairness=fairness_rows(machine),
        )

    # The node

    def _node(self, question: Flow) -> list[FlowRow]:
        return [NodeFlow(self.name, tuple(self.alarms()), self.limits(), self.figures())]

    def limits(self) -> dict[str, int]:
        """Return the figures in force."""
        limits = self.ledger.limits
        return {name: int(limits.scaled(getattr(limits, name))) for name in FIGURES}

    # For sums

    def connections(self) -> list[ConnectionInfo]:
        """Return the open connections."""
        return list(self._connections().values())

    def now_us(self) -> int:
        """Return the time for activities."""
        return self._clock_us()

    def is_behind(self, host: QueueHost) -> bool:
        """Return whether a queue led here has consumers that publishers outrun, now or lately."""
        lead = host.lead if host.machine.consumer_count > 0 else None
        return lead is not None and lead.telling.is_behind(self._clock_us())

    def led(self) -> list[QueueHost]:
        """Return the replicas that lead."""
        return [host for host in self._hosts.values() if host.serving]


FIGURES: Final = (  # attributes of FlowLimits
    "account_messages",
    "account_bytes",
    "credit",
    "credit_more",
    "queue_commands",
    "queue_pending_bytes",
    "connection_buffer_bytes",
    "node_buffer_bytes",
    "intake_messages",
    "intake_bytes",
)


def blocked_rank(row: ConnectionFlow) -> tuple[Any, ...]:
    """Return what connections are sorted by: how much they are stopped, then what waits."""
    _, ten, sixty = row.flow.shares
    return ten, bool(row.flow.limit), sixty, row.buffered_bytes + row.owed_bytes, row.name


def is_stopped(info: ConnectionInfo, now_us: int) -> bool:
    """Return whether something stops a connection now, or did a moment ago."""
    return info.state in (BLOCKED, BLOCKING) or info.flow.in_flow(now_us)


def _is_held_at(row: ConnectionFlow, group: int) -> bool:
    if row.flow.group == group:
        return True
    return any(each[3] == group and each[1] > 0 for each in row.flow.by_limit.values())


def _answers_to(info: ConnectionInfo, name: str) -> bool:
    return any(each.startswith(name) for each in (info.id, info.name, _client_name(info)))


def _client_name(info: ConnectionInfo) -> str:
    found = info.client_properties.get("connection_name")
    return found if isinstance(found, str) else ""


def _first(pair: tuple[float, Account]) -> float:
    return pair[0]


def _by_rate(each: tuple[str, float]) -> tuple[float, str]:
    return -each[1], each[0]


def _load(balance: AccountBalance) -> float:
    return int(balance.byte_count) + RECENT_S * balance.byte_rate


def _load_at(account: Account, group: int) -> float:
    return sum(_load(balance) for balance in _balances(account, group))


def _balances(account: Account, group: int) -> list[AccountBalance]:
    if not group:
        return list(account.balances.values())
    balance = account.balances.get(group)
    return [balance] if balance is not None else []


def _account_status(account: Account, group: int, names: dict[str, str]) -> AccountStatus:
    deepest = heapq.nlargest(FLOW_BALANCES_MAX, _balances(account, group), key=_load)
    cause = account.cause
    return AccountStatus(
        account=cause.account,
        kind=cause.kind,
        name=cause.name,
        node=cause.node,
        user=cause.user,
        vhost=cause.vhost,
        messages=int(account.messages),
        byte_count=int(account.byte_count),
        in_debt=account.in_debt,
        weight=int(account.weight),
        balances=tuple(
            BalanceStatus(
                balance.group,
                int(balance.messages),
                int(balance.byte_count),
                round(balance.message_rate, 2),
                round(balance.byte_rate, 2),
                tuple(
                    (name, round(rate, 2))
                    for name, rate in sorted(balance.exchanges.items(), key=_by_rate)
                ),
            )
            for balance in deepest
        ),
        user_provided_name=names.get(cause.account, ""),
    )


def _is_busy(consumer: ConsumerInfo) -> bool:
    return consumer.attached and consumer.unsettled_count >= consumer.prefetch


def _weight(host: QueueHost) -> tuple[bool, int, int]:
    machine = host.machine
    byte_count = int(machine.ready_bytes) + int(machine.unsettled_bytes)
    return machine.saturated, byte_count, int(machine.ready_count)


def _led(queue: Queue) -> LeaderlessStatus | None:
    return None


def _no_gate(group: int) -> GateFlow | None:
    return None
