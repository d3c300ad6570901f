"""The messages of one ENQUEUE entry that wait in a row, told apart only when they are taken."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from headrace_broker.core.queue.messages.batch_sizes import BatchSizes
from headrace_broker.core.queue.messages.effect import Acquired

_PACKED_BYTES: Final = 12


@mypyc_attr(acyclic=True)
@final
class Batch:
    """Messages at consecutive positions of an entry that were never acquired."""

    def __init__(
        self,
        entry_index: i64,
        id_base: i64,
        start: i64,
        stop: i64,
        sizes: BatchSizes,
        arrived_ms: i64,
        expires_ms: i64,
    ) -> None:
        self.entry_index = entry_index  # its log position
        self.id_base = id_base  # message id of position p is `id_base` + p
        self.next = start  # position of the first that waits
        self.stop = stop  # position after the last that waits
        self.sizes = sizes  # body sizes of the entry's messages, of these at least
        self.arrived_ms = arrived_ms  # time stamp of the entry
        self.expires_ms = expires_ms  # when they stop waiting, 0 for never

    @property
    def count(self) -> i64:
        """Number of messages that wait."""
        return self.stop - self.next

    @property
    def byte_count(self) -> i64:
        """Bytes of their bodies."""
        return self.sizes.bytes_between(self.next, self.stop)

    @property
    def first_id(self) -> i64:
        """Id of the first message that waits."""
        return self.id_base + self.next

    def cut_by_size(self) -> list[Batch]:
        """Return batches of equal sizes, or this one where they would take more room than it does.

        Packed, a batch of equal sizes is some `_PACKED_BYTES`, and any other one has besides the
        sizes of all its entry's messages.
        """
        sizes = self.sizes
        starts = [int(self.next)]
        starts += [
            position
            for position in range(self.next + 1, self.stop)
            if sizes.byte_count(position) != sizes.byte_count(position - 1)
        ]
        if len(starts) * _PACKED_BYTES >= len(sizes.table):
            return [self]
        cut: list[Batch] = []
        stop = self.stop
        for start in reversed(starts):
            equal = BatchSizes(stop, sizes.byte_count(start), b"")
            cut.append(
                Batch(
                    self.entry_index,
                    self.id_base,
                    start,
                    stop,
                    equal,
                    self.arrived_ms,
                    self.expires_ms,
                )
            )
            stop = start
        cut.reverse()
        return cut

    def message(self, position: i64, priority: i64, key: bytes) -> Acquired:
        """Return the message at a position as one of its own."""
        message = Acquired(
            self.id_base + position,
            self.entry_index,
            position,
            self.sizes.byte_count(position),
            0,
            0,
        )
        message.arrived_ms = self.arrived_ms
        message.expires_ms = self.expires_ms
        message.priority = priority
        message.key = key
        return message
