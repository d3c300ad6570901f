"""Every bound of the broker: one line each, with unit and reason."""

from __future__ import annotations

from typing import Final

MESSAGE_BYTES_MAX: Final = 16 << 20  # octets of one body; as RabbitMQ 4: larger ones belong in a store
FRAME_BYTES_MAX: Final = 131072  # octets of a frame incl. its 8 of envelope; what clients ask for by default
CHANNELS_MAX: Final = 2047  # open channels per connection; RabbitMQ's default
