"""Puts messages of a backup into queues, each once, however often it is begun."""

from __future__ import annotations

import queue as threads
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import grpc

from headrace_broker.cli.backup.cluster import Cluster
from headrace_broker.cli.backup.manifest import QueueBackup
from headrace_broker.cli.backup.rate import Rate
from headrace_broker.cli.backup.saving import Listener
from headrace_broker.cli.backup.store import Store
from headrace_broker.cli.backup.verifying import read_file
from headrace_broker.cli.session.session import CommandError
from headrace_broker.codecs.batch import message_body_bytes, message_start, slice_batch
from headrace_broker.codecs.batch import message_properties as properties_of
from headrace_broker.core.property_edit import with_header_int
from headrace_broker.core.property_reader import PropertyReader, header_int
from headrace_broker.core.queue.machine.arrival import DELAY_HEADER
from headrace_broker.core.queue.snapshot.frozen import DELAYED
from headrace_broker.runtime.backup.chunk import Head
from headrace_protos.broker.v1 import backup_pb2 as pb

_HEAD_BYTES: Final = 16  # of a batch beside its messages, as it is encoded; generous
_DELAY_FIELD: Final = b"\x07x-delay"
_END: Final = None
_PARTS: Final = 4  # batches that fit the window that a stream begins with


class Batch(NamedTuple):
    """Messages on their way."""

    first: int  # number of the first one within the backup of its queue, from 1
    messages: int  # how many
    data: bytes  # as `RestoreBatch.batch`

    def request(self) -> pb.RestoreRequest:
        """Return it as it is sent."""
        return pb.RestoreRequest(batch=pb.RestoreBatch(first_number=self.first, batch=self.data))


class Outcome(NamedTuple):
    """Outcome of restoring a queue's messages."""

    messages: int  # in the backup
    before: int  # that the queue had already, from an earlier attempt
    refused: int  # that it did not take; it is full


class PuttingBack:
    """Messages of one queue on their way into one."""

    def __init__(self, store: Store, cluster: Cluster, rate: Rate, listener: Listener) -> None:
        self._store = store  # where the backup is
        self._cluster = cluster  # where they go
        self._rate = rate  # how fast that may be
        self._listener = listener  # is told how far it is

    def queue(self, saved: QueueBackup, opening: pb.RestoreOpen) -> Outcome:
        """Put the messages of a queue where `opening` says.

        Raises DamagedError: what comes before is put back; CommandError: refused, or no answer.
        """
        before = -1
        refused = 0
        deadline = self._cluster.deadline()
        while True:
            stream = _Stream(self._cluster, opening)
            try:
                with stream:
                    first = stream.open()
                    if before < 0:
                        before = min(first - 1, saved.messages)
                    deadline = self._cluster.deadline()
                    for batch in self._batches(saved, first, stream):
                        self._rate.take(len(batch.data))
                        stream.send(batch)
                        self._listener.add_bytes(len(batch.data))
                    stream.finish()
                    refused += stream.refused
                    return Outcome(saved.messages, before, refused)
            except grpc.RpcError as error:
                refused += stream.refused
                self._cluster.again(error, deadline)

    def _batches(self, saved: QueueBackup, first: int, stream: _Stream) -> Iterator[Batch]:
        """Return the messages from a number on, in batches that the stream takes."""
        number = 1
        for file in saved.files:
            if number + file.messages <= first:
                number += file.messages
                self._listener.add_bytes(file.octets)
                continue
            for block in read_file(self._store, file):
                if number + block.messages > first:
                    start = max(first - number, 0)
                    heads = block.read_heads()
                    batch = for_restoring(block.batch, heads, time.time_ns() // 1_000_000)
                    yield from _parts(batch, number, start, len(heads), stream.limits)
                number += block.messages


class _Limits(NamedTuple):
    messages: int
    byte_count: int


class _Stream:
    """One call of Backup.Restore."""

    def __init__(self, cluster: Cluster, opening: pb.RestoreOpen) -> None:
        self.limits = _Limits(1, 0)  # of a batch
        self.confirmed = 0  # messages that are safe
        self.refused = 0  # messages that the queue did not take
        self._requests: threads.SimpleQueue[pb.RestoreRequest | None] = threads.SimpleQueue()
        self._requests.put(pb.RestoreRequest(open=opening))
        self._call = cluster.restore(iter(self._requests.get, _END))
        self._sent = 0
        self._sent_bytes = 0
        self._window = _Limits(0, 0)

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.put(_END)
        self._call.cancel()

    def open(self) -> int:
        """Wait until the stream is open; return the first number that the queue wants."""
        opened = next(self._call).opened
        window = self._window = _Limits(opened.window.messages, opened.window.octets)
        self.limits = _Limits(
            min(opened.batch_messages_max, max(window.messages // _PARTS, 1)),
            min(opened.batch_octets_max, window.byte_count // _PARTS),
        )
        return int(opened.next_sequence)

    def send(self, batch: Batch) -> None:
        """Send messages once the broker lets them."""
        request = batch.request()
        byte_count = request.batch.ByteSize()
        while not self._fits(batch.messages, byte_count):
            if batch.messages > 1 and self._is_smaller():
                for part in halves(batch):
                    self.send(part)
                return
            self._hear()
        self._sent += batch.messages
        self._sent_bytes += byte_count
        self._requests.put(request)

    def finish(self) -> None:
        """Wait until all is safe or refused; CommandError where the stream ended before."""
        self._requests.put(_END)
        for response in self._call:
            self._take(response)
        if self.confirmed + self.refused != self._sent:
            raise CommandError(f"{self._sent} messages were sent, {self.confirmed} are confirmed")

    def _fits(self, count: int, byte_count: int) -> bool:
        window = self._window
        if (
            self._sent + count <= window.messages
            and self._sent_bytes + byte_count <= window.byte_count
        ):
            return True
        return count == 1 and self._sent < window.messages and self._sent_bytes < window.byte_count

    def _is_smaller(self) -> bool:
        """Return whether the window has become so small that a batch never fits."""
        window = self._window
        idle = self.confirmed + self.refused == self._sent
        return idle and self._sent < window.messages and self._sent_bytes < window.byte_count

    def _hear(self) -> None:
        try:
            self._take(next(self._call))
        except StopIteration:
            raise CommandError("the broker has ended the stream") from None

    def _take(self, response: Any) -> None:
        kind = response.WhichOneof("kind")
        if kind == "window":
            self._window = _Limits(response.window.messages, response.window.octets)
        elif kind == "confirmed":
            self.confirmed += sum(each.last + 1 - each.first for each in response.confirmed.ranges)
        elif kind == "refused":
            self.refused += sum(each.last + 1 - each.first for each in response.refused.ranges)


def halves(batch: Batch) -> tuple[Batch, Batch]:
    """Return the messages of a batch, of which there are two at least, in two."""
    middle = batch.messages // 2
    front = slice_batch(batch.data, 0, list(range(middle)))
    back = slice_batch(batch.data, 0, list(range(middle, batch.messages)))
    return (
        Batch(batch.first, middle, front),
        Batch(batch.first + middle, batch.messages - middle, back),
    )


def for_restoring(batch: bytes, heads: list[Head], now_ms: int) -> bytes:
    """Return a batch as it is to be published again.

    A message that was delayed and is ready must not be delayed once more, and one that still is
    becomes ready when it was to: what its header `x-delay` says is changed to the time that is
    left, or to its negative, as RabbitMQ's plugin does with messages that it has delayed.
    """
    if _DELAY_FIELD not in batch:
        return batch
    messages: list[bytes] = []
    for position, head in enumerate(heads):
        start, stop = message_start(batch, 0, position), message_start(batch, 0, position + 1)
        message = batch[start:stop]
        properties = properties_of(batch, 0, position)
        changed = _with_time_left(properties, head, now_ms)
        if changed is not properties:
            body = len(message) - message_body_bytes(batch, 0, position)
            route = body - len(properties) - 4
            size = len(changed).to_bytes(4, "big")
            message = message[:route] + size + changed + message[body:]
        messages.append(message)
    ends, end = [], 0
    for message in messages:
        end += len(message)
        ends.append(end.to_bytes(4, "big"))
    return b"".join((len(messages).to_bytes(4, "big"), *ends, *messages))


def _with_time_left(properties: bytes, head: Head, now_ms: int) -> bytes:
    reader = PropertyReader()
    reader.scan_block(properties, 0, len(properties))
    delay = int(header_int(properties, reader.headers_start, reader.headers_stop, DELAY_HEADER))
    if delay <= 0:
        return properties
    left = head.due_ms - now_ms if head.state == DELAYED else 0
    return with_header_int(properties, DELAY_HEADER, left if left > 0 else -delay)


def _parts(batch: bytes, number: int, start: int, count: int, limits: _Limits) -> Iterator[Batch]:
    """Cut a batch, whose first message is `number`, from `start` on into batches within bounds."""
    while start < count:
        stop = start + 1
        byte_count = _size(batch, start)
        while stop < count and stop - start < limits.messages:
            byte_count += _size(batch, stop)
            if byte_count + _HEAD_BYTES > limits.byte_count:
                break
            stop += 1
        whole = start == 0 and stop == count
        data = batch if whole else slice_batch(batch, 0, list(range(start, stop)))
        yield Batch(number + start, stop - start, data)
        start = stop


def _size(batch: bytes, position: int) -> int:
    """Return the bytes of a message, with its place in the table."""
    start = message_start(batch, 0, position)
    return int(message_start(batch, 0, position + 1) - start) + 4
