"""Pieces of segments in memory, found by the bytes that they hold."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from typing import Final, NamedTuple

from headrace_raftlog.model.limits import READ_PIECES_BYTES_MAX, READ_PIECES_MAX

UNUSED_TURNS: Final = 2  # turns of the loop for which a piece waits for whoever asked for it


class LongRecord(NamedTuple):
    """A record that was read by a thread: its header, its payload, and whether it is intact."""

    head: bytes
    payload: bytes
    is_intact: bool


class Piece:
    """Bytes of a segment in memory."""

    def __init__(
        self, offset: int, data: bytes, error: OSError | None, record: LongRecord | None = None
    ) -> None:
        self.offset = offset  # of the first byte in the segment
        self.data = data
        # why they could not be read, raised by whoever uses them; None if they were
        self.error = error
        self.record = record  # it, where it is a whole record and `data` is empty
        # turns for which it is not dropped, so that whoever asked for it finds it
        self.kept_turns = UNUSED_TURNS if error is None else 0


class _SegmentPieces:
    """Pieces of one segment by offset. They may overlap."""

    def __init__(self) -> None:
        self._offsets: list[int] = []  # ascending
        self._by_offset: dict[int, Piece] = {}
        self._longest = 0  # bytes of the longest piece there was while any was there

    def put(self, piece: Piece) -> None:
        """Add a piece at an offset where none is."""
        self._offsets.insert(bisect_left(self._offsets, piece.offset), piece.offset)
        self._by_offset[piece.offset] = piece
        self._longest = max(self._longest, len(piece.data))

    def drop(self, offset: int) -> None:
        """Remove the piece at an offset."""
        del self._offsets[bisect_left(self._offsets, offset)]
        del self._by_offset[offset]

    def offsets(self) -> list[int]:
        """Return the offsets of all pieces, ascending."""
        return self._offsets

    def find(self, offset: int, count: int) -> Piece | None:
        """Return a piece with all of these bytes, or a failed one at this offset, else None."""
        at = bisect_right(self._offsets, offset) - 1
        while at >= 0:
            piece = self._by_offset[self._offsets[at]]
            start = offset - piece.offset
            if start + count <= len(piece.data) or (piece.error is not None and start == 0):
                return piece
            if start + count > self._longest:
                return None  # neither is one that begins before it long enough
            at -= 1
        return None


class PieceCache:
    """Pieces of segments by segment and offset.

    READ_PIECES_MAX of READ_PIECES_BYTES_MAX at most besides those that somebody may come for yet,
    or one piece. There may be thousands of those while a log is replayed, so nothing but a turn of
    the loop looks at each.
    """

    def __init__(self) -> None:
        self.held_bytes = 0  # of all pieces
        self._pieces: dict[tuple[int, int], Piece] = {}
        # those that nobody waits for, the one used last behind the others
        self._idle: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._newest = (0, -1)  # the one kept or used last
        self._segments: dict[int, _SegmentPieces] = {}

    def find(self, sequence: int, offset: int, count: int) -> Piece | None:
        """Return a piece with all of these bytes, or a failed one at this offset, else None."""
        segment = self._segments.get(sequence)
        return None if segment is None else segment.find(offset, count)

    def use(self, sequence: int, piece: Piece) -> None:
        """Note that whoever asked for a piece came for it."""
        piece.kept_turns = 0
        self._newest = (sequence, piece.offset)
        self._idle[self._newest] = None
        self._idle.move_to_end(self._newest)

    def keep(self, sequence: int, piece: Piece) -> None:
        """Add a piece, in place of one at the same offset, and make room for it."""
        self.drop(sequence, piece.offset)
        self._newest = (sequence, piece.offset)
        self._pieces[self._newest] = piece
        if not piece.kept_turns:
            self._idle[self._newest] = None
        self._segments.setdefault(sequence, _SegmentPieces()).put(piece)
        self.held_bytes += len(piece.data)
        self.make_room()

    def drop(self, sequence: int, offset: int) -> None:
        """Remove the piece at an offset of a segment, if there is one."""
        piece = self._pieces.pop((sequence, offset), None)
        if piece is None:
            return
        self._idle.pop((sequence, offset), None)
        self.held_bytes -= len(piece.data)
        segment = self._segments[sequence]
        segment.drop(offset)
        if not segment.offsets():
            del self._segments[sequence]

    def forget(self, sequence: int) -> None:
        """Remove all pieces of a segment."""
        segment = self._segments.get(sequence)
        if segment is not None:
            for offset in list(segment.offsets()):
                self.drop(sequence, offset)

    def make_room(self) -> None:
        """Remove the least recently used pieces without a waiter, but never the newest."""
        while self._is_full():
            oldest = next((key for key in self._idle if key != self._newest), None)
            if oldest is None:
                return
            self.drop(*oldest)

    def _is_full(self) -> bool:
        return self.held_bytes > READ_PIECES_BYTES_MAX or len(self._pieces) > READ_PIECES_MAX

    def awaited_bytes(self) -> int:
        """Return the bytes of those pieces that somebody may come for yet."""
        return sum(len(piece.data) for piece in self._pieces.values() if piece.kept_turns)

    def age(self) -> int:
        """Begin a turn of the loop; return for how many more turns, in sum, pieces are kept."""
        kept = 0
        for key, piece in self._pieces.items():
            if piece.kept_turns:
                piece.kept_turns -= 1
                kept += piece.kept_turns
                if not piece.kept_turns:
                    self._idle[key] = None
        return kept
