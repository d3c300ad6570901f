"""Outbox of one peer: messages that wait, bounded in bytes, and their frames."""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64

from headrace_protos.raftlog.v1.transport_pb2 import Frame
from headrace_raftlog.model.group import CATALOG_GROUP
from headrace_raftlog.model.limits import (
    FRAME_LARGE_BYTES_TARGET,
    FRAME_PIECE_BYTES_MIN,
    MESSAGE_OVERHEAD_BYTES,
    OUTBOX_BYTES_MAX,
    OUTBOX_CONTROL_BYTES_MAX,
)
from headrace_raftlog.model.message import APPEND, HEARTBEAT, HEARTBEAT_REPLY, Message
from headrace_raftlog.model.pieces import Pieces
from headrace_raftlog.transport.codec import add_message, message_bytes
from headrace_raftlog.transport.large_frame import LargeFrame


@final
class _LargeGroup:
    """APPENDs of one group in the large lane, those of the frame under way included."""

    def __init__(self, term: i64) -> None:
        self.term = term
        self.count: i64 = 0


@final
class Outbox:
    """Three quick queues to one peer, and a lane for large items.

    The quick queues are messages without entries (control), APPENDs, and payloads of the
    application; each has its own share of a frame, so that none starves another. An item above
    `piece_bytes` waits in the large lane. The APPENDs of a group stay in order, and so
    do all payloads: while an earlier one is in the large lane, a later one goes there as well,
    however short; and a large one does not begin before the quick ones that came earlier.

    Of the heartbeats of a group one waits, the newest, and so does one answer: on a link slower
    than heartbeats come, they would be older and older, and nothing else would get through. Control
    of the catalog's group passes that of all others: without the catalog nothing is found.
    """

    def __init__(
        self,
        raft_bytes_max: i64 = OUTBOX_BYTES_MAX,
        application_bytes_max: i64 = OUTBOX_BYTES_MAX,
        control_bytes_max: i64 = OUTBOX_CONTROL_BYTES_MAX,
    ) -> None:
        self._raft_bytes_max = raft_bytes_max
        self._application_bytes_max = application_bytes_max
        self._control_bytes_max = control_bytes_max
        # bytes of each quick queue in a frame, and of the longest item in one
        self.piece_bytes: i64 = FRAME_PIECE_BYTES_MIN
        self.control_bytes: i64 = 0  # bytes of control that wait, overheads included
        self.raft_bytes: i64 = 0  # the same of APPENDs, the frame under way excluded
        self.application_bytes: i64 = 0  # the same of payloads
        self._control: deque[Message] = deque()
        self._catalog: deque[Message] = deque()  # of the catalog's group, before those
        self._beats: dict[int, Message] = {}  # of both, heartbeats by group
        self._answers: dict[int, Message] = {}  # likewise, answers to heartbeats
        self._appends: deque[Message] = deque()
        self._payloads: deque[bytes] = deque()
        # Each with the number of quick ones that have to leave before it.
        self._large_appends: deque[tuple[Message, int]] = deque()
        self._large_payloads: deque[tuple[bytes | Pieces, int]] = deque()
        self._large_groups: dict[int, _LargeGroup] = {}
        self._large_payload_count: i64 = 0  # that of the frame under way included
        self._under_way: list[int] = []  # groups of the large frame under way, one per message
        self._under_way_payloads: i64 = 0
        self._payloads_next = True
        self._appends_taken: i64 = 0
        self._payloads_taken: i64 = 0

    def post(self, message: Message) -> bool:
        """Take a Raft message; False when its queue is full and the message is dropped."""
        size = message_bytes(message)
        if message.kind != APPEND:
            if self._supersedes(message):
                return True
            if self.control_bytes + size > self._control_bytes_max and self.control_bytes > 0:
                return False
            (self._catalog if message.group == CATALOG_GROUP else self._control).append(message)
            if message.kind == HEARTBEAT:
                self._beats[message.group] = message
            elif message.kind == HEARTBEAT_REPLY:
                self._answers[message.group] = message
            self.control_bytes += size
            return True
        if self.raft_bytes + size > self._raft_bytes_max and self.raft_bytes > 0:
            return False
        self.raft_bytes += size
        if size > self.piece_bytes or message.group in self._large_groups:
            self._post_large(message)
        else:
            self._appends.append(message)
        return True

    def send(self, payload: bytes | Pieces) -> bool:
        """Take a payload; False when the queue is full and it was not taken."""
        size: i64 = len(payload) + MESSAGE_OVERHEAD_BYTES
        if (
            self.application_bytes + size > self._application_bytes_max
            and self.application_bytes > 0
        ):
            return False
        self.application_bytes += size
        if size > self.piece_bytes or self._large_payload_count > 0:
            behind = self._payloads_taken + len(self._payloads)
            self._large_payloads.append((payload, behind))
            self._large_payload_count += 1
        else:
            self._payloads.append(payload.joined() if isinstance(payload, Pieces) else payload)
        return True

    def is_empty(self) -> bool:
        """Return whether nothing waits."""
        return not (self.has_control() or self.has_quick_data() or self.has_large())

    def is_done(self) -> bool:
        """Return whether nothing waits and no large frame is under way."""
        return self.is_empty() and not self.has_large_work()

    def has_large_work(self) -> bool:
        """Return whether a large frame is under way, or anything waits for one."""
        return self.has_large() or len(self._under_way) > 0 or self._under_way_payloads > 0

    def has_control(self) -> bool:
        """Return whether messages without entries wait."""
        return len(self._control) > 0 or len(self._catalog) > 0

    def has_quick_data(self) -> bool:
        """Return whether short APPENDs or payloads wait."""
        return len(self._appends) > 0 or len(self._payloads) > 0

    def has_large(self) -> bool:
        """Return whether anything waits in the large lane."""
        return len(self._large_appends) > 0 or len(self._large_payloads) > 0

    def next_frame(self, with_control: bool = True, with_data: bool = True) -> Frame:
        """Take the oldest items of the quick queues, each up to its share.

        Args:
            with_control: whether to take messages without entries.
            with_data: whether to take others and payloads.
        """
        frame = Frame()
        if with_control:
            self._take_control(frame)
        if not with_data:
            return frame
        before: i64 = len(self._appends)
        self.raft_bytes -= _take_messages(self._appends, frame, self.piece_bytes)
        self._appends_taken += before - len(self._appends)
        taken: i64 = 0
        payloads = self._payloads
        while payloads:
            size: i64 = len(payloads[0]) + MESSAGE_OVERHEAD_BYTES
            if taken > 0 and taken + size > self.piece_bytes:
                break
            frame.application.append(payloads.popleft())
            self._payloads_taken += 1
            taken += size
        self.application_bytes -= taken
        return frame

    def next_large_frame(self) -> LargeFrame | None:
        """Take a frame of the large lane, APPENDs and payloads in turn; None where none is due.

        It is under way until `large_frame_sent`.
        """
        if not self.has_large():
            return None
        for _ in range(2):
            self._payloads_next = not self._payloads_next
            frame = LargeFrame()
            if self._payloads_next:
                self._take_large_payloads(frame)
            else:
                self._take_large_appends(frame)
            if self._under_way or self._under_way_payloads:
                return frame
        return None

    def large_frame_sent(self) -> None:
        """Note that nothing queued from now on can overtake the large frame any more."""
        for group in self._under_way:
            found = self._large_groups[group]
            found.count -= 1
            if found.count == 0:
                del self._large_groups[group]
        self._under_way.clear()
        self._large_payload_count -= self._under_way_payloads
        self._under_way_payloads = 0

    def clear(self) -> None:
        """Drop everything, the frame under way included."""
        self._control.clear()
        self._catalog.clear()
        self._beats.clear()
        self._answers.clear()
        self._appends.clear()
        self._payloads.clear()
        self._large_appends.clear()
        self._large_payloads.clear()
        self._large_groups.clear()
        self._under_way.clear()
        self._large_payload_count = 0
        self._under_way_payloads = 0
        self.control_bytes = 0
        self.raft_bytes = 0
        self.application_bytes = 0

    def _supersedes(self, message: Message) -> bool:
        """Let a heartbeat, or an answer to one, take the place of an older one that waits."""
        kind = message.kind
        if kind == HEARTBEAT:
            waiting = self._beats.get(message.group)
        elif kind == HEARTBEAT_REPLY:
            waiting = self._answers.get(message.group)
        else:
            return False
        if (
            waiting is None
            or waiting.term != message.term
            or waiting.source != message.source
            or waiting.target != message.target
            or waiting.reject != message.reject
        ):
            return False
        waiting.index = message.index
        waiting.log_term = message.log_term
        waiting.commit = message.commit
        waiting.quiesce = message.quiesce
        # Whoever answers a round of heartbeats confirms all rounds before it.
        waiting.context = max(waiting.context, message.context)
        return True

    def _take_control(self, frame: Frame) -> None:
        """Move the oldest messages without entries to a frame, up to their share."""
        taken: i64 = 0
        while self.has_control():
            waiting = self._catalog or self._control
            message = waiting[0]
            size = message_bytes(message)
            if taken > 0 and taken + size > self.piece_bytes:
                break
            waiting.popleft()
            add_message(frame, message)
            taken += size
            if self._beats.get(message.group) is message:
                del self._beats[message.group]
            elif self._answers.get(message.group) is message:
                del self._answers[message.group]
        self.control_bytes -= taken

    def _post_large(self, message: Message) -> None:
        found = self._large_groups.get(message.group)
        if found is None:
            found = _LargeGroup(message.term)
            self._large_groups[message.group] = found
        elif found.term < message.term:
            self._drop_appends(message.group, found)
            found.term = message.term
        found.count += 1
        behind = self._appends_taken + len(self._appends)
        self._large_appends.append((message, behind))

    def _drop_appends(self, group: i64, found: _LargeGroup) -> None:
        """Drop APPENDs of an earlier leadership of a group: they would be ignored."""
        kept: deque[tuple[Message, int]] = deque()
        for item in self._large_appends:
            if item[0].group == group:
                self.raft_bytes -= message_bytes(item[0])
                found.count -= 1
            else:
                kept.append(item)
        self._large_appends = kept

    def _take_large_appends(self, frame: LargeFrame) -> None:
        taken: i64 = 0
        waiting = self._large_appends
        while waiting:
            message, behind = waiting[0]
            size = message_bytes(message)
            if behind > self._appends_taken:
                break
            if taken > 0 and taken + size > FRAME_LARGE_BYTES_TARGET:
                break
            waiting.popleft()
            frame.messages.append(message)
            self._under_way.append(int(message.group))
            taken += size
        self.raft_bytes -= taken

    def _take_large_payloads(self, frame: LargeFrame) -> None:
        taken: i64 = 0
        waiting = self._large_payloads
        while waiting:
            payload, behind = waiting[0]
            size: i64 = len(payload) + MESSAGE_OVERHEAD_BYTES
            if behind > self._payloads_taken:
                break
            if taken > 0 and taken + size > FRAME_LARGE_BYTES_TARGET:
                break
            waiting.popleft()
            frame.application.append(payload)
            self._under_way_payloads += 1
            taken += size
        self.application_bytes -= taken


def _take_messages(waiting: deque[Message], frame: Frame, share: i64) -> i64:
    """Move the oldest messages to a frame, up to a queue's share; return their bytes."""
    taken: i64 = 0
    while waiting:
        size = message_bytes(waiting[0])
        if taken > 0 and taken + size > share:
            break
        add_message(frame, waiting.popleft())
        taken += size
    return taken
