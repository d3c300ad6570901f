"""How much one command may let go of what nobody asked to be let go."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.model.limits import EXPIRE_MESSAGES_MAX, EXPIRE_OCTETS_MAX


@final
class Budget:
    """What is left of it; the message that exceeds it is the last."""

    def __init__(self) -> None:
        self.messages: i64 = EXPIRE_MESSAGES_MAX  # that many
        self.octets: i64 = EXPIRE_OCTETS_MAX  # of their bodies

    def renew(self) -> None:
        """Begin with another command."""
        self.messages = EXPIRE_MESSAGES_MAX
        self.octets = EXPIRE_OCTETS_MAX

    def extend(self, messages: i64, octets: i64) -> None:
        """Allow for as much as arrived: a queue that is full lets go what it takes in."""
        self.messages += messages
        self.octets += octets

    def spend(self, octets: i64) -> None:
        """Note that a message was let go."""
        self.messages -= 1
        self.octets -= octets

    def spent(self) -> bool:
        """Return whether the rest has to wait for a TICK."""
        return self.messages <= 0 or self.octets <= 0
