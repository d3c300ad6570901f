"""Pieces of segments that are read beside the event loop, by a few threads.

A caller on the loop asks whether bytes are at hand. What the system has in its cache is taken at
once (RWF_NOWAIT); for everything else a thread reads, and the caller is called back, so that a
slow disk delays whoever wants that piece and nobody else.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from queue import SimpleQueue
from typing import Final, NamedTuple

from headrace_raftlog.model.limits import READ_CACHED_BYTES_MAX, READ_PIECES_BYTES_MAX, READ_THREADS
from headrace_raftlog.storage.disk.files import Files, is_lost
from headrace_raftlog.storage.segment.long_record import is_whole_record
from headrace_raftlog.storage.segment.piece_cache import UNUSED_TURNS, LongRecord, Piece, PieceCache
from headrace_raftlog.storage.segment.record import HEADER_BYTES

LOG: Final = logging.getLogger("headrace.raft")


def tell_nobody(*_: object) -> None:
    """Do nothing: stands in for a callback."""


def call_each(callbacks: Iterable[Callable[[], None]]) -> None:
    """Call functions one after the other, those behind one that raises as well.

    Raises Exception: what the first raised that did; what others raised is logged.
    """
    first: Exception | None = None
    for call in callbacks:
        try:
            call()
        except Exception as error:
            if first is None:
                first = error
            else:
                LOG.error("another callback failed as well", exc_info=error)
    if first is not None:
        raise first


class Place(NamedTuple):
    """A stretch of a segment: its path, the first byte, how many are wanted, and who wants them.

    Of more than `count_min` bytes the rest is read ahead. Owners take turns: whoever wants much
    keeps only itself waiting. With a `salt` it is one record, whose checksum is taken as well.
    """

    path: str
    sequence: int
    offset: int
    size: int
    owner: int = 0
    count_min: int = 0
    salt: int = 0

    @property
    def is_long(self) -> bool:
        """True if it does not share the room of the others; of such, one is read at a time."""
        return self.size > READ_PIECES_BYTES_MAX // 2


def ignore_work() -> None:
    """Ignore that a thread was given work: the default without a listener."""


class DiskReads:
    """Reads pieces ahead of their use. Belongs to the event loop's thread, as its callbacks do."""

    def __init__(self, files: Files) -> None:
        self.fetched = 0  # pieces read by threads since the start
        # called when a thread was given work
        self.on_handed_out: Callable[[], None] = ignore_work
        self._files = files
        self._pieces = PieceCache()
        # records that were read as such, for the turns in which whoever asked comes for them
        self._records: dict[tuple[int, int], Piece] = {}
        self._waiting: dict[int, deque[Place]] = {}  # by owner, in rotation
        self._callbacks: dict[tuple[int, int], list[Callable[[], None]]] = {}
        self._ages = False  # whether a turn of pieces is due
        self._under_way = 0
        self._under_way_bytes = 0  # but those of a long place
        self._long_under_way = False
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
    def has_work(self) -> bool:
        """True while threads read."""
        return self._under_way > 0

    @property
    def held_bytes(self) -> int:
        """Bytes of the pieces in memory; records that were read as such are kept besides."""
        return self._pieces.held_bytes

    @property
    def is_started(self) -> bool:
        """True once threads read; until then everything is read where it is needed."""
        return self._call_soon is not None

    def find(self, sequence: int, offset: int, count: int) -> bytes | None:
        """Return bytes that a piece in memory holds, None where none does.

        Raises OSError: they could not be read; the next call reads again.
        """
        piece = self._pieces.find(sequence, offset, count)
        if piece is None:
            return None
        if piece.error is not None:
            self._pieces.drop(sequence, offset)
            raise piece.error
        self._pieces.use(sequence, piece)
        start = offset - piece.offset
        return piece.data[start : start + count]

    def join(self, sequence: int, offset: int, count: int) -> bytes | None:
        """Return bytes that several pieces in memory hold together, None where they do not."""
        parts: list[bytes] = []
        while count > 0:
            part = self._part(sequence, offset, count)
            if not part:
                return None
            parts.append(part)
            offset += len(part)
            count -= len(part)
        return b"".join(parts)

    def _part(self, sequence: int, offset: int, count: int) -> bytes:
        """Return the content of one piece from an offset on, nothing without one."""
        piece = self._pieces.find(sequence, offset, 1)
        if piece is None or piece.error is not None:
            return b""
        self._pieces.use(sequence, piece)
        start = offset - piece.offset
        return piece.data[start : start + count]

    def holds(self, sequence: int, offset: int, count: int) -> bool:
        """Return whether `find` would return these bytes, or raise why they cannot be read."""
        return self._pieces.find(sequence, offset, count) is not None

    def take_record(self, sequence: int, offset: int) -> LongRecord | None:
        """Return a record that was read as such, None where it is not in memory.

        Raises OSError: it could not be read; the next call reads again.
        """
        piece = self._records.get((sequence, offset))
        if piece is None:
            return None
        if piece.error is not None:
            del self._records[sequence, offset]
            raise piece.error
        return piece.record

    def fetch_record(self, place: Place, done: Callable[[], None]) -> bool:
        """Read a record in a thread and take its checksum; as `fetch`."""
        key = (place.sequence, place.offset)
        if key in self._records:
            return True
        callbacks = self._callbacks.get(key)
        if callbacks is None:
            self._callbacks[key] = [done]
            self._waiting.setdefault(place.owner, deque()).append(place)
            self._hand_out()
        elif done not in callbacks:
            callbacks.append(done)
        return False

    def fetch(self, place: Place, fd: int, count_min: int, done: Callable[[], None]) -> bool:
        """Bring a piece into memory: at once where the system has it in its cache, else later.

        A long piece comes later in any case: to copy it takes the loop as long as a disk would.

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
        data: bytes | None = None
        if place.size <= READ_CACHED_BYTES_MAX:
            data = self._files.read_cached(fd, place.size, place.offset)
        if data is not None and len(data) >= count_min:
            self._keep(place.sequence, Piece(place.offset, data, None))
            return True
        self._callbacks[key] = [done]
        self._waiting.setdefault(place.owner, deque()).append(place._replace(count_min=count_min))
        self._hand_out()
        return False

    def give_up(self, done: Callable[[], None]) -> None:
        """Cancel a callback; reads with no other waiter are dropped.

        What a thread reads already is read to its end.
        """
        for key, callbacks in list(self._callbacks.items()):
            if done not in callbacks:
                continue
            callbacks.remove(done)
            if not callbacks and self._take_back(key):
                del self._callbacks[key]

    def _take_back(self, key: tuple[int, int]) -> bool:
        """Read a piece no more; return whether no thread reads it yet."""
        for owner, places in self._waiting.items():
            for place in places:
                if (place.sequence, place.offset) == key:
                    places.remove(place)
                    if not places:
                        del self._waiting[owner]
                    return True
        return False

    def forget(self, sequence: int) -> None:
        """Drop the pieces of a segment that is to be removed, or has unexpected content."""
        self._pieces.forget(sequence)
        for key in [key for key in self._records if key[0] == sequence]:
            del self._records[key]

    def close(self) -> None:
        """End the threads; no callback is called any more."""
        self._call_soon = None
        self._waiting.clear()
        self._callbacks.clear()
        for _ in self._threads:
            self._jobs.put(None)

    def _hand_out(self) -> None:
        """Give threads work, as long as there is room for its results."""
        while self._under_way < READ_THREADS:
            owner = self._next_owner()
            if owner is None:
                return
            places = self._waiting.pop(owner)
            place = places.popleft()
            if places:
                self._waiting[owner] = places
            self._under_way += 1
            self._count(place, place.size)
            if len(self._threads) < self._under_way:
                self._begin_thread()
            self._jobs.put(place)
            self.on_handed_out()

    def _next_owner(self) -> int | None:
        """Return the owner in turn, None if its read has to wait for room.

        Who wants a long piece while one is read lets the others pass.
        """
        for owner, places in self._waiting.items():
            if not places[0].is_long:
                taken = self._under_way_bytes + self._pieces.awaited_bytes()
                room = taken + places[0].size <= READ_PIECES_BYTES_MAX
                return owner if room or not self._under_way else None
            if not self._long_under_way:
                return owner
        return None

    def _count(self, place: Place, size: int) -> None:
        """Add the size of a pending read, or subtract it if negative."""
        if place.is_long:
            self._long_under_way = size > 0
        else:
            self._under_way_bytes += size

    def _begin_thread(self) -> None:
        name = f"headrace-reads-{len(self._threads)}"
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self) -> None:
        while (place := self._jobs.get()) is not None:
            piece = self._read(place)
            call_soon = self._call_soon
            if call_soon is None:
                continue
            try:
                call_soon(partial(self._take, place, piece))
            except RuntimeError:
                if self._call_soon is not None:
                    raise
                # closed since the line above, and the loop with it: nobody waits any more

    def _read(self, place: Place) -> Piece:
        try:
            fd = self._files.open(place.path)
            try:
                if place.salt:
                    return Piece(place.offset, b"", None, self._read_record(fd, place))
                data = self._read_at(fd, place)
            finally:
                self._files.close(fd)
        except OSError as error:
            return Piece(place.offset, b"", error)
        except MemoryError:
            text = f"no memory to read {place.size} bytes"
            return Piece(place.offset, b"", OSError(errno.ENOMEM, text, place.path))
        return Piece(place.offset, data, None)

    def _read_at(self, fd: int, place: Place) -> bytes:
        """Read a piece; if the disk has lost some of it, only the needed part.

        A bad sector behind a healthy record says nothing of that record.
        """
        try:
            return self._files.read(fd, place.size, place.offset)
        except OSError as error:
            if not is_lost(error) or place.size <= place.count_min:
                raise
        return self._files.read(fd, place.count_min, place.offset)

    def _read_record(self, fd: int, place: Place) -> LongRecord:
        """Read a record in two parts, so that its payload need not be cut out."""
        head = self._files.read(fd, HEADER_BYTES, place.offset)
        size = place.size - HEADER_BYTES
        payload = self._files.read(fd, size, place.offset + HEADER_BYTES)
        return LongRecord(head, payload, is_whole_record(head, payload, place.salt))

    def _take(self, place: Place, piece: Piece) -> None:
        """Keep a piece that was read and tell all who wait for it, whatever one of them raises."""
        if self._call_soon is None:
            return
        self._under_way -= 1
        self._count(place, -place.size)
        self.fetched += 1
        key = (place.sequence, place.offset)
        if place.salt:
            piece.kept_turns = UNUSED_TURNS
            self._records[key] = piece
        else:
            self._keep(place.sequence, piece)
        try:
            call_each(self._callbacks.pop(key, []))
        finally:
            self._age_soon()
            self._hand_out()

    def _age_soon(self) -> None:
        if self._call_soon is not None and not self._ages:
            self._ages = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        """Age unused pieces, once a turn of the loop."""
        self._ages = False
        kept = self._pieces.age()
        for key, piece in list(self._records.items()):
            piece.kept_turns -= 1
            kept += 1
            if piece.kept_turns < 0:
                del self._records[key]
        self._pieces.make_room()
        self._hand_out()
        if kept:
            self._age_soon()

    def _keep(self, sequence: int, piece: Piece) -> None:
        self._pieces.keep(sequence, piece)
        self._age_soon()
