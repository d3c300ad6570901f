"""Which log entries still hold a message that the queue needs."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.core.queue.messages.batch import Batch
from headrace_broker.core.queue.messages.effect import Acquired, Effect, EntryDead
from headrace_broker.core.queue.messages.settings import ARCHIVE_NONE
from headrace_broker.core.queue.state.archive import Archive
from headrace_broker.core.queue.state.archive_row import OUTCOME_PURGED
from headrace_broker.core.queue.state.watermark import Watermark


@final
class LiveEntries:
    """Counts messages by entry, for entries of which not all messages wait in one batch.

    An entry that is not counted is held by a single batch alone, or by rows of the archive.

    Attributes:
        counts: log position -> messages that are needed, wherever they are; at least one.
        watermark: told of messages that leave the queue, while it waits for that.
        archived: what is kept of messages that have left.
    """

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.watermark = Watermark()
        self.archived = Archive()

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
            self.archived.entry_left(entry_index, effects)

    def archive_message(self, message: Acquired, outcome: i64, effects: list[Effect]) -> None:
        """Count a message of a counted entry off, or keep a row of how it ended."""
        if self.watermark.commands:
            self.watermark.leave(message.entry_index, message.position, message.position + 1)
        if self.archived.mode == ARCHIVE_NONE:
            self.archive(message.entry_index, 1, effects)
        else:
            self._keep(message, outcome)

    def _keep(self, message: Acquired, outcome: i64) -> None:
        entry_index = message.entry_index
        left = self.counts[entry_index] - 1
        if left > 0:
            self.counts[entry_index] = left
        else:
            del self.counts[entry_index]
        self.archived.append(message, outcome, left == 0)

    def archive_batch(self, batch: Batch, effects: list[Effect]) -> None:
        """Count off all that waits in a batch, which was purged, or keep rows of it."""
        if self.watermark.commands:
            self.watermark.leave(batch.entry_index, batch.next, batch.stop)
        if self.archived.mode != ARCHIVE_NONE:
            self.open(batch)
            for position in range(batch.next, batch.stop):
                self._keep(batch.message(position, 0, b""), OUTCOME_PURGED)
        elif batch.entry_index in self.counts:
            self.archive(batch.entry_index, batch.stop - batch.next, effects)
        else:
            effects.append(EntryDead(batch.entry_index))
