"""Messages that are cut out of log entries."""

from __future__ import annotations

from collections.abc import Callable

from typing_extensions import override

from headrace_broker.codecs.batch import batch_count, encode_batch, message_body
from headrace_broker.core.queue.command.command import ENQUEUE_BATCH_OFFSET
from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.model.limits import CHUNK_ENTRIES_BYTES_MAX
from headrace_broker.model.message import Publish
from headrace_broker.runtime.contract.queue_log import QueueLog
from headrace_broker.runtime.lease.chunk import cut_batch
from headrace_broker.runtime.replica.reading.entries import Entries


class Log(QueueLog):
    """Has one large entry at each position, of which the first message is small."""

    def __init__(self) -> None:
        self.reads = 0
        bodies = (b"small", bytes(CHUNK_ENTRIES_BYTES_MAX // 2))
        batch = encode_batch(
            [Publish(1, b"\x00\x01q", False, False, b"\x00\x00", body) for body in bodies]
        )
        self._entry = bytes(ENQUEUE_BATCH_OFFSET) + batch

    @override
    def propose(self, data: bytes, urgent: bool) -> int:
        raise AssertionError

    @override
    def entry_at_hand(self, index: int, done: Callable[[], None]) -> bytes:
        del done
        self.reads += 1
        return self._entry

    @override
    def forget(self, index: int) -> None:
        raise AssertionError

    @override
    def leader(self) -> int:
        raise AssertionError


def test_little_of_large_entries_is_cut_in_several_steps() -> None:
    log = Log()
    messages = [Acquired(number, number, 0, 5, 0, 0) for number in range(1, 8)]
    count, batch = cut_batch(Entries(log), messages, 0, 2048, 1 << 20)
    assert (count, log.reads, batch_count(batch, 0)) == (2, 2, 2)
    assert message_body(batch, 0, 1) == b"small"
    count, _ = cut_batch(Entries(log), messages, 6, 2048, 1 << 20)
    assert count == 1
