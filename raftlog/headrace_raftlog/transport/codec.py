"""Raft messages to and from their protobuf form.

An entry's index is not carried: entries follow `index` of their message without a gap.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mypy_extensions import i64

from headrace_protos.raftlog.v1.transport_pb2 import Frame, MessageKind, RaftMessage
from headrace_raftlog.model.entry import ENTRY_CONFIG, Entry
from headrace_raftlog.model.limits import ENTRY_BYTES_MAX, MESSAGE_OVERHEAD_BYTES, VOTERS_MAX
from headrace_raftlog.model.membership import NODE_BITS, Membership, decode_membership, member_node
from headrace_raftlog.model.message import APPEND, JOIN, PRE_VOTE, SNAPSHOT, Message

KIND_FIRST: Final = PRE_VOTE
KIND_LAST: Final = JOIN
MEMBER_ID_MAX: Final = (1 << (32 + NODE_BITS)) - 1  # generations have 32 bits


class FrameError(ValueError):
    """A peer's frame holds a message that no correct peer sends."""


def message_bytes(message: Message) -> i64:
    """Return about how many bytes a message takes in a frame and in memory."""
    total: i64 = MESSAGE_OVERHEAD_BYTES
    for entry in message.entries:
        total += MESSAGE_OVERHEAD_BYTES + len(entry.data)
    return total


def add_message(frame: Frame, message: Message) -> None:
    """Append a message to a frame; fields at their default are left out."""
    target = frame.messages.add()
    set_fields(target, message)
    for entry in message.entries:
        target.entries.add(term=entry.term, kind=entry.kind, data=entry.data)


def set_fields(target: RaftMessage, message: Message) -> None:
    """Set everything of an empty message but its entries."""
    target.kind = MessageKind.ValueType(message.kind)
    target.group = message.group
    target.source = message.source
    target.target = message.target
    target.term = message.term
    target.index = message.index
    target.log_term = message.log_term
    target.commit = message.commit
    if message.reject:
        target.reject = True
        target.hint_index = message.hint_index
        target.hint_term = message.hint_term
    if message.quiesce:
        target.quiesce = True
    if message.context:
        target.context = message.context


def read_membership(data: bytes) -> Membership:
    """Return a membership that a peer sent, in an entry or with a snapshot.

    Raises FrameError: no correct leader writes it.
    """
    try:
        found = decode_membership(data)
    except ValueError as error:
        raise FrameError(str(error)) from error
    if not 1 <= len(found.voters) <= VOTERS_MAX or len(found.outgoing) > VOTERS_MAX:
        raise FrameError(f"membership {found} has too few or too many voters")
    for part in (found.voters, found.outgoing, found.learners):
        if len(set(part)) != len(part):
            raise FrameError(f"membership {found} names a member twice")
        for member in part:
            if member > MEMBER_ID_MAX or member_node(member) == 0:
                raise FrameError(f"membership has {member}, which is no member id")
    if not set(found.voters).isdisjoint(found.learners):
        raise FrameError(f"membership {found} has a voter that is a learner")
    return found


def check_entry(entry: Entry) -> None:
    """Refuse an entry that no correct member has stored.

    Raises FrameError: its kind is unknown, it is too long, or its membership is none.
    """
    if entry.kind > ENTRY_CONFIG:
        raise FrameError(f"entry kind {entry.kind} is unknown")
    if len(entry.data) > ENTRY_BYTES_MAX:
        raise FrameError(f"entry of {len(entry.data)} bytes")
    if entry.kind == ENTRY_CONFIG:
        read_membership(entry.data)


def _read_entries(
    raw: RaftMessage, index: i64, log_term: i64, last_term: i64, bodies: Iterator[bytes] | None
) -> list[Entry]:
    entries: list[Entry] = []
    at: i64 = index
    term: i64 = log_term
    for item in raw.entries:
        at += 1
        data = item.data if bodies is None else next(bodies, None)
        if data is None:
            raise FrameError("fewer data than entries in a frame")
        entry = Entry(at, item.term, item.kind, data)
        check_entry(entry)
        if entry.term < term or entry.term > last_term:  # what would be stored reads as damage
            raise FrameError(f"entry of term {entry.term} after {term}, sent in {last_term}")
        term = entry.term
        entries.append(entry)
    return entries


def _check_members(kind: i64, sender: int, receiver: int, source: i64, target: i64) -> None:
    if sender > MEMBER_ID_MAX or receiver > MEMBER_ID_MAX:
        raise FrameError(f"message from {sender} to {receiver}, which are no member ids")
    meant: i64 = receiver if kind == JOIN else member_node(receiver)
    if member_node(sender) != source or meant != target:
        raise FrameError(
            f"message from {sender} to {receiver} on a stream from {source} to {target}"
        )


def read_message(
    raw: RaftMessage, source: i64, target: i64, bodies: Iterator[bytes] | None = None
) -> Message:
    """Return a message of a received frame.

    Args:
        raw: what was received.
        source: node id that the stream's metadata gave.
        target: this node's id.
        bodies: the data of its entries, and of those of messages behind it; None: they are in it.

    Raises FrameError: kind or entry kind unknown, source or target not of the stream's nodes, a
    snapshot or entries that no log has, a membership that is none, or an entry that is too long.
    """
    kind: i64 = raw.kind
    if kind < KIND_FIRST or kind > KIND_LAST:
        raise FrameError(f"message kind {kind} is unknown")
    sender, receiver = raw.source, raw.target  # to read a field costs more than what is done here
    _check_members(kind, sender, receiver, source, target)
    term: i64 = raw.term
    index: i64 = raw.index
    log_term: i64 = raw.log_term
    if kind == SNAPSHOT and not (index > 0 and 0 < log_term <= term):
        raise FrameError(f"snapshot {index} of term {log_term}, sent in {term}")
    entries: list[Entry] = []
    if kind == APPEND:
        entries = _read_entries(raw, index, log_term, term, bodies)
    reject = raw.reject
    return Message(
        kind,
        raw.group,
        sender,
        receiver,
        term,
        index,
        log_term,
        raw.commit,
        entries,
        reject,
        raw.hint_index if reject else 0,
        raw.hint_term if reject else 0,
        raw.quiesce,
        raw.context,
    )


def read_messages(
    frame: Frame, source: i64, target: i64, entries: list[bytes] | None = None
) -> list[Message]:
    """Return all messages of a received frame, in order.

    Args:
        frame: what was received.
        source: node id that the stream's metadata gave.
        target: this node's id.
        entries: the data of all entries in it, where they were taken out of the frame.

    Raises FrameError: as `read_message`; or a number is larger than any that counts something.
    """
    try:
        bodies = iter(entries) if entries is not None else None
        messages = [read_message(raw, source, target, bodies) for raw in frame.messages]
    except OverflowError as error:
        raise FrameError(f"number out of range: {error}") from error
    if bodies is not None and next(bodies, None) is not None:
        raise FrameError("entries in a message that has none")
    return messages
