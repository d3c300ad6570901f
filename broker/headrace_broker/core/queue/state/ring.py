"""Lanes of one priority that take turns, a message each: plain round robin.

Turns are counted in messages and not in bytes, as in fair queueing of packets, because what the
values of a key share is the time of consumers: a delivery is what a consumer takes one at a time,
and prefetch counts. So nothing is kept beside the order of turns, and what it promises is simple: a
message waits for those before it of its own value, and for each of these at most one of any other
value. A lane that was empty comes last, so that it neither pays for nor profits from the past.

Source: J. Nagle, "On Packet Switches with Infinite Storage" (RFC 970), section 6; which message a
full queue drops: P. McKenney, "Stochastic Fairness Queueing", buffer stealing.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, final

from headrace_broker.core.queue.state.lane import Lane

_SLACK: Final = 64  # outdated sizes in a heap before it is made anew


@final
class Ring:
    """Lanes that are not empty, each with a key of its own."""

    def __init__(self) -> None:
        self.lanes: dict[bytes, Lane] = {}  # by key; b"" is that of the messages that have no value
        self.first: Lane | None = None  # whose turn is next, None when there is none
        self._most_messages: _Longest | None = None  # from when it is asked for
        self._most_bytes: _Longest | None = None

    def join(self, lane: Lane) -> None:
        """Let a lane take part, after everybody else had a turn."""
        self.lanes[lane.key] = lane
        first = self.first
        if first is None:
            self.first = lane
            lane.behind = lane
            lane.ahead = lane
            return
        last = first.ahead
        assert last is not None, "what is first is in the ring"
        lane.ahead = last
        lane.behind = first
        last.behind = lane
        first.ahead = lane

    def leave(self, lane: Lane) -> None:
        """Let a lane take no more turns."""
        del self.lanes[lane.key]
        ahead, behind = lane.ahead, lane.behind
        assert ahead is not None, "it is in the ring"
        assert behind is not None, "it is in the ring"
        if behind is lane:
            self.first = None
        else:
            ahead.behind = behind
            behind.ahead = ahead
            if self.first is lane:
                self.first = behind
        lane.ahead = None
        lane.behind = None

    def turn(self) -> None:
        """The first had its turn, and comes last now."""
        if self.first is not None:
            self.first = self.first.behind

    def grown(self, lane: Lane) -> None:
        """Note that messages came to a lane of the ring."""
        if self._most_messages is not None:
            self._most_messages.note(lane)
        if self._most_bytes is not None:
            self._most_bytes.note(lane)

    def longest(self, by_bytes: bool) -> Lane:
        """Return the lane with most messages, or bytes of bodies; of equals, by the keys' order.

        There must be one.
        """
        if by_bytes:
            if self._most_bytes is None:
                self._most_bytes = _Longest(self.lanes, True)
            return self._most_bytes.find()
        if self._most_messages is None:
            self._most_messages = _Longest(self.lanes, False)
        return self._most_messages.find()

    def in_order(self) -> list[Lane]:
        """Return all lanes, the one whose turn is next first."""
        found: list[Lane] = []
        lane = self.first
        while lane is not None:
            found.append(lane)
            lane = lane.behind
            if lane is self.first:
                break
        return found


@final
class _Longest:
    """A heap with a size of each lane, its own or one that it had before and that was larger."""

    def __init__(self, lanes: dict[bytes, Lane], by_bytes: bool) -> None:
        self._lanes = lanes
        self._by_bytes = by_bytes
        self._heap: list[tuple[int, bytes]] = []  # (size below zero, key)
        self._renew()

    def note(self, lane: Lane) -> None:
        """Note that a lane has become longer."""
        heappush(self._heap, (-self._size(lane), lane.key))
        if len(self._heap) > 4 * len(self._lanes) + _SLACK:
            self._renew()

    def find(self) -> Lane:
        """Return the longest lane."""
        heap = self._heap
        while True:
            place = heap[0]
            lane = self._lanes.get(place[1])
            if lane is None:
                heappop(heap)
                continue
            size = -self._size(lane)
            if size == place[0]:
                return lane
            heapreplace(heap, (size, place[1]))

    def _renew(self) -> None:
        self._heap = [(-self._size(lane), lane.key) for lane in self._lanes.values()]
        heapify(self._heap)

    def _size(self, lane: Lane) -> int:
        return int(lane.byte_count if self._by_bytes else lane.count)
