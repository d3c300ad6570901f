"""What waits to leave for one peer, bounded in bytes, and how it becomes frames."""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64

from headrace_raftlog.model.limits import (
    FRAME_LANE_BYTES_TARGET,
    MESSAGE_OVERHEAD_BYTES,
    OUTBOX_APPLICATION_BYTES_MAX,
    OUTBOX_RAFT_BYTES_MAX,
)
from headrace_raftlog.model.message import Message
from headrace_raftlog.transport.codec import add_message, message_bytes
from headrace_raftlog.transport.pb.transport_pb2 import Frame


@final
class Outbox:
    """Two lanes to one peer: Raft messages, and payloads of the application.

    Each lane gets its own share of a frame, so neither starves the other.

    Attributes:
        raft_bytes: bytes waiting in the Raft lane, overheads included.
        application_bytes: the same of the application's lane.
    """

    def __init__(
        self,
        raft_bytes_max: i64 = OUTBOX_RAFT_BYTES_MAX,
        application_bytes_max: i64 = OUTBOX_APPLICATION_BYTES_MAX,
    ) -> None:
        self._raft_bytes_max = raft_bytes_max
        self._application_bytes_max = application_bytes_max
        self._messages: deque[Message] = deque()
        self._payloads: deque[bytes] = deque()
        self.raft_bytes: i64 = 0
        self.application_bytes: i64 = 0

    def post(self, message: Message) -> bool:
        """Take a Raft message; False when the lane is full and the message is dropped."""
        size = message_bytes(message)
        if self.raft_bytes + size > self._raft_bytes_max and self.raft_bytes > 0:
            return False
        self._messages.append(message)
        self.raft_bytes += size
        return True

    def send(self, payload: bytes) -> bool:
        """Take a payload; False when the lane is full and it was not taken."""
        size: i64 = len(payload) + MESSAGE_OVERHEAD_BYTES
        if (
            self.application_bytes + size > self._application_bytes_max
            and self.application_bytes > 0
        ):
            return False
        self._payloads.append(payload)
        self.application_bytes += size
        return True

    def is_empty(self) -> bool:
        """Return whether nothing waits."""
        return not self._messages and not self._payloads

    def next_frame(self) -> Frame:
        """Take the oldest items of both lanes, each up to its share; empty when nothing waits."""
        frame = Frame()
        taken: i64 = 0
        messages = self._messages
        while messages:
            size = message_bytes(messages[0])
            if taken > 0 and taken + size > FRAME_LANE_BYTES_TARGET:
                break
            add_message(frame, messages.popleft())
            taken += size
        self.raft_bytes -= taken
        taken = 0
        payloads = self._payloads
        while payloads:
            size = len(payloads[0]) + MESSAGE_OVERHEAD_BYTES
            if taken > 0 and taken + size > FRAME_LANE_BYTES_TARGET:
                break
            frame.application.append(payloads.popleft())
            taken += size
        self.application_bytes -= taken
        return frame

    def clear(self) -> None:
        """Drop everything."""
        self._messages.clear()
        self._payloads.clear()
        self.raft_bytes = 0
        self.application_bytes = 0
