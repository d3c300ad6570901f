"""Which delivery of which consumer a delivery tag stands for: ranges, as clients settle ranges."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.gateways.amqp.messages.consumer import Consumer
from headrace_broker.runtime.contract.port import GET_CONSUMER

ALL_HELD: Final = -1
_COMPACT_AFTER: Final = 256  # emptied ranges at the front of the list before it is cut


@final
class TagRange:
    """Consecutive delivery tags that are consecutive deliveries of one consumer."""

    def __init__(self, tag: i64, count: i64, consumer: Consumer, number: i64) -> None:
        self.tag = tag  # the first delivery tag
        self.count = count  # how many, 1 or more
        self.consumer = consumer  # whose deliveries
        self.number = number  # the first delivery number


def _first_tag(held: TagRange) -> i64:
    return held.tag


@final
class Unsettled:
    """The delivered, not yet settled messages of a channel by delivery tag."""

    def __init__(self) -> None:
        self.count: i64 = 0  # how many messages
        self.got_count: i64 = 0  # how many of them basic.get took, which count towards no limit
        self._ranges: list[TagRange] = []
        self._head: i64 = 0

    @property
    def oldest(self) -> int:
        """The oldest delivery tag held, 0 for none."""
        return self._ranges[self._head].tag if self.count > 0 else 0

    def add(self, tag: i64, count: i64, consumer: Consumer, number: i64) -> None:
        """Take `count` deliveries from delivery number `number` on; tags only ever grow."""
        self._change(consumer, count)
        ranges = self._ranges
        if len(ranges) > self._head:
            tail = ranges[len(ranges) - 1]
            if (
                tail.consumer is consumer
                and tail.tag + tail.count == tag
                and tail.number + tail.count == number
            ):
                tail.count += count
                return
        ranges.append(TagRange(tag, count, consumer, number))

    def take(self, first: i64, last: i64, out: list[TagRange]) -> i64:
        """Remove the tags `first` to `last`, appending their deliveries to `out`.

        Returns:
            ALL_HELD, or the first of them that is not held; those before it are removed.
        """
        at = self._find(first)
        while first <= last:
            if at == len(self._ranges) or self._ranges[at].tag > first:
                return first
            held = self._ranges[at]
            stop = min(last + 1, held.tag + held.count)
            out.append(TagRange(first, stop - first, held.consumer, held.number + first - held.tag))
            at = self._cut(at, first, stop)
            self._change(held.consumer, first - stop)
            first = stop
        return ALL_HELD

    def take_through(self, last: i64, out: list[TagRange]) -> i64:
        """Remove all tags up to `last`, which must be held; 0 removes all. Returns as `take`."""
        if last > 0:
            at = self._find(last)
            if at == len(self._ranges) or self._ranges[at].tag > last:
                return last
        ranges = self._ranges
        size: i64 = len(ranges)
        while self._head < size:
            held = ranges[self._head]
            if last > 0 and held.tag > last:
                break
            if last > 0 and held.tag + held.count - 1 > last:
                count = last - held.tag + 1
                out.append(TagRange(held.tag, count, held.consumer, held.number))
                self._cut(self._head, held.tag, last + 1)
                self._change(held.consumer, -count)
                return ALL_HELD
            out.append(held)
            self._change(held.consumer, -held.count)
            self._head += 1
        self._compact()
        return ALL_HELD

    def put_back(self, ranges: list[TagRange]) -> None:
        """Hold ranges again that were taken."""
        held = self.take_all()
        held.extend(ranges)
        held.sort(key=_first_tag)
        for each in held:
            self.add(each.tag, each.count, each.consumer, each.number)

    def take_all(self) -> list[TagRange]:
        """Remove everything."""
        out = self._ranges[self._head :]
        self._ranges = []
        self._head = 0
        self.count = 0
        self.got_count = 0
        return out

    def _change(self, consumer: Consumer, count: i64) -> None:
        self.count += count
        if consumer.number == GET_CONSUMER:
            self.got_count += count

    def _find(self, tag: i64) -> i64:
        """Return the position of the first range that ends at `tag` or later."""
        low = self._head
        high: i64 = len(self._ranges)
        if low < high and tag < self._ranges[low].tag + self._ranges[low].count:
            return low  # the oldest: what most clients settle
        while low < high:
            middle = (low + high) // 2
            held = self._ranges[middle]
            if held.tag + held.count <= tag:
                low = middle + 1
            else:
                high = middle
        return low

    def _cut(self, at: i64, first: i64, stop: i64) -> i64:
        """Cut tags `first` to `stop` - 1 out of a range; returns where to look for tag `stop`."""
        held = self._ranges[at]
        end = held.tag + held.count
        if first == held.tag:
            if stop == end:
                return self._drop(at)
            held.number += stop - first
            held.tag = stop
            held.count = end - stop
            return at
        held.count = first - held.tag
        if stop < end:
            rest = TagRange(stop, end - stop, held.consumer, held.number + stop - held.tag)
            self._ranges.insert(at + 1, rest)
        return at + 1

    def _drop(self, at: i64) -> i64:
        if at == self._head:
            self._head += 1
            self._compact()
            return self._head
        del self._ranges[at]
        return at

    def _compact(self) -> None:
        size: i64 = len(self._ranges)
        if self._head == size or (self._head > _COMPACT_AFTER and self._head * 2 > size):
            del self._ranges[: self._head]
            self._head = 0
