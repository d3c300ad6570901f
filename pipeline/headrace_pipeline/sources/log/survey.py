"""Changes of the shards since a batch has ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from headrace_client.export import Shard
from headrace_pipeline.sources.log.loss import DELETED, DROPPED, REPLACED, Loss
from headrace_pipeline.sources.log.offset import Offset, Position


class Survey(NamedTuple):
    """Start positions of the next batch."""

    # of each shard that is there (incarnation, index of the next row, that index is not where the
    # last batch has ended)
    begins: dict[str, tuple[int, int, bool]]
    kept: dict[str, Position]  # shards that are away for now: their positions stay
    losses: list[Loss]  # rows that will never be read
    gone: list[str]  # shards that are gone, with nothing unread that was known


def survey(
    offset: Offset,
    shards: Mapping[str, Shard],
    is_gone: Callable[[str, Position], bool],
    seen: Mapping[str, int],
    first_of: Callable[[Shard], int],
) -> Survey:
    """Compare the end of a batch with the listing.

    Args:
        offset: where it has ended.
        shards: what there is, by name.
        is_gone: asks whether a shard that is not listed is gone for good, and not away for now.
        seen: index behind the last row that a look has found, of shards of the same incarnation.
        first_of: returns the index at which a new shard is begun.
    """
    found = Survey({}, {}, [], [])
    for name, position in offset.shards.items():
        shard = shards.get(name)
        if shard is not None:
            _compare(found, name, position, shard)
        elif not is_gone(name, position):
            found.kept[name] = position
        elif seen.get(name) == position.next_index:
            found.gone.append(name)
        else:
            found.losses.append(Loss(name, position.next_index, None, DELETED))
    for name, shard in shards.items():
        if name not in offset.shards:
            found.begins[name] = shard.incarnation, first_of(shard), True
    return found


def _compare(found: Survey, name: str, position: Position, shard: Shard) -> None:
    """Note where an existing shard continues."""
    title, index = title_of(shard), position.next_index
    if shard.incarnation != position.incarnation:
        found.losses.append(Loss(title, index, None, REPLACED))
        found.begins[name] = shard.incarnation, shard.first_index, True
    elif index < shard.first_index:
        found.losses.append(Loss(title, index, shard.first_index, DROPPED))
        found.begins[name] = shard.incarnation, shard.first_index, True
    else:
        found.begins[name] = shard.incarnation, index, False


def title_of(shard: Shard) -> str:
    """Return what people call a shard."""
    if not shard.queue:
        return f"shard {shard.name}"
    return f"archive of queue {shard.queue!r} in vhost {shard.vhost!r} (shard {shard.name})"
