"""Shards of a log that brokers have, of those asked for."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from headrace_client.blocking import Client
from headrace_client.error import (
    DataGoneError,
    NotYetError,
    OtherIncarnationError,
    TooLateError,
    UnavailableError,
    UnknownShardError,
)
from headrace_client.export import Shard
from headrace_pipeline.arrow_block import to_batch
from headrace_pipeline.error import OptionError, PipelineError
from headrace_pipeline.sources.log.offset import Offset, Position
from headrace_pipeline.sources.log.settings import EARLIEST, LATEST, Settings, Start, is_pattern

EARLIEST_INDEX: Final = -2
_THERE: Final = (  # what a shard that is not gone may answer
    DataGoneError,
    NotYetError,
    OtherIncarnationError,
    TooLateError,
    UnavailableError,
)


class Look(NamedTuple):
    """Shards that were found."""

    shards: Mapping[str, Shard]  # by name
    missing: tuple[str, ...]  # names of nodes that did not answer, whose shards may not be here


def look(client: Client, settings: Settings) -> Look:
    """Return what can be read now.

    Raises:
        HeadraceError: no broker can tell, or one may not look.
    """
    export, log = client.export, settings.log
    if not settings.is_archive:
        found = export.shards(log)
        return Look({shard.name: shard for shard in found.shards}, found.missing_nodes)
    only = settings.queues[0] if len(settings.queues) == 1 else "*"
    found = export.shards(log, settings.connection.vhost, "" if is_pattern(only) else only)
    shards = {shard.name: shard for shard in found.shards if settings.wants(shard.queue)}
    return Look(shards, found.missing_nodes)


def check_named(settings: Settings, found: Look) -> None:
    """Refuse queues that are named and not there, which are misspelt most of the time.

    Raises:
        OptionError: there is one.
        PipelineError: one may be on a node that does not answer.
    """
    there = {shard.queue for shard in found.shards.values()}
    for queue in settings.named:
        if queue in there:
            continue
        where = f"in vhost {settings.connection.vhost!r} that may be read"
        text = f"there is no archive of a queue {queue!r} {where}"
        if found.missing:
            raise PipelineError(f"{text}, and {', '.join(found.missing)} did not answer: try again")
        rule = "declare a policy with archive=headers or full, or give a pattern with * for later"
        raise OptionError("queue", f"{text}: {rule}")


def is_gone(client: Client, log: str, name: str, position: Position) -> bool:
    """Return whether a shard that is not listed is gone for good: its leader may just change.

    Raises:
        HeadraceError: it cannot be asked for: one may not read it any more, for instance.
    """
    start = position.next_index
    blocks = client.export.read(
        log, name, position.incarnation, start, start + 1, bytes_max=1, give_up_after_s=0
    )
    try:
        for _ in blocks:
            break
    except UnknownShardError:
        return True
    except _THERE:
        return False
    return False


def begin(client: Client, settings: Settings, option: str, start: Start, found: Look) -> Offset:
    """Return where reading begins, or ends.

    Raises:
        OptionError: a shard is named that is not there, or an index that it never had.
        HeadraceError: rows cannot be read to find those of a time.
    """
    for name in start.shards:
        if name not in found.shards and not found.missing:
            there = ", ".join(found.shards) or "none"
            raise OptionError(option, f"there is no shard {name!r}; there are: {there}")
    positions = {}
    for name, shard in found.shards.items():
        if start.since_ms:
            index = index_at(client, settings, shard, start.since_ms)
        else:
            index = _index(option, start, shard)
        positions[name] = Position(shard.incarnation, index)
    for name, (incarnation, index) in start.shards.items():
        if name not in positions and incarnation and index >= 0:
            positions[name] = Position(incarnation, index)  # of a node that is away
    since_ms = start.since_ms
    if start.where == LATEST and not since_ms and found.missing:
        since_ms = int(time.time() * 1000)  # what nodes that are away have by now is not wanted
    return Offset(settings.log, positions, since_ms)


def _index(option: str, start: Start, shard: Shard) -> int:
    """Return the index that a user says, of a row that there is, or was, or comes next."""
    places = {EARLIEST: shard.first_index, LATEST: shard.next_index}
    if shard.name not in start.shards:
        return places[start.where]
    incarnation, index = start.shards[shard.name]
    if incarnation not in (0, shard.incarnation):
        rule = f"the incarnation of shard {shard.name} is {shard.incarnation}, not {incarnation}"
        raise OptionError(option, f"{rule}: it was lost with its disk and began anew")
    if index < 0:
        return places[EARLIEST if index == EARLIEST_INDEX else LATEST]
    if index > shard.next_index:
        rule = f"shard {shard.name} has no row {index} yet, the next is {shard.next_index}"
        raise OptionError(option, rule)
    return index


def index_at(client: Client, settings: Settings, shard: Shard, since_ms: int) -> int:
    """Return the index of a shard's first row of a time or later, by halving.

    Raises:
        HeadraceError: rows cannot be read.
    """
    low, high = shard.first_index, shard.next_index
    column = "settled_at" if settings.is_archive else "at"
    while low < high:
        middle = (low + high) // 2
        read = client.export.read(
            settings.log, shard.name, shard.incarnation, middle, high, bytes_max=1, node=shard.node
        )
        try:
            block = next(iter(read))
        except DataGoneError as error:
            low = error.first_index
            continue
        times = to_batch(block.schema, block)[column].view("int64").to_pylist()
        first = max(block.first_index, low)
        times = times[first - block.first_index : block.end - block.first_index]
        early = next((at for at, each in enumerate(times) if each >= since_ms), len(times))
        if early == len(times):
            low = first + early
        elif early == 0:
            high = first
        else:
            return first + early
    return low
