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
    known, byte_count = 0, 0
    for messages, size in parts:
        known += messages
        byte_count += size
    unknown = waiting - known
    total = queue.byte_count
    # What publishers handed over is not to the byte what the queue counts.
    scale = total / byte_count if byte_count > total or (unknown == 0 and byte_count) else 1.0
    by_messages = _by_messages(queue)
    found: list[CauseStatus] = []
    place = names.get(queue.group, (queue.vhost, queue.name))
    for row, (messages, size) in zip(brought, parts, strict=True):
        size = round(size * scale)
        share = messages / waiting if by_messages or not total else size / total
        if messages or row.byte_rate > 0 or row.byte_count:
            found.append(_cause(row, place, messages, size, share))
    found.sort(key=_rank)
    found = found[:HEAVIEST_MAX]
    if unknown > 0:
        rest = max(total - byte_count, 0)
        share = unknown / waiting if by_messages or not total else rest / total
        row = BroughtStatus("", UNKNOWN, "", "", "", queue.group)
        found.append(_cause(row, place, unknown, rest, share))
        found.sort(key=_rank)
    return found


def _by_messages(queue: QueueFlow) -> bool:
    """Return whether a queue has passed its watermark in messages and not that in bytes."""
    byte_count = queue.high_bytes and queue.held_bytes > queue.low_bytes
    return bool(queue.high_messages and queue.held_messages > queue.low_messages and not byte_count)


def _newest(brought: list[BroughtStatus], waiting: int) -> list[tuple[int, int]]:
    """Return messages and bytes of each row among so many that came last."""
    pieces: list[tuple[int, int, int, int]] = []
    for at, row in enumerate(brought):
        for age_ms, messages, byte_count in row.slices:
            if messages > 0:
                pieces.append((age_ms // SECOND_MS, at, messages, byte_count))
    pieces.sort()
    taken = [(0, 0)] * len(brought)
    first = 0
    while first < len(pieces) and waiting > 0:
        last, at_once = first, 0
        while last < len(pieces) and pieces[last][0] == pieces[first][0]:
            at_once += pieces[last][2]
            last += 1
        for _, at, messages, byte_count in pieces[first:last]:
            part = messages if at_once <= waiting else -(-messages * waiting // at_once)
            part = min(part, waiting)
            at_once -= messages
            waiting -= part
            before = taken[at]
            taken[at] = (before[0] + part, before[1] + byte_count * part // messages)
        first = last
    return taken


def _rank(cause: CauseStatus) -> tuple[float, int, str]:
    return -cause.share, -cause.queued_messages, cause.account


def _cause(
    row: BroughtStatus, place: tuple[str, str], messages: int, byte_count: int, share: float
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
        byte_count=row.byte_count,
        message_rate=row.message_rate,
        byte_rate=row.byte_rate,
        share=share,
        user_provided_name=row.user_provided_name,
        gone=row.gone,
        queued_messages=messages,
        queued_bytes=byte_count,
        last_ms=row.slices[0][0] if row.slices else 0,
    )
