"""Publishers with an id and numbered messages, so that repetitions are recognised.

Behind the batch of an ENQUEUE of version 3, big-endian but for the varints of `ByteReader`, stands

    u8 1 when it waits for confirms | u8 n | n bytes id of the publisher | varint epoch
        | rows: n x (varint numbers left out before | varint how many in a row) | u32 bytes of this

with a number for each message, in ascending order. Numbers that are left out went to other queues.

Source: KIP-98, "Exactly Once Delivery and Transactional Messaging", Apache Kafka: producer id,
epoch and sequence number; for several queues, so that sequences have gaps.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, final

from librt.strings import BytesWriter, read_i32_be, write_i32_be
from mypy_extensions import i32, i64

from headrace_broker.core.queue.messages.batch_page import write_varint
from headrace_broker.core.queue.messages.byte_reader import ByteReader
from headrace_broker.model.limits import PUBLISHER_BYTES_MAX, PUBLISHER_HOLES_MAX, PUBLISHERS_MAX
from headrace_broker.model.ranges import Ranges, count_rows

SEQUENCE_MAX: Final = (1 << 62) - 1  # of sequence numbers and epochs
_LENGTH_BYTES: Final = 4
_PATIENT: Final = 1


@final
class Named:
    """Publisher of a batch, and its numbers."""

    def __init__(
        self, publisher: bytes, epoch: i64, rows: list[int], patient: bool, batch_end: i64
    ) -> None:
        self.publisher = publisher  # its id
        # of its numbers; those of an older one are refused, and were dropped and confirmed before
        # FENCING_VERSION
        self.epoch = epoch
        self.rows = rows  # the numbers as in `Ranges.bounds`
        self.count: i64 = count_rows(rows)  # how many there are
        self.patient = patient  # it waits for confirms
        self.batch_end = batch_end  # where the batch ends in the entry


def write_named(
    out: BytesWriter, publisher: bytes, epoch: i64, rows: list[int], patient: bool
) -> None:
    """Append what stands behind a batch; `rows` as in `Ranges.bounds`, from 1 on."""
    own = BytesWriter()
    own.append(_PATIENT if patient else 0)
    own.append(len(publisher))
    own.write(publisher)
    write_varint(own, epoch)
    write_varint(own, len(rows) // 2)
    end: i64 = 0
    for at in range(0, len(rows), 2):
        write_varint(own, rows[at] - end)
        end = rows[at + 1]
        write_varint(own, end - rows[at])
    trailer = own.getvalue()
    out.write(trailer)
    write_i32_be(out, i32(len(trailer)))


def read_named(data: bytes, base: i64) -> Named | None:
    """Read what stands behind the batch at `base` to the end of `data`; None when malformed."""
    size: i64 = len(data)
    if size - base < _LENGTH_BYTES:
        return None
    byte_count = i64(read_i32_be(data, size - _LENGTH_BYTES))
    start = size - _LENGTH_BYTES - byte_count
    if byte_count < 0 or start < base:
        return None
    reader = ByteReader(data, start)
    patient = reader.u8()
    publisher = reader.read_bytes(reader.u8())
    epoch = reader.varint()
    count = reader.varint()
    if reader.failed or not publisher or patient > _PATIENT or epoch > SEQUENCE_MAX:
        return None
    rows: list[int] = []
    end: i64 = 0
    while count > 0:
        gap = reader.varint()
        length = reader.varint()
        if not (1 <= gap <= SEQUENCE_MAX - end and 1 <= length <= SEQUENCE_MAX - end - gap):
            return None  # a field that is missing reads as 0
        rows.append(end + gap)
        end += gap + length
        rows.append(end)
        count -= 1
    if not rows or reader.position != size - _LENGTH_BYTES:
        return None
    return Named(publisher, epoch, rows, patient == _PATIENT, start)


@final
class Publisher:
    """State of a publisher at a queue."""

    def __init__(self, epoch: i64) -> None:
        self.epoch = epoch  # of `last`
        self.last: i64 = 0  # the highest number that came
        self.used_ms: i64 = 0  # when it published last
        self.holes = Ranges()  # numbers up to `last` that the queue refused and would take

    def had(self, named: Named) -> list[int]:
        """Return which positions of a batch the queue has had, as in `Ranges.bounds`."""
        if named.epoch > self.epoch:
            return []
        if named.epoch < self.epoch:
            return [0, named.count]
        positions = Ranges()
        at: i64 = 0
        for row in range(0, len(named.rows), 2):
            first: i64 = named.rows[row]
            after: i64 = named.rows[row + 1]
            if first > self.last:
                break
            had = Ranges()
            had.append(first, min(after, self.last + 1))
            if self.holes:
                holes = self.holes.cut(first, after)
                for hole in range(0, len(holes), 2):
                    had.remove(holes[hole], holes[hole + 1])
            for bound in range(0, len(had.bounds), 2):
                positions.append(at + had.bounds[bound] - first, at + had.bounds[bound + 1] - first)
            at += after - first
        return positions.bounds

    def note(self, named: Named, start: i64, stop: i64) -> None:
        """Note that positions `start` to `stop` - 1 came, and those behind were refused."""
        if named.epoch < self.epoch:
            return
        if named.epoch > self.epoch:
            self.epoch = named.epoch
            self.last = 0
            self.holes = Ranges()
        last = self.last
        at: i64 = 0
        for row in range(0, len(named.rows), 2):
            first: i64 = named.rows[row]
            after: i64 = named.rows[row + 1]
            low = first + min(max(start - at, 0), after - first)
            high = first + min(max(stop - at, 0), after - first)
            if self.holes:
                self.holes.remove(low, high)
            self.holes.append(max(high, last + 1), after)
            at += after - first
        self.last = max(last, named.rows[-1] - 1)
        bounds = self.holes.bounds
        while len(bounds) > 2 * PUBLISHER_HOLES_MAX:
            del bounds[1:3]  # what is between two holes may come twice, and is not lost


@final
class Publishers:
    """Most recent publishers, within a bound of number and time."""

    def __init__(self) -> None:
        self.known: OrderedDict[bytes, Publisher] = OrderedDict()  # by id; the last publisher last

    def had(self, named: Named, now_ms: i64, keep_ms: i64) -> list[int]:
        """Return which positions of a batch the queue has had, as in `Ranges.bounds`."""
        found = self._find(named.publisher, now_ms, keep_ms)
        return [] if found is None else found.had(named)

    def fences(self, named: Named, now_ms: i64, keep_ms: i64) -> bool:
        """Return whether the publisher of a batch has published under a later epoch since."""
        found = self._find(named.publisher, now_ms, keep_ms)
        return found is not None and named.epoch < found.epoch

    def note(self, named: Named, start: i64, stop: i64, now_ms: i64, keep_ms: i64) -> None:
        """Note that positions `start` to `stop` - 1 came, and those behind were refused."""
        if keep_ms == 0:
            return
        found = self._find(named.publisher, now_ms, keep_ms)
        if found is None:
            found = Publisher(named.epoch)
            self._make_room(now_ms, keep_ms)
            self.known.pop(named.publisher, None)
            self.known[named.publisher] = found
        else:
            self.known.move_to_end(named.publisher)
        found.used_ms = now_ms
        found.note(named, start, stop)

    def _find(self, publisher: bytes, now_ms: i64, keep_ms: i64) -> Publisher | None:
        found = self.known.get(publisher)
        if found is None or found.used_ms + keep_ms <= now_ms:
            return None
        return found

    def _make_room(self, now_ms: i64, keep_ms: i64) -> None:
        """Forget publishers that were silent for long, and the most silent ones if it is full."""
        known = self.known
        while known:
            oldest = next(iter(known))
            if len(known) < PUBLISHERS_MAX and known[oldest].used_ms + keep_ms > now_ms:
                return
            del known[oldest]


def check_publisher(publisher: bytes, epoch: i64) -> str:
    """Return why this cannot be a publisher's id and epoch, "" when it can."""
    if not 1 <= len(publisher) <= PUBLISHER_BYTES_MAX:
        return f"publisher id of {len(publisher)} bytes, must be 1 to {PUBLISHER_BYTES_MAX}"
    if not 0 <= epoch <= SEQUENCE_MAX:
        return f"epoch {epoch}, must be 0 to {SEQUENCE_MAX}"
    return ""
