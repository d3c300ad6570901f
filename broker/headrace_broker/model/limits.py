"""Every bound of the broker: one line each, with unit and reason."""

from __future__ import annotations

from typing import Final

MESSAGE_BYTES_MAX: Final = 16 << 20  # octets of one body; as RabbitMQ 4: larger ones belong in a store
FRAME_BYTES_MAX: Final = 131072  # octets of a frame incl. its 8 of envelope; what clients ask for by default
CHANNELS_MAX: Final = 2047  # open channels per connection; RabbitMQ's default
PIPELINE_COMMANDS: Final = 2  # unanswered publish (and settle) commands of a session before more gather
SESSION_OCTETS_MAX: Final = 4 << 20  # octets a session holds for its queue before its reader pauses
DELIVERY_WINDOW_OCTETS: Final = 1 << 20  # octets sent to a consumer's gateway and not yet written
REQUEST_SECONDS_MAX: Final = 30  # wait for a queue's answer; clients give up at about a minute
PARTIAL_CONTENT_BYTES_MAX: Final = 256 << 20  # octets of a connection's unfinished contents, all channels together; 16 of the largest
TABLE_DEPTH_MAX: Final = 16  # tables and arrays within each other; x-death, the deepest in use, needs 3
TABLE_FIELDS_MAX: Final = 1024  # fields of one method or property block; decoding time grows with its square
ANSWERS_KEPT_MAX: Final = 8  # answers a queue keeps per session for repeated commands
