"""The content of a basic.publish whose frames have not all arrived."""

from __future__ import annotations

from collections import deque
from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from headrace_broker.model.limits import LARGE_BYTES
from headrace_broker.model.message import Publish
from headrace_raftlog.model.pieces import Assembly

_SMALL_PART_BYTES: Final = 1024  # below, parts are gathered: a bytes object costs 41 bytes more
_SMALL_BYTES_MAX: Final = 64 << 10  # of gathered ones that make a part of their own
_PUT_FACTOR: Final = 3  # times as many bytes of earlier parts are put together as come
_MANDATORY: Final = 1
_IMMEDIATE: Final = 2


def publish_of(channel: i64, route: bytes, bits: i64, properties: bytes, body: bytes) -> Publish:
    """Return the message; `bits` is the last byte of basic.publish."""
    return Publish(
        channel, route, (bits & _MANDATORY) != 0, (bits & _IMMEDIATE) != 0, properties, body
    )


@final
class Content:
    """A publish in the making."""

    def __init__(self, channel: i64, route: bytes, bits: i64) -> None:
        self.channel = channel  # 1 to 65535
        self.missing: i64 = -1  # -1 until the header came, then the bytes of body still to come
        self.held: i64 = 0  # bytes kept so far, of properties and body
        self.skipped = False  # the body is too large, nothing of it is kept
        self.properties = b""  # the property block, once the header came
        self._route = route
        self._bits = bits
        self._parts: deque[bytes] = deque()
        self._body: Assembly | None = None  # of a large one, once half of it has come
        self._small = BytesWriter()

    def add(self, part: bytes) -> None:
        """Keep the next bytes of the body; `missing` says how many follow these."""
        if len(part) < _SMALL_PART_BYTES:
            self._small.write(part)
            if len(self._small) < _SMALL_BYTES_MAX:
                return
            self._flush_small()
            self._put_together(len(part), _SMALL_BYTES_MAX)
            return
        self._flush_small()
        self._parts.append(part)
        self._put_together(len(part), len(part))

    def publish(self) -> Publish:
        """Return the whole message, once nothing is missing."""
        self._flush_small()
        body = self._body
        if body is not None:
            while self._parts:
                body.add(self._parts.popleft())
            data = body.data()
        else:
            data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        return publish_of(self.channel, self._route, self._bits, self.properties, data)

    def _put_together(self, come: i64, byte_count: i64) -> None:
        """Copy earlier parts of a large body together, more than the bytes that have just come.

        So it is never copied as a whole, and takes no memory for what a client only announces.
        """
        body = self._body
        if body is None:
            held: i64 = self.held - len(self.properties) + come
            if held + self.missing < LARGE_BYTES or held < self.missing:
                return
            body = self._body = Assembly(held + self.missing)
        left: i64 = _PUT_FACTOR * byte_count
        while self._parts and left > 0:
            left -= body.add(self._parts.popleft())

    def _flush_small(self) -> None:
        if len(self._small) > 0:
            self._parts.append(self._small.getvalue())
            self._small = BytesWriter()
