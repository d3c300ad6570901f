"""Bound on the messages that one command drops, expires or makes available by itself."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.model.limits import EXPIRE_BYTES_MAX, EXPIRE_MESSAGES_MAX


@final
class Budget:
    """Rest of the bound; the message that exceeds it is the last."""

    def __init__(self) -> None:
        self.messages: i64 = EXPIRE_MESSAGES_MAX  # that many
        self.byte_count: i64 = EXPIRE_BYTES_MAX  # of their bodies

    def renew(self) -> None:
        """Begin with another command."""
        self.messages = EXPIRE_MESSAGES_MAX
        self.byte_count = EXPIRE_BYTES_MAX

    def extend(self, messages: i64, byte_count: i64) -> None:
        """Raise the bound by the arrivals: a full queue drops what it accepts."""
        self.messages += messages
        self.byte_count += byte_count

    def spend(self, byte_count: i64) -> None:
        """Count one dropped message."""
        self.messages -= 1
        self.byte_count -= byte_count

    def spent(self) -> bool:
        """Return whether the rest has to wait for a TICK."""
        return self.messages <= 0 or self.byte_count <= 0
