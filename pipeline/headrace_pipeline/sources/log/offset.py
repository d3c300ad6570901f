"""Offset of a stream in Spark's checkpoint.

    {"version": 1, "log": "flow_samples", "shards": {"n1": [7302, 1200], "n2": [9511, 80]}}

A shard has its incarnation and the index of the next row. Where the batch that ends there does not
begin where the one before has ended, `from` says where: the shard is new, or rows were lost. Where
a clock was fast, `until` says which time no row of the batch is said to be later than. `since` is
the time from which on shards are read that were away when the stream was told to begin at it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from headrace_pipeline.error import PipelineError
from headrace_pipeline.limits import LOG_OFFSET_SHARDS_MAX

VERSION: Final = 1


class Position(NamedTuple):
    """End of a batch in a shard."""

    incarnation: int  # of the shard
    next_index: int  # of the first row behind the batch
    begin: int | None = None  # of the first row of the batch; None where the batch before has ended
    until_ms: int = 0  # Unix time that no row is said to be later than; 0 for none


class Offset(NamedTuple):
    """End of a batch."""

    log: str
    shards: Mapping[str, Position]  # positions by name
    # Unix time from which on shards are read that are not here yet; 0 for all rows
    since_ms: int = 0


def encode_offset(offset: Offset) -> dict[str, Any]:
    """Return what Spark keeps; equal offsets give equal JSON.

    Raises:
        PipelineError: there are too many shards.
    """
    if len(offset.shards) > LOG_OFFSET_SHARDS_MAX:
        text = f"there are {len(offset.shards)} shards, more than {LOG_OFFSET_SHARDS_MAX}"
        raise PipelineError(f"{text}: read fewer queues with each stream")
    shards = {name: _encode(offset.shards[name]) for name in sorted(offset.shards)}
    found: dict[str, Any] = {"version": VERSION, "log": offset.log, "shards": shards}
    if offset.since_ms:
        found["since"] = offset.since_ms
    return found


def _encode(position: Position) -> list[Any]:
    more: dict[str, int] = {}
    if position.begin is not None:
        more["from"] = position.begin
    if position.until_ms:
        more["until"] = position.until_ms
    return [position.incarnation, position.next_index, *([more] if more else [])]


def decode_offset(given: Mapping[str, Any], log: str) -> Offset:
    """Read what Spark has kept.

    Raises:
        PipelineError: it was written by a newer version, or for another log.
    """
    version = given.get("version")
    if version != VERSION:
        text = f"the checkpoint has offsets of version {version!r}, this release knows {VERSION}"
        raise PipelineError(f"{text}: use the release that has written it, or a new checkpoint")
    if given.get("log") != log:
        text = f"the checkpoint is of the log {given.get('log')!r}, not of {log!r}"
        raise PipelineError(f"{text}: give each query a checkpoint of its own")
    try:
        shards = {str(name): _decode(value) for name, value in given["shards"].items()}
        return Offset(log, shards, int(given.get("since", 0)))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise PipelineError(f"the checkpoint has an offset that cannot be read: {given}") from error


def _decode(value: Any) -> Position:
    more = value[2] if len(value) > 2 else {}
    begin = more.get("from")
    return Position(
        int(value[0]),
        int(value[1]),
        int(begin) if begin is not None else None,
        int(more.get("until", 0)),
    )
