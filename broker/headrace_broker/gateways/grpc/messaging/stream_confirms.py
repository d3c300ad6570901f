"""Answers to a stream's publishes: rows of sequence numbers."""

from __future__ import annotations

from typing import final

from librt.strings import BytesWriter
from mypy_extensions import i64
from typing_extensions import override

from headrace_broker.gateways.publishing.confirming import Confirms
from headrace_broker.runtime.contract.port import PendingConfirm
from headrace_broker.runtime.contract.traffic import ClientTraffic


@final
class StreamConfirms(Confirms):
    """Tickets numbered by the client's sequence; answers gather as rows (see `Ranges.bounds`).

    Refusals are known whether the client wants confirms or not, so there is a ticket always.

    Args:
        traffic: of the stream; counts what is confirmed.
    """

    def __init__(self, wanted: bool, traffic: ClientTraffic | None = None) -> None:
        super().__init__(traffic)
        self.enabled = True
        self.wanted = wanted  # the client waits for confirms: queues may defer them
        self.patient = wanted  # queues may defer them
        self.confirmed: list[int] = []  # rows in the order in which they were confirmed
        self.refused: list[int] = []  # rows that a queue refused
        self.fenced: list[int] = []  # rows that a queue refused because of a later epoch
        # rows that a queue without a leader did not confirm, by the text that says so
        self.unreached: dict[str, list[int]] = {}
        self.open_pending_confirms: i64 = 0

    @property
    def outstanding_count(self) -> int:
        """Number of pending confirms that are not answered."""
        return int(self.open_pending_confirms)

    def start_at(self, sequence: i64) -> None:
        """The next publish has this number."""
        self._next = sequence

    @override
    def issue(self, count: i64, queues: i64) -> PendingConfirm:
        pending_confirm = super().issue(count, queues)
        pending_confirm.patient = self.patient
        self.open_pending_confirms += 1
        return pending_confirm

    @override
    def discard(self) -> None:
        super().discard()
        self.open_pending_confirms = 0

    @override
    def emit(self, out: BytesWriter) -> None:
        """Move finished publishes into the rows; nothing is written."""
        done = self._done
        self._done = []
        for pending_confirm in done:
            if not pending_confirm.answered and self.answer(out, pending_confirm):
                self.open_pending_confirms -= 1

    @override
    def answer_row(
        self, out: BytesWriter, pending_confirm: PendingConfirm, first: i64, stop: i64
    ) -> None:
        refused = pending_confirm.refused
        if refused is None:
            self._add(self.confirmed, first, stop)
            return
        reasons = self.fenced if pending_confirm.fenced else self.refused
        if pending_confirm.unreachable:
            reasons = self.unreached.setdefault(pending_confirm.unreachable, [])
        number = first
        while number < stop:
            rows = reasons if number in refused else self.confirmed
            self._add(rows, number, number + 1)
            number += 1

    def _add(self, rows: list[int], first: i64, stop: i64) -> None:
        if rows is self.confirmed:
            if not self.wanted:
                return
            self.traffic.confirm += stop - first
        if rows and rows[-1] == first:
            rows[-1] = stop
        else:
            rows.append(first)
            rows.append(stop)
