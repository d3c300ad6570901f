"""Waiting batches in pages, of which those in the middle of a long queue are packed bytes."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.core.queue.messages.batch import Batch
from headrace_broker.core.queue.messages.batch_page import decode_batches, encode_batches

PAGE_BATCHES: Final = 256  # batches gathered in a page before it is packed


@final
class Page:
    """Consecutive batches: a list, or the bytes that `batch_page` makes of them."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []  # of an open page; drained ones stay in it before `head`
        self.head: i64 = 0  # index of the first one that may not be drained
        self.packed = b""  # bytes of the batches when the page is packed, else b""
        self.first_id: i64 = 0  # no waiting message has a lower id
        self.last_id: i64 = 0  # no waiting message has a higher id
        self.count: i64 = 0  # messages that wait
        self.expires_ms: i64 = 0  # none of them expires before, 0 when none does
        self.size: i64 = 0  # number of batches that were ever put in

    def clear(self) -> None:
        """Clear the page."""
        self.batches.clear()
        self.head = 0
        self.packed = b""
        self.count = 0
        self.expires_ms = 0
        self.size = 0

    def append(self, batch: Batch) -> None:
        """Put a batch at the end of an open page."""
        if not self.batches:
            self.first_id = batch.first_id
        self.batches.append(batch)
        self.size += 1
        self.last_id = batch.id_base + batch.stop - 1
        self.count += batch.stop - batch.next
        expires = batch.expires_ms
        if expires > 0 and (self.expires_ms == 0 or expires < self.expires_ms):
            self.expires_ms = expires

    def pack(self) -> None:
        """Turn the batches into bytes."""
        self.packed = encode_batches(self.waiting())
        self.batches = []
        self.head = 0

    def open(self) -> None:
        """Turn the bytes back into batches."""
        if self.packed:
            self.batches = decode_batches(self.packed)
            self.packed = b""

    def waiting(self) -> list[Batch]:
        """Return the batches that are not drained; a packed page stays packed."""
        if self.packed:
            return decode_batches(self.packed)
        return [batch for batch in self.batches[self.head :] if batch.next < batch.stop]

    def head_batch(self) -> Batch:
        """Return the first batch that is not drained, which there must be; the page is open."""
        batch = self.batches[self.head]
        while batch.next == batch.stop:
            self.head += 1
            batch = self.batches[self.head]
        return batch

    def find(self, message_id: i64) -> i64:
        """Return the index of the batch in which a message waits, -1 for none; the page is open."""
        low = self.head
        high: i64 = len(self.batches)
        while low < high:
            middle = (low + high) // 2
            batch = self.batches[middle]
            if batch.id_base + batch.stop <= message_id:
                low = middle + 1
            else:
                high = middle
        if low == len(self.batches) or self.batches[low].first_id > message_id:
            return -1
        return low

    def cut(self, at: i64, position: i64) -> None:
        """Take one position out of the batch with index `at`, in which it waits."""
        batch = self.batches[at]
        if position + 1 < batch.stop and position > batch.next:
            rest = Batch(
                batch.entry_index,
                batch.id_base,
                position + 1,
                batch.stop,
                batch.sizes,
                batch.arrived_ms,
                batch.expires_ms,
            )
            self.batches.insert(at + 1, rest)
            batch.stop = position
        elif position == batch.next:
            batch.next += 1
        else:
            batch.stop = position
        self.count -= 1
