"""Delivery ids of a client: 1, 2, 3, ... over all its consumers of the queue."""

from __future__ import annotations

from collections import deque

from headrace_broker.model.ranges import Ranges


class _Part:
    """Consecutive ids whose deliveries are consecutive ones of a consumer."""

    def __init__(self, first_id: int, consumer: int, first: int) -> None:
        self.first_id = first_id
        self.consumer = consumer  # its number within the queue client
        self.first = first  # the delivery number of the first
        self.stop_id = first_id  # behind the last


class DeliveryIds:
    """Issues ids, and finds their deliveries until they are settled."""

    def __init__(self) -> None:
        self.unsettled = Ranges()  # ids that were issued and not settled
        self._next = 1
        self._voided = 1  # ids below are void: their consumer was ended by the queue
        self._parts: deque[_Part] = deque()

    def issue(self, consumer: int, first: int, count: int, settles: bool) -> int:
        """Return the first id of consecutive deliveries.

        Args:
            consumer: whose they are.
            first: delivery number of the first.
            count: how many.
            settles: the client has to settle them.
        """
        first_id = self._next
        self._next += count
        if not settles:
            return first_id
        part = self._parts[-1] if self._parts else None
        ends = part is not None and part.first + part.stop_id - part.first_id
        if part is None or part.consumer != consumer or ends != first or part.stop_id != first_id:
            part = _Part(first_id, consumer, first)
            self._parts.append(part)
        part.stop_id = self._next
        self.unsettled.append(first_id, self._next)
        return first_id

    def held_by(self, consumer: int) -> int:
        """Return how many deliveries of a consumer are not settled."""
        total = 0
        for part in self._parts:
            if part.consumer == consumer:
                rows = self.unsettled.cut(part.first_id, part.stop_id)
                total += sum(rows[1::2]) - sum(rows[::2])
        return total

    def settle(self, first: int, last: int) -> list[tuple[int, int, int]] | None:
        """Take ids out.

        Returns:
            Consumer, first and last delivery number of each row of them; nothing of those that are
            void; None, and all is as before, when one of them is not unsettled.
        """
        if last >= self._next:
            return None
        first = max(first, min(self._voided, last + 1))
        rows = self.unsettled.cut(first, last + 1)
        if rows != ([first, last + 1] if first <= last else []):
            return None
        self.unsettled.remove(first, last + 1)
        found: list[tuple[int, int, int]] = []
        for part in self._parts:
            low, high = max(first, part.first_id), min(last, part.stop_id - 1)
            if low <= high:
                shift = part.first - part.first_id
                found.append((part.consumer, low + shift, high + shift))
        self._prune()
        return found

    def void(self) -> None:
        """Void all unsettled deliveries of the client."""
        self._voided = self._next
        self.unsettled = Ranges()
        self._parts.clear()

    def _prune(self) -> None:
        oldest = int(self.unsettled.first) if self.unsettled else self._next
        while self._parts and self._parts[0].stop_id <= oldest:
            self._parts.popleft()
