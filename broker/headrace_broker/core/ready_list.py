"""The messages of a queue: per batch while they wait for the first time, one by one afterwards."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import final

from mypy_extensions import i64

from headrace_broker.core.batch_sizes import BatchSizes
from headrace_broker.core.effect import Acquired, Effect, EntryDead


@final
class Batch:
    """The messages of one ENQUEUE entry.

    Attributes:
        entry_index: its log position.
        id_base: message id of position p is `id_base` + p.
        next: first position that was never acquired.
        sizes: body sizes; `sizes.count` is the position after the last.
        out: messages that were acquired and are not settled, those that came back included.
    """

    def __init__(self, entry_index: i64, id_base: i64, first: i64, sizes: BatchSizes) -> None:
        self.entry_index = entry_index
        self.id_base = id_base
        self.next = first
        self.sizes = sizes
        self.out: i64 = 0

    def dead(self) -> bool:
        """Whether nothing waits and nothing is out."""
        return self.out == 0 and self.next == self.sizes.count


@final
class ReadyList:
    """Available messages in order of their ids, and which entries still hold anything needed.

    A message never acquired is a position in a batch; one that came back is an `Acquired` of its
    own and stands, by its id, where it stood before.

    Attributes:
        count: available messages.
        octets: of their bodies.
        next_id: id of the next message to arrive.
        batches: those with messages never acquired, oldest first.
        touched: entry index -> batch with messages out.
        returned: message id -> what came back.
        returned_ids: a heap of the keys of `returned`.
    """

    def __init__(self) -> None:
        self.count: i64 = 0
        self.octets: i64 = 0
        self.next_id: i64 = 1
        self.batches: deque[Batch] = deque()
        self.touched: dict[int, Batch] = {}
        self.returned: dict[int, Acquired] = {}
        self.returned_ids: list[int] = []

    def append(self, entry_index: i64, skip: i64, sizes: BatchSizes) -> None:
        """Add the messages of a batch but for its first `skip`; at least one remains."""
        added = sizes.count - skip
        self.batches.append(Batch(entry_index, self.next_id - skip, skip, sizes))
        self.next_id += added
        self.count += added
        self.octets += sizes.octets_between(skip, sizes.count)

    def take(self, wanted: i64, into: list[Acquired]) -> None:
        """Move the oldest `wanted` messages (at most `count`) to the end of `into`."""
        left = wanted
        while left > 0:
            if self.returned_ids and self._returned_first():
                message = self.returned.pop(heappop(self.returned_ids))
                self.octets -= message.octets
                into.append(message)
                left -= 1
            else:
                left -= self._take_new(left, into)
        self.count -= wanted

    def _returned_first(self) -> bool:
        if not self.batches:
            return True
        batch = self.batches[0]
        return self.returned_ids[0] < batch.id_base + batch.next

    def _take_new(self, wanted: i64, into: list[Acquired]) -> i64:
        """Take up to `wanted` messages from the oldest batch; return how many."""
        batch = self.batches[0]
        sizes = batch.sizes
        start = batch.next
        stop = min(start + wanted, sizes.count)
        for position in range(start, stop):
            octets = sizes.octets(position)
            self.octets -= octets
            into.append(
                Acquired(batch.id_base + position, batch.entry_index, position, octets, 0, 0)
            )
        if batch.out == 0:
            self.touched[batch.entry_index] = batch
        batch.out += stop - start
        batch.next = stop
        if stop == sizes.count:
            self.batches.popleft()
        return stop - start

    def live_entries(self) -> list[int]:
        """Return the log positions, ascending, of the batches of which a message is left."""
        alive = set(self.touched)
        for batch in self.batches:
            alive.add(batch.entry_index)
        return sorted(alive)

    def give_back(self, message: Acquired, failed: bool) -> None:
        """Put an acquired message where it stood before, to be redelivered."""
        failures = message.delivery_count + 1 if failed else message.delivery_count
        self.returned[message.message_id] = Acquired(
            message.message_id,
            message.entry_index,
            message.position,
            message.octets,
            message.acquired_count + 1,
            failures,
        )
        heappush(self.returned_ids, message.message_id)
        self.count += 1
        self.octets += message.octets

    def archive(self, entry_index: i64, settled: i64, effects: list[Effect]) -> None:
        """Forget `settled` messages of an entry that are out; tell when the entry is dead."""
        batch = self.touched[entry_index]
        batch.out -= settled
        if batch.out == 0:
            del self.touched[entry_index]
            if batch.dead():
                effects.append(EntryDead(entry_index))

    def purge(self, effects: list[Effect]) -> i64:
        """Forget every available message; return how many there were."""
        removed = self.count
        for batch in self.batches:
            batch.next = batch.sizes.count
            if batch.out == 0:
                effects.append(EntryDead(batch.entry_index))
        self.batches.clear()
        for message_id in sorted(self.returned_ids):
            self.archive(self.returned[message_id].entry_index, 1, effects)
        self.returned.clear()
        self.returned_ids.clear()
        self.count = 0
        self.octets = 0
        return removed
