"""Settles of a consumer that were not sent yet; no I/O."""

from __future__ import annotations

from collections.abc import Iterator

from headrace_client.delivery import OpenSettles, Outcome, Settlement
from headrace_client.error import HeadraceError
from headrace_client.limits import SETTLE_RANGES_MAX
from headrace_protos.broker.v1.message_pb2 import Range
from headrace_protos.broker.v1.messaging_pb2 import Settle


class SettleBatch:
    """Gathers outcomes into requests, in order, with the waiters for their answers."""

    def __init__(self) -> None:
        self.waiting_count = 0  # settled and not in a request yet
        self._runs: list[tuple[Outcome, list[list[int]]]] = []  # rows of first and last id
        self._open = OpenSettles()

    def add(self, delivery_id: int, outcome: Outcome) -> Settlement:
        """Note an outcome."""
        self._open.ids.add(delivery_id)
        settlement = Settlement(self._open, delivery_id)
        self.waiting_count += 1
        if not self._runs or self._runs[-1][0] != outcome:
            self._runs.append((outcome, [[delivery_id, delivery_id]]))
            return settlement
        rows = self._runs[-1][1]
        if rows[-1][1] + 1 == delivery_id:
            rows[-1][1] = delivery_id
        else:
            rows.append([delivery_id, delivery_id])
        return settlement

    def take(self) -> Iterator[Settle]:
        """Return requests for all that waits; it counts as told."""
        runs, self._runs = self._runs, []
        self.waiting_count = 0
        for (outcome, failed, undeliverable), rows in runs:
            for at in range(0, len(rows), SETTLE_RANGES_MAX):
                part = rows[at : at + SETTLE_RANGES_MAX]
                yield Settle(
                    ranges=[Range(first=first, last=last) for first, last in part],
                    outcome=outcome,
                    delivery_failed=failed,
                    undeliverable_here=undeliverable,
                )

    def settled(self, first: int, last: int) -> None:
        """The queue knows of the outcomes of some deliveries."""
        self._open.settled(first, last)

    @property
    def open_count(self) -> int:
        """Outcomes that the queue has not answered."""
        return len(self._open.ids)

    def fail(self, error: HeadraceError) -> None:
        """Fail all of it: no answer will come."""
        self._runs.clear()
        self.waiting_count = 0
        failed, self._open = self._open, OpenSettles()
        failed.fail(error)
