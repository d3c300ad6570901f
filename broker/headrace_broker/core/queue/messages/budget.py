"""Bound on the messages that one command drops, expires or makes available by itself."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.model.limits import EXPIRE_MESSAGES_MAX, EXPIRE_OCTETS_MAX


@final
class Budget:
    """Rest of the bound; the message that exceeds it is the last.

    Attributes:
        messages: that many.
        octets: of their bodies.
    """

    def __init__(self) -> None:
        self.messages: i64 = EXPIRE_MESSAGES_MAX
        self.octets: i64 = EXPIRE_OCTETS_MAX

    def renew(self) -> None:
        """Begin with another command."""
        self.messages = EXPIRE_MESSAGES_MAX
        self.octets = EXPIRE_OCTETS_MAX

    def extend(self, messages: i64, octets: i64) -> None:
        """Raise the bound by the arrivals: a full queue drops what it accepts."""
        self.messages += messages
        self.octets += octets

    def spend(self, octets: i64) -> None:
        """Count one dropped message."""
        self.messages -= 1
        self.octets -= octets

    def spent(self) -> bool:
        """Return whether the rest has to wait for a TICK."""
        return self.messages <= 0 or self.octets <= 0
