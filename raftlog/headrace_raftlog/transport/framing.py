"""Frames on a connection: each behind its length in four octets, big-endian."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_raftlog.transport.codec import FrameError

LENGTH_BYTES: Final = 4


def frame_head(body: bytes) -> bytes:
    """Return what stands before a frame."""
    return len(body).to_bytes(LENGTH_BYTES, "big")


@final
class FrameReader:
    """Cuts what arrives into frames.

    It keeps at most one frame that is not complete, and what arrived with its end.

    Args:
        ticket_bytes: octets before the first frame, which are no frame.
        bytes_max: octets of a frame, at most.
    """

    def __init__(self, ticket_bytes: i64, bytes_max: i64) -> None:
        self._bytes_max = bytes_max
        self._ticket_bytes = ticket_bytes
        self._data = b""
        self._at: i64 = 0
        self._more: list[bytes] = []
        self._have: i64 = 0  # octets from `_at` on, those of `_more` included
        self._need: i64 = ticket_bytes  # without so many there is nothing to be read

    def feed(self, data: bytes) -> None:
        """Take what has arrived."""
        self._more.append(data)
        self._have += len(data)

    def ticket(self) -> bytes | None:
        """Return what stands before the first frame, once; None before it is complete."""
        if not self._ticket_bytes or not self._complete():
            return None
        self._need = LENGTH_BYTES
        taken, self._ticket_bytes = self._ticket_bytes, 0
        return self._take(taken)

    def frame(self) -> bytes | None:
        """Return the next frame, None when it is not complete.

        Raises:
            FrameError: it is longer than any.
        """
        if self._ticket_bytes or not self._complete():
            return None
        start = self._at + LENGTH_BYTES
        size: i64 = int.from_bytes(self._data[self._at : start], "big")
        if size > self._bytes_max:
            raise FrameError(f"frame of {size} octets, the maximum is {self._bytes_max}")
        self._need = LENGTH_BYTES + size
        if not self._complete():
            return None
        self._need = LENGTH_BYTES
        self._take(LENGTH_BYTES)
        return self._take(size)

    def _complete(self) -> bool:
        """Return whether as much is there as is needed, and have it in one piece."""
        if self._have < self._need:
            return False
        if self._more:
            rest = self._data[self._at :]
            self._data = b"".join([rest, *self._more]) if rest else b"".join(self._more)
            self._at = 0
            self._more.clear()
        return True

    def _take(self, size: i64) -> bytes:
        data, start = self._data, self._at
        self._at += size
        self._have -= size
        if not self._have:
            self._data, self._at = b"", 0
        return data[start : start + size]
