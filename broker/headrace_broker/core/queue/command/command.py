"""Commands of a queue and how they are written into log entries (`decoder` reads them).

The data of an entry, which is what is replicated, is

    u64 time in ms, stamped by the leader | u8 kind | u8 version | fields

with big-endian integers, and the fields are (version 1 but where another is named)

    ENQUEUE    u64 session | u64 seq | batch (see model.message), to the end of the entry
    ENQUEUE 2  the same; its publisher waits for confirms
    ENQUEUE 3  the same, then who publishes it under which numbers (see `publisher`)
    SETTLE     u64 session | u64 seq | u32 n | n x item
    ATTACH     u64 session | u64 seq | u32 consumer | u32 prefetch | u8 flags | u8 n | n bytes tag
    ATTACH 2   the same, then i32 priority | u32 prefetch bytes | u64 timeout in ms
    CANCEL     u64 session | u64 seq | u32 consumer
    GET        u64 session | u64 seq
    GET 2      u64 session | u64 seq | u64 message id, 0 for the oldest available
    PURGE      u64 session | u64 seq
    REMOVE     u64 session | u64 seq | u32 n | n x u64 message id
    SET_PREFETCH u64 session | u64 seq | u32 n | n x (u32 consumer | u32 prefetch)
    CLOSE      u64 session
    NODE_DOWN  u32 node | u32 boot_keep
    ENQUEUE_NOW as ENQUEUE: what no consumer can take at once is refused
    item       u32 consumer | u8 operation | u64 first | u64 last

and those of `leader_command`, `lease_command` and `archive_command`. The `encode_*` functions
return a command without the stamp; `stamp_command` puts it before.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i64_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64, mypyc_attr

from headrace_broker.core.queue.messages.batch_sizes import BatchSizes
from headrace_broker.core.queue.messages.publisher import Named, write_named

ENQUEUE: Final = 1
SETTLE: Final = 2
ATTACH: Final = 3
CANCEL: Final = 4
CLOSE: Final = 5
GET: Final = 6
PURGE: Final = 7
NODE_DOWN: Final = 8
CONFIGURE: Final = 9
TICK: Final = 10
ACQUIRE: Final = 11
REMOVE: Final = 12
FORGET: Final = 13
ENQUEUE_NOW: Final = 14
OPEN_GROUP: Final = 15
LEASE: Final = 16
RENEW: Final = 17
SETTLE_LEASES: Final = 18
RELEASE_LEASES: Final = 19
CLOSE_GROUP: Final = 20
OPEN_ARCHIVE: Final = 21
COMMIT_ARCHIVE: Final = 22
CLOSE_ARCHIVE: Final = 23
SET_PREFETCH: Final = 24

# Those of the control lane.
CONTROL_KINDS: Final = (SETTLE, ATTACH, CANCEL, GET, PURGE, REMOVE, SET_PREFETCH)
LEASE_KINDS: Final = (OPEN_GROUP, LEASE, RENEW, SETTLE_LEASES, RELEASE_LEASES, CLOSE_GROUP)
ARCHIVE_KINDS: Final = (OPEN_ARCHIVE, COMMIT_ARCHIVE, CLOSE_ARCHIVE)
LEADER_KINDS: Final = (CONFIGURE, TICK, ACQUIRE, FORGET)
URGENT_KINDS: Final = (*CONTROL_KINDS, *LEADER_KINDS, *LEASE_KINDS, *ARCHIVE_KINDS)

COMMAND_VERSION: Final = 1
EXTENDED_VERSION: Final = 2  # of ENQUEUE, ATTACH and GET
NAMED_VERSION: Final = 3  # of ENQUEUE
STAMP_BYTES: Final = 8
ENQUEUE_SESSION_OFFSET: Final = 10  # of its session
ENQUEUE_SEQ_OFFSET: Final = 18  # of the number of its first message, stamp included
ENQUEUE_BATCH_OFFSET: Final = 26  # of the batch in the data of an ENQUEUE entry, stamp included

ACCEPT: Final = 1  # done
RELEASE: Final = 2  # back to its original position
REJECT: Final = 3  # refused for good
MODIFY_FAILED: Final = 4  # back to its original position, counted as a failed delivery

FLAG_EXCLUSIVE: Final = 1
FLAG_FILTERED: Final = 2  # gets only what ACQUIRE names

NUMBER_MAX: Final = (1 << 62) - 1  # of sessions, sequence and delivery numbers
U32_MAX: Final = (1 << 32) - 1
TAG_BYTES_MAX: Final = 255  # a short string of AMQP 0-9-1
SETTLE_ITEM_BYTES: Final = 21
PREFETCH_ITEM_BYTES: Final = 8


@mypyc_attr(acyclic=True)
@final
class SettleItem:
    """Outcome of one range of deliveries."""

    def __init__(self, consumer: i64, operation: i64, first: i64, last: i64) -> None:
        self.consumer = consumer  # number of the consumer in its session, 0 for what GET acquired
        self.operation = operation  # ACCEPT, RELEASE, REJECT or MODIFY_FAILED
        self.first = first  # first delivery number, from 1
        self.last = last  # last delivery number, inclusive; settled ones are passed over


@mypyc_attr(acyclic=True)
class Command:
    """Base of all decoded commands."""


@final
class Malformed(Command):
    """Undecodable command, with the reason."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


@mypyc_attr(acyclic=True)
@final
class Enqueue(Command):
    """A batch whose first message has number `seq` on the session's publish lane."""

    def __init__(
        self,
        session: i64,
        seq: i64,
        batch_offset: i64,
        sizes: BatchSizes,
        now: bool,
        patient: bool = False,
    ) -> None:
        self.session = session  # who publishes
        self.seq = seq  # number of the first message
        self.batch_offset = batch_offset  # where the batch begins in the entry
        self.sizes = sizes  # of its bodies, and what is remarkable in its properties
        self.now = now  # refuse what no consumer can take at once
        self.patient = patient  # its publisher waits for confirms, which the queue may defer
        self.named: Named | None = None  # who publishes it under which numbers, None if not said


@mypyc_attr(acyclic=True)
class Control(Command):
    """Base of the commands that are numbered on the control lane of a session."""

    def __init__(self, session: i64, seq: i64) -> None:
        self.session = session
        self.seq = seq


@mypyc_attr(acyclic=True)
@final
class Settle(Control):
    """Settle ranges of deliveries, in order."""

    def __init__(self, session: i64, seq: i64, items: list[SettleItem]) -> None:
        super().__init__(session, seq)
        self.items = items


@final
class Attach(Control):
    """Add a consumer with credit for `prefetch` unsettled messages."""

    def __init__(
        self, session: i64, seq: i64, consumer: i64, prefetch: i64, flags: i64, tag: bytes
    ) -> None:
        super().__init__(session, seq)
        self.consumer = consumer  # its number within the session, from 1
        self.prefetch = prefetch  # most unsettled messages, from 1
        self.exclusive: bool = flags & FLAG_EXCLUSIVE != 0  # be the only consumer
        self.filtered: bool = flags & FLAG_FILTERED != 0  # get only what ACQUIRE names
        self.tag = tag  # for listings
        self.priority: i64 = 0  # higher ones are served first, any 32-bit number
        self.prefetch_bytes: i64 = 0  # most bytes unsettled (but for one message), 0 for any
        self.timeout_ms: i64 = 0  # most time that a delivery may stay unsettled, 0 for the queue's


@final
class SetPrefetch(Control):
    """Change how many unsettled messages attached consumers may have."""

    def __init__(self, session: i64, seq: i64, items: list[tuple[int, int]]) -> None:
        super().__init__(session, seq)
        self.items = items  # pairs of a consumer's number, from 1, and its prefetch, from 1


@final
class Cancel(Control):
    """End the deliveries to a consumer."""

    def __init__(self, session: i64, seq: i64, consumer: i64) -> None:
        super().__init__(session, seq)
        self.consumer = consumer


@final
class Get(Control):
    """Acquire one message for consumer 0: that with `message_id`, or for 0 the first."""

    def __init__(self, session: i64, seq: i64, message_id: i64) -> None:
        super().__init__(session, seq)
        self.message_id = message_id


@final
class Purge(Control):
    """Remove all available messages."""


@final
class Remove(Control):
    """Remove the messages with these ids, as far as they are available."""

    def __init__(self, session: i64, seq: i64, ids: list[int]) -> None:
        super().__init__(session, seq)
        self.ids = ids


@final
class Close(Command):
    """Forget a session."""

    def __init__(self, session: i64) -> None:
        self.session = session


@final
class NodeDown(Command):
    """A node is suspected (`boot_keep` 0) or runs the boot with that mark and no other."""

    def __init__(self, node: i64, boot_keep: i64) -> None:
        self.node = node
        self.boot_keep = boot_keep


def stamp_command(time_ms: i64, command: bytes) -> bytes:
    """Return the entry data of `command`, proposed by the leader at `time_ms` (Unix time)."""
    return encode_stamp(time_ms) + command  # a writer that grows copies a large command twice


def encode_stamp(time_ms: i64) -> bytes:
    """Return the STAMP_BYTES bytes that stand before a command, proposed at `time_ms`."""
    out = BytesWriter()
    write_i64_be(out, time_ms)
    return out.getvalue()


def stamp_of(data: bytes) -> i64:
    """Return the time in ms stamped on an entry, of at least STAMP_BYTES bytes; 0 to 2**62."""
    return min(max(read_i64_be(data, 0), 0), NUMBER_MAX)


def is_enqueue(command: bytes) -> bool:
    """Return whether a command (not stamped) brings messages."""
    return len(command) > 0 and command[0] in (ENQUEUE, ENQUEUE_NOW)


def passes_publishes(command: bytes) -> bool:
    """Return whether a command (not stamped) may overtake the publishes that wait at the leader.

    Those of the control lane and the leader's own may, so that consumers drain a queue that
    publishers have filled; they do not overtake each other. CLOSE and NODE_DOWN may not: they
    forget sessions, and a publish of such a session that waits as a repetition would then be
    taken for a new one.
    """
    return len(command) > 0 and command[0] in URGENT_KINDS


def encode_enqueue(session: i64, seq: i64, batch: bytes, patient: bool = False) -> bytes:
    """Encode ENQUEUE of an encoded batch whose first message has number `seq` (from 1)."""
    return enqueue_head(session, seq, patient) + batch


def enqueue_head(session: i64, seq: i64, patient: bool) -> bytes:
    """Return what stands before the batch in an ENQUEUE."""
    out = _numbered(ENQUEUE, session, seq, EXTENDED_VERSION if patient else COMMAND_VERSION)
    return out.getvalue()


def enqueue_now_head(session: i64, seq: i64) -> bytes:
    """Return what stands before the batch in an ENQUEUE_NOW."""
    return _numbered(ENQUEUE_NOW, session, seq).getvalue()


def named_ends(
    session: i64, seq: i64, publisher: bytes, epoch: i64, rows: list[int], patient: bool
) -> tuple[bytes, bytes]:
    """Return what stands before and behind the batch in `encode_enqueue_named`."""
    out = BytesWriter()
    write_named(out, publisher, epoch, rows, patient)
    return _numbered(ENQUEUE, session, seq, NAMED_VERSION).getvalue(), out.getvalue()


def encode_enqueue_named(
    session: i64,  # as in `encode_enqueue`, and so are `seq`, `batch` and `patient`
    seq: i64,  # on the session's publish lane, of the first message
    batch: bytes,
    publisher: bytes,
    epoch: i64,
    rows: list[int],  # a number for each message, ascending, as in `Ranges.bounds`
    patient: bool = False,
) -> bytes:
    """Encode ENQUEUE of a batch whose publisher gives its messages numbers."""
    head, tail = named_ends(session, seq, publisher, epoch, rows, patient)
    return b"".join((head, batch, tail))


def encode_enqueue_now(session: i64, seq: i64, batch: bytes) -> bytes:
    """Encode ENQUEUE_NOW of an encoded batch whose first message has number `seq` (from 1)."""
    return enqueue_now_head(session, seq) + batch


def encode_settle(session: i64, seq: i64, items: list[SettleItem]) -> bytes:
    """Encode SETTLE of ranges, applied in order."""
    out = _numbered(SETTLE, session, seq)
    write_u32(out, len(items))
    for item in items:
        write_u32(out, item.consumer)
        out.append(int(item.operation))
        write_i64_be(out, item.first)
        write_i64_be(out, item.last)
    return out.getvalue()


def encode_attach(
    session: i64,
    seq: i64,
    consumer: i64,
    prefetch: i64,
    exclusive: bool,
    tag: bytes,
    *,
    filtered: bool = False,
    priority: i64 = 0,
    prefetch_bytes: i64 = 0,
    timeout_ms: i64 = 0,
) -> bytes:
    """Encode ATTACH of consumer number `consumer` (from 1); ValueError for too long a tag."""
    if len(tag) > TAG_BYTES_MAX:
        raise ValueError(f"consumer tag of {len(tag)} bytes, at most {TAG_BYTES_MAX}")
    extended = filtered or priority != 0 or prefetch_bytes != 0 or timeout_ms != 0
    out = _numbered(ATTACH, session, seq, EXTENDED_VERSION if extended else COMMAND_VERSION)
    write_u32(out, consumer)
    write_u32(out, prefetch)
    out.append((FLAG_EXCLUSIVE if exclusive else 0) | (FLAG_FILTERED if filtered else 0))
    out.append(len(tag))
    out.write(tag)
    if extended:
        write_i32_be(out, i32(priority))
        write_u32(out, prefetch_bytes)
        write_i64_be(out, timeout_ms)
    return out.getvalue()


def encode_set_prefetch(session: i64, seq: i64, items: list[tuple[int, int]]) -> bytes:
    """Encode SET_PREFETCH of pairs of a consumer's number and its prefetch, both from 1."""
    out = _numbered(SET_PREFETCH, session, seq)
    write_u32(out, len(items))
    for consumer, prefetch in items:
        write_u32(out, consumer)
        write_u32(out, prefetch)
    return out.getvalue()


def encode_cancel(session: i64, seq: i64, consumer: i64) -> bytes:
    """Encode CANCEL of a consumer."""
    out = _numbered(CANCEL, session, seq)
    write_u32(out, consumer)
    return out.getvalue()


def encode_get(session: i64, seq: i64, message_id: i64 = 0) -> bytes:
    """Encode GET of the message with an id, or for 0 of the first that is available."""
    if message_id == 0:
        return _numbered(GET, session, seq).getvalue()
    out = _numbered(GET, session, seq, EXTENDED_VERSION)
    write_i64_be(out, message_id)
    return out.getvalue()


def encode_purge(session: i64, seq: i64) -> bytes:
    """Encode PURGE."""
    return _numbered(PURGE, session, seq).getvalue()


def encode_remove(session: i64, seq: i64, ids: list[int]) -> bytes:
    """Encode REMOVE of messages by their ids."""
    out = _numbered(REMOVE, session, seq)
    write_ids(out, ids)
    return out.getvalue()


def encode_close(session: i64) -> bytes:
    """Encode CLOSE, which is not numbered and may be repeated."""
    out = BytesWriter()
    out.append(CLOSE)
    out.append(COMMAND_VERSION)
    write_i64_be(out, session)
    return out.getvalue()


def encode_node_down(node: i64, boot_keep: i64) -> bytes:
    """Encode NODE_DOWN: `boot_keep` 0 suspects the node, else its sessions of other boots end."""
    out = BytesWriter()
    out.append(NODE_DOWN)
    out.append(COMMAND_VERSION)
    write_u32(out, node)
    write_u32(out, boot_keep)
    return out.getvalue()


def write_u32(out: BytesWriter, value: i64) -> None:
    """Write a number from 0 to 2**32-1."""
    write_i32_be(out, i32(value if value <= 0x7FFFFFFF else value - 0x100000000))


def write_ids(out: BytesWriter, ids: list[int]) -> None:
    """Write a count and message ids."""
    write_u32(out, len(ids))
    for message_id in ids:
        write_i64_be(out, message_id)


def _numbered(kind: int, session: i64, seq: i64, version: int = COMMAND_VERSION) -> BytesWriter:
    out = BytesWriter()
    out.append(kind)
    out.append(version)
    write_i64_be(out, session)
    write_i64_be(out, seq)
    return out
