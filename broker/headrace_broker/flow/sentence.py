"""Explanation as one sentence for people, with a remedy."""

from __future__ import annotations

from typing import Final

from headrace_broker.flow import wording
from headrace_broker.flow.backlog import UNKNOWN, is_backlog
from headrace_broker.flow.facts import Facts
from headrace_broker.flow.leaderless import leaderless_reason
from headrace_broker.model.flow import (
    BLOCKING,
    CONNECTION,
    LEADERLESS,
    LIMIT_ACCOUNT,
    LIMIT_COMMANDS,
    LIMIT_CREDIT,
    LIMIT_DISK,
    LIMIT_HELD,
    LIMIT_INTAKE,
    LIMIT_MEMORY,
    LIMIT_NAMES,
    LIMIT_OUTFLOW,
    LIMIT_QUEUE,
    LIMIT_RATE,
    LIMIT_WATERMARK,
    STREAM,
)
from headrace_broker.model.flow_status import (
    CauseStatus,
    ConnectionFlow,
    LeaderlessStatus,
    NodeFlow,
    QueueFlow,
)

ACCOUNT: Final = LIMIT_NAMES[LIMIT_ACCOUNT]
CREDIT: Final = LIMIT_NAMES[LIMIT_CREDIT]
COMMANDS: Final = LIMIT_NAMES[LIMIT_COMMANDS]
QUEUE: Final = LIMIT_NAMES[LIMIT_QUEUE]
WATERMARK: Final = LIMIT_NAMES[LIMIT_WATERMARK]
MEMORY: Final = LIMIT_NAMES[LIMIT_MEMORY]
DISK: Final = LIMIT_NAMES[LIMIT_DISK]
RATE: Final = LIMIT_NAMES[LIMIT_RATE]
INTAKE: Final = LIMIT_NAMES[LIMIT_INTAKE]
HELD: Final = LIMIT_NAMES[LIMIT_HELD]
OUTFLOW: Final = LIMIT_NAMES[LIMIT_OUTFLOW]

SILENT: Final = "its leader has not answered"  # nor are its figures known
KEEPS_UP: Final = 0.9  # of what arrives; consumers that settle less than this part fall behind


def connection_sentence(
    connection: ConnectionFlow, limit: str, leader: str, causes: list[CauseStatus], facts: Facts
) -> str:
    """Return why a connection is slow."""
    whose = (f"user {connection.user}", f"vhost {connection.vhost}" if connection.vhost else "")
    who = f"conn {wording.client(connection.name, connection.client_name, *whose)}"
    if not limit:
        if connection.state == BLOCKING:
            return f"{who} may not publish: {_alarms(facts.nodes)}; it has not since"
        return f"{who} is not held: nothing has stopped its publishes in the last minute"
    if limit == LEADERLESS and facts.leaderless is not None:
        return f"{who} has messages that wait: {_leaderless(facts.leaderless)}"
    queue = facts.queue
    if queue is not None and queue.behind and _stops_nothing(limit, connection):
        text = f"{who} goes at the pace of queue '{queue.name}' (leader {leader}): {_behind(queue)}"
        return text + _culprit(connection, limit, causes, facts)
    text = f"{who} {_how_long(connection, limit)} by {_by_whom(limit, leader, connection, facts)}"
    why = _why(limit, leader, connection, facts)
    if why:
        text += f": {why}"
    return text + _culprit(connection, limit, causes, facts)


def queue_sentence(queue: QueueFlow, limit: str, causes: list[CauseStatus], facts: Facts) -> str:
    """Return what a queue stops, and why."""
    if limit == LEADERLESS and facts.leaderless is not None:
        return _leaderless(facts.leaderless)
    who = f"queue '{queue.name}' (vhost {queue.vhost}, leader {queue.node or 'unknown'})"
    if not limit:
        return f"{who} holds nobody back: {_flow_through(queue)}"
    count = len(facts.held)
    publishers = f"{count} publisher{'' if count == 1 else 's'}"
    if limit == WATERMARK:
        verb = "is" if queue.saturated else "was"
        text = f"{who} {verb} saturated: {_passed_watermark(queue)}"
        if queue.deferred:
            text += f"; it defers the confirms of {wording.messages(queue.deferred)}"
    elif limit == QUEUE:
        text = f"{who} holds {publishers} back: {_pending(facts)}; {_takes(queue, facts)}"
    elif limit == OUTFLOW and queue.behind and not any(gate.outflow for gate in facts.gates):
        text = f"{who} is behind: {_behind(queue)}"
    elif limit == OUTFLOW:
        text = f"{who} holds {publishers} back: {_falls_behind(queue, facts)}"
    else:
        text = f"{who} holds {publishers} back by the limit {limit}: {_takes(queue, facts)}"
    return text + _loaded(queue, limit, causes, "", facts)


def _leaderless(status: LeaderlessStatus) -> str:
    named = f"queue '{status.name}' (vhost {status.vhost})"
    return f"{named if status.name else 'a queue of another vhost'} {leaderless_reason(status)}"


# How long, and by whom


def _how_long(connection: ConnectionFlow, limit: str) -> str:
    flow = connection.flow
    done = {WATERMARK: "had confirms deferred", MEMORY: "was blocked", DISK: "was blocked"}
    verb = done.get(limit, "was held")
    if limit in (MEMORY, DISK) and flow.limit == limit:
        return f"has been blocked for {wording.duration(flow.since_ms)}"
    shares = flow.by_limit.get(limit, (0.0, 0.0, 0.0, 0))
    if shares[1] > 0:
        return f"{verb} {wording.percent(shares[1])} of the last 10 s"
    if shares[2] > 0:
        return f"{verb} {wording.percent(shares[2])} of the last 60 s"
    return f"{verb} a moment ago"


def _by_whom(limit: str, leader: str, connection: ConnectionFlow, facts: Facts) -> str:
    if limit in (MEMORY, DISK):
        kind = "memory" if limit == MEMORY else "disk"
        return f"the {kind} alarm of node {leader}" if leader else f"a {kind} alarm that is over"
    if limit == RATE:
        return "the publish rate of its user or vhost"
    queue = facts.queue
    if facts.hides_queue and limit not in (INTAKE, HELD):
        return "a queue of another vhost"
    if queue is not None and limit not in (INTAKE, HELD):
        return f"queue '{queue.name}' (leader {queue.node or 'unknown'})"
    return f"node {connection.node}, where it is connected"


# Why


def _why(limit: str, leader: str, connection: ConnectionFlow, facts: Facts) -> str:
    queue = facts.queue
    if limit in (MEMORY, DISK):
        return _reason_of(limit, leader, facts.nodes)
    if limit == RATE:
        return " and ".join(facts.publish_rates)
    if limit == INTAKE:
        return "deliveries to consumers that wait go first"
    if limit == HELD:
        held = wording.size(connection.buffered_bytes)
        return f"{held} of its publishes wait already and their bound is reached"
    if limit == WATERMARK and queue is not None:
        return _passed_watermark(queue)
    if limit == OUTFLOW and queue is not None:
        return _falls_behind(queue, facts)
    if limit == QUEUE and queue is not None:
        return f"{_pending(facts)}; {_takes(queue, facts)}"
    if limit == COMMANDS and queue is not None:
        most = _limit_figure(facts, connection.node, "queue_commands")
        return f"{most}batches of one of its channels are not applied there; {_takes(queue, facts)}"
    if limit == ACCOUNT:
        return _debt(connection, facts)
    if limit == CREDIT:
        most = _limit_figure(facts, connection.node, "credit")
        text = f"a channel has {most}publishes that it has not passed on"
        return f"{text}; {_takes(queue, facts)}" if queue is not None else text
    return ""


def _debt(connection: ConnectionFlow, facts: Facts) -> str:
    owed = f"{connection.owed_messages:,} messages ({wording.size(connection.owed_bytes)})"
    text = f"it has caused {owed} that are not done"
    most = _limit_figure(facts, connection.node, "account_messages").strip()
    byte_count = _node_limit(facts, connection.node, "account_bytes")
    if most and byte_count:
        text += f" and may cause {most} or {wording.size(byte_count)}"
    queue = facts.queue
    return f"{text}; {_takes(queue, facts)}" if queue is not None else text


def _reason_of(limit: str, leader: str, nodes: list[NodeFlow]) -> str:
    for node in nodes:
        for alarm in node.alarms:
            if alarm.kind == limit and alarm.node == leader:
                return alarm.reason
    return ""


def _alarms(nodes: list[NodeFlow]) -> str:
    found = [f"{each.kind} on {each.node}" for node in nodes for each in node.alarms]
    return ", ".join(sorted(set(found))) or "an alarm is on"


def _passed_marks(queue: QueueFlow) -> list[str]:
    """Return the names of the watermarks that a queue has passed and is not below again."""
    found = []
    if queue.high_bytes and queue.held_bytes > queue.low_bytes:
        found.append("high-watermark-bytes")
    if queue.high_messages and queue.held_messages > queue.low_messages:
        found.append("high-watermark")
    return found


def _nearest_mark(queue: QueueFlow) -> str:
    """Return the name of the watermark that a queue below both comes to first."""
    messages = queue.held_messages / queue.high_messages if queue.high_messages else 0.0
    byte_count = queue.held_bytes / queue.high_bytes if queue.high_bytes else 0.0
    return "high-watermark" if messages > byte_count else "high-watermark-bytes"


def _passed_watermark(queue: QueueFlow) -> str:
    if not queue.node:
        return SILENT
    passed = _passed_marks(queue)
    marks = []
    if "high-watermark-bytes" in passed:
        marks.append(wording.size(queue.high_bytes))
    if "high-watermark" in passed:
        marks.append(wording.messages(queue.high_messages))
    of = f" of {' and of '.join(marks)}" if marks else ""
    verb = "is" if queue.saturated else "was"
    return f"its watermark{of} {verb} passed because {_consumption(queue)}"


def _consumption(queue: QueueFlow) -> str:
    """Return how consumers compare with what arrives."""
    arrived, settled = queue.arrived[1], queue.settled[1]
    waiting = queue.ready + queue.unsettled
    if queue.consumers == 0:
        return f"it has no consumers and {wording.messages(waiting)}"
    its = f"its {queue.consumers:,} consumer{'' if queue.consumers == 1 else 's'}"
    if queue.busy == queue.consumers:
        its += ", whose prefetch is full,"
    verb = "acknowledges" if queue.consumers == 1 else "acknowledge"
    if arrived > 0 and settled < KEEPS_UP * arrived:
        pace = f"{wording.rate(settled)} of {wording.rate(arrived)}"
    else:
        pace = f"{wording.rate(settled)} and {wording.messages(waiting)} wait"
    return f"{its} {verb} {pace}"


def _pending(facts: Facts) -> str:
    """Return what nodes' publishers have pending at a queue: at the fullest closed gate."""
    gates = sorted(facts.gates, key=lambda gate: (gate.open, -gate.byte_count, gate.node))
    if not gates:
        return "what the publishers of a node have pending there has reached its bound"
    gate = gates[0]
    of = f" of {wording.size(gate.bytes_max)}" if gate.bytes_max else ""
    pending = f"{wording.size(gate.byte_count)}{of} that publishers on {gate.node} may have pending"
    waiting = f", and {gate.waiting:,} channels wait" if gate.waiting > 1 else ""
    return f"{pending} there are not applied{waiting}"


def _falls_behind(queue: QueueFlow, facts: Facts) -> str:
    """Return why a queue takes no more than leaves it, and how much of that a node may bring."""
    ready = wording.messages(queue.ready)
    text = f"its consumers take what they can, {wording.rate(queue.settled[1])}"
    bounds = [gate.outflow for gate in facts.gates if gate.outflow]
    each = f", so a node may bring {wording.rate(max(bounds))} at most" if bounds else ""
    return f"{text}, and {ready} wait{each}"


def _stops_nothing(limit: str, connection: ConnectionFlow) -> bool:
    """Return whether a queue's outflow has made confirms wait, and stopped no publishes."""
    return limit == OUTFLOW and limit not in connection.flow.by_limit


def _behind(queue: QueueFlow) -> str:
    """Return why confirms of a queue wait for messages to leave it."""
    its = f"its {queue.consumers:,} consumer{'' if queue.consumers == 1 else 's'}"
    takes = f"{'takes' if queue.consumers == 1 else 'take'}, {wording.rate(queue.settled[1])}"
    return f"publishers bring more than {its} {takes}, so it confirms no more than leave it"


def _takes(queue: QueueFlow, facts: Facts) -> str:
    if facts.leaderless is not None:
        return f"it {leaderless_reason(facts.leaderless)}"
    if not queue.node:
        return SILENT
    if queue.behind:
        return _behind(queue)
    return f"it takes {wording.rate(queue.arrived[1])}"


def _flow_through(queue: QueueFlow) -> str:
    if not queue.node:
        return SILENT
    pace = f"{wording.rate(queue.arrived[1])} arrive, {wording.rate(queue.settled[1])} are settled"
    return f"{pace}, {wording.messages(queue.ready)} ready"


def _node_limit(facts: Facts, node: str, name: str) -> int:
    for each in facts.nodes:
        if each.name == node:
            return each.limits.get(name, 0)
    return 0


def _limit_figure(facts: Facts, node: str, name: str) -> str:
    figure = _node_limit(facts, node, name)
    return f"{figure:,} " if figure else ""


# Who


def _culprit(
    connection: ConnectionFlow, limit: str, causes: list[CauseStatus], facts: Facts
) -> str:
    if limit in (MEMORY, DISK):
        largest = facts.queues[0] if facts.queues else None
        text = ""
        if largest is not None and largest.byte_count > 0:
            text = f"; the largest queue is '{largest.name}' ({wording.size(largest.byte_count)})"
        return text + _most_of(causes, connection.id, "what publishers brought lately")
    if facts.queue is None or limit == RATE:
        return ""
    return _loaded(facts.queue, limit, causes, connection.id, facts)


def _loaded(queue: QueueFlow, limit: str, causes: list[CauseStatus], own: str, facts: Facts) -> str:
    """Return the causes of a queue's limit: those who filled it where content counts."""
    if not is_backlog(limit, queue):
        return _most_of(causes, own, "its load")
    if facts.brought:
        return _filled(queue, causes, own)
    waiting = wording.messages(queue.ready + queue.unsettled)
    text = f"; no node that answered remembers who brought its {waiting}"
    return text + _most_of(causes, own, "what is owed there and came in the last 10 s")


def _filled(queue: QueueFlow, causes: list[CauseStatus], own: str) -> str:
    """Return who brought most of what stands in a queue, and how much the asker's own was."""
    text = ""
    known = [cause for cause in causes if cause.kind != UNKNOWN and cause.queued_messages]
    if known:
        top = known[0]
        text = f"; {_part(top, queue)} brought by {_whose(top, own)}"
        mine = [cause for cause in known[1:] if own and cause.account == own]
        if mine:
            text += f"; this connection brought {mine[0].queued_messages:,} of them"
    for cause in causes:
        if cause.kind == UNKNOWN:
            text += f"; no node that answered remembers who brought {_some(cause, queue)}"
    return text


def _some(cause: CauseStatus, queue: QueueFlow) -> str:
    of = wording.messages(queue.ready + queue.unsettled)
    return f"{cause.queued_messages:,} of its {of}"


def _part(cause: CauseStatus, queue: QueueFlow) -> str:
    size = f"{wording.size(cause.queued_bytes)} of {wording.size(queue.byte_count)}"
    return f"{_some(cause, queue)} ({size}) {'was' if cause.queued_messages == 1 else 'were'}"


def _whose(cause: CauseStatus, own: str) -> str:
    if own and cause.account == own:
        return "this connection itself"
    names = (cause.kind, cause.name, cause.user_provided_name, cause.node, cause.user)
    who = wording.origin(*names)
    if cause.gone and cause.kind in (CONNECTION, STREAM):
        ago = wording.duration(cause.last_ms)
        return f"{who}, which is gone and brought the last of them {ago} ago"
    return who


def _most_of(causes: list[CauseStatus], own: str, what: str) -> str:
    if not causes:
        return ""
    top = causes[0]
    if own and top.account == own:  # accounts of other users have no name for who may not know it
        return f"; {wording.percent(top.share)} of {what} is this connection's own"
    who = wording.origin(top.kind, top.name, top.user_provided_name, top.node, top.user)
    return f"; {wording.percent(top.share)} of {what} came from {who}"


# What to do


def hint(limit: str, queue: QueueFlow | None, user: str, vhost: str) -> str:
    """Return the next step."""
    raising = "raise {} with `headrace flow limits set`"
    if limit == WATERMARK and queue is not None:
        marks = " and ".join(_passed_marks(queue)) or _nearest_mark(queue)
        return f"{_more_consumers(queue)}, or raise {marks} with a policy"
    if limit == MEMORY:
        return "consume or purge the largest queues, or give the node more memory"
    if limit == DISK:
        return "consume or purge the largest queues, or give the node more disk"
    if limit == RATE:
        name = f"user '{user}' or " + (f"vhost '{vhost}'" if vhost else "of its vhost")
        return f"raise publish-rate-messages or publish-rate-bytes of {name}"
    if limit == INTAKE:
        return "connect to a node that does less, or " + raising.format("intake-messages")
    if limit == OUTFLOW and queue is not None:
        more = f"add consumers to '{queue.name}', or raise their prefetch"
        return f"{more}; if {queue.node} is busy, move queues or clients away from it"
    if limit == HELD:
        return "look at what holds it first, or " + raising.format("node-buffer-bytes")
    names = {ACCOUNT: "account-messages or account-bytes", COMMANDS: "queue-commands"}
    names |= {CREDIT: "credit", QUEUE: "node-buffer-bytes and queue-pending-bytes"}
    if limit not in names:
        return ""
    return "spread the load over more queues, or " + raising.format(names[limit])


def _more_consumers(queue: QueueFlow) -> str:
    if queue.consumers == 0:
        return f"add consumers to '{queue.name}'"
    if queue.busy == queue.consumers:
        return f"add consumers to '{queue.name}' or have them acknowledge sooner"
    return f"look at the consumers of '{queue.name}', which could hold more than they do"
