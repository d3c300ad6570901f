"""Origins of what stands in a queue: its newest messages are those that came last.

A queue hands out the oldest first, so what came last counts until it makes up what is there. With
priorities, rejected publishes or returned messages that is an estimate. What nobody remembers
having brought is a row of its own.
"""

from __future__ import annotations

from typing import Final

from headrace_broker.flow.blame import HEAVIEST_MAX, Names
from headrace_broker.model.flow import LIMIT_NAMES, LIMIT_OUTFLOW, LIMIT_WATERMARK
from headrace_broker.model.flow_status import BroughtStatus, CauseStatus, QueueFlow

UNKNOWN: Final = "unknown"  # kind of content of unknown origin
LOAD: Final = "load"  # what shares of causes are parts of: what is owed and came lately
BACKLOG: Final = "backlog"  # what stands in the queue
BY_BACKLOG: Final = (LIMIT_NAMES[LIMIT_WATERMARK], LIMIT_NAMES[LIMIT_OUTFLOW])
SECOND_MS: Final = 1000  # what came within one counts as having come at once


def is_backlog(limit: str, queue: QueueFlow | None) -> bool:
    """Return whether a limit stops publishers because of what stands in its queue."""
    return limit in BY_BACKLOG and queue is not None and queue.ready + queue.unsettled > 0


def backlog_causes(
    queue: QueueFlow, brought: list[BroughtStatus], names: Names
) -> list[CauseStatus]:
    """Return who brought the content of a queue, those who brought most first."""
    waiting = queue.ready + queue.unsettled
    parts = _newest(brought, waiting)
    known, octets = 0, 0
    for messages, size in parts:
        known += messages
        octets += size
    unknown = waiting - known
    total = queue.octets
    # What publishers handed over is not to the octet what the queue counts.
    scale = total / octets if octets > total or (unknown == 0 and octets) else 1.0
    by_messages = _by_messages(queue)
    found: list[CauseStatus] = []
    place = names.get(queue.group, (queue.vhost, queue.name))
    for row, (messages, size) in zip(brought, parts, strict=True):
        size = round(size * scale)
        share = messages / waiting if by_messages or not total else size / total
        if messages or row.octet_rate > 0 or row.octets:
            found.append(_cause(row, place, messages, size, share))
    found.sort(key=_rank)
    found = found[:HEAVIEST_MAX]
    if unknown > 0:
        rest = max(total - octets, 0)
        share = unknown / waiting if by_messages or not total else rest / total
        row = BroughtStatus("", UNKNOWN, "", "", "", queue.group)
        found.append(_cause(row, place, unknown, rest, share))
        found.sort(key=_rank)
    return found


def _by_messages(queue: QueueFlow) -> bool:
    """Return whether a queue has passed its watermark in messages and not that in octets."""
    octets = queue.high_octets and queue.held_octets > queue.low_octets
    return bool(queue.high_messages and queue.held_messages > queue.low_messages and not octets)


def _newest(brought: list[BroughtStatus], waiting: int) -> list[tuple[int, int]]:
    """Return messages and octets of each row among so many that came last."""
    pieces: list[tuple[int, int, int, int]] = []
    for at, row in enumerate(brought):
        for age_ms, messages, octets in row.slices:
            if messages > 0:
                pieces.append((age_ms // SECOND_MS, at, messages, octets))
    pieces.sort()
    taken = [(0, 0)] * len(brought)
    first = 0
    while first < len(pieces) and waiting > 0:
        last, at_once = first, 0
        while last < len(pieces) and pieces[last][0] == pieces[first][0]:
            at_once += pieces[last][2]
            last += 1
        for _, at, messages, octets in pieces[first:last]:
            part = messages if at_once <= waiting else -(-messages * waiting // at_once)
            part = min(part, waiting)
            at_once -= messages
            waiting -= part
            before = taken[at]
            taken[at] = (before[0] + part, before[1] + octets * part // messages)
        first = last
    return taken


def _rank(cause: CauseStatus) -> tuple[float, int, str]:
    return -cause.share, -cause.queued_messages, cause.account


def _cause(
    row: BroughtStatus, place: tuple[str, str], messages: int, octets: int, share: float
) -> CauseStatus:
    return CauseStatus(
        account=row.account,
        kind=row.kind,
        name=row.name,
        node=row.node,
        user=row.user,
        vhost=place[0],
        queue=place[1],
        messages=row.messages,
        octets=row.octets,
        message_rate=row.message_rate,
        octet_rate=row.octet_rate,
        share=share,
        user_provided_name=row.user_provided_name,
        gone=row.gone,
        queued_messages=messages,
        queued_octets=octets,
        last_ms=row.slices[0][0] if row.slices else 0,
    )
