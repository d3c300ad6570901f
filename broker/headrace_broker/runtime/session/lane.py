"""The two numbered lanes of a session, as its gateway keeps them.

Publishes and control commands (settles, attach, get, ...) are numbered apart, so that a settle
never waits behind publishes. What the queue has not answered yet is kept and sent again after a
leader change; the queue drops what it has seen.

Source: Ongaro, Consensus: Bridging Theory and Practice, section 6.3.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from headrace_broker.codecs.batch import encode_batch, single_head
from headrace_broker.core.queue.command.command import (
    SettleItem,
    encode_enqueue_named,
    encode_enqueue_now,
    encode_settle,
    enqueue_head,
    enqueue_now_head,
    named_ends,
)
from headrace_broker.core.queue.command.large_command import LargeCommand
from headrace_broker.model.limits import COMMAND_BYTES_MAX, LARGE_BYTES, SETTLE_ITEMS_MAX
from headrace_broker.model.message import Publish, Publisher
from headrace_broker.model.ranges import Ranges
from headrace_broker.runtime.contract.answer import Answer
from headrace_broker.runtime.contract.port import PendingConfirm
from headrace_broker.runtime.session.deferred_confirms import DeferredConfirms

MESSAGE_OVERHEAD: Final = 32  # bytes reckoned for a message beside its bytes


@mypyc_attr(acyclic=True)
@final
class PendingPublish:
    """One ENQUEUE command that the queue has not answered."""

    def __init__(
        self, first: i64, last: i64, data: bytes, byte_count: i64, large: LargeCommand | None = None
    ) -> None:
        self.first = first  # number of its first message
        self.last = last  # number of its last message
        self.data = data  # the encoded command, empty where it is large
        self.byte_count = byte_count  # what its messages are reckoned at
        self.large = large  # the command of one large message


def message_cost(publish: Publish) -> i64:
    """Return the charged size of a message in bytes; its size in a command is less."""
    return len(publish.body) + len(publish.properties) + len(publish.route) + MESSAGE_OVERHEAD


@final
class PublishLane:
    """Publishes of one session: gathered, sent as commands, kept until they are applied."""

    def __init__(self, session: int) -> None:
        self.session = session  # its id
        self.next_number: i64 = 1  # of the first message that is not in a command yet
        self.gathered: list[Publish] = []  # not in a command yet, oldest first
        self.gathered_bytes: i64 = 0  # what these are reckoned at
        # commands that are not answered, oldest first
        self.pending: deque[PendingPublish] = deque()
        self.messages: i64 = 0  # how many are gathered or pending
        self.byte_count: i64 = 0  # what these are reckoned at
        self._hand_over_ends: deque[int] = deque()
        self._gathered_now: i64 = 0  # immediate ones among the gathered
        self._pending_confirms: deque[PendingConfirm] = deque()
        self._pending_confirm_ends: deque[int] = deque()
        self._patient = False  # a client waits for confirms
        self._publisher: Publisher | None = None  # who numbers its messages
        self._sequences: list[int] = []  # its numbers of what gathered

    @property
    def hand_over_count(self) -> int:
        """Number of calls of `add` with publishes that are not all applied."""
        return len(self._hand_over_ends)

    def add(self, publishes: list[Publish], pending_confirm: PendingConfirm | None) -> i64:
        """Gather publishes; `pending_confirm` comes back when the last of them is applied.

        Returns:
            The bytes that they are reckoned at.
        """
        byte_count: i64 = 0
        for publish in publishes:
            byte_count += message_cost(publish)
            if publish.immediate:
                self._gathered_now += 1
        self.gathered.extend(publishes)
        self.gathered_bytes += byte_count
        self.messages += len(publishes)
        self.byte_count += byte_count
        end = self.next_number + len(self.gathered) - 1
        self._hand_over_ends.append(end)
        if pending_confirm is not None:
            self._pending_confirms.append(pending_confirm)
            self._pending_confirm_ends.append(end)
            if pending_confirm.patient:
                self._patient = True
        return byte_count

    def number(self, publisher: Publisher, sequences: list[int]) -> None:
        """Set the publisher's numbers of the publishes that are added next."""
        assert self._publisher is not None or not self.gathered, "all publishes have numbers"
        self._publisher = publisher
        self._sequences.extend(sequences)

    def seal(self) -> PendingPublish:
        """Make one command of what gathered (at least one message) and keep it pending.

        Past COMMAND_BYTES_MAX the rest stays gathered: a log entry has a largest size. So do
        messages that are immediate behind some that are not, and the other way round.
        """
        if self.gathered_bytes > COMMAND_BYTES_MAX or self._gathered_now > 0:
            before = self.gathered_bytes
            batch = self._cut(COMMAND_BYTES_MAX)
            return self._seal(batch, before - self.gathered_bytes)
        return self._seal_rest()

    def seal_whole(self) -> PendingPublish:
        """Make one command of all that gathered, whatever its size; none of it is immediate."""
        assert self._gathered_now == 0
        return self._seal_rest()

    def _seal_rest(self) -> PendingPublish:
        batch = self.gathered
        cost = self.gathered_bytes
        self.gathered = []
        self.gathered_bytes = 0
        return self._seal(batch, cost)

    def _seal(self, batch: list[Publish], cost: i64) -> PendingPublish:
        first = self.next_number
        count: i64 = len(batch)
        large: LargeCommand | None = None
        data = b""
        if count == 1 and len(batch[0].body) >= LARGE_BYTES:
            large = self._large(batch[0], first)
        elif batch[0].immediate:
            self._gathered_now -= count
            data = encode_enqueue_now(self.session, first, encode_batch(batch))
        elif self._publisher is not None:
            data = self._encode_named(self._publisher, first, count, encode_batch(batch))
        else:
            data = encode_batch(batch, enqueue_head(self.session, first, self._patient))
        command = PendingPublish(first, first + count - 1, data, cost, large)
        self.next_number = first + count
        self.pending.append(command)
        return command

    def _encode_named(self, publisher: Publisher, first: i64, count: i64, batch: bytes) -> bytes:
        """Encode a batch of the oldest `count` messages that have numbers."""
        rows = self._take_numbers(count)
        return encode_enqueue_named(
            self.session, first, batch, publisher.name, publisher.epoch, rows, self._patient
        )

    def _take_numbers(self, count: i64) -> list[int]:
        """Take the numbers of the oldest `count` messages that have some, as `Ranges.bounds`."""
        rows = Ranges()
        sequences = self._sequences
        for at in range(count):
            number: i64 = sequences[at]
            rows.append(number, number + 1)
        self._sequences = sequences[count:]
        return rows.bounds

    def _large(self, publish: Publish, first: i64) -> LargeCommand:
        """Return the command of one message without copying its body."""
        publisher = self._publisher
        tail = b""
        if publish.immediate:
            self._gathered_now -= 1
            head = enqueue_now_head(self.session, first)
        elif publisher is not None:
            rows = self._take_numbers(1)
            head, tail = named_ends(
                self.session, first, publisher.name, publisher.epoch, rows, self._patient
            )
        else:
            head = enqueue_head(self.session, first, self._patient)
        return LargeCommand([head + single_head(publish), publish.body, tail])

    def _cut(self, bytes_max: i64) -> list[Publish]:
        """Take the oldest messages of one kind that fit into so many bytes, at least one."""
        gathered = self.gathered
        immediate = gathered[0].immediate
        byte_count = message_cost(gathered[0])
        stop: i64 = 1
        while stop < len(gathered) and gathered[stop].immediate == immediate:
            cost = message_cost(gathered[stop])
            if byte_count + cost > bytes_max:
                break
            byte_count += cost
            stop += 1
        self.gathered = gathered[stop:]
        self.gathered_bytes -= byte_count
        return gathered[:stop]

    def newly_applied(self, number: i64) -> i64:
        """Return how many messages `applied(number)` will finish."""
        if not self.pending or number < self.pending[0].first:
            return 0
        return number - self.pending[0].first + 1

    def applied(self, number: i64) -> list[PendingConfirm]:
        """Forget everything up to message `number`; return the tickets that end there or before."""
        pending = self.pending
        while pending and pending[0].last <= number:
            command = pending.popleft()
            self.messages -= command.last - command.first + 1
            self.byte_count -= command.byte_count
        hand_overs = self._hand_over_ends
        while hand_overs and hand_overs[0] <= number:
            hand_overs.popleft()
        done: list[PendingConfirm] = []
        ends = self._pending_confirm_ends
        while ends and ends[0] <= number:
            ends.popleft()
            done.append(self._pending_confirms.popleft())
        return done

    def refuse(self, first: i64, last: i64, fenced: bool) -> None:
        """Note on their pending confirms that the queue refused the messages `first` to `last`.

        When `fenced`, because their publisher has published under a later epoch since.
        """
        for at, pending_confirm in enumerate(self._pending_confirms):
            end: i64 = self._pending_confirm_ends[at]
            start = end - (pending_confirm.last - pending_confirm.first)
            if start > last:
                return
            low = max(first, start)
            high = min(last, end)
            if low <= high:
                pending_confirm.refuse(
                    pending_confirm.first + low - start, pending_confirm.first + high - start
                )
                pending_confirm.fenced = pending_confirm.fenced or fenced

    def defer(self, rows: list[int], holding: DeferredConfirms) -> None:
        """Note what the queue defers of publishes that are not answered, given in rows."""
        unanswered = self.pending[0].first if self.pending else self.next_number
        for at in range(0, len(rows), 2):
            first: i64 = max(rows[at], unanswered)
            stop: i64 = rows[at + 1]
            for pending_confirm, end in zip(
                self._pending_confirms, self._pending_confirm_ends, strict=True
            ):
                start: i64 = end - (pending_confirm.last - pending_confirm.first)
                if start >= stop:
                    break
                low = max(first, start)
                high = min(stop, end + 1)
                if low < high:
                    holding.add(pending_confirm, start, low, high)

    def take_pending_confirms(self) -> list[PendingConfirm]:
        """Give up on everything outstanding and return its pending confirms (the queue is gone)."""
        done = list(self._pending_confirms)
        self._pending_confirms.clear()
        self._pending_confirm_ends.clear()
        self._hand_over_ends.clear()
        self.pending.clear()
        self.messages = 0
        self.byte_count = 0
        self.gathered = []
        self.gathered_bytes = 0
        self._gathered_now = 0
        self._sequences = []
        return done


@final
class PendingControl:
    """One control command that the queue has not answered."""

    def __init__(self, number: i64, data: bytes, future: Answer | None, waited: bool) -> None:
        self.number = number
        self.data = data
        self.future = future  # takes the answer; None for a settle
        self.waited = waited  # a client waits for the answer, and is not to wait for ever


@final
class ControlLane:
    """Control commands of one session; settles are gathered as ranges."""

    def __init__(self, session: int) -> None:
        self.session = session
        self.next_number: i64 = 1
        self.pending: deque[PendingControl] = deque()
        self._gathered: list[SettleItem] = []

    @property
    def gathered(self) -> int:
        """Number of settled ranges waiting to be sent."""
        return len(self._gathered)

    def settle(self, consumer: i64, operation: i64, first: i64, last: i64) -> None:
        """Gather one range, joined to the one before where it continues it."""
        if self._gathered:
            item = self._gathered[-1]
            joins = item.consumer == consumer and item.operation == operation
            if joins and item.last + 1 == first:
                item.last = last
                return
        self._gathered.append(SettleItem(consumer, operation, first, last))

    def seal_settles(self, future: Answer | None = None) -> PendingControl:
        """Make one command of up to SETTLE_ITEMS_MAX gathered ranges and keep it pending."""
        number = self.next_number
        items = self._gathered
        if len(items) > SETTLE_ITEMS_MAX:
            self._gathered = items[SETTLE_ITEMS_MAX:]
            items = items[:SETTLE_ITEMS_MAX]
        else:
            self._gathered = []
        data = encode_settle(self.session, number, items)
        return self.add(data, future)

    def add(self, data: bytes, future: Answer | None, waited: bool = True) -> PendingControl:
        """Keep a command encoded with `next_number` pending and count on."""
        command = PendingControl(self.next_number, data, future, waited)
        self.next_number += 1
        self.pending.append(command)
        return command

    def answered(self, number: i64) -> Answer | None:
        """Forget commands up to `number`; return the future of that very command, if it has one.

        Earlier ones that somebody waits for stay: their answers were lost and have to be repeated.
        """
        future: Answer | None = None
        skipped: list[PendingControl] | None = None
        pending = self.pending
        while pending and pending[0].number <= number:
            command = pending.popleft()
            if command.number == number:
                future = command.future
            elif command.future is not None and not command.future.done():
                if skipped is None:
                    skipped = []
                skipped.append(command)
        if skipped is not None:
            pending.extendleft(reversed(skipped))
        return future

    def awaits(self, number: i64) -> bool:
        """Return whether the answer to command `number` has a waiter."""
        for command in self.pending:
            if command.number == number:
                return command.future is not None and not command.future.done()
        return False

    def take_futures(self) -> list[Answer]:
        """Give up on everything outstanding and return the futures still waited for."""
        waiting = [c.future for c in self.pending if c.future is not None]
        self.pending.clear()
        self._gathered = []
        return waiting
