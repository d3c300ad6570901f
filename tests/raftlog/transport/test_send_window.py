"""Bytes under way on a simulated link, on a clock of its own."""

from __future__ import annotations

from collections import deque

import pytest

from headrace_raftlog.model.limits import (
    FRAME_ACK_BYTES,
    FRAME_PIECE_BYTES_MIN,
    FRAME_PIECE_PARTS,
    SEND_DELAY_S_MAX,
    SEND_WINDOW_BYTES_MAX,
    SEND_WINDOW_BYTES_MIN,
)
from headrace_raftlog.transport.send_window import SendWindow

MBIT = 125_000  # bytes a second


class Link:
    """A queue without end before a line of a fixed rate, filled with pieces while it may be.

    Attributes:
        now: seconds.
        arrived: bytes at the other end.
        longest_s: longest that a piece took from its sender to its receiver.
    """

    def __init__(self, rate: float, travel_s: float) -> None:
        self.window = SendWindow()
        self.now = 0.0
        self.arrived = 0
        self.longest_s = 0.0
        self._rate = rate
        self._travel_s = travel_s
        self._free_at = 0.0
        self._waiting = 0
        self._under_way: deque[tuple[float, float, int]] = deque()  # sent, acknowledged, bytes

    def run(self, seconds: float) -> None:
        """Send all that may be sent."""
        until = self.now + seconds
        while self.now < until:
            while self.window.is_open:
                self._send(self.window.piece_bytes)
            self._arrive()

    def offer(self, seconds: float, rate: float) -> None:
        """Send what is offered at a rate, as far as it may be sent."""
        until = self.now + seconds
        self._waiting += int(seconds * rate)
        while True:
            while self._waiting > 0 and self.window.is_open:
                size = min(self.window.piece_bytes, self._waiting)
                self._waiting -= size
                self._send(size)
            if not self._under_way or self._under_way[0][1] > until:
                break
            self._arrive()
        self.now = until

    def slow_down(self, rate: float) -> None:
        """Carry so many bytes a second from now on, what is under way included."""
        while self._under_way:
            self._arrive()
        self._rate = rate
        self.longest_s = 0.0

    def _arrive(self) -> None:
        sent, self.now, size = self._under_way.popleft()
        self.longest_s = max(self.longest_s, self.now - sent)
        before = self.arrived // FRAME_ACK_BYTES
        self.arrived += size
        count = self.arrived // FRAME_ACK_BYTES - before
        assert self.window.acknowledged(count, self.now, bool(self._under_way))

    def _send(self, size: int) -> None:
        self._free_at = max(self._free_at, self.now) + size / self._rate
        self._under_way.append((self.now, self._free_at + self._travel_s, size))
        self.window.sent(size, self.now)


@pytest.mark.parametrize("rate", [1 * MBIT, 5 * MBIT, 50 * MBIT])
@pytest.mark.parametrize("travel_s", [0.0005, 0.05])
def test_slow_link_is_filled_and_nothing_waits_long_before_a_heartbeat(
    rate: float, travel_s: float
) -> None:
    link = Link(rate, travel_s)
    link.run(30)
    assert link.arrived >= 0.9 * rate * 30
    # The floor of two fragments takes a link of 1 Mbit/s half a second.
    floor_s = SEND_WINDOW_BYTES_MIN / rate
    assert link.longest_s < travel_s + max(2.5 * SEND_DELAY_S_MAX, 2 * floor_s)


def test_fast_link_gets_the_whole_window_in_large_pieces() -> None:
    link = Link(8000 * MBIT, 0.0005)
    assert link.window.piece_bytes == FRAME_PIECE_BYTES_MIN
    link.run(1)
    assert link.window.size == SEND_WINDOW_BYTES_MAX
    assert link.window.piece_bytes == SEND_WINDOW_BYTES_MAX // FRAME_PIECE_PARTS


def test_piece_never_takes_a_slow_link_longer_than_a_heartbeat_may_wait() -> None:
    link = Link(5 * MBIT, 0.0005)
    for _ in range(30):
        link.run(1)
        assert link.window.piece_bytes / (5 * MBIT) < SEND_DELAY_S_MAX / 4


def test_link_that_slows_down_shrinks_the_window_once_a_round_trip() -> None:
    window = SendWindow()
    window.sent(FRAME_ACK_BYTES, 0.0)
    assert window.acknowledged(1, 0.001, False)
    window.size = SEND_WINDOW_BYTES_MAX
    window.sent(SEND_WINDOW_BYTES_MAX, 1.0)
    for at in range(4):
        assert window.acknowledged(1, 2.0 + at, True)
    assert window.size == SEND_WINDOW_BYTES_MAX // 2


def test_wide_window_that_was_not_filled_shrinks_to_what_a_link_that_slows_down_holds() -> None:
    link = Link(8000 * MBIT, 0.0005)
    link.run(1)
    assert link.window.size == SEND_WINDOW_BYTES_MAX
    link.slow_down(0.9 * MBIT)
    for _ in range(200):
        link.offer(0.05, 1.6 * MBIT)  # more than it carries, and less than the window
    floor_s = SEND_WINDOW_BYTES_MIN / (0.9 * MBIT)
    assert link.longest_s < max(2.5 * SEND_DELAY_S_MAX, 2 * floor_s)


def test_idle_link_does_not_widen_the_window_and_more_than_was_sent_is_refused() -> None:
    window = SendWindow()
    for at in range(100):
        window.sent(FRAME_ACK_BYTES, at)
        assert window.acknowledged(1, at + 0.001, False)
    assert window.size == SEND_WINDOW_BYTES_MIN
    assert window.sent_bytes == window.acknowledged_bytes
    assert not window.acknowledged(1, 101.0, False)


def test_peer_whose_loop_is_busy_does_not_narrow_the_window() -> None:
    window = SendWindow()
    window.sent(FRAME_ACK_BYTES, 0.0)
    assert window.acknowledged(1, 0.001, False)
    now = 1.0
    while window.size < SEND_WINDOW_BYTES_MAX:
        count = window.size // FRAME_ACK_BYTES
        window.sent(count * FRAME_ACK_BYTES, now)
        now += 10 * SEND_DELAY_S_MAX
        assert window.acknowledged(count, now, False)


def test_urgent_items_may_be_a_piece_more() -> None:
    window = SendWindow()

    def is_open() -> tuple[bool, bool]:
        return window.is_open, window.is_open_to_control

    assert is_open() == (True, True)
    window.sent(window.size, 0.0)
    assert is_open() == (False, True)
    window.sent(window.piece_bytes, 0.0)
    assert is_open() == (False, False)
    assert window.acknowledged(1, 0.0, is_queued=True)
    assert is_open() == (False, True)


def test_peer_that_acknowledges_nothing_is_sent_whatever_there_is() -> None:
    window = SendWindow()
    window.is_bounded = False
    window.sent(SEND_WINDOW_BYTES_MAX, 0.0)
    assert window.is_open
    assert window.is_open_to_control
