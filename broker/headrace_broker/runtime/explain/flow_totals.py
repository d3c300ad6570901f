"""This node's flow control, added up: as many figures with one connection as with thousands."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headrace_broker.flow.account import Ledger
from headrace_broker.flow.activity import SECOND_US
from headrace_broker.model.flow import (
    BLOCKED,
    BLOCKING,
    CONNECTION,
    DEAD_LETTERS,
    EXPIRY,
    FLOW,
    LIMIT_DISK,
    LIMIT_MEMORY,
    LIMIT_NAMES,
    NO_LIMIT,
    REPLAY,
    REPUBLISH,
    RUNNING,
    STREAM,
    TELEMETRY,
)
from headrace_broker.runtime.clients.flow_state import state_name
from headrace_broker.runtime.contract.port import ConnectionInfo
from headrace_broker.runtime.explain.flow_facts import FlowFacts

STATES = (RUNNING, FLOW, BLOCKING, BLOCKED)
KINDS = (CONNECTION, STREAM, EXPIRY, DEAD_LETTERS, REPLAY, REPUBLISH, TELEMETRY)
ALARMS = (LIMIT_NAMES[LIMIT_MEMORY], LIMIT_NAMES[LIMIT_DISK])


class FlowTotals(msgspec.Struct):
    """Sums over a node."""

    connections: dict[str, float]  # by state
    stopped: dict[str, float]  # connections by the limit that stops them now
    stopped_seconds: dict[str, float]  # since the node's start, by limit
    debt_messages: dict[str, float]  # owed, by kind of account
    debt_bytes: dict[str, float]  # likewise
    in_debt: int  # accounts that owe more than they may
    dropped: int  # held publishes of lost connections for which there was no room
    figures: dict[str, float]  # of the intake
    limits: dict[str, float]  # in force
    alarms: dict[str, float]  # of this node, 1 for those that are on
    saturated: int  # queues led here
    behind: int  # likewise, whose confirms wait until messages leave
    deferred: int  # messages whose confirms these defer


def flow_totals(facts: FlowFacts) -> FlowTotals:
    """Return the sums as they are now."""
    connections, stopped = _connections(facts.connections(), facts.now_us())
    messages, byte_counts, in_debt = _debts(facts.ledger)
    own = [alarm.kind for alarm in facts.alarms() if alarm.node == facts.name]
    led = facts.led()
    stops = facts.ledger.stops.stopped_us
    return FlowTotals(
        connections=connections,
        stopped=stopped,
        stopped_seconds={
            name: stops[limit] / SECOND_US for limit, name in enumerate(LIMIT_NAMES) if name
        },
        debt_messages=messages,
        debt_bytes=byte_counts,
        in_debt=in_debt,
        dropped=int(facts.ledger.dropped_messages),
        figures=dict(facts.figures()),
        limits=dict(facts.limits()),
        alarms={kind: float(kind in own) for kind in ALARMS},
        saturated=sum(host.machine.saturated for host in led),
        behind=sum(facts.is_behind(host) for host in led),
        deferred=sum(int(host.machine.deferred_count) for host in led),
    )


def _connections(
    infos: Iterable[ConnectionInfo], now_us: int
) -> tuple[dict[str, float], dict[str, float]]:
    states = dict.fromkeys(STATES, 0.0)
    stopped = {name: 0.0 for name in LIMIT_NAMES if name}
    for info in infos:
        info.flow.settle(now_us)
        states[state_name(info.state, info.flow, now_us)] += 1
        if info.flow.limit != NO_LIMIT:
            stopped[LIMIT_NAMES[info.flow.limit]] += 1
    return states, stopped


def _debts(ledger: Ledger) -> tuple[dict[str, float], dict[str, float], int]:
    messages, byte_counts = dict.fromkeys(KINDS, 0.0), dict.fromkeys(KINDS, 0.0)
    in_debt = 0
    for account in ledger.accounts.values():
        messages[account.cause.kind] += int(account.messages)
        byte_counts[account.cause.kind] += int(account.byte_count)
        in_debt += account.in_debt
    return messages, byte_counts, in_debt
