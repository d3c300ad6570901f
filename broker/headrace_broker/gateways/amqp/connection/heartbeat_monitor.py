"""Heartbeats of a connection.

Source: AMQP 0-9-1 specification, section 4.2.7: after two intervals of silence a peer
is thought dead.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

_SILENT_CHECKS_MAX: Final = 4  # each half an interval


@final
class HeartbeatMonitor:
    """Counts the half intervals in which nothing was heard."""

    def __init__(self) -> None:
        self.heard = False  # something came since the last check
        self._silent_checks: i64 = 0

    def silent(self, listening: bool) -> bool:
        """Count half an interval; True once the peer must be considered dead.

        Args:
            listening: whether it could have been heard.
        """
        if self.heard or not listening:
            self._silent_checks = 0
        else:
            self._silent_checks += 1
        self.heard = False
        return self._silent_checks >= _SILENT_CHECKS_MAX
