"""Which task reads which rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from headrace_pipeline.limits import PARTITION_ROWS
from headrace_pipeline.sources.log.offset import Offset


class Range(NamedTuple):
    """Rows of a shard."""

    shard: str  # its name
    incarnation: int  # of the shard
    start: int  # index of the first row
    end: int  # of the row behind the last
    until_ms: int = 0  # Unix time that no row is said to be later than; 0 for none
    node: str = ""  # that has the shard, "" where that is not known
    address: str = ""  # of that node
    title: str = ""  # what people call the shard


class LogPartition(InputPartition):
    """Rows that one task reads."""

    def __init__(self, ranges: tuple[Range, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


def ranges_between(start: Offset, end: Offset) -> list[Range]:
    """Return the rows of a batch; the same ones whenever it is asked for."""
    found = []
    for name, position in end.shards.items():
        before = start.shards.get(name)
        begin = position.begin
        if begin is None:
            assert before is not None, f"{name}: a new shard says where it begins"
            assert before.incarnation == position.incarnation, f"{name}: and so does a lost one"
            begin = before.next_index
        elif before == position:
            continue  # it began there with an earlier batch, and nothing came since
        if begin < position.next_index:
            found.append(
                Range(name, position.incarnation, begin, position.next_index, position.until_ms)
            )
    return found


def cut(ranges: Sequence[Range], partitions_min: int) -> list[LogPartition]:
    """Divide rows into tasks of about as many rows each; small ranges share one.

    Args:
        ranges: of rows.
        partitions_min: tasks, as far as there are rows for them.
    """
    total = sum(each.end - each.start for each in ranges)
    size = max(min(PARTITION_ROWS, total // max(partitions_min, 1)), 1)
    found: list[LogPartition] = []
    part: list[Range] = []
    room = size
    for each in _pieces(ranges, size):
        part.append(each)
        room -= each.end - each.start
        if room == 0:
            found.append(LogPartition(tuple(part)))
            part, room = [], size
    if part:
        found.append(LogPartition(tuple(part)))
    return found


def _pieces(ranges: Iterable[Range], size: int) -> Iterable[Range]:
    """Cut ranges wherever `size` rows are full."""
    room = size
    for each in ranges:
        start = each.start
        while start < each.end:
            end = min(each.end, start + room)
            yield each._replace(start=start, end=end)
            room -= end - start
            room = room or size
            start = end
