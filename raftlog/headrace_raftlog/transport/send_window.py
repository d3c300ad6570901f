"""Bound on bytes in flight to a peer, by the delay that they cause.

Whatever a slow link holds, in the kernel, in a router or in a proxy, stands before the next
heartbeat. The window is therefore as small as fills the link: once a round trip, it is half of
what is under way when bytes are acknowledged more than SEND_DELAY_S_MAX later than the earliest on
the connection were, and grows while they take less than half of that. A peer whose loop is busy
acknowledges late as well; then its kernel has everything that was sent, and the window grows.

Source: RFC 6817 (LEDBAT) for the measure, the delay above the least one seen.
"""

from __future__ import annotations

from collections import deque
from typing import final

from headrace_raftlog.model.limits import (
    FRAME_ACK_BYTES,
    FRAME_PIECE_BYTES_MIN,
    FRAME_PIECE_PARTS,
    SEND_DELAY_S_MAX,
    SEND_WINDOW_BYTES_MAX,
    SEND_WINDOW_BYTES_MIN,
)


@final
class SendWindow:
    """Bytes under way on one connection, and how many may be."""

    def __init__(self) -> None:
        # bytes that may be under way, SEND_WINDOW_BYTES_MIN to SEND_WINDOW_BYTES_MAX
        self.size = SEND_WINDOW_BYTES_MIN
        self.sent_bytes = 0  # bytes sent so far
        # bytes of these known to have arrived, a multiple of FRAME_ACK_BYTES
        self.acknowledged_bytes = 0
        # False for a peer that does not say what has arrived: more may always be sent
        self.is_bounded = True
        self._marks: deque[float] = deque()  # when each FRAME_ACK_BYTES not acknowledged were full
        self._delay_s_min = float("inf")
        self._reduced_at = 0  # bytes sent when the window was halved last

    @property
    def is_open(self) -> bool:
        """True while more may be sent that is not urgent."""
        return self._under_way < self.size or not self.is_bounded

    @property
    def is_open_to_control(self) -> bool:
        """True while more may be sent that is urgent: a piece more than of the rest.

        Heartbeats of 10,000 groups keep a link of 1 Mbit/s busy for seconds. While they wait here,
        newer ones take their places, and the peer's answers do not wait for them in the kernel.
        """
        return self._under_way < self.size + self.piece_bytes or not self.is_bounded

    @property
    def _under_way(self) -> int:
        return self.sent_bytes - self.acknowledged_bytes

    @property
    def piece_bytes(self) -> int:
        """Bytes that may leave in one piece: they delay a heartbeat by little on this link."""
        return max(FRAME_PIECE_BYTES_MIN, self.size // FRAME_PIECE_PARTS)

    def sent(self, size: int, now: float) -> None:
        """Account bytes that leave at a time in seconds."""
        if not self.is_bounded:
            return
        self.sent_bytes += size
        marked = self.acknowledged_bytes // FRAME_ACK_BYTES + len(self._marks)
        for _ in range(self.sent_bytes // FRAME_ACK_BYTES - marked):
            self._marks.append(now)

    def acknowledged(self, count: int, now: float, is_queued: bool) -> bool:
        """Take acknowledgements.

        Args:
            count: how many.
            now: seconds.
            is_queued: whether anything sent has not reached the peer's kernel yet.

        Returns:
            False where so much was never sent.
        """
        if count > len(self._marks):
            return False
        under_way = self._under_way
        was_limited = 2 * under_way >= self.size
        sent_at = now
        for _ in range(count):
            sent_at = self._marks.popleft()
        self.acknowledged_bytes += count * FRAME_ACK_BYTES
        delay_s = now - sent_at
        self._delay_s_min = min(self._delay_s_min, delay_s)
        excess_s = delay_s - self._delay_s_min
        if is_queued and excess_s > SEND_DELAY_S_MAX:
            if self.acknowledged_bytes > self._reduced_at:
                self._reduced_at = self.sent_bytes
                self.size = max(SEND_WINDOW_BYTES_MIN, min(self.size, under_way) // 2)
        elif was_limited and (excess_s < SEND_DELAY_S_MAX / 2 or not is_queued):
            self.size = min(SEND_WINDOW_BYTES_MAX, self.size + count * FRAME_ACK_BYTES)
        return True
