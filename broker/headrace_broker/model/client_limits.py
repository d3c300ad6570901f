"""Configured limits of a node on its clients."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.model.limits import (
    CHANNELS_MAX,
    FRAME_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    MESSAGE_BYTES_PLAIN,
    MESSAGE_BYTES_WHOLE,
    PARTIAL_CONTENT_BYTES_MAX,
)


def beyond_plain(message_bytes_max: i64) -> i64:
    """Return by how much bounds that follow the largest message are larger than usual."""
    return max(0, message_bytes_max - MESSAGE_BYTES_PLAIN)


@final
class ClientLimits:
    """Bounds that are offered at connection.tune, and the size of a message."""

    def __init__(
        self,
        frame_bytes_max: i64 = FRAME_BYTES_MAX,
        channels_max: i64 = CHANNELS_MAX,
        message_bytes_max: i64 = MESSAGE_BYTES_MAX,
    ) -> None:
        self.frame_bytes_max = frame_bytes_max  # of a frame with its envelope, at least 4096
        self.channels_max = channels_max  # channels per connection, from 1
        self.message_bytes_configured = message_bytes_max  # bytes of a body, as configured
        # bytes of a body that is taken now; a longer one closes the channel with 406. It is less
        # than configured where memory is short, or another node takes less.
        self.message_bytes_max = message_bytes_max
        self.rule = ""  # why it is less, "" where it is not; for people

    @property
    def partial_bytes_max(self) -> i64:
        """Bytes of the unfinished contents of a connection."""
        return PARTIAL_CONTENT_BYTES_MAX + beyond_plain(self.message_bytes_max)

    @property
    def whole_bytes_max(self) -> i64:
        """Bytes of a body where a message is held as a whole."""
        return min(self.message_bytes_max, MESSAGE_BYTES_WHOLE)

    def too_large(self, size: int) -> str:
        """Return the error for a message of so many bytes, in RabbitMQ's words."""
        most = int(self.message_bytes_max)
        text = f"message size {size} is larger than configured max size {most}"
        return f"{text}: {self.rule}" if self.rule else text
