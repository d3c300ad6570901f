"""Consumers with filters, at the leader of their queue.

The queue's machine gives a filtered consumer nothing by itself. The leader looks for messages that
its filter wants, from the oldest on and in steps of one loop turn, and proposes ACQUIRE of those it
found while the consumer has credit. Consumers with one filter share one cursor, and all queues of a
node share what a turn may take.

Nothing is looked at while no filtered consumer has credit, and nothing twice, but for messages that
became available again. What a filter found may be taken by somebody else before its ACQUIRE is
applied: the machine verifies, and whatever comes back later is looked at anew.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final, final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from headrace_broker.core.filter.selector_lexer import SelectorError
from headrace_broker.core.queue.command.command import ACQUIRE, STAMP_BYTES
from headrace_broker.core.queue.command.leader_command import encode_acquire
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.model.limits import (
    FILTER_ACQUIRE_MAX,
    FILTER_SHARE_MESSAGES,
    FILTER_STEP_MESSAGES,
    FILTERS_IDLE_MAX,
)
from headrace_broker.runtime.contract.queue_log import TAKEN, QueueLog
from headrace_broker.runtime.replica.feeds import Feeds
from headrace_broker.runtime.replica.filter_argument import decode_filter
from headrace_broker.runtime.replica.filter_cursor import FilterCursor, ScanBudget

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("headrace.queue")

Consumer = tuple[int, int]  # session and number


RETRY_SECONDS: Final = 0.1  # until a log that had no room for an ACQUIRE is asked again


def run_soon(step: Callable[[], None], wait: bool) -> None:
    """Run a step in the next loop turn, or after RETRY_SECONDS."""
    loop = asyncio.get_running_loop()
    if wait:
        loop.call_later(RETRY_SECONDS, step)
    else:
        loop.call_soon(step)


@final
class FilterTurns:
    """Turns of the event loop in which the filters of a node look for messages.

    All its queues share the budget of a turn. Each has an equal part of it, in rotation where that
    does not suffice for all. What a message takes beyond the budget is saved in the turns that
    follow, so that others have the loop meanwhile.
    """

    def __init__(self) -> None:
        # runs a step in the next loop turn, or where it is to wait, a little later
        self.later: Callable[[Callable[[], None], bool], None] = run_soon
        self.clock_ns: Callable[[], int] = time.monotonic_ns  # time that never goes back
        self._due: dict[Filtering, None] = {}  # the one that waits longest first
        self._called = False
        self._left: i64 = 0  # messages of the last turn's budget, negative where it was exceeded

    def ask(self, filtering: Filtering) -> None:
        """Schedule the filters of a queue for the next turn; a repetition changes nothing."""
        self._due[filtering] = None
        self._call()

    def _call(self) -> None:
        if not self._called and self._due:
            self._called = True
            self.later(self._turn, False)

    def _turn(self) -> None:
        self._called = False
        self._left = min(self._left, 0) + FILTER_STEP_MESSAGES
        if self._left <= 0:
            self._call()
            return
        budget = ScanBudget(self.clock_ns)
        due, self._due = self._due, {}
        share: i64 = max(FILTER_STEP_MESSAGES // len(due), FILTER_SHARE_MESSAGES)
        try:
            while due and self._left > 0 and not budget.late():
                filtering = next(iter(due))
                del due[filtering]
                part = min(share, self._left)
                budget.messages = part
                filtering.poll(budget)
                self._left -= part - budget.messages
        finally:
            due.update(self._due)  # who was served and wants more comes behind
            self._due = due
            self._call()


@final
class Filtering:
    """The filtered consumers of one queue that is led here."""

    def __init__(
        self,
        queue_log: QueueLog,
        propose: Callable[[bytes], i64],
        turns: FilterTurns | None = None,  # of this node; None for its own
    ) -> None:
        self.turns = FilterTurns() if turns is None else turns  # those in which it looks
        self.messages_read: i64 = 0  # times a message was put to a filter here
        self._log = queue_log  # where the messages' bytes are
        self._feeds = Feeds()  # who is served from here; a consumer without one is forgotten
        self._propose = propose  # appends a command, see `QueueLog.propose`
        self._machine: QueueMachine | None = None
        self._cursors: dict[bytes, FilterCursor] = {}  # by filter, longest without consumer first
        self._filters: dict[Consumer, bytes] = {}
        self._proposed: dict[Consumer, None] = {}  # whose ACQUIRE is not applied yet
        self._retry_due = False

    def open(
        self, machine: QueueMachine, feeds: Feeds, session: i64, consumer: i64, data: bytes
    ) -> None:
        """Serve a consumer with a filter as `encode_filter` gave it; again changes nothing."""
        self._feeds = feeds
        key = (int(session), int(consumer))
        if self._filters.get(key) == data:
            return
        self._close(key)
        cursor = self._cursors.get(data)
        if cursor is None:
            try:
                cursor = FilterCursor(decode_filter(data), self._log, self._schedule)
            except SelectorError as error:
                log.error(
                    "consumer %d of session %d gets no messages, its filter is invalid: %s",
                    consumer,
                    session,
                    error,
                )
                return
            self._cursors[data] = cursor
        cursor.consumers[key] = None
        self._filters[key] = data
        if self._machine is None:
            self._machine = machine
            machine.watch_returned(True)
        self._schedule()

    def _close(self, key: Consumer) -> None:
        """Forget a consumer; the place of its filter is remembered for a while."""
        self._proposed.pop(key, None)
        data = self._filters.pop(key, None)
        if data is None:
            return
        cursor = self._cursors.pop(data)
        del cursor.consumers[key]
        self._cursors[data] = cursor
        idle = [each for each, found in self._cursors.items() if not found.consumers]
        for each in idle[: max(0, len(idle) - FILTERS_IDLE_MAX)]:
            self._cursors.pop(each).close()

    def reset(self) -> None:
        """Forget everything: the queue is led elsewhere."""
        if self._machine is not None:
            self._machine.watch_returned(False)
        self._machine = None
        for cursor in self._cursors.values():
            cursor.close()
        self._cursors.clear()
        self._filters.clear()
        self._proposed.clear()

    def applied(self, data: bytes) -> None:
        """Follow an entry that was applied: messages may have come, and come back, and credit."""
        machine = self._machine
        if machine is None:
            return
        if len(data) > STAMP_BYTES and data[STAMP_BYTES] == ACQUIRE:
            self._acquired(data)
        for message in machine.take_returned():
            for cursor in self._cursors.values():
                cursor.returned(message)
        self._schedule()

    def _acquired(self, data: bytes) -> None:
        start: i64 = STAMP_BYTES + 2
        session = read_i64_be(data, start)
        consumer = i64(read_i32_be(data, start + 8)) & 0xFFFFFFFF
        self._proposed.pop((int(session), int(consumer)), None)

    def _schedule(self) -> None:
        if self._filters:
            self.turns.ask(self)

    def poll(self, budget: ScanBudget) -> None:
        """Scan for consumers with credit, within a turn's budget, and propose the matches.

        Another turn follows by itself only while a consumer has credit and messages are left that
        its filter has not seen, or were found and the log had no room for an ACQUIRE. A filter
        whose next message is read from the disk has another turn when that is there.
        """
        machine = self._machine
        if machine is None:
            return
        open_credits = self._credits(machine)
        unseen = refused = False
        for data in list(open_credits):
            cursor = self._cursors[data]
            waiting = open_credits[data]
            wanted: i64 = 0
            for item in waiting:
                wanted += item[1]
            wanted = min(wanted, FILTER_ACQUIRE_MAX)
            self.messages_read += cursor.advance(machine, wanted, budget)
            if not self._hand_out(cursor, waiting):
                refused = True
            if cursor.reading:
                continue
            if cursor.found_count < wanted and not cursor.is_through(machine):
                unseen = True
        self._rotate(open_credits)
        if unseen:
            self._schedule()
        elif refused and not self._retry_due:
            self._retry_due = True
            self.turns.later(self._retry, True)

    def _retry(self) -> None:
        self._retry_due = False
        self._schedule()

    def _credits(self, machine: QueueMachine) -> dict[bytes, list[tuple[Consumer, i64]]]:
        """Drop unserved consumers; return by filter how many messages each consumer can take."""
        for key in list(self._filters):
            if self._feeds.get(key[0], key[1]) is None:
                self._close(key)
        by_filter: dict[bytes, list[tuple[Consumer, i64]]] = {}
        for key, data in self._filters.items():
            if key not in self._proposed:
                credit = machine.filtered_credit(key[0], key[1])
                if credit > 0:
                    by_filter.setdefault(data, []).append((key, credit))
        return {each: by_filter[each] for each in self._cursors if each in by_filter}

    def _hand_out(self, cursor: FilterCursor, waiting: list[tuple[Consumer, i64]]) -> bool:
        """Share what was found between consumers, in rotation; False when the log had no room."""
        left: i64 = len(waiting)
        for key, credit in waiting:
            share = (cursor.found_count + left - 1) // left
            left -= 1
            taken = cursor.take(min(credit, share))
            if not taken:
                continue
            ids = [each[1] for each in taken]
            if self._propose(encode_acquire(key[0], key[1], ids)) == TAKEN:
                self._proposed[key] = None
            else:
                cursor.put_back(taken)
                return False
        return True

    def _rotate(self, served: dict[bytes, list[tuple[Consumer, i64]]]) -> None:
        """Let the filter served first be the last one next time: a budget serves few of many."""
        for data in served:
            self._cursors[data] = self._cursors.pop(data)
            return
