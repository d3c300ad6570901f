"""The leader's side of one consumer: acquired messages on their way, within a window."""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64

from headrace_broker.codecs.batch import body_bytes
from headrace_broker.core.queue.command import ENQUEUE_BATCH_OFFSET
from headrace_broker.core.queue.delivery import EntryGroup, group_by_entry
from headrace_broker.core.queue.effect import Acquired
from headrace_broker.core.queue.queue_machine import QueueMachine
from headrace_broker.model.message import DeliveryRun
from headrace_broker.runtime.lane_port import SessionEnd
from headrace_broker.runtime.queue_log import QueueLog


def cut_run(consumer: i64, group: EntryGroup, log: QueueLog) -> DeliveryRun:
    """Return what a consumer gets of one entry of the log.

    Raises:
        KeyError: the entry was forgotten.
    """
    return DeliveryRun(
        consumer,
        group.first,
        log.entry_data(group.entry_index),
        ENQUEUE_BATCH_OFFSET,
        group.positions,
        group.redelivered,
        group.counts,
    )


@final
class Feed:
    """Sends deliveries in order while the gateway has room for their bodies.

    The window may be overdrawn by one run, so that a message larger than it still passes.

    Attributes:
        consumer: number of the consumer within its session.
        window: octets of bodies that the gateway still has room for; negative when overdrawn.
        ended: nothing is sent any more: the consumer has gone, or is served elsewhere.
    """

    def __init__(self, consumer: i64, window: i64, log: QueueLog, machine: QueueMachine) -> None:
        self.consumer = consumer
        self.window = window
        self._log = log
        self._machine = machine
        self.ended = False
        self._waiting: deque[EntryGroup] = deque()
        self._to: SessionEnd | None = None
        self._reading = False

    @property
    def waiting_count(self) -> int:
        """Number of runs held back by the window; their messages are bounded by the prefetch."""
        return len(self._waiting)

    def deliver(self, first: i64, acquired: list[Acquired], to: SessionEnd) -> None:
        """Take consecutive deliveries beginning with number `first` and send what fits."""
        for group in group_by_entry(first, acquired):
            self._waiting.append(group)
        self._drain(to)

    def open(self, octets: i64, to: SessionEnd) -> None:
        """Make room for `octets` more and send what fits now."""
        self.window += octets
        self._drain(to)

    def _read(self) -> None:
        """Go on with what had to be read from the disk."""
        self._reading = False
        if self._to is not None and not self.ended:
            self._drain(self._to)

    def _drain(self, to: SessionEnd) -> None:
        self._to = to
        while self._waiting and self.window > 0 and not self._reading:
            if not self._log.prepare(self._waiting[0].entry_index, self._read):
                self._reading = True
                return
            group = self._waiting.popleft()
            try:
                run = cut_run(self.consumer, group, self._log)
            except KeyError:
                # Settled while it waited here, by a gateway that had it from an earlier leader.
                assert not self._machine.holds_out(group.entry_index), "a live message is gone"
                continue
            octets = body_bytes(run.blob, run.base, run.positions)
            if octets > self.window and len(group.positions) > 1:
                run = self._split(group, run)
                octets = body_bytes(run.blob, run.base, run.positions)
            self.window -= octets
            to.run(run)

    def _split(self, group: EntryGroup, run: DeliveryRun) -> DeliveryRun:
        """Cut a run where the window ends; the rest goes back to the front of the line."""
        fits: i64 = 0
        room = self.window
        while room > 0:
            room -= body_bytes(run.blob, run.base, [group.positions[fits]])
            fits += 1
        head = DeliveryRun(
            run.consumer,
            run.first,
            run.blob,
            run.base,
            group.positions[:fits],
            group.redelivered[:fits],
            run.counts_of(0, fits),
        )
        if fits < len(group.positions):
            self._waiting.appendleft(
                EntryGroup(
                    group.entry_index,
                    group.first + fits,
                    group.positions[fits:],
                    group.redelivered[fits:],
                    run.counts_of(fits, len(group.positions)),
                )
            )
        return head
