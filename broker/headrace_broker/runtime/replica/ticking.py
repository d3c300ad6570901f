"""Schedule of TICKs at the leader of a queue."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import TICK_HELD_MS_MAX, TIMER_STEP_MS
from headrace_broker.runtime.contract.host_watcher import HostWatcher
from headrace_broker.runtime.replica.queue_time import QueueTime

NEVER_MS: Final = 1 << 62  # later than any stamp


@final
class Ticking:
    """Asks the node for a call at the right time, and decides then whether to propose a TICK.

    At most one TICK is in the log and not applied. What costs: nothing for a queue that has nothing
    to wait for, and a comparison for each command of one that has.
    """

    def __init__(self, queue: Queue, watcher: HostWatcher, time: QueueTime) -> None:
        self._queue = queue
        self._watcher = watcher
        self._time = time
        self._armed_ms: i64 = 0  # when the node calls, 0 for not
        self._due_ms: i64 = NEVER_MS  # for what it calls, of the queue's time
        self._under_way = False
        self._held_since_ms: i64 = 0  # since when dead letters must leave first, 0 for not

    def arm(self, due_ms: i64) -> None:
        """Ask to be called when it is `due_ms` for the queue (0: never), or soon after."""
        if due_ms > 0 and not self._under_way and (self._armed_ms == 0 or due_ms < self._due_ms):
            self._arm(due_ms, self._time.node_ms(due_ms))

    def _arm(self, due_ms: i64, node_ms: i64) -> None:
        step = -(-node_ms // TIMER_STEP_MS) * TIMER_STEP_MS
        if self._armed_ms == 0 or step < self._armed_ms:
            self._wake_at(step)
        self._due_ms = due_ms

    def is_time(self, due_ms: i64, now_ms: i64, sends_dead_letters: bool, unread: bool) -> bool:
        """Return whether to propose a TICK for what is due (0: never) at the node's time.

        While the dead letters of the queue, or of the node, cannot leave fast enough, or are
        unread, what would make more of them waits, but not longer than TICK_HELD_MS_MAX.
        """
        self._armed_ms = 0
        if self._under_way or due_ms == 0:
            return False
        wake_ms = self._time.node_ms(due_ms)
        if wake_ms > now_ms:
            self._arm(due_ms, wake_ms)
            return False
        if unread or (sends_dead_letters and self._watcher.dead_letters_congested(self._queue)):
            if self._held_since_ms == 0:
                self._held_since_ms = now_ms
            if now_ms - self._held_since_ms < TICK_HELD_MS_MAX:
                self._wake_at(now_ms + TIMER_STEP_MS)
                return False
        else:
            self._held_since_ms = 0
        return True

    def proposed(self, taken: bool, now_ms: i64) -> None:
        """Note what the log said to a TICK; one that it did not take is proposed a step later."""
        if taken:
            self._under_way = True
        else:
            self._wake_at(now_ms + TIMER_STEP_MS)

    def applied(self) -> None:
        """Note that a TICK was applied."""
        self._under_way = False

    def _wake_at(self, step: i64) -> None:
        self._armed_ms = step
        self._due_ms = NEVER_MS
        self._watcher.queue_due(self._queue, step)
