"""One consumer of a session: its numbering, its byte window, what has arrived."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.codecs.batch import body_bytes
from headrace_broker.model.limits import DELIVERY_WINDOW_BYTES
from headrace_broker.model.message import DeliveryRun
from headrace_broker.runtime.contract.port import Attachment


@final
class Subscription:
    """Translates between the channel's consumer and the queue's.

    The queue may give a consumer up (its gateway's node seemed dead) and take it back under a new
    number with deliveries counted from 1 again. The channel sees one consumer whose delivery
    numbers only grow; settles of deliveries from before are void and dropped.
    """

    def __init__(self, consumer: i64, attachment: Attachment) -> None:
        self.consumer = consumer  # the channel's number
        self.number = consumer  # the queue's number
        self.attachment = attachment  # how it is to be served
        self.expected: i64 = 1  # next delivery number of the queue
        self.attached = False  # the queue has answered its attach
        self.cancelled = False  # no more deliveries are wanted
        self.moved = False  # the leader changed before the attach was answered
        self.asked: i64 = 0  # `expected` when a missing run was asked for last, 0 for not
        self.unsettled: i64 = 0  # deliveries that the channel was given and has not settled
        self._base: i64 = 0
        self._held_bytes: i64 = 0
        self._ungranted: i64 = 0

    def restart(self, number: i64) -> None:
        """Restart as the queue's consumer `number`; earlier deliveries cannot be settled."""
        self._base += self.expected - 1
        self.number = number
        self.expected = 1
        self.attached = False
        self.moved = False
        self.asked = 0

    def to_queue(self, first: i64, last: i64) -> tuple[int, int] | None:
        """Translate a range of the channel's delivery numbers; None when all of it is void."""
        if last <= self._base:
            return None
        low = first - self._base
        return (1 if low < 1 else low, last - self._base)

    def room(self, first: i64, last: i64) -> i64:
        """Return how many deliveries the consumer may work on besides those that it holds back.

        Args:
            first: the first of some that it settles, in the channel's numbers.
            last: the last of them; it holds back what it was given before and has not settled.

        Returns:
            0 or less where that cannot be said, or where it has nothing to work on after these.
        """
        left = self.unsettled - (last - first + 1)
        ahead = self._base + self.expected - 1 - last  # some of them may be settled already
        if left <= 0 or ahead <= 0 or self.attachment.prefetch_bytes:
            return 0
        return self.attachment.prefetch - max(0, left - ahead)

    def misses(self, run: DeliveryRun) -> bool:
        """Return whether deliveries before this run have not arrived."""
        return run.first > self.expected

    def accept(self, run: DeliveryRun) -> DeliveryRun | None:
        """Return the new part of a run in the channel's numbers, None when it is all known."""
        count: i64 = len(run.positions)
        known = self.expected - run.first
        if known >= count:
            return None
        positions = run.positions
        redelivered = run.redelivered
        counts = run.counts
        if known > 0:
            positions = positions[known:]
            redelivered = redelivered[known:]
            counts = run.counts_of(known, count)
        fresh = DeliveryRun(
            self.consumer,
            self._base + self.expected,
            run.blob,
            run.base,
            positions,
            redelivered,
            counts,
        )
        self.expected = run.first + count
        self.unsettled += len(positions)
        self._held_bytes += body_bytes(fresh.blob, fresh.base, positions)
        return fresh

    def consumed(self, byte_count: i64) -> i64:
        """Note bytes that left for the socket; return how many to grant now, 0 to wait."""
        self._held_bytes -= byte_count
        self._ungranted += byte_count
        if self._ungranted < DELIVERY_WINDOW_BYTES // 4 and self._held_bytes > 0:
            return 0
        granted = self._ungranted
        self._ungranted = 0
        return granted

    def fresh_window(self) -> i64:
        """Return the window for a feed that starts anew."""
        self._ungranted = 0
        return DELIVERY_WINDOW_BYTES - self._held_bytes
