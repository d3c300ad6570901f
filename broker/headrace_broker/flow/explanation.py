"""Explanation of a slow connection or queue: from facts to one answer."""

from __future__ import annotations

from typing import Any, Final

from headrace_broker.flow.backlog import BACKLOG, LOAD, backlog_causes, is_backlog
from headrace_broker.flow.blame import HEAVIEST_MAX, causes_at, causes_of, heaviest
from headrace_broker.flow.facts import Facts
from headrace_broker.flow.leaderless import leaderless_hint
from headrace_broker.flow.sentence import connection_sentence, hint, queue_sentence
from headrace_broker.model.flow import (
    FLOW,
    LEADERLESS,
    LIMIT_ACCOUNT,
    LIMIT_DISK,
    LIMIT_MEMORY,
    LIMIT_NAMES,
    LIMIT_OUTFLOW,
    LIMIT_QUEUE,
    LIMIT_WATERMARK,
    RUNNING,
)
from headrace_broker.model.flow_status import (
    NEVER,
    AccountStatus,
    ActivityStatus,
    CauseStatus,
    ConnectionFlow,
    Explanation,
    QueueFlow,
)

ALARMS: Final = (LIMIT_NAMES[LIMIT_MEMORY], LIMIT_NAMES[LIMIT_DISK])


def binding_limit(flow: ActivityStatus) -> str:
    """Return the limit that is to blame: an alarm, or what took most of the last 10 s.

    Where nothing did in these, that which stops it now, or what took most of the last minute.
    """
    if flow.limit in ALARMS:
        return flow.limit
    for window in (1, 2):
        most, found = 0.0, flow.limit if window == 1 else ""
        for limit in sorted(flow.by_limit):
            share = flow.by_limit[limit][window]
            if share > most:
                most, found = share, limit
        if found:
            return found
    return flow.limit


def binding_group(flow: ActivityStatus, account: AccountStatus | None) -> int:
    """Return the queue that is behind the binding limit, 0 for none."""
    limit = binding_limit(flow)
    group = 0
    if limit == flow.limit:
        group = flow.group
    elif limit in flow.by_limit:
        group = flow.by_limit[limit][3]
    if (
        group == 0
        and limit == LIMIT_NAMES[LIMIT_ACCOUNT]
        and account is not None
        and account.balances
    ):
        return max(
            account.balances, key=lambda balance: (balance.byte_count, balance.byte_rate)
        ).group
    return group


def explain_connection(connection: ConnectionFlow, facts: Facts) -> Explanation:
    """Say what stops a connection."""
    flow = connection.flow
    limit = binding_limit(flow)
    if facts.leaderless is not None and not flow.limit:
        limit = LEADERLESS  # its publishes wait there now, whatever stopped it before
    queue = facts.queue
    if not limit and queue is not None and queue.behind:
        limit = LIMIT_NAMES[LIMIT_OUTFLOW]  # nothing stops its publishes, but their confirms wait
    if queue is not None:
        causes = _causes_at(queue, limit, facts)
    elif limit in ALARMS:
        causes = heaviest(facts.accounts, facts.queue_names)
    else:
        causes = causes_of(facts.account, facts.queue_names)
    leader = queue.node if queue is not None else _owner(limit, connection, facts)
    return Explanation(
        kind="connection",
        name=connection.name,
        node=connection.node,
        user=connection.user,
        vhost=connection.vhost,
        state=connection.state,
        limit=limit,
        queue=queue.name if queue is not None else "",
        leader=leader,
        since_ms=_since_ms(facts) if limit == LEADERLESS else flow.since_ms if flow.limit else 0,
        shares=flow.shares,
        by_limit={name: each[:3] for name, each in flow.by_limit.items()},
        causes=tuple(causes),
        held=(),
        sentence=connection_sentence(connection, limit, leader, causes, facts),
        hint=_next_step(limit, connection.user, connection.vhost, facts),
        details=_details(facts, connection),
        missing=facts.missing,
        shares_of=BACKLOG if facts.brought and is_backlog(limit, queue) else LOAD,
    )


def explain_queue(queue: QueueFlow, facts: Facts) -> Explanation:
    """Explain whom a queue stops, and who has filled it."""
    limit = _queue_limit(queue, facts)
    causes = _causes_at(queue, limit, facts)
    return Explanation(
        kind="queue",
        name=queue.name,
        node=queue.node,
        user="",
        vhost=queue.vhost,
        state=FLOW if limit else RUNNING,
        limit=limit,
        queue=queue.name,
        leader=queue.node,
        since_ms=_since_ms(facts),
        shares=NEVER,
        by_limit={},
        causes=tuple(causes),
        held=tuple(facts.held),
        sentence=queue_sentence(queue, limit, causes, facts),
        hint=_next_step(limit, "", queue.vhost, facts, queue),
        details=_details(facts, None),
        missing=facts.missing,
        shares_of=BACKLOG if facts.brought and is_backlog(limit, queue) else LOAD,
    )


def _next_step(
    limit: str, user: str, vhost: str, facts: Facts, queue: QueueFlow | None = None
) -> str:
    if facts.leaderless is not None:  # no raised limit helps
        return leaderless_hint(facts.leaderless)
    return hint(limit, queue or facts.queue, user, vhost)


def _since_ms(facts: Facts) -> int:
    """Return for how long the queue has had no leader, 0 where that is not known."""
    return (facts.leaderless.since_ms or 0) if facts.leaderless is not None else 0


def _causes_at(queue: QueueFlow, limit: str, facts: Facts) -> list[CauseStatus]:
    """Return the causes of a queue's limit: who has filled it, or who loads it now."""
    if facts.brought and is_backlog(limit, queue):
        return backlog_causes(queue, facts.brought, facts.queue_names)
    return causes_at(queue.group, facts.accounts, facts.queue_names)


def _queue_limit(queue: QueueFlow, facts: Facts) -> str:
    """Return what a queue stops its publishers with now or did in the last 10 s, "" for nothing."""
    if facts.leaderless is not None:
        return LEADERLESS
    if queue.saturated:
        return LIMIT_NAMES[LIMIT_WATERMARK]
    if any(gate.outflow for gate in facts.gates):
        return LIMIT_NAMES[LIMIT_OUTFLOW]
    if any(not gate.open for gate in facts.gates):
        return LIMIT_NAMES[LIMIT_QUEUE]
    if queue.behind:
        return LIMIT_NAMES[LIMIT_OUTFLOW]
    most, found = 0.0, ""
    for connection in facts.held:
        limit = binding_limit(connection.flow)
        share = connection.flow.shares[1]
        if limit not in ALARMS and (share > most or (not found and connection.flow.limit)):
            most, found = share, limit
    return found


def _owner(limit: str, connection: ConnectionFlow, facts: Facts) -> str:
    """Return the node of the limit: that of an alarm, otherwise the connection's."""
    if limit in ALARMS:
        for node in facts.nodes:
            for alarm in node.alarms:
                if alarm.kind == limit:
                    return alarm.node
        return ""
    return connection.node if limit else ""


def _details(facts: Facts, connection: ConnectionFlow | None) -> dict[str, Any]:
    found: dict[str, Any] = {"gates": facts.gates}
    if facts.leaderless is not None:
        found[LEADERLESS] = facts.leaderless
    if facts.queue is not None and facts.queue.node:  # without its leader no figure is known
        found["queue"] = facts.queue
    if facts.account is not None:
        found["account"] = facts.account
    if connection is not None:
        found["connection"] = connection
    if facts.queues:
        found["largest_queues"] = facts.queues[:HEAVIEST_MAX]
    return found
