"""Available messages: by priority and age, by group, and which is the last value of a key."""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from headrace_broker.core.queue.batch import Batch
from headrace_broker.core.queue.budget import Budget
from headrace_broker.core.queue.effect import Acquired, Effect
from headrace_broker.core.queue.groups import Groups
from headrace_broker.core.queue.lane import Lane
from headrace_broker.core.queue.live_entries import LiveEntries
from headrace_broker.core.queue.page import Page
from headrace_broker.core.queue.session import Consumer
from headrace_broker.core.queue.settings import PRIORITY_MAX

KEY_GROUP: Final = b"G"  # first octet of the key of a message that belongs to a group
KEY_LAST_VALUE: Final = b"L"  # of one that a newer one with the same key replaces
_LAST_VALUE: Final = 0x4C


@final
class ReadyList:
    """Available messages, and which log entries still hold anything that is needed.

    Attributes:
        count: available messages.
        octets: of their bodies.
        next_id: id of the next message to arrive.
        entries: log entries that are held by more than one waiting batch.
        lanes: those that there are, in ascending order of their priorities.
        purged: pages of batches that wait no more, and hold their entries for a while.
        groups: messages that belong to a group; they know no priority.
        last_values: key -> id of the one available message with that key.
        returned: messages that became available otherwise than by their arrival, while watched.
    """

    def __init__(self) -> None:
        self.count: i64 = 0
        self.octets: i64 = 0
        self.next_id: i64 = 1
        self.entries = LiveEntries()
        self.lanes: list[Lane] = []
        self.purged: deque[Page] = deque()
        self.groups = Groups()
        self.last_values: dict[bytes, int] = {}
        self.returned: list[Acquired] = []
        self.watched = False
        self._top: i64 = -1  # highest priority with messages, -1 when there is none
        self._slots: list[Lane | None] = [None] * (PRIORITY_MAX + 1)  # the lanes by priority

    # In

    def append(self, batch: Batch, priority: i64) -> None:
        """Put a batch behind all messages of its priority."""
        self.lane(priority).append(batch)
        self.count += batch.stop - batch.next
        self.octets += batch.octets
        if priority > self._top:
            self._top = priority

    def add(self, message: Acquired) -> None:
        """Put a message where it belongs by its id; a last value must have no other beside it."""
        key = message.key
        if key.startswith(KEY_GROUP):
            self.groups.add(message)
        else:
            if key:
                self.last_values[key] = message.message_id
            self.lane(message.priority).add(message)
            if message.priority > self._top:
                self._top = message.priority
        self.count += 1
        self.octets += message.octets

    def give_back(self, message: Acquired, effects: list[Effect]) -> None:
        """Put a message that was taken where it stood; forget it when a newer value waits."""
        if message.key in self.last_values:
            self.entries.archive_message(message, effects)
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
        self.entries.archive_message(old, effects)
        return True

    def refuse(self, message: Acquired) -> None:
        """Put back a message that ACQUIRE named and whose group is another consumer's."""
        self.add(message)
        if self.watched:
            self.groups.groups[message.key].refused.append(message.message_id)

    def settled(self, message: Acquired) -> None:
        """Note that a message with a group is not unsettled any more."""
        freed = self.groups.settled(message)
        if self.watched:
            self.returned.extend(freed)

    # Out

    def take(self, wanted: i64, into: list[Acquired], now_ms: i64) -> i64:
        """Move up to `wanted` messages without a group, the first ones first, to `into`.

        Returns:
            How many: it ends before a message that should not wait any more at `now_ms`.
        """
        left = wanted
        while left > 0 and self._top >= 0:
            lane = self.lane(self._top)
            some = min(left, lane.count)
            before = lane.octets
            taken = lane.take(some, into, now_ms)
            self.octets -= before - lane.octets
            self.count -= taken
            left -= taken
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
            lane = self.lane(self._top)
            if self._top > 0 or group_id == 0 or lane.first_id() < group_id:
                taken: list[Acquired] = []
                self.take(1, taken, 0)
                return taken[0]
        return self.pop(group_id) if group_id > 0 else None

    def take_lowest(self) -> Acquired:
        """Take the oldest message of the lowest priority; there must be one."""
        for lane in self.lanes:
            if lane.count > 0:
                message = self.pop(lane.first_id())
                break
        else:
            message = self.pop(self.groups.loose.first_id())
        assert message is not None, "the count says that there is one"
        return message

    def pop(self, message_id: i64) -> Acquired | None:
        """Take the message with an id out; None where it is not available."""
        message = self.groups.pop(message_id)
        if message is None:
            for lane in self.lanes:
                if lane.count > 0:
                    message = lane.pop(message_id)
                    if message is not None:
                        break
        if message is None:
            return None
        self.count -= 1
        self.octets -= message.octets
        self._lower_top()
        self._unlist([message])
        return message

    def purge(self, effects: list[Effect]) -> i64:
        """Forget every available message; return how many there were."""
        removed = self.count
        loose = self.groups.clear()
        for lane in self.lanes:
            loose.extend(lane.clear(self.purged))
        for message in loose:
            self.entries.archive_message(message, effects)
        self.last_values.clear()
        self.count = 0
        self.octets = 0
        self._top = -1
        return removed

    def let_go_purged(self, budget: Budget, whole: bool, effects: list[Effect]) -> None:
        """Let go of entries that were purged, page by page, as the budget goes or all of them."""
        while self.purged and (whole or not budget.spent()):
            for batch in self.purged.popleft().waiting():
                budget.spend(0)
                self.entries.archive_batch(batch, effects)

    def _unlist(self, taken: list[Acquired]) -> None:
        """Note that messages are not the waiting last values of their keys any more."""
        for message in taken:
            key = message.key
            if key and key[0] == _LAST_VALUE and self.last_values.get(key) == message.message_id:
                del self.last_values[key]

    # Time

    @property
    def expires_ms(self) -> i64:
        """Nothing expires before, 0 when nothing does; may be too early."""
        soonest = self.groups.expires_ms
        for lane in self.lanes:
            if lane.count > 0:
                expires = lane.expires_ms
                if expires > 0 and (soonest == 0 or expires < soonest):
                    soonest = expires
        return soonest

    def is_overdue(self, now_ms: i64) -> bool:
        """Return whether what would go next should not wait any more since before `now_ms`."""
        if self.groups.loose.messages and 0 < self.groups.expires_ms < now_ms:
            return True
        return self._top >= 0 and self.lane(self._top).is_overdue(now_ms)

    def take_expired(self, now_ms: i64, budget: Budget, heads: bool) -> list[Acquired]:
        """Take messages that have expired: those at the front, or any, as the budget goes."""
        taken: list[Acquired] = []
        for lane in self.lanes:
            if lane.count > 0:
                if heads:
                    lane.take_expired_head(now_ms, budget, taken)
                else:
                    lane.take_expired(now_ms, budget, taken)
        self.groups.take_expired(now_ms, budget, taken)
        if taken:
            self.count -= len(taken)
            for message in taken:
                self.octets -= message.octets
            self._lower_top()
            self._unlist(taken)
        return taken

    # Looking

    def look(self, after_id: i64, limit: i64) -> list[Acquired]:
        """Return up to `limit` messages with ids above `after_id`, by their ids."""
        found = self.groups.loose.after(after_id, limit)
        for lane in self.lanes:
            if lane.count > 0:
                lane.look(after_id, limit, found)
        found.sort(key=_id)
        return found[:limit]

    def oldest_ms(self) -> i64:
        """Return when the oldest available message arrived, 0 when there is none."""
        oldest: i64 = 0
        for lane in self.lanes:
            if lane.count > 0:
                arrived = lane.oldest_ms()
                if oldest == 0 or arrived < oldest:
                    oldest = arrived
        first = self.groups.loose.messages.get(self.groups.loose.first_id())
        if first is not None and (oldest == 0 or first.arrived_ms < oldest):
            oldest = first.arrived_ms
        return oldest

    def batches(self) -> list[Batch]:
        """Return all waiting batches, lane by lane."""
        return [batch for lane in self.lanes for page in lane.pages for batch in page.waiting()]

    def lane(self, priority: i64) -> Lane:
        """Return the lane of a priority."""
        lane = self._slots[priority]
        if lane is None:
            lane = Lane(priority, self.entries)
            self._slots[priority] = lane
            self.lanes = [each for each in self._slots if each is not None]
        return lane

    def find_top(self) -> None:
        """Find the highest priority with messages."""
        self._top = PRIORITY_MAX
        self._lower_top()

    def _lower_top(self) -> None:
        while self._top >= 0:
            lane = self._slots[self._top]
            if lane is not None and lane.count > 0:
                return
            self._top -= 1


def _id(message: Acquired) -> int:
    return message.message_id
