"""Numbers of the AMQP 0-9-1 wire format that more than one codec needs.

A frame is `u8 type | u16 channel | u32 size | size bytes payload | 0xCE`.

Source: AMQP 0-9-1 specification, sections 2.3.5 (frames) and 4.2 (wire-level format).
"""

from __future__ import annotations

from typing import Final

FRAME_METHOD: Final = 1
FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
FRAME_HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE

FRAME_HEADER_BYTES: Final = 7  # type, channel, size
FRAME_ENVELOPE_BYTES: Final = 8  # the same and the end byte: frame_max counts it
# Clients that take frame_max for the size of the payload send so much too much; RabbitMQ lets them.
FRAME_EXCESS_BYTES: Final = FRAME_ENVELOPE_BYTES
CONTENT_HEADER_BYTES: Final = 12  # class, weight, body size; the property block follows
PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"

CLASS_CONNECTION: Final = 10
CLASS_BASIC: Final = 60

# A method's index is its class id in the upper 16 bits and its method id in the lower.
CHANNEL_CLOSE_OK: Final = 0x00140029
BASIC_PUBLISH: Final = 0x003C0028
BASIC_RETURN: Final = 0x003C0032
BASIC_DELIVER: Final = 0x003C003C
BASIC_GET_OK: Final = 0x003C0047
BASIC_ACK: Final = 0x003C0050
BASIC_REJECT: Final = 0x003C005A
BASIC_NACK: Final = 0x003C0078

# Class basic and the unused weight, as they stand at the front of a content header.
BASIC_CONTENT: Final = 0x003C0000
