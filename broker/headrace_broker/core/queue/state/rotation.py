"""The consumers that have credit, in the order in which they are served."""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64

from headrace_broker.core.queue.state.consumer import Consumer


@final
class Line:
    """Consumers of one priority, next to be served first."""

    def __init__(self, priority: i64) -> None:
        self.priority = priority
        self.consumers: deque[Consumer] = deque()


@final
class Rotation:
    """Lines by priority, the highest first; a consumer stands in its line at most once."""

    def __init__(self) -> None:
        self.waiting: i64 = 0  # number of consumers that stand in line
        self._lines: list[Line] = []  # also of consumers that are not waiting just now

    def add(self, consumer: Consumer) -> None:
        """Put a consumer at the end of its line, unless it stands there."""
        if not consumer.waiting:
            self.again(consumer)

    def again(self, consumer: Consumer) -> None:
        """Put a consumer that does not stand in line at the end of its line."""
        consumer.waiting = True
        self.waiting += 1
        self._line(consumer.priority).consumers.append(consumer)

    def pop(self) -> Consumer:
        """Take the consumer that is next out of its line; there must be one."""
        for line in self._lines:
            if line.consumers:
                break
        consumer = line.consumers.popleft()
        consumer.waiting = False
        self.waiting -= 1
        return consumer

    def alone(self, consumer: Consumer) -> bool:
        """Return whether no consumer of this priority or above stands in line."""
        for line in self._lines:
            if line.priority < consumer.priority:
                break
            if line.consumers:
                return False
        return True

    def remove(self, consumer: Consumer) -> None:
        """Take a consumer out of its line for good, if it stands there."""
        line = self._line(consumer.priority)
        if consumer.waiting:
            consumer.waiting = False
            self.waiting -= 1
            line.consumers.remove(consumer)
        if not line.consumers:
            self._lines.remove(line)

    def credit(self) -> i64:
        """Return how many messages those who wait may get now."""
        total: i64 = 0
        for line in self._lines:
            for consumer in line.consumers:
                total += consumer.credit()
        return total

    def in_order(self) -> list[Consumer]:
        """Return all who wait, next to be served first."""
        return [consumer for line in self._lines for consumer in line.consumers]

    def _line(self, priority: i64) -> Line:
        at: i64 = 0
        for line in self._lines:
            if line.priority == priority:
                return line
            if line.priority < priority:
                break
            at += 1
        line = Line(priority)
        self._lines.insert(at, line)
        return line
