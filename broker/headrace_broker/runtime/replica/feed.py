"""The leader's side of one consumer: acquired messages on their way, within a window."""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64

from headrace_broker.codecs.batch import body_bytes
from headrace_broker.core.queue.command.command import ENQUEUE_BATCH_OFFSET
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.core.queue.messages.effect import Acquired, Got
from headrace_broker.core.queue.state.delivery import EntryGroup, group_by_entry
from headrace_broker.model.message import DeliveryRun
from headrace_broker.runtime.contract.lane_port import SessionEnd, SessionTransport
from headrace_broker.runtime.contract.queue_log import QueueLog


def cut_run(consumer: i64, group: EntryGroup, entry: bytes) -> DeliveryRun:
    """Return what a consumer gets of one entry of the log."""
    return DeliveryRun(
        consumer,
        group.first,
        entry,
        ENQUEUE_BATCH_OFFSET,
        group.positions,
        group.redelivered,
        group.counts,
    )


@final
class Gets:
    """Answers to basic.get, which wait here for the entries that hold their messages.

    A message that waits is unsettled, so it stays in the log unless its session ends. A session has
    one for each get that it waits for; who hears nothing asks again, and is answered once.
    """

    def __init__(self, log: QueueLog, reach: SessionTransport) -> None:
        self._log = log
        self._reach = reach
        self._waiting: dict[tuple[int, int], Got] = {}  # by session and number of the command

    @property
    def waiting_count(self) -> int:
        """Number of answers that wait for the disk."""
        return len(self._waiting)

    def answer(self, effect: Got) -> None:
        """Answer one, now or when its message was read."""
        if not self._send(effect):
            self._waiting[(int(effect.session), int(effect.seq))] = effect

    def forget(self) -> None:
        """Drop all waiting gets: another replica leads, and will be asked."""
        if self._waiting:
            self._waiting.clear()
            self._log.give_up(self._read)

    def _read(self) -> None:
        """Continue with an entry that was read from the disk."""
        for key, effect in list(self._waiting.items()):
            try:
                sent = self._send(effect)
            except KeyError:  # its session has ended, and others had the message since
                sent = True
            if sent:
                self._waiting.pop(key, None)

    def _send(self, effect: Got) -> bool:
        """Answer one; False while its message is being read."""
        end = self._reach.session(effect.session)
        if end is None:
            return True
        run: DeliveryRun | None = None
        message = effect.message
        if message is not None:
            entry = self._log.entry_at_hand(message.entry_index, self._read)
            if entry is None:
                return False
            run = cut_run(0, group_by_entry(effect.delivery, [message])[0], entry)
        end.got(effect.seq, run, effect.ready_left)
        return True


@final
class Feed:
    """Sends deliveries in order while the gateway has room for their bodies.

    The window may be overdrawn by one run, so that a message larger than it still passes.
    """

    def __init__(self, consumer: i64, window: i64, log: QueueLog, machine: QueueMachine) -> None:
        self.consumer = consumer  # number of the consumer within its session
        self.window = window  # bytes of bodies the gateway has room for; negative: overdrawn
        self._log = log
        self._machine = machine
        self.ended = False  # nothing is sent any more: the consumer has gone or moved
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

    def repeat(self, held: list[tuple[int, Acquired]], to: SessionEnd) -> None:
        """Take deliveries that were made before, with their numbers, and send what fits."""
        start = 0
        while start < len(held):  # numbers have gaps where messages in between are settled
            stop = start + 1
            while stop < len(held) and held[stop][0] == held[stop - 1][0] + 1:
                stop += 1
            self.deliver(held[start][0], [pair[1] for pair in held[start:stop]], to)
            start = stop

    def open(self, byte_count: i64, to: SessionEnd) -> None:
        """Make room for `byte_count` more and send what fits now."""
        self.window += byte_count
        self._drain(to)

    def end(self) -> None:
        """Stop sending."""
        self.ended = True
        if self._reading:
            self._log.give_up(self._read)

    def _read(self) -> None:
        """Continue with an entry that was read from the disk."""
        self._reading = False
        if self._to is not None and not self.ended:
            self._drain(self._to)

    def _drain(self, to: SessionEnd) -> None:
        self._to = to
        while self._waiting and self.window > 0 and not self._reading:
            group = self._waiting[0]
            try:
                entry = self._log.entry_at_hand(group.entry_index, self._read)
            except KeyError:
                # Settled while it waited here, by a gateway that had it from an earlier leader.
                assert not self._machine.holds_out(group.entry_index), "a live message is gone"
                self._waiting.popleft()
                continue
            if entry is None:
                self._reading = True
                return
            self._waiting.popleft()
            run = cut_run(self.consumer, group, entry)
            byte_count = body_bytes(run.blob, run.base, run.positions)
            if byte_count > self.window and len(group.positions) > 1:
                run = self._split(group, run)
                byte_count = body_bytes(run.blob, run.base, run.positions)
            self.window -= byte_count
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
