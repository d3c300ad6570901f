"""Pieces of segments that are read beside the event loop, by a few threads.

A caller on the loop asks whether bytes are at hand. What the system has in its cache is taken at
once (RWF_NOWAIT); for everything else a thread reads, and the caller is called back, so that a
slow disk delays whoever wants that piece and nobody else.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Final, NamedTuple

from headrace_raftlog.model.limits import (
    READ_PIECES_BYTES_MAX,
    READ_PIECES_MAX,
    READ_THREADS,
)
from headrace_raftlog.storage.files import Files

_UNUSED_TURNS: Final = 2  # turns of the loop for which a piece waits for whoever asked for it


def tell_nobody() -> None:
    """Stand in for a callback that nobody needs."""


class Place(NamedTuple):
    """A stretch of a segment: its path, the first byte, and how many are wanted."""

    path: str
    sequence: int
    offset: int
    size: int


class Piece:
    """Bytes of a segment in memory.

    Attributes:
        offset: of the first byte in the segment.
        data: the bytes.
        error: why they could not be read, raised by whoever uses them; None if they were.
        kept_turns: turns for which it is not dropped, so that whoever asked for it finds it.
    """

    def __init__(self, offset: int, data: bytes, error: OSError | None) -> None:
        self.offset = offset
        self.data = data
        self.error = error
        self.kept_turns = _UNUSED_TURNS if error is None else 0


class DiskReads:
    """Reads pieces ahead of their use. Belongs to the event loop's thread, as its callbacks do.

    Attributes:
        held_bytes: in pieces that are kept; READ_PIECES_BYTES_MAX at most, or one piece.
        fetched: pieces read by threads since the start.
    """

    def __init__(self, files: Files) -> None:
        self.held_bytes = 0
        self.fetched = 0
        self._files = files
        self._pieces: OrderedDict[tuple[int, int], Piece] = OrderedDict()  # used last: last
        self._waiting: deque[Place] = deque()
        self._callbacks: dict[tuple[int, int], list[Callable[[], None]]] = {}
        self._under_way = 0
        self._under_way_bytes = 0
        self._jobs: SimpleQueue[Place | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._call_soon: Callable[[Callable[[], object]], object] | None = None

    def start(self, call_soon: Callable[[Callable[[], object]], object]) -> None:
        """Start to read in threads.

        Args:
            call_soon: has a function called on the event loop; any thread may call it.
        """
        self._call_soon = call_soon

    @property
    def is_started(self) -> bool:
        """True once threads read; until then everything is read where it is needed."""
        return self._call_soon is not None

    def find(self, sequence: int, offset: int, count: int) -> bytes | None:
        """Return bytes that a piece in memory holds, None where none does.

        Raises:
            OSError: they could not be read; the next call reads again.
        """
        for key, piece in self._pieces.items():
            if key[0] != sequence:
                continue
            start = offset - piece.offset
            if start >= 0 and start + count <= len(piece.data):
                self._pieces.move_to_end(key)
                piece.kept_turns = 0
                return piece.data[start : start + count]
            if piece.error is not None and start == 0:
                self._drop(key)
                raise piece.error
        return None

    def holds(self, sequence: int, offset: int, count: int) -> bool:
        """Return whether `find` would return these bytes, or raise why they cannot be read."""
        for key, piece in self._pieces.items():
            if key[0] != sequence:
                continue
            start = offset - piece.offset
            if start >= 0 and start + count <= len(piece.data):
                return True
            if piece.error is not None and start == 0:
                return True
        return False

    def fetch(self, place: Place, fd: int, count_min: int, done: Callable[[], None]) -> bool:
        """Bring a piece into memory: at once where the system has it in its cache, else later.

        Args:
            place: the piece that is wanted; the end of the file may cut it.
            fd: the segment's descriptor.
            count_min: bytes of it without which the caller cannot go on.
            done: called in a later turn of the loop when the piece was read, or could not be;
                the piece is kept for that call and the turn after it.

        Returns:
            Whether the piece is there now; `done` is not called then.
        """
        key = (place.sequence, place.offset)
        callbacks = self._callbacks.get(key)
        if callbacks is not None:
            if done not in callbacks:
                callbacks.append(done)
            return False
        data = self._files.read_cached(fd, place.size, place.offset)
        if data is not None and len(data) >= count_min:
            self._keep(key, Piece(place.offset, data, None))
            return True
        self._callbacks[key] = [done]
        self._waiting.append(place)
        self._hand_out()
        return False

    def forget(self, sequence: int) -> None:
        """Drop the pieces of a segment that is to be removed, or holds what was not expected."""
        for key in [key for key in self._pieces if key[0] == sequence]:
            self._drop(key)

    def close(self) -> None:
        """End the threads; nobody is called back any more."""
        self._call_soon = None
        self._waiting.clear()
        self._callbacks.clear()
        for _ in self._threads:
            self._jobs.put(None)

    def _hand_out(self) -> None:
        """Give threads work, as long as what they bring has room."""
        while self._waiting and self._under_way < READ_THREADS:
            place = self._waiting[0]
            taken = self._under_way_bytes + sum(
                len(piece.data) for piece in self._pieces.values() if piece.kept_turns
            )
            if self._under_way and taken + place.size > READ_PIECES_BYTES_MAX:
                return
            self._waiting.popleft()
            self._under_way += 1
            self._under_way_bytes += place.size
            if len(self._threads) < self._under_way:
                self._begin_thread()
            self._jobs.put(place)

    def _begin_thread(self) -> None:
        name = f"headrace-reads-{len(self._threads)}"
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self) -> None:
        while (place := self._jobs.get()) is not None:
            piece = self._read(place)
            call_soon = self._call_soon
            if call_soon is not None:
                call_soon(partial(self._take, place, piece))

    def _read(self, place: Place) -> Piece:
        try:
            fd = self._files.open(place.path)
            try:
                data = self._files.read(fd, place.size, place.offset)
            finally:
                self._files.close(fd)
        except OSError as error:
            return Piece(place.offset, b"", error)
        return Piece(place.offset, data, None)

    def _take(self, place: Place, piece: Piece) -> None:
        """Keep a piece that was read and tell who waits for it."""
        if self._call_soon is None:
            return
        self._under_way -= 1
        self._under_way_bytes -= place.size
        self.fetched += 1
        key = (place.sequence, place.offset)
        self._keep(key, piece)
        for done in self._callbacks.pop(key, []):
            done()
        self._call_soon(self._turn)
        self._hand_out()

    def _turn(self) -> None:
        """Age pieces that nobody has used; called once for each that was read."""
        for piece in self._pieces.values():
            piece.kept_turns = max(0, piece.kept_turns - 1)
        self._make_room()
        self._hand_out()

    def _keep(self, key: tuple[int, int], piece: Piece) -> None:
        self._drop(key)
        self._pieces[key] = piece
        self.held_bytes += len(piece.data)
        self._make_room()

    def _make_room(self) -> None:
        """Drop what was not used for longest and is not waited for, but never the newest."""
        for key in list(self._pieces)[:-1]:
            if self.held_bytes <= READ_PIECES_BYTES_MAX and len(self._pieces) <= READ_PIECES_MAX:
                return
            if not self._pieces[key].kept_turns:
                self._drop(key)

    def _drop(self, key: tuple[int, int]) -> None:
        piece = self._pieces.pop(key, None)
        if piece is not None:
            self.held_bytes -= len(piece.data)
