"""Messages that are kept apart by a key: those of one group go to one consumer at a time.

A group belongs to the consumer that has messages of it unsettled, and to nobody once all are
settled; so a new consumer gets its share, and one that leaves gives its groups up.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, final

from mypy_extensions import i64

from headrace_broker.core.queue.messages.budget import Budget
from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.core.queue.state.consumer import Consumer
from headrace_broker.core.queue.state.loose import LooseMessages

_SLACK: Final = 64  # outdated places in a heap before it is made anew

Place = tuple[int, bytes]  # a group's lowest id and its key


@final
class Group:
    """One group."""

    def __init__(self, key: bytes) -> None:
        self.key = key  # what its messages have in common
        self.ids: list[int] = []  # of its available messages, and of some that left; a heap
        self.owner: Consumer | None = None  # that has messages of it unsettled
        self.out: i64 = 0  # how many those are
        self.waiting: i64 = 0  # its available messages
        self.refused: list[int] = []  # ids that ACQUIRE named in vain since; no part of the state


@final
class Groups:
    """The available messages of all groups."""

    def __init__(self) -> None:
        self.loose = LooseMessages()  # the messages
        self.groups: dict[bytes, Group] = {}  # by key, those with messages available or unsettled
        self._free: list[Place] = []  # a heap of groups without owner; some are outdated

    @property
    def count(self) -> i64:
        """Number of available messages."""
        return len(self.loose.messages)

    @property
    def expires_ms(self) -> i64:
        """When the next message expires, 0 for never."""
        return self.loose.expires_ms()

    def add(self, message: Acquired) -> None:
        """Put a message where it belongs by its id."""
        group = self._group(message.key)
        self.loose.add(message)
        heappush(group.ids, message.message_id)
        group.waiting += 1
        if group.ids[0] == message.message_id:
            self._offer(group)

    def hold(self, consumer: Consumer, message: Acquired) -> None:
        """Note that a message of a group is unsettled at a consumer."""
        group = self._group(message.key)
        group.out += 1
        if group.owner is not consumer:
            group.owner = consumer
            self._offer(group)

    def settled(self, message: Acquired) -> list[Acquired]:
        """Note that a message of a group is settled; return what ACQUIRE may have now."""
        group = self.groups[message.key]
        group.out -= 1
        if group.out > 0:
            return []
        group.owner = None
        messages = self.loose.messages
        freed = [messages[each] for each in group.refused if each in messages]
        group.refused.clear()
        self._offer_or_drop(group)
        return freed

    def first_for(self, consumer: Consumer) -> i64:
        """Return the lowest id that a consumer may have, 0 for none."""
        free = self._top(self._free, None)
        own = self._top(consumer.places, consumer)
        return own if free == 0 or 0 < own < free else free

    def pop(self, message_id: i64) -> Acquired | None:
        """Take a message out; None where it is not here."""
        message = self.loose.pop(message_id)
        if message is not None:
            self._left(message)
        return message

    def _left(self, message: Acquired) -> None:
        """Note that a message is no longer available."""
        group = self.groups[message.key]
        group.waiting -= 1
        if len(group.ids) > 2 * group.waiting + _SLACK:
            group.ids = [each for each in dict.fromkeys(group.ids) if each in self.loose.messages]
            heapify(group.ids)
        self._offer_or_drop(group)

    def refuses(self, consumer: Consumer, message: Acquired) -> bool:
        """Return whether a message's group is another consumer's."""
        if not message.key:
            return False
        group = self.groups.get(message.key)
        return group is not None and group.owner is not None and group.owner is not consumer

    def clear(self) -> list[Acquired]:
        """Drop and return the available messages; owners of groups stay."""
        messages = self.loose.in_order()
        self.loose.clear()
        self._free.clear()
        for group in list(self.groups.values()):
            group.ids.clear()
            group.waiting = 0
            self._offer_or_drop(group)
        return messages

    def take_expired(self, now_ms: i64, budget: Budget, into: list[Acquired]) -> None:
        """Take expired messages, within the budget."""
        while not budget.spent():
            message = self.loose.pop_expired(now_ms)
            if message is None:
                return
            self._left(message)
            budget.spend(message.byte_count)
            into.append(message)

    def _group(self, key: bytes) -> Group:
        group = self.groups.get(key)
        if group is None:
            group = Group(key)
            self.groups[key] = group
        return group

    def _offer_or_drop(self, group: Group) -> None:
        if group.waiting == 0 and group.out == 0:
            del self.groups[group.key]
        else:
            self._offer(group)

    def _offer(self, group: Group) -> None:
        """Give a group its place, with its lowest id, where consumers look for it."""
        messages = self.loose.messages
        while group.ids and group.ids[0] not in messages:
            heappop(group.ids)
        if not group.ids:
            return
        place = (group.ids[0], group.key)
        if group.owner is None:
            heappush(self._free, place)
            if len(self._free) > 4 * len(self.groups) + _SLACK:
                self._free = [p for p in dict.fromkeys(self._free) if self._stands(p, None)]
                heapify(self._free)
        else:
            self._offer_to(group.owner, place)

    def _offer_to(self, owner: Consumer, place: Place) -> None:
        heappush(owner.places, place)
        if len(owner.places) > 4 * len(self.groups) + _SLACK:
            owner.places = [p for p in dict.fromkeys(owner.places) if self._stands(p, owner)]
            heapify(owner.places)

    def _stands(self, place: Place, owner: Consumer | None) -> bool:
        group = self.groups.get(place[1])
        if group is None or group.owner is not owner:
            return False
        return place[0] in self.loose.messages and group.ids[0] == place[0]

    def _top(self, places: list[Place], owner: Consumer | None) -> i64:
        while places and not self._stands(places[0], owner):
            heappop(places)
        return places[0][0] if places else 0
