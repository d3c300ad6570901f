"""Raft messages to and from their protobuf form.

An entry's index is not carried: entries follow `index` of their message without a gap.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from headrace_raftlog.model.entry import ENTRY_CONFIG, Entry
from headrace_raftlog.model.limits import ENTRY_BYTES_MAX, MESSAGE_OVERHEAD_BYTES
from headrace_raftlog.model.message import APPEND, PRE_VOTE, TIMEOUT_NOW, Message
from headrace_raftlog.transport.pb.transport_pb2 import Frame, MessageKind, RaftMessage

KIND_FIRST: Final = PRE_VOTE
KIND_LAST: Final = TIMEOUT_NOW


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


def read_message(raw: RaftMessage, source: i64, target: i64) -> Message:
    """Return a message of a received frame.

    Args:
        raw: what was received.
        source: node id that the stream's metadata gave.
        target: this node's id.

    Raises:
        FrameError: kind or entry kind unknown, source or target not those of the stream, terms
            of entries that no log has, or an entry that is too long.
    """
    kind: i64 = raw.kind
    if kind < KIND_FIRST or kind > KIND_LAST:
        raise FrameError(f"message kind {kind} is unknown")
    if raw.source != source or raw.target != target:
        raise FrameError(
            f"message from {raw.source} to {raw.target} on a stream from {source} to {target}"
        )
    index: i64 = raw.index
    entries: list[Entry] = []
    if kind == APPEND:
        at: i64 = index
        term: i64 = raw.log_term
        last_term: i64 = raw.term
        for item in raw.entries:
            at += 1
            entry = Entry(at, item.term, item.kind, item.data)
            if item.kind > ENTRY_CONFIG:
                raise FrameError(f"entry kind {item.kind} is unknown")
            if entry.term < term or entry.term > last_term:  # what would be stored reads as damage
                raise FrameError(f"entry of term {entry.term} after {term}, sent in {last_term}")
            if len(entry.data) > ENTRY_BYTES_MAX:
                raise FrameError(f"entry of {len(entry.data)} bytes")
            term = entry.term
            entries.append(entry)
    return Message(
        kind,
        raw.group,
        source,
        target,
        raw.term,
        index,
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
