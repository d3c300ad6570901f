"""Credit of a consume stream: what its client may still be sent."""

from __future__ import annotations

from headrace_broker.model.limits import STREAM_CREDIT_MAX


class CreditOverflowError(ValueError):
    """More credit than there may be; the text names the field and its bound."""


class StreamCredit:
    """Messages, and bytes once the client has given any."""

    def __init__(self) -> None:
        self.messages = 0  # left
        self.byte_count = 0  # left; the message that takes it below 1 still goes
        self.is_limited = False  # bytes count

    @property
    def is_left(self) -> bool:
        """True if one more message may be sent."""
        return self.messages > 0 and (not self.is_limited or self.byte_count > 0)

    def add(self, messages: int, byte_count: int) -> None:
        """The client gives more.

        Raises:
            CreditOverflowError: it is more than anybody needs; nothing was added.
        """
        if self.messages + messages > STREAM_CREDIT_MAX:
            raise CreditOverflowError(
                f"credit.messages: must add up to {STREAM_CREDIT_MAX} at most"
            )
        if self.byte_count + byte_count > 1 << 62:
            raise CreditOverflowError(f"credit.octets: must add up to {1 << 62} at most")
        self.messages += messages
        self.byte_count += byte_count
        self.is_limited = self.is_limited or byte_count > 0

    def spend(self, byte_count: int) -> None:
        """A message goes."""
        self.messages -= 1
        if self.is_limited:
            self.byte_count -= byte_count

    def forget(self) -> int:
        """Withdraw the rest of the credit, and return its number of messages."""
        left, self.messages = self.messages, 0
        self.byte_count = 0
        return left
