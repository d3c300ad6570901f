"""Progress of a filter through a queue, and its matches."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from headrace_broker.codecs.batch import message_start, properties_start
from headrace_broker.core.filter.selector import Filter
from headrace_broker.core.queue.command.command import ENQUEUE_BATCH_OFFSET
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.model.limits import (
    FILTER_RETURNED_MAX,
    FILTER_STEP_BYTES,
    FILTER_STEP_MESSAGES,
    FILTER_STEP_MS,
    FILTER_STEPS_OF_MESSAGE,
)
from headrace_broker.runtime.contract.queue_log import QueueLog

if TYPE_CHECKING:
    from collections.abc import Callable

_AHEAD_MIN: Final = 16


@final
class ScanBudget:
    """Budget of one loop turn for filters."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self.messages: i64 = FILTER_STEP_MESSAGES  # that the queue may put to filters now
        self.byte_count: i64 = FILTER_STEP_BYTES  # of log entries that all may read for it
        self._clock_ns = clock_ns  # time that never goes back
        self._until_ns: i64 = clock_ns() + FILTER_STEP_MS * 1_000_000

    def spent(self) -> bool:
        """Return whether the rest of this queue has to wait."""
        return self.messages <= 0 or self.late()

    def late(self) -> bool:
        """Return whether the rest of all queues has to wait."""
        return self.byte_count <= 0 or self._clock_ns() >= self._until_ns


@final
class FilterCursor:
    """One filter on one queue, at its leader.

    Every message is put to the filter once when the cursor passes it, and once more whenever it
    becomes available again behind the cursor.
    """

    def __init__(self, wanted: Filter, log: QueueLog, on_read: Callable[[], None]) -> None:
        self.reading = False  # the next message has to be read from the disk first
        self._on_read = on_read  # called when the entry it waited for was read, or not
        self.position: i64 = 0  # messages with ids up to this one were looked at
        self.consumers: dict[tuple[int, int], None] = {}  # (session, number) that want this
        self._filter = wanted  # the filter
        self._log = log  # has the messages
        self._found: list[tuple[int, int]] = []  # heap: higher priorities first, then older ones
        self._returned: dict[int, Acquired] = {}
        self._ahead: i64 = _AHEAD_MIN  # messages to ask for at once: more where few are wanted
        self._looked_at: i64 = 0  # messages that were ever put to the filter
        self._entry_index: i64 = -1
        self._entry = b""

    @property
    def found_count(self) -> int:
        """Number of messages that were found and not taken yet."""
        return len(self._found)

    def returned(self, message: Acquired) -> None:
        """Take note that a message is available again; one ahead of the cursor is met anyway."""
        if message.message_id > self.position:
            return
        self._returned[message.message_id] = message
        if len(self._returned) > FILTER_RETURNED_MAX:
            self.position = 0
            self._returned.clear()
            self._found.clear()

    def is_through(self, machine: QueueMachine) -> bool:
        """Return whether every message of the queue was evaluated."""
        return not self._returned and self.position >= machine.last_id

    def close(self) -> None:
        """Stop the scan."""
        if self.reading:
            self._log.give_up(self._read)

    def _read(self) -> None:
        self.reading = False
        self._on_read()

    def take(self, count: i64) -> list[tuple[int, int]]:
        """Take up to `count` that were found, in order, as (negative priority, message id)."""
        return [heappop(self._found) for _ in range(min(count, len(self._found)))]

    def put_back(self, taken: list[tuple[int, int]]) -> None:
        """Take back unused results of `take`."""
        for each in taken:
            heappush(self._found, each)

    def advance(self, machine: QueueMachine, wanted: i64, budget: ScanBudget) -> i64:
        """Scan until `wanted` messages are found, all were evaluated, or the budget is spent.

        It also ends where the next message has to be read from the disk; see `reading`. Returns how
        many messages were put to the filter.
        """
        before = self._looked_at
        while self._returned and self._looks_on(wanted, budget):
            message_id = next(iter(self._returned))
            if self._look_at(self._returned[message_id], budget):
                del self._returned[message_id]
        while not self._returned and self._looks_on(wanted, budget):
            if self.position >= machine.last_id:
                break
            found = len(self._found)
            room: i64 = min(budget.messages, max(self._ahead, wanted - found))
            messages = machine.available_from(self.position, room)
            for message in messages:
                if not self._looks_on(wanted, budget) or not self._look_at(message, budget):
                    break
                self.position = message.message_id
            else:
                if len(messages) < room:
                    self.position = machine.last_id
            rare = len(self._found) == found
            self._ahead = min(2 * self._ahead, FILTER_STEP_MESSAGES) if rare else _AHEAD_MIN
        self._entry_index = -1
        self._entry = b""
        return self._looked_at - before

    def _looks_on(self, wanted: i64, budget: ScanBudget) -> bool:
        return not self.reading and len(self._found) < wanted and not budget.spent()

    def _look_at(self, message: Acquired, budget: ScanBudget) -> bool:
        """Put a message to the filter; False where it has to be read first."""
        if message.entry_index != self._entry_index:
            try:
                entry = self._log.entry_at_hand(message.entry_index, self._read)
            except KeyError:  # it was settled, expired or removed since it came back
                budget.messages -= 1
                self._looked_at += 1
                return True
            if entry is None:
                self.reading = True
                return False
            self._entry = entry
            self._entry_index = message.entry_index
            budget.byte_count -= len(entry)
        self._looked_at += 1
        start = message_start(self._entry, ENQUEUE_BATCH_OFFSET, message.position)
        if self._filter.matches(self._entry, properties_start(self._entry, start)):
            heappush(self._found, (-int(message.priority), int(message.message_id)))
        budget.messages -= 1 + self._filter.work // FILTER_STEPS_OF_MESSAGE
        return True
