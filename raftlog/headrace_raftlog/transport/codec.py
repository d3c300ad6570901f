"""Raft messages to and from their protobuf form.

An entry's index is not carried: entries follow `index` of their message without a gap.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from headrace_raftlog.model.entry import ENTRY_CONFIG, Entry
from headrace_raftlog.model.limits import ENTRY_BYTES_MAX, MESSAGE_OVERHEAD_BYTES, VOTERS_MAX
from headrace_raftlog.model.membership import (
    NODE_BITS,
    Membership,
    decode_membership,
    member_node,
)
from headrace_raftlog.model.message import APPEND, JOIN, PRE_VOTE, SNAPSHOT, Message
from headrace_raftlog.transport.pb.transport_pb2 import Frame, MessageKind, RaftMessage

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
    target = frame.messages.add(
        kind=MessageKind.ValueType(message.kind),
        group=message.group,
        source=message.source,
        target=message.target,
        term=message.term,
        index=message.index,
        log_term=message.log_term,
        commit=message.commit,
    )
    for entry in message.entries:
        target.entries.add(term=entry.term, kind=entry.kind, data=entry.data)
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

    Raises:
        FrameError: no correct leader writes it.
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

    Raises:
        FrameError: its kind is unknown, it is too long, or its membership is none.
    """
    if entry.kind > ENTRY_CONFIG:
        raise FrameError(f"entry kind {entry.kind} is unknown")
    if len(entry.data) > ENTRY_BYTES_MAX:
        raise FrameError(f"entry of {len(entry.data)} bytes")
    if entry.kind == ENTRY_CONFIG:
        read_membership(entry.data)


def _read_entries(raw: RaftMessage) -> list[Entry]:
    entries: list[Entry] = []
    at: i64 = raw.index
    term: i64 = raw.log_term
    last_term: i64 = raw.term
    for item in raw.entries:
        at += 1
        entry = Entry(at, item.term, item.kind, item.data)
        check_entry(entry)
        if entry.term < term or entry.term > last_term:  # what would be stored reads as damage
            raise FrameError(f"entry of term {entry.term} after {term}, sent in {last_term}")
        term = entry.term
        entries.append(entry)
    return entries


def _check_members(raw: RaftMessage, source: i64, target: i64) -> None:
    if raw.source > MEMBER_ID_MAX or raw.target > MEMBER_ID_MAX:
        raise FrameError(f"message from {raw.source} to {raw.target}, which are no member ids")
    meant: i64 = raw.target if raw.kind == JOIN else member_node(raw.target)
    if member_node(raw.source) != source or meant != target:
        raise FrameError(
            f"message from {raw.source} to {raw.target} on a stream from {source} to {target}"
        )


def read_message(raw: RaftMessage, source: i64, target: i64) -> Message:
    """Return a message of a received frame.

    Args:
        raw: what was received.
        source: node id that the stream's metadata gave.
        target: this node's id.

    Raises:
        FrameError: kind or entry kind unknown, source or target not of the stream's nodes, a
            snapshot or entries that no log has, a membership that is none, or an entry that is
            too long.
    """
    kind: i64 = raw.kind
    if kind < KIND_FIRST or kind > KIND_LAST:
        raise FrameError(f"message kind {kind} is unknown")
    _check_members(raw, source, target)
    if kind == SNAPSHOT and not (raw.index > 0 and 0 < raw.log_term <= raw.term):
        raise FrameError(f"snapshot {raw.index} of term {raw.log_term}, sent in {raw.term}")
    entries: list[Entry] = _read_entries(raw) if kind == APPEND else []
    return Message(
        kind,
        raw.group,
        raw.source,
        raw.target,
        raw.term,
        raw.index,
        raw.log_term,
        raw.commit,
        entries,
        raw.reject,
        raw.hint_index,
        raw.hint_term,
        raw.quiesce,
        raw.context,
    )


def read_messages(frame: Frame, source: i64, target: i64) -> list[Message]:
    """Return all messages of a received frame, in order.

    Raises:
        FrameError: as `read_message`; or a number is larger than any that counts something.
    """
    try:
        return [read_message(raw, source, target) for raw in frame.messages]
    except OverflowError as error:
        raise FrameError(f"number out of range: {error}") from error
