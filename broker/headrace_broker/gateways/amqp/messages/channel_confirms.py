"""The confirms that answer a channel's publishes: basic.ack and basic.nack."""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64
from typing_extensions import override

from headrace_broker.codecs.delivery_encoder import encode_ack, encode_nack
from headrace_broker.gateways.publishing.confirming import Confirms
from headrace_broker.runtime.contract.port import PendingConfirm
from headrace_broker.runtime.contract.traffic import ClientTraffic

_COMPACT_AFTER: Final = 1024  # answered pending confirms at the front of the list before it is cut


@final
class ChannelConfirms(Confirms):
    """The pending confirms of a channel in publish order."""

    def __init__(self, channel: i64, traffic: ClientTraffic | None = None) -> None:
        super().__init__(traffic)
        self.channel = channel  # its number
        self._pending_confirms: list[PendingConfirm] = []
        self._head: i64 = 0
        self._answered: i64 = 0  # pending confirms in the list, from the head on

    @property
    def outstanding_count(self) -> int:
        """Number of pending confirms that are not answered."""
        return len(self._pending_confirms) - self._head - self._answered

    @override
    def issue(self, count: i64, queues: i64) -> PendingConfirm:
        pending_confirm = super().issue(count, queues)
        self._pending_confirms.append(pending_confirm)
        return pending_confirm

    @override
    def discard(self) -> None:
        super().discard()
        self._pending_confirms = []
        self._head = 0
        self._answered = 0

    @override
    def emit(self, out: BytesWriter) -> None:
        """Answer what is done: the oldest in one acknowledgement, others behind a gap singly."""
        self._emit_oldest(out)
        for pending_confirm in self._done:
            if not pending_confirm.answered and self.answer(out, pending_confirm):
                self._answered += 1
        self._done = []
        if (
            self._answered > _COMPACT_AFTER
            and self._answered * 2 > len(self._pending_confirms) - self._head
        ):
            self._pending_confirms = [
                each for each in self._pending_confirms[self._head :] if not each.answered
            ]
            self._head = 0
            self._answered = 0

    def _emit_oldest(self, out: BytesWriter) -> None:
        pending_confirms = self._pending_confirms
        size: i64 = len(pending_confirms)
        head = self._head
        first: i64 = 0
        last: i64 = 0
        count: i64 = 0
        while head < size:
            pending_confirm = pending_confirms[head]
            if pending_confirm.pending > 0:
                break
            whole = True
            if pending_confirm.answered:
                self._answered -= 1
            elif pending_confirm.refused is not None:
                self._emit_range(out, first, last)
                first = 0
                whole = self.answer(out, pending_confirm)
            else:
                whole = not pending_confirm.held
                if whole and pending_confirm.untold is None:
                    pending_confirm.answered = True
                    first = pending_confirm.first if first == 0 else first
                    last = pending_confirm.last
                    count += last - pending_confirm.first + 1
                else:
                    gone = self._answer_front(pending_confirm)
                    if gone:
                        first = gone[0] if first == 0 else first
                        last = gone[len(gone) - 1] - 1
                        for row in range(0, len(gone), 2):
                            count += gone[row + 1] - gone[row]
            if not whole:
                break
            head += 1
        self._emit_range(out, first, last)
        self.traffic.confirm += count
        self._head = head
        if head == size:
            self._pending_confirms = []
            self._head = 0
        elif head > _COMPACT_AFTER and head * 2 > size:
            del pending_confirms[:head]
            self._head = 0

    def _answer_front(self, pending_confirm: PendingConfirm) -> list[int]:
        """Answer a pending confirm before which all is answered, up to what a queue defers.

        Returns:
            Those that are answered by that, in rows.
        """
        untold = pending_confirm.untold
        assert untold is not None, "it was deferred in part"
        end: i64 = min(
            [numbers.first for numbers in pending_confirm.holds or []],
            default=pending_confirm.last + 1,
        )
        gone = untold.remove(pending_confirm.first, end)
        pending_confirm.answered = not untold
        return gone

    def _emit_range(self, out: BytesWriter, first: i64, last: i64) -> None:
        """Confirm all up to `last`; everything before `first` (0: nothing) is answered."""
        if first > 0:
            encode_ack(out, self.channel, last, last > first)

    @override
    def answer_row(
        self, out: BytesWriter, pending_confirm: PendingConfirm, first: i64, stop: i64
    ) -> None:
        tag = first
        refused = pending_confirm.refused
        while tag < stop:
            if refused is not None and tag in refused:
                encode_nack(out, self.channel, tag, False)
            else:
                encode_ack(out, self.channel, tag, False)
                self.traffic.confirm += 1
            tag += 1
