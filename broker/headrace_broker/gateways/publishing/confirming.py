"""The confirms that answer a publisher's batches."""

from __future__ import annotations

from librt.strings import BytesWriter
from mypy_extensions import i64

from headrace_broker.model.message import Publish
from headrace_broker.runtime.contract.port import PendingConfirm
from headrace_broker.runtime.contract.traffic import ClientTraffic


class Confirms:
    """The pending confirms of a publisher, and which may be answered; protocols answer them."""

    def __init__(self, traffic: ClientTraffic | None = None) -> None:
        # of the publisher; counts what is confirmed
        self.traffic = traffic if traffic is not None else ClientTraffic()
        self.enabled = False  # the publisher wants confirms
        # stands in the connection's list of those that `emit` at the end of the turn
        self.queued = False
        self._next: i64 = 1
        self._done: list[PendingConfirm] = []
        self._returned: list[Publish] = []
        self._deferred: dict[int, int] = {}  # pending confirms by queue group

    def deferred_by(self) -> int:
        """Return the group of the queue that has deferred confirms for longest, 0 for none."""
        return next(iter(self._deferred), 0)

    def issue(self, count: i64, queues: i64) -> PendingConfirm:
        """Return the confirm of `count` publishes to `queues` queues; with none it is done."""
        pending_confirm = PendingConfirm(self._next, self._next + count - 1)
        pending_confirm.pending = queues
        pending_confirm.patient = True
        self._next += count
        if queues == 0:
            self._done.append(pending_confirm)
        return pending_confirm

    def issue_immediate(self, publish: Publish, queues: i64) -> PendingConfirm:
        """Return the confirm of a publish that comes back when no queue takes it, in any mode."""
        pending_confirm = self.issue(1, queues) if self.enabled else PendingConfirm(0, 0)
        pending_confirm.pending = queues
        pending_confirm.immediate = publish
        pending_confirm.takers = queues
        return pending_confirm

    def settle(self, pending_confirms: list[PendingConfirm]) -> None:
        """Take the answer of one queue for each of `pending_confirms`."""
        for pending_confirm in pending_confirms:
            pending_confirm.pending -= 1
            if pending_confirm.pending == 0:
                if pending_confirm.immediate is not None:
                    self._end_immediate(pending_confirm, pending_confirm.immediate)
                pending_confirm.all_answered()
                if pending_confirm.first > 0:
                    self._done.append(pending_confirm)

    def refuse(self, pending_confirms: list[PendingConfirm]) -> None:
        """Take the answer of one queue for each of `pending_confirms`: not all of it."""
        for pending_confirm in pending_confirms:
            pending_confirm.takers -= 1
        self.settle(pending_confirms)

    def defer(self, group: int, pending_confirms: list[PendingConfirm]) -> None:
        """Take the answer of one queue for each of `pending_confirms`: it defers some of it."""
        self._deferred[group] = self._deferred.get(group, 0) + len(pending_confirms)
        self.settle(pending_confirms)

    def complete(self, group: int, pending_confirms: list[PendingConfirm], over: int) -> None:
        """A queue defers less of `pending_confirms`, and of `over` of them nothing any more."""
        left = self._deferred[group] - over
        if left > 0:
            self._deferred[group] = left
        else:
            del self._deferred[group]
        for pending_confirm in pending_confirms:
            if pending_confirm.freed:
                self._done.append(pending_confirm)

    def _end_immediate(self, pending_confirm: PendingConfirm, publish: Publish) -> None:
        """Confirm it, whatever refused it: one queue has it, or it is returned."""
        pending_confirm.refused = None
        if pending_confirm.takers == 0:
            self._returned.append(publish)

    def take_returned(self) -> list[Publish]:
        """Return the immediate publishes that no queue took: they go back before their confirm."""
        returned = self._returned
        if returned:
            self._returned = []
        return returned

    def discard(self) -> None:
        """Forget everything: the publisher ends."""
        self._returned = []
        self._done = []
        self._deferred = {}

    def emit(self, out: BytesWriter) -> None:
        """Answer finished publishes, appending the output to `out`."""
        raise AssertionError("abstract")

    def answer(self, out: BytesWriter, pending_confirm: PendingConfirm) -> bool:
        """Answer all of a pending confirm that no queue defers and that is not answered.

        Returns:
            Whether that was all that was left.
        """
        untold = pending_confirm.untold
        if untold is None:
            pending_confirm.answered = True
            self.answer_row(out, pending_confirm, pending_confirm.first, pending_confirm.last + 1)
            return True
        freed = pending_confirm.freed
        pending_confirm.freed = []
        for at in range(0, len(freed), 2):
            gone = untold.remove(freed[at], freed[at + 1])
            for row in range(0, len(gone), 2):
                self.answer_row(out, pending_confirm, gone[row], gone[row + 1])
        pending_confirm.answered = not untold
        return pending_confirm.answered

    def answer_row(
        self, out: BytesWriter, pending_confirm: PendingConfirm, first: i64, stop: i64
    ) -> None:
        """Answer the publishes `first` to `stop` - 1 of one confirm; some may be refused."""
        raise AssertionError("abstract")
