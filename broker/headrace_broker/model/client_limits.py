"""What a node lets a client ask for, as its configuration says."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.model.limits import CHANNELS_MAX, FRAME_BYTES_MAX, MESSAGE_BYTES_MAX


@final
class ClientLimits:
    """Bounds that are offered at connection.tune, and the size of a message.

    Attributes:
        frame_bytes_max: octets of a frame with its envelope, 4096 to FRAME_BYTES_MAX.
        channels_max: channels per connection, from 1.
        message_bytes_max: octets of a body; a longer one closes the channel with 406.
    """

    def __init__(
        self,
        frame_bytes_max: i64 = FRAME_BYTES_MAX,
        channels_max: i64 = CHANNELS_MAX,
        message_bytes_max: i64 = MESSAGE_BYTES_MAX,
    ) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.channels_max = channels_max
        self.message_bytes_max = message_bytes_max
