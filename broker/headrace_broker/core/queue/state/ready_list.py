"""Available messages: by priority and age or turn, by group, and the last values of keys."""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from headrace_broker.core.queue.messages.batch import Batch
from headrace_broker.core.queue.messages.budget import Budget
from headrace_broker.core.queue.messages.effect import Acquired, Effect
from headrace_broker.core.queue.messages.settings import ARCHIVE_NONE, PRIORITY_MAX
from headrace_broker.core.queue.state.archive_row import OUTCOME_PURGED, OUTCOME_REPLACED
from headrace_broker.core.queue.state.consumer import Consumer
from headrace_broker.core.queue.state.fair_lanes import FairLanes, is_fair, look_through
from headrace_broker.core.queue.state.groups import Groups
from headrace_broker.core.queue.state.lane import Lane
from headrace_broker.core.queue.state.live_entries import LiveEntries
from headrace_broker.core.queue.state.page import Page

KEY_GROUP: Final = b"G"  # first byte of the key of a message that belongs to a group
KEY_LAST_VALUE: Final = b"L"  # of one that a newer one with the same key replaces
_LAST_VALUE: Final = 0x4C


@final
class ReadyList:
    """Available messages, and which log entries still hold anything that is needed."""

    def __init__(self) -> None:
        self.count: i64 = 0  # available messages
        self.byte_count: i64 = 0  # of their bodies
        self.next_id: i64 = 1  # id of the next message to arrive
        self.entries = LiveEntries()  # log entries that are held by more than one waiting batch
        self.fair = FairLanes(self.entries)  # messages that wait by a header's value
        self.lanes: list[Lane] = []  # of messages that wait by age, by ascending priority
        # pages that hold entries of no waiting messages; None, as mostly, where there are none
        self.purged: deque[Page] | None = None
        self.groups = Groups()  # messages that belong to a group; they know no priority
        self.last_values: dict[bytes, int] = {}  # key -> id of its one available message
        self.returned: list[Acquired] = []  # that became available otherwise than by arrival
        self.watched = False
        self._top: i64 = -1  # highest priority with messages, -1 when there is none
        # the lanes by priority, up to the highest that was used: most queues use one
        self._slots: list[Lane | None] = []

    # In

    def append(self, batch: Batch, priority: i64, key: bytes) -> None:
        """Put a batch behind all messages of its priority, or of a fair key there."""
        lane = self.fair.lane(key, priority, self._slot(priority)) if key else self.lane(priority)
        lane.append(batch)
        if self.fair.count > 0:
            self.fair.grown(lane)
        self.count += batch.stop - batch.next
        self.byte_count += batch.byte_count
        if priority > self._top:
            self._top = priority

    def add(self, message: Acquired) -> None:
        """Put a message where it belongs by its id; a last value must have no other beside it."""
        key = message.key
        if key.startswith(KEY_GROUP):
            self.groups.add(message)
        else:
            priority = message.priority
            if is_fair(key):
                lane = self.fair.lane(key, priority, self._slot(priority))
                message.key = lane.key
            else:
                lane = self.lane(priority)
                if key:
                    self.last_values[key] = message.message_id
            lane.add(message)
            if self.fair.count > 0:
                self.fair.grown(lane)
            if priority > self._top:
                self._top = priority
        self.count += 1
        self.byte_count += message.byte_count

    def give_back(self, message: Acquired, effects: list[Effect]) -> None:
        """Put a message that was taken where it stood; forget it when a newer value waits."""
        if message.key in self.last_values:
            self.entries.archive_message(message, OUTCOME_REPLACED, effects)
            return
        self.add(message)
        if self.watched:
            self.returned.append(message)

    def replace(self, message: Acquired, effects: list[Effect]) -> bool:
        """Put a last value in the place of the waiting one with its key; False when none waits."""
        message_id = self.last_values.get(message.key)
        if message_id is None:
            return False
        old = self.pop(message_id)
        assert old is not None, "a last value is available"
        message.message_id = message_id
        self.add(message)
        if self.watched:
            self.returned.append(message)
        self.entries.archive_message(old, OUTCOME_REPLACED, effects)
        return True

    def refuse(self, message: Acquired) -> None:
        """Put back a message that ACQUIRE named and whose group is another consumer's."""
        self.add(message)
        if self.watched:
            self.groups.groups[message.key].refused.append(message.message_id)

    def settled(self, message: Acquired) -> None:
        """Note that a message with a group was settled or returned."""
        freed = self.groups.settled(message)
        if self.watched:
            self.returned.extend(freed)

    # Out

    def take(self, wanted: i64, into: list[Acquired], now_ms: i64) -> i64:
        """Move up to `wanted` ungrouped messages to `into`, in order; return how many.

        It ends before a message that should not wait any more at `now_ms`.
        """
        left = wanted
        while left > 0 and self._top >= 0:
            fair = self.fair.first(self._top) if self.fair.count > 0 else None
            lane = self.lane(self._top) if fair is None else fair
            some = min(left, lane.count)
            if fair is not None and lane.behind is not lane:
                some = 1  # the next one is another's
            before = lane.byte_count
            taken = lane.take(some, into, now_ms)
            self.byte_count -= before - lane.byte_count
            self.count -= taken
            left -= taken
            if fair is not None and taken > 0:
                self.fair.served(lane)
            self._lower_top()
            if taken < some:
                break
        if self.last_values:
            self._unlist(into)
        return wanted - left

    def take_for(self, consumer: Consumer) -> Acquired | None:
        """Take the first message that a consumer may have, with a group or without."""
        group_id = self.groups.first_for(consumer)
        if self._top >= 0:
            lane = self._next_lane()
            if self._top > 0 or group_id == 0 or lane.first_id() < group_id:
                taken: list[Acquired] = []
                self.take(1, taken, 0)
                return taken[0]
        return self.pop(group_id) if group_id > 0 else None

    def _next_lane(self) -> Lane:
        """Return the lane of the message that would go next; there must be one."""
        fair = self.fair.first(self._top) if self.fair.count > 0 else None
        return self.lane(self._top) if fair is None else fair

    def take_lowest(self, by_bytes: bool) -> Acquired:
        """Take the oldest message of the lowest priority; there must be one.

        Where values take turns there, it is the oldest of the one of which most messages wait, or
        most bytes of bodies: who fills a queue pays for it.
        """
        message: Acquired | None = None
        lane = self._lowest_lane(by_bytes)
        if lane is None:
            message = self.pop(self.groups.loose.first_id())
        else:
            message = lane.pop(lane.first_id())
            if message is not None:
                self._note_popped(lane, message)
        assert message is not None, "the count says that there is one"
        return message

    def _lowest_lane(self, by_bytes: bool) -> Lane | None:
        if self.fair.count == 0:
            for lane in self.lanes:
                if lane.count > 0:
                    return lane
            return None
        for priority in range(PRIORITY_MAX + 1):
            found = self.fair.longest(priority, by_bytes)
            if found is None:
                found = self._slot(priority)
            if found is not None and found.count > 0:
                return found
        return None

    def pop(self, message_id: i64) -> Acquired | None:
        """Take the message with an id out; None where it is not available."""
        message = self.groups.pop(message_id)
        if message is not None:
            self.count -= 1
            self.byte_count -= message.byte_count
            return message
        for lane in self.lanes:
            if lane.count > 0:
                message = lane.pop(message_id)
                if message is not None:
                    self._note_popped(lane, message)
                    return message
        if self.fair.count > 0:
            for lane in self.fair.of_values():
                if lane.spans(message_id):
                    message = lane.pop(message_id)
                    if message is not None:
                        self._note_popped(lane, message)
                        return message
        return None

    def _note_popped(self, lane: Lane, message: Acquired) -> None:
        """Note that a message was taken out of a lane, wherever it stood there."""
        self.count -= 1
        self.byte_count -= message.byte_count
        if self.fair.count > 0:
            self.fair.left(lane)
        self._lower_top()
        self._unlist([message])

    def purge(self, effects: list[Effect]) -> i64:
        """Forget every available message; return how many there were."""
        removed = self.count
        loose = self.groups.clear()
        pages: list[Page] = []
        loose.extend(self.fair.clear(pages))
        for lane in self.lanes:
            loose.extend(lane.clear(pages))
        self.add_purged(pages)
        for message in loose:
            self.entries.archive_message(message, OUTCOME_PURGED, effects)
        self.last_values.clear()
        self.count = 0
        self.byte_count = 0
        self._top = -1
        return removed

    def add_purged(self, pages: list[Page]) -> None:
        """Keep pages, until `let_go_purged`, that hold entries of no waiting messages."""
        if self.purged is None and pages:
            self.purged = deque()
        if self.purged is not None:
            self.purged.extend(pages)

    def let_go_purged(self, budget: Budget, whole: bool, effects: list[Effect]) -> None:
        """Let go of entries that were purged, page by page, as the budget goes or all of them."""
        purged = self.purged
        if purged is None:
            return
        while purged and (whole or not budget.spent()):
            if self.entries.archived.mode != ARCHIVE_NONE:
                self._archive_purged(purged, budget, effects)
                continue
            for batch in purged.popleft().waiting():
                budget.spend(0)
                self.entries.archive_batch(batch, effects)
        if not purged:
            self.purged = None

    def _archive_purged(self, purged: deque[Page], budget: Budget, effects: list[Effect]) -> None:
        """Keep rows of the first batch that was purged, which may have many messages."""
        page = purged[0]
        page.open()
        batch = page.head_batch()
        for _ in range(batch.count):
            budget.spend(0)
        self.entries.archive_batch(batch, effects)
        page.count -= batch.count
        batch.next = batch.stop
        if page.count == 0:
            purged.popleft()

    def _unlist(self, taken: list[Acquired]) -> None:
        """Note that messages are no longer the ready last values of their keys."""
        for message in taken:
            key = message.key
            if key and key[0] == _LAST_VALUE and self.last_values.get(key) == message.message_id:
                del self.last_values[key]

    # Time

    @property
    def expires_ms(self) -> i64:
        """Earliest time at which a message may expire, 0 for none; may be too early."""
        soonest = self.groups.expires_ms
        if self.fair.count > 0:
            fair = self.fair.expires_ms()
            if fair > 0 and (soonest == 0 or fair < soonest):
                soonest = fair
        for lane in self.lanes:
            if lane.count > 0:
                expires = lane.expires_ms
                if expires > 0 and (soonest == 0 or expires < soonest):
                    soonest = expires
        return soonest

    def is_overdue(self, now_ms: i64) -> bool:
        """Return whether the next message expired before `now_ms`."""
        if self.groups.loose.messages and 0 < self.groups.expires_ms < now_ms:
            return True
        return self._top >= 0 and self._next_lane().is_overdue(now_ms)

    def take_expired(self, now_ms: i64, budget: Budget, heads: bool) -> list[Acquired]:
        """Take messages that have expired: those at the front, or any, as the budget goes."""
        taken: list[Acquired] = []
        lanes = [lane for lane in self.lanes if lane.count > 0]
        if self.fair.count > 0:
            lanes.extend(self.fair.pop_due(now_ms))
        for lane in lanes:
            if heads:
                lane.take_expired_head(now_ms, budget, taken)
            else:
                lane.take_expired(now_ms, budget, taken)
        if self.fair.count > 0:
            self.fair.looked_at(lanes)
        self.groups.take_expired(now_ms, budget, taken)
        if taken:
            self.count -= len(taken)
            for message in taken:
                self.byte_count -= message.byte_count
            self._lower_top()
            self._unlist(taken)
        return taken

    # Looking

    def browse(self, after_id: i64, limit: i64) -> list[Acquired]:
        """Return up to `limit` messages with ids above `after_id`, by their ids."""
        found = self.groups.loose.after(after_id, limit)
        for lane in self.lanes:
            if lane.count > 0:
                lane.browse(after_id, limit, found)
        if self.fair.count > 0:
            found.extend(look_through(self.fair.of_values(), after_id, limit))
        found.sort(key=_id)
        return found[:limit]

    def oldest_ms(self) -> i64:
        """Return when the oldest available message arrived, 0 when there is none."""
        oldest: i64 = 0
        lanes = self.lanes
        if self.fair.count > 0:
            lanes = [*lanes, *self.fair.of_values()]
        for lane in lanes:
            if lane.count > 0:
                arrived = lane.oldest_ms()
                if oldest == 0 or arrived < oldest:
                    oldest = arrived
        first = self.groups.loose.messages.get(self.groups.loose.first_id())
        if first is not None and (oldest == 0 or first.arrived_ms < oldest):
            oldest = first.arrived_ms
        return oldest

    def lane(self, priority: i64) -> Lane:
        """Return the lane of a priority."""
        lane = self._slot(priority)
        if lane is None:
            lane = Lane(priority, b"", self.entries)
            while len(self._slots) <= priority:
                self._slots.append(None)
            self._slots[priority] = lane
            self.lanes = [each for each in self._slots if each is not None]
        return lane

    def _slot(self, priority: i64) -> Lane | None:
        return self._slots[priority] if priority < len(self._slots) else None

    def find_top(self) -> None:
        """Find the highest priority with messages."""
        self._top = PRIORITY_MAX
        self._lower_top()

    def _lower_top(self) -> None:
        while self._top >= 0:
            lane = self._slot(self._top)
            if lane is not None and lane.count > 0:
                return
            if self.fair.count > 0 and self.fair.first(self._top) is not None:
                return
            self._top -= 1


def _id(message: Acquired) -> int:
    return message.message_id
