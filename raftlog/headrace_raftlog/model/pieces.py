"""Bytes that are too many to be copied at once: given in pieces, and put together in place."""

from __future__ import annotations

from io import BytesIO
from typing import final

from mypy_extensions import i64

Bytes = bytes | memoryview


@final
class Pieces:
    """Bytes that stand in several objects, to be sent one after the other."""

    def __init__(self, pieces: list[Bytes]) -> None:
        self.pieces = pieces  # in order
        size: i64 = 0
        for piece in pieces:
            size += len(piece)
        self.size = size  # bytes of all

    def __len__(self) -> int:
        return self.size

    def joined(self) -> bytes:
        """Return a copy of all bytes in one object."""
        return b"".join(self.pieces)


@final
class Assembly:
    """A bytes object of known size that is filled piece by piece, and handed out uncopied.

    BytesIO writes into its bytes object as long as nobody else refers to that, and gives out the
    object itself; memory that was never written to is not resident yet.
    """

    def __init__(self, size: i64, room: i64 = 0) -> None:
        self.size = size + room  # bytes, those of the room at the beginning included
        self.missing = size  # bytes that have not come
        self._room = room  # bytes before them that `put` is for
        self._buffer = BytesIO(bytes(int(size + room)))
        self._buffer.seek(int(room))

    def add(self, data: Bytes, start: i64 = 0, size_max: i64 = 1 << 62) -> i64:
        """Copy missing bytes from `data[start:]`, at most so many; return their number."""
        taken: i64 = min(len(data) - start, self.missing, size_max)
        if taken == len(data):
            self._buffer.write(data)
        else:
            self._buffer.write(memoryview(data)[start : start + taken])
        self.missing -= taken
        return taken

    def put(self, data: bytes) -> None:
        """Overwrite the first bytes; copies all if they are shared."""
        self._buffer.seek(0)
        self._buffer.write(data)

    def so_far(self) -> bytes:
        """Return a copy of the received part, without the room."""
        room = self._room
        return self._buffer.getvalue()[room : self.size - self.missing]

    def data(self) -> bytes:
        """Return the object, once nothing is missing."""
        assert self.missing == 0, "bytes are still to come"
        return self._buffer.getvalue()


@final
class Parted:
    """A payload that arrived in two parts."""

    def __init__(self, head: bytes, tail: Assembly) -> None:
        self.head = head  # its first bytes
        self.tail = tail  # all others, behind room for as many bytes as the application asked for
