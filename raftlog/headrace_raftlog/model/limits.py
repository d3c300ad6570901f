"""Every bound of the replicated log: one line each, with unit and reason."""

from __future__ import annotations

from typing import Final

NODE_ID_MAX: Final = 1023  # ids fit 10 bits in the application's session ids

# Transport: what one node holds for, and sends to, another.
ENTRY_BYTES_MAX: Final = 32 << 20  # bytes of one proposal; it travels and is stored in one piece
PAYLOAD_BYTES_MAX: Final = 32 << 20  # bytes of one payload of the application, likewise
FRAME_LANE_BYTES_TARGET: Final = 2 << 20  # bytes of each lane in a frame (one item always fits)
GRPC_MESSAGE_BYTES_MAX: Final = 72 << 20  # bytes of a frame: both lanes with their largest item
OUTBOX_RAFT_BYTES_MAX: Final = 48 << 20  # bytes waiting per peer; beyond, Raft messages are dropped
OUTBOX_APPLICATION_BYTES_MAX: Final = 48 << 20  # bytes waiting per peer; beyond, send is refused
INBOX_HELD_BYTES_MAX: Final = 64 << 20  # bytes of payloads held until their sender is reported up
MESSAGE_OVERHEAD_BYTES: Final = 64  # bytes reckoned for a message, an entry or a payload beside data
RECONNECT_DELAY_S_MIN: Final = 0.02  # seconds before the first new attempt after a lost stream
RECONNECT_DELAY_S_MAX: Final = 1.0  # seconds; doubled up to this while a peer stays away
HANDSHAKE_S_MAX: Final = 2.0  # seconds until a peer must have answered a new stream
KEEPALIVE_MS: Final = 10_000  # milliseconds between HTTP/2 pings; notices a peer without its kernel
KEEPALIVE_TIMEOUT_MS: Final = 5_000  # milliseconds until an unanswered ping ends the connection

# Host: what is kept for groups that do not exist here yet.
HELD_MESSAGES_MAX: Final = 4096  # messages; the oldest go first, their senders repeat them
HELD_BYTES_MAX: Final = 16 << 20  # bytes, likewise

# Core.
ENTRY_COST_BYTES: Final = 128  # bytes charged per uncommitted entry besides its data: objects cost
