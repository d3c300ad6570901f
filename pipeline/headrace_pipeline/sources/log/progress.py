"""End of the next batch: pure, from the given listing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headrace_client.export import Shard
from headrace_pipeline.limits import CLOCK_AHEAD_MS, ROW_BYTES
from headrace_pipeline.sources.log.admission import Waiting, admit
from headrace_pipeline.sources.log.offset import Offset, Position
from headrace_pipeline.sources.log.survey import Survey


class Bounds(NamedTuple):
    """Bounds of the next batch."""

    rows_max: int  # 0 for any number
    bytes_max: int  # likewise
    # where a stream is to stop, by shard (incarnation, index); None for never
    target: Mapping[str, tuple[int, int]] | None


def advance(
    offset: Offset,
    found: Survey,
    shards: Mapping[str, Shard],
    bounds: Bounds,
    is_archive: bool,
    now_ms: int,
    turn: int,
) -> Offset:
    """Return where the next batch ends: where the last one has, if there is nothing to read.

    Args:
        offset: where the last one has ended.
        found: what has become of its shards.
        shards: what there is.
        bounds: how much it may have.
        is_archive: rows have no times that windows go by.
        now_ms: Unix time.
        turn: grows with each batch.
    """
    waiting = {
        name: Waiting(rows, _row_bytes(shards[name], is_archive))
        for name, (incarnation, index, _) in found.begins.items()
        if (rows := _end(name, shards[name], incarnation, bounds) - index) > 0
    }
    admitted = admit(waiting, bounds.rows_max, bounds.bytes_max, not is_archive, turn)
    positions = dict(found.kept)
    for name, (incarnation, index, is_new) in found.begins.items():
        rows = admitted.get(name, 0)
        known = offset.shards.get(name)
        if rows:
            is_ahead = not is_archive and shards[name].last_ms > now_ms + CLOCK_AHEAD_MS
            begin = index if is_new else None
            until_ms = now_ms if is_ahead else 0
            positions[name] = Position(incarnation, index + rows, begin, until_ms)
        elif known is not None:
            positions[name] = _moved(known, incarnation, index, is_new)
    return offset._replace(shards=positions)


def _moved(known: Position, incarnation: int, index: int, is_new: bool) -> Position:
    """Return the position of a shard that gives no rows: it moves over those that are lost."""
    return Position(incarnation, index, index) if is_new else known


def _end(name: str, shard: Shard, incarnation: int, bounds: Bounds) -> int:
    """Return the index behind the last row that may be read."""
    if bounds.target is None:
        return shard.next_index
    known, index = bounds.target.get(name, (0, 0))
    return min(shard.next_index, index) if known == incarnation else 0


def _row_bytes(shard: Shard, is_archive: bool) -> int:
    rows = max(shard.next_index - shard.first_index, 1)
    return max(shard.byte_count // rows, 1) + (ROW_BYTES if is_archive else 0)
