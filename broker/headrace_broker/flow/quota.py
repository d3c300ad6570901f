"""Rates that an account may not exceed: excess has to be waited for.

The generic cell rate algorithm: an account that was idle may take a burst at once, and from then on
its rate. Nothing is refused or lost: who takes more is told for how long to stop.

Source: ITU-T I.371, annex A, virtual scheduling.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

SECOND_US: Final = 1_000_000
BURST_US: Final = SECOND_US // 4  # what an idle account may take at once, in time at its rate


@final
class Rate:
    """One rate."""

    def __init__(self, per_second: i64) -> None:
        self.per_second = per_second  # may be taken in a second; from 0, an item an hour
        self._clear_us: i64 = -(1 << 60)  # when all that was taken will have been waited for

    def take(self, amount: i64, now_us: i64) -> None:
        """Take an amount, 0 or more, whether it is too early or not."""
        cost = amount * SECOND_US // self.per_second if self.per_second > 0 else 3600 * SECOND_US
        self._clear_us = max(self._clear_us, now_us - BURST_US) + cost

    def wait_us(self, now_us: i64) -> i64:
        """Return for how long nothing more may be taken, 0 for not at all."""
        return max(self._clear_us - now_us, 0)


@final
class Quota:
    """Publish rate of a user or a vhost."""

    def __init__(self, messages: Rate | None, byte_count: Rate | None) -> None:
        self.messages = messages  # rate of messages, None for any
        self.byte_count = byte_count  # rate of bytes of bodies, None for any

    def take(self, messages: i64, byte_count: i64, now_us: i64) -> None:
        """Take note of publishes."""
        if self.messages is not None:
            self.messages.take(messages, now_us)
        if self.byte_count is not None:
            self.byte_count.take(byte_count, now_us)

    def wait_us(self, now_us: i64) -> i64:
        """Return for how long no more should be published."""
        wait: i64 = 0
        if self.messages is not None:
            wait = self.messages.wait_us(now_us)
        if self.byte_count is not None:
            wait = max(wait, self.byte_count.wait_us(now_us))
        return wait
