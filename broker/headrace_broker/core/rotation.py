"""The consumers that have credit, in the order in which they are served."""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64

from headrace_broker.core.session import Consumer


@final
class Line:
    """Consumers of one priority, next to be served first."""

    def __init__(self, priority: i64) -> None:
        self.priority = priority
        self.consumers: deque[Consumer] = deque()


@final
class Rotation:
    """Lines by priority, the highest first; a consumer stands in its line at most once.

    Attributes:
        lines: those with consumers.
    """

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def add(self, consumer: Consumer) -> None:
        """Put a consumer at the end of its line, unless it stands there."""
        if consumer.waiting:
            return
        consumer.waiting = True
        self._line(consumer.priority).consumers.append(consumer)

    def again(self, consumer: Consumer) -> None:
        """Put back a consumer that `pop` gave."""
        self._line(consumer.priority).consumers.append(consumer)

    def pop(self) -> Consumer:
        """Take the consumer that is next, which still counts as waiting; there must be one."""
        line = self.lines[0]
        consumer = line.consumers.popleft()
        if not line.consumers:
            del self.lines[0]
        return consumer

    def alone(self, consumer: Consumer) -> bool:
        """Return whether a consumer that `pop` gave has nobody of its priority or above beside."""
        return not self.lines or self.lines[0].priority < consumer.priority

    def remove(self, consumer: Consumer) -> None:
        """Take a consumer out of its line, if it stands there."""
        if not consumer.waiting:
            return
        consumer.waiting = False
        line = self._line(consumer.priority)
        line.consumers.remove(consumer)
        if not line.consumers:
            self.lines.remove(line)

    def credit(self) -> i64:
        """Return how many messages all of them may get now."""
        total: i64 = 0
        for line in self.lines:
            for consumer in line.consumers:
                total += consumer.credit()
        return total

    def in_order(self) -> list[Consumer]:
        """Return all of them."""
        return [consumer for line in self.lines for consumer in line.consumers]

    def _line(self, priority: i64) -> Line:
        at: i64 = 0
        for line in self.lines:
            if line.priority == priority:
                return line
            if line.priority < priority:
                break
            at += 1
        line = Line(priority)
        self.lines.insert(at, line)
        return line
