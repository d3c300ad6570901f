"""Backoff before the next attempt: longer each time, within bounds, with jitter."""

from __future__ import annotations

from collections.abc import Callable

from headrace_client.limits import BACKOFF_SECONDS_MAX, BACKOFF_SECONDS_MIN


class Backoff:
    """Pauses between attempts."""

    def __init__(
        self,
        random: Callable[[], float],
        low: float = BACKOFF_SECONDS_MIN,
        high: float = BACKOFF_SECONDS_MAX,
    ) -> None:
        # returns numbers from 0 to 1, so that clients do not come back all at once
        self._random = random
        self._low = low  # seconds of the first pause at most
        self._high = high  # seconds of the longest
        self._next = low

    def failed(self, hint_s: float = 0.0) -> float:
        """Return how many seconds to wait after an attempt that failed.

        Args:
            hint_s: what the broker asked for, 0 for nothing; followed up to the longest pause.
        """
        pause = self._next * (0.5 + self._random() / 2)
        self._next = min(2 * self._next, self._high)
        return max(pause, min(hint_s, self._high))

    def succeeded(self) -> None:
        """Begin anew."""
        self._next = self._low
