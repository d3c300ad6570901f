"""Which log entries still hold a message that the queue needs."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.core.queue.batch import Batch
from headrace_broker.core.queue.effect import Acquired, Effect, EntryDead
from headrace_broker.core.queue.watermark import Watermark


@final
class LiveEntries:
    """Counts messages by entry, for entries of which not all messages wait in one batch.

    An entry that is not counted is held by a single batch alone.

    Attributes:
        counts: log position -> messages that are needed, wherever they are; at least one.
        watermark: hears of what leaves the queue, while it waits for that.
    """

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.watermark = Watermark()

    def open(self, batch: Batch) -> None:
        """Count an entry before some of a batch's messages leave it."""
        if batch.entry_index not in self.counts:
            self.counts[batch.entry_index] = batch.stop - batch.next

    def archive(self, entry_index: i64, gone: i64, effects: list[Effect]) -> None:
        """Count `gone` messages of a counted entry off; tell when none is left."""
        left = self.counts[entry_index] - gone
        if left > 0:
            self.counts[entry_index] = left
        else:
            del self.counts[entry_index]
            effects.append(EntryDead(entry_index))

    def archive_message(self, message: Acquired, effects: list[Effect]) -> None:
        """Count a message of a counted entry off."""
        if self.watermark.commands:
            self.watermark.leave(message.entry_index, message.position, message.position + 1)
        self.archive(message.entry_index, 1, effects)

    def archive_batch(self, batch: Batch, effects: list[Effect]) -> None:
        """Count off all that waits in a batch, which is to be dropped."""
        if self.watermark.commands:
            self.watermark.leave(batch.entry_index, batch.next, batch.stop)
        if batch.entry_index in self.counts:
            self.archive(batch.entry_index, batch.stop - batch.next, effects)
        else:
            effects.append(EntryDead(batch.entry_index))
