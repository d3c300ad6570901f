"""An ENQUEUE of so many bytes that no turn of the event loop copies all of them."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.core.queue.command.command import STAMP_BYTES, encode_stamp
from headrace_raftlog.model.pieces import Assembly, Bytes

HEAD_BYTES: Final = 64  # of an ENQUEUE, for those who look at more than its data


@final
class LargeCommand:
    """The command without its stamp: in pieces, or assembled behind room for a stamp.

    Another node is sent the pieces. A leader on this node needs one object, for which the pieces
    are copied in steps; its stamp is written into it.

    Attributes:
        head: the first bytes, HEAD_BYTES or fewer, with the number of the first message.
    """

    def __init__(self, pieces: list[Bytes], assembly: Assembly | None = None) -> None:
        self._pieces = pieces  # in order, not assembled; the first holds at least `head`
        self._assembly = assembly  # all of it, behind room for a stamp, instead of pieces
        self._copied: i64 = 0  # of the first piece that is left
        if assembly is None:
            self.head = bytes(pieces[0][:HEAD_BYTES])
        else:
            self.head = assembly.data()[STAMP_BYTES : STAMP_BYTES + HEAD_BYTES]
        size: i64 = 0 if assembly is None else assembly.size - STAMP_BYTES
        for piece in pieces:
            size += len(piece)
        self.size = size  # bytes of all

    @property
    def assembled(self) -> bool:
        """True once it is one object."""
        assembly = self._assembly
        return assembly is not None and assembly.missing == 0

    def copy(self, bytes_max: i64) -> None:
        """Copy so many bytes more into one object."""
        assembly = self._assembly
        if assembly is None:
            assembly = self._assembly = Assembly(self.size, STAMP_BYTES)
        left = bytes_max
        while left > 0 and self._pieces:
            piece = self._pieces[0]
            taken = assembly.add(piece, self._copied, left)
            left -= taken
            self._copied += taken
            if self._copied == len(piece):
                self._pieces = self._pieces[1:]
                self._copied = 0

    def pieces(self) -> list[Bytes]:
        """Return all bytes, uncopied once it is assembled and before that is begun."""
        assembly = self._assembly
        if assembly is None:
            return self._pieces
        self.copy(self.size)
        return [memoryview(assembly.data())[STAMP_BYTES:]]

    def stamped(self, time_ms: i64) -> bytes:
        """Return the entry data, proposed by the leader at `time_ms` (Unix time).

        What is not assembled yet is copied now; and all is, where it was stamped before and
        somebody still has that.
        """
        self.copy(self.size)
        assembly = self._assembly
        assert assembly is not None
        assembly.put(encode_stamp(time_ms))
        return assembly.data()
