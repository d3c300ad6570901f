"""The content of a basic.publish whose frames have not all arrived."""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from headrace_broker.model.message import Publish

_SMALL_PART_BYTES: Final = 1024  # below, parts are gathered: a bytes object costs 41 octets more
_MANDATORY: Final = 1
_IMMEDIATE: Final = 2


def publish_of(channel: i64, route: bytes, bits: i64, properties: bytes, body: bytes) -> Publish:
    """Return the message; `bits` is the last octet of basic.publish."""
    return Publish(
        channel, route, (bits & _MANDATORY) != 0, (bits & _IMMEDIATE) != 0, properties, body
    )


@final
class Content:
    """A publish in the making.

    Attributes:
        channel: 1 to 65535.
        missing: -1 until the header came, then the octets of body still to come.
        held: octets kept so far, of properties and body.
        skipped: the body is too large, nothing of it is kept.
        properties: the property block, once the header came.
    """

    def __init__(self, channel: i64, route: bytes, bits: i64) -> None:
        self.channel = channel
        self.missing: i64 = -1
        self.held: i64 = 0
        self.skipped = False
        self.properties = b""
        self._route = route
        self._bits = bits
        self._parts: list[bytes] = []
        self._small = BytesWriter()

    def add(self, part: bytes) -> None:
        """Keep the next octets of the body."""
        if len(part) < _SMALL_PART_BYTES:
            self._small.write(part)
            return
        self._flush_small()
        self._parts.append(part)

    def publish(self) -> Publish:
        """Return the whole message, once nothing is missing."""
        self._flush_small()
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        return publish_of(self.channel, self._route, self._bits, self.properties, body)

    def _flush_small(self) -> None:
        if len(self._small) > 0:
            self._parts.append(self._small.getvalue())
            self._small = BytesWriter()
