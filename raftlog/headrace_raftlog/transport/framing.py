"""Frames on a connection, whole or in fragments that let other frames pass.

After the ticket a connection carries pieces, each behind a head of four bytes, big-endian: the
length of the piece in the lower 30 bits, and two flags. A piece without flags is a whole frame of
the quick lane. A piece with LARGE_FLAG is a fragment of the frame that the large lane is sending;
MORE_FLAG says that another fragment of that frame follows. Quick frames may stand between the
fragments of a large one, which is complete with its last fragment.

The receiver answers the ticket with one byte: ACCEPTED_FRAGMENTS, after which the sender may use
fragments and the receiver sends ACKNOWLEDGED for each FRAME_ACK_BYTES bytes that came after the
ticket; or ACCEPTED_WHOLE, as nodes do that know no fragments. To these every frame is sent whole.
Those nodes take any byte for the answer, pass over all that come later, and send whole frames.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_raftlog.transport.codec import FrameError
from headrace_raftlog.transport.large_frame import Bodies, BodyReader, Part, part_nothing

LENGTH_BYTES: Final = 4
LENGTH_MASK: Final = (1 << 30) - 1
MORE_FLAG: Final = 1 << 30
LARGE_FLAG: Final = 1 << 31

ACCEPTED_WHOLE: Final = 1
ACCEPTED_FRAGMENTS: Final = 2
ACKNOWLEDGED: Final = 3


def frame_head(body: bytes) -> bytes:
    """Return what stands before a whole frame."""
    return whole_head(len(body))


def whole_head(size: int) -> bytes:
    """Return what stands before a whole frame of `size` bytes."""
    return size.to_bytes(LENGTH_BYTES, "big")


def fragment_head(size: int, more: bool) -> bytes:
    """Return what stands before a fragment of `size` bytes, the frame's last unless `more`."""
    flags = LARGE_FLAG | MORE_FLAG if more else LARGE_FLAG
    return (flags | size).to_bytes(LENGTH_BYTES, "big")


@final
class FrameReader:
    """Cuts what arrives into frames.

    It keeps at most one frame of each lane that is not complete, and what arrived with its end.
    """

    def __init__(self, ticket_bytes: i64, bytes_max: i64, part: Part = part_nothing) -> None:
        self._part = part  # says where payloads of large frames are parted
        self._bytes_max = bytes_max  # bytes of a frame, at most
        self._ticket_bytes = ticket_bytes  # bytes before the first frame, which are no frame
        self._data = b""
        self._at: i64 = 0
        self._more: list[bytes] = []
        self._have: i64 = 0  # bytes from `_at` on, those of `_more` included
        self._need: i64 = (
            ticket_bytes or LENGTH_BYTES
        )  # without so many there is nothing to be read
        self._large: BodyReader | None = None  # of the large frame that has begun
        self._fragment_bytes: i64 = 0  # of its fragments that have begun
        self._fragment_left: i64 = -1  # of the one that is being read, -1 for none
        self._more_follow = False

    def feed(self, data: bytes) -> None:
        """Receive bytes."""
        self._more.append(data)
        self._have += len(data)

    def ticket(self) -> bytes | None:
        """Return what stands before the first frame, once; None before it is complete."""
        if not self._ticket_bytes or not self._complete():
            return None
        self._need = LENGTH_BYTES
        taken, self._ticket_bytes = self._ticket_bytes, 0
        return self._take(taken)

    def frame(self) -> bytes | Bodies | None:
        """Return the next frame, None when it is not complete.

        One that came in fragments has its data taken out, unless protobuf is to read all of it.

        Raises FrameError: it is longer than any, or no correct peer cuts it so.
        """
        while not self._ticket_bytes:
            if self._fragment_left >= 0:
                if not self._pass_on():
                    return None
                if not self._more_follow:
                    return self._take_large()
            if not self._complete():
                return None
            start = self._at + LENGTH_BYTES
            head: i64 = int.from_bytes(self._data[self._at : start], "big")
            size: i64 = head & LENGTH_MASK
            self._check(head, size)
            if head & LARGE_FLAG:
                self._take(LENGTH_BYTES)
                self._fragment_left = size
                self._fragment_bytes += size
                self._more_follow = head & MORE_FLAG != 0
                continue
            self._need = LENGTH_BYTES + size
            if not self._complete():
                return None
            self._need = LENGTH_BYTES
            self._take(LENGTH_BYTES)
            return self._take(size)
        return None

    def _check(self, head: i64, size: i64) -> None:
        whole: i64 = size
        if head & LARGE_FLAG:
            whole += self._fragment_bytes
        if whole > self._bytes_max:
            raise FrameError(f"frame of {whole} bytes, the maximum is {self._bytes_max}")
        if head & MORE_FLAG and (size == 0 or not head & LARGE_FLAG):
            raise FrameError(f"fragment of {size} bytes with flags {head >> 30}")

    def _pass_on(self) -> bool:
        """Pass on the received part of the current fragment; return whether it is complete."""
        large = self._large
        if large is None:
            large = self._large = BodyReader(self._bytes_max, self._part)
        while self._fragment_left > 0:
            if self._at == len(self._data):
                if not self._more:
                    return False
                self._data, self._at = self._more.pop(0), 0
            size: i64 = min(self._fragment_left, len(self._data) - self._at)
            large.feed(self._data, self._at, self._at + size)
            self._at += size
            self._have -= size
            self._fragment_left -= size
        self._fragment_left = -1
        return True

    def _take_large(self) -> bytes | Bodies:
        large, self._large = self._large, None
        self._fragment_bytes = 0
        assert large is not None, "its last fragment has come"
        return large.bodies() or large.whole()

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
