"""The file `marks`: a node's memory of disks, its own and its peers'.

    slot: 8 bytes magic | u32 crc32c of the rest | u32 bytes of text | u64 serial | text (JSON)

Two slots take turns, so that a torn write leaves the one before. They are written in place, with a
sync each, and need no space of a full disk. What is remembered may lag behind what is true; it is
never ahead of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from google_crc32c import extend

from headrace_raftlog.model.limits import MARK_SLOT_BYTES, STARTS_KEPT
from headrace_raftlog.model.mark import Mark, Starts
from headrace_raftlog.storage.disk.files import Files, write_all
from headrace_raftlog.storage.writing.identity import Identity

MARKS_NAME: Final = "marks"

_MAGIC: Final = b"hrmarks1"
_LEAD: Final = struct.Struct("<8sI")
_REST: Final = struct.Struct("<IQ")
_HEAD_BYTES: Final = _LEAD.size + _REST.size


@dataclass(frozen=True, slots=True)
class Marks:
    """Contents of the file."""

    # how far the own disk has come; None in a directory of an earlier release
    own: Mark | None = None
    starts: Starts = ()  # of the own disk, the last STARTS_KEPT
    # of other nodes' disks, by node id, those heard last at the end
    peers: dict[int, tuple[Mark, ...]] = field(default_factory=dict)

    def begun(self, own: Mark) -> Marks:
        """Return the same with one more start of the own disk, which has found `own.batch`."""
        known = self.starts if self.own is not None and self.own.disk == own.disk else ()
        earlier = [start for start in known if start[0] < own.boot]
        starts = (*earlier, (own.boot, own.batch))
        return replace(self, own=own, starts=starts[-STARTS_KEPT:])

    def lost(self, identity: Identity, found: int) -> str:
        """Return what the log of a directory lacks of its synced batches, "" for nothing.

        Args:
            identity: of the directory.
            found: number of the last batch in its log.
        """
        own = self.own
        if not identity.formed:
            return ""  # it has never promised anything
        if own is None or own.disk != identity.disk or own.batch <= found:
            return ""
        return (
            f"node {identity.node} has lost the end of its log: batch {own.batch} was synced "
            f"under boot {own.boot}, but {found} is the last"
        )

    def encode(self) -> bytes:
        """Return the text of a slot."""
        fields = {
            "own": self.own,
            "starts": self.starts,
            "peers": {str(node): marks for node, marks in self.peers.items()},
        }
        return json.dumps(fields, separators=(",", ":")).encode()


class MarkFile:
    """The file, open."""

    def __init__(self, files: Files, fd: int) -> None:
        """Use `open`."""
        self._files = files
        self._fd = fd
        self._serial = 0
        self.marks = Marks()  # what stands in it

    @staticmethod
    def open(directory: str, files: Files | None = None) -> MarkFile:
        """Read the file of a directory whose lock is held, or begin an empty one.

        One of which no slot is intact is begun anew: what it said is unknown then.

        Raises OSError: as the system says.
        """
        disk = files if files is not None else Files()
        path = os.path.join(directory, MARKS_NAME)
        try:
            fd = disk.open(path, write=True)
        except FileNotFoundError:
            fd = _create(disk, directory, path)
        found = MarkFile(disk, fd)
        try:
            found._read()
        except BaseException:
            disk.close(fd)
            raise
        return found

    @staticmethod
    def read(directory: str, files: Files) -> Marks:
        """Return what stands in the file of a directory; nothing where there is none.

        Raises OSError: as the system says.
        """
        try:
            fd = files.open(os.path.join(directory, MARKS_NAME))
        except FileNotFoundError:
            return Marks()
        found = MarkFile(files, fd)
        try:
            found._read()
        finally:
            found.close()
        return found.marks

    def write(self, marks: Marks) -> None:
        """Remember other marks, durably.

        Raises OSError: as the system says; those before stand there, or these; ValueError: they are
        longer than a slot.
        """
        text = marks.encode()
        serial = self._serial + 1
        rest = _REST.pack(len(text), serial) + text
        data = _LEAD.pack(_MAGIC, extend(0, rest)) + rest
        if len(data) > MARK_SLOT_BYTES:
            raise ValueError(f"marks take {len(data)} bytes, a slot {MARK_SLOT_BYTES}")
        offset = serial % 2 * MARK_SLOT_BYTES
        write_all(self._files, self._fd, [data], len(data), offset)
        self._serial = serial
        self.marks = marks

    def close(self) -> None:
        """Close the file."""
        self._files.close(self._fd)

    def _read(self) -> None:
        for slot in (0, 1):
            data = self._files.read(self._fd, MARK_SLOT_BYTES, slot * MARK_SLOT_BYTES)
            found = _decode(data)
            if found is not None and found[0] > self._serial:
                self._serial, self.marks = found


def _create(files: Files, directory: str, path: str) -> int:
    draft = path + ".new"
    with contextlib.suppress(FileNotFoundError):
        files.remove(draft)
    fd = files.create(draft)
    zeros = bytes(2 * MARK_SLOT_BYTES)
    write_all(files, fd, [zeros], len(zeros), 0)
    files.rename(draft, path)
    files.sync_directory(directory)
    return fd


def _decode(data: bytes) -> tuple[int, Marks] | None:
    """Return serial and marks of a slot, None when it is not intact."""
    if len(data) < _HEAD_BYTES:
        return None
    magic, checksum = _LEAD.unpack_from(data)
    length, serial = _REST.unpack_from(data, _LEAD.size)
    rest = data[_LEAD.size : _HEAD_BYTES + length]
    if magic != _MAGIC or len(data) < _HEAD_BYTES + length or extend(0, rest) != checksum:
        return None
    return serial, _marks(json.loads(rest[_REST.size :]))


def _marks(fields: Any) -> Marks:
    own = fields["own"]
    starts = tuple((int(boot), int(batch)) for boot, batch in fields["starts"])
    peers = {int(node): _several(marks) for node, marks in fields["peers"].items()}
    return Marks(None if own is None else Mark(*own), starts, peers)


def _several(marks: Iterable[Iterable[int]]) -> tuple[Mark, ...]:
    return tuple(Mark(*mark) for mark in marks)
