"""Frames of much data, to and from their protobuf form without copying the data around.

The bytes are those of `Frame` in transport.proto. Protobuf's own code would copy an entry of
16 MiB three times on its way out, for each peer, and twice on its way in, each time into memory
that the system has to clear first: that is what every other group of the node would wait for.
Long data are copied once, as their fragments arrive: never as a whole in one turn of the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from headrace_protos.raftlog.v1.transport_pb2 import RaftMessage
from headrace_raftlog.model.limits import FRAME_BYTES_MAX
from headrace_raftlog.model.message import Message
from headrace_raftlog.model.pieces import Assembly, Bytes, Parted, Pieces
from headrace_raftlog.transport.codec import set_fields

# Tags: field number and wire type in one byte.
_FRAME_MESSAGE: Final = 1 << 3 | 2
_FRAME_PAYLOAD: Final = 2 << 3 | 2
_FRAME_SYNCED: Final = 3 << 3
_FRAME_MARK: Final = 4 << 3 | 2
_MESSAGE_ENTRY: Final = 9 << 3 | 2
_MESSAGE_LAST: Final = 14 << 3  # up to here all its other fields are numbers
_ENTRY_TERM: Final = 1 << 3
_ENTRY_KIND: Final = 2 << 3
_ENTRY_DATA: Final = 3 << 3 | 2
_WIRE_TYPE: Final = 7
_BROKEN: Final = -1
_INCOMPLETE: Final = -2

# Parts of a frame that contain others.
_IN_FRAME: Final = 0
_IN_MESSAGE: Final = 1
_IN_ENTRY: Final = 2

ASSEMBLED_BYTES_MIN: Final = 64 << 10  # data from here on are filled in as they arrive
PART_HEAD_BYTES: Final = 64  # of a payload, by which it is decided where it is parted

# Returns where a payload of so many bytes, given its first ones, is to be parted, 0 for nowhere,
# and the room before its second part.
Part = Callable[[bytes, int], tuple[int, int]]


def part_nothing(head: bytes, size: int) -> tuple[int, int]:
    """Keep a payload whole."""
    del head, size
    return 0, 0


@final
class LargeFrame:
    """Content of one outgoing frame of the large lane."""

    def __init__(self) -> None:
        self.messages: list[Message] = []  # APPENDs
        self.application: list[bytes | Pieces] = []  # payloads

    def pieces(self) -> list[Bytes]:
        """Return the frame's bytes; data of entries and payloads are pieces of their own."""
        out: list[Bytes] = []
        for message in self.messages:
            _add_message(out, message)
        for payload in self.application:
            out.append(_head(_FRAME_PAYLOAD, len(payload)))
            if isinstance(payload, Pieces):
                out.extend(payload.pieces)
            else:
                out.append(payload)
        return out


def _add_message(out: list[Bytes], message: Message) -> None:
    target = RaftMessage()
    set_fields(target, message)
    fields = target.SerializeToString()
    entries: list[Bytes] = []
    size: i64 = len(fields)
    for entry in message.entries:
        head = (
            _head(_ENTRY_TERM, entry.term)
            + _head(_ENTRY_KIND, entry.kind)
            + _head(_ENTRY_DATA, len(entry.data))
        )
        whole = _head(_MESSAGE_ENTRY, len(head) + len(entry.data)) + head
        size += len(whole) + len(entry.data)
        entries.append(whole)
        entries.append(entry.data)
    out.append(_head(_FRAME_MESSAGE, size) + fields)
    out.extend(entries)


def _varint(value: i64) -> bytes:
    """Return a number, not negative, in steps of 7 bits."""
    byte_counts: list[int] = []
    rest: i64 = value
    while rest > 0x7F:
        byte_counts.append(int(rest & 0x7F | 0x80))
        rest >>= 7
    byte_counts.append(int(rest))
    return bytes(byte_counts)


def _head(tag: i64, value: i64) -> bytes:
    """Return a number behind its tag; before bytes it is their length."""
    return bytes((int(tag),)) + _varint(value)


@final
class Bodies:
    """Payload taken out of an incoming frame before protobuf read the rest of it."""

    def __init__(self) -> None:
        self.skeleton = b""  # the frame without the data of its entries, and without payloads
        self.entries: list[bytes] = []  # the data of its entries, in order
        self.application: list[bytes | Parted] = []  # its payloads
        self.byte_count: i64 = 0  # of all these data


def take_bodies(body: bytes) -> Bodies | None:
    """Take the data out of a frame; None where it holds anything that is not known here.

    Whoever gets None leaves the whole frame to protobuf, which knows what to do with fields of
    later releases and with bytes that are no frame.
    """
    taking = BodyReader(len(body), keeps_whole=False)
    taking.feed(body)
    return taking.bodies()


@final
class BodyReader:
    """Reader that takes the data out of a frame whose bytes arrive in any pieces.

    It keeps the data, and what has come of a field that is not complete.
    """

    def __init__(
        self,
        bytes_max: i64 = FRAME_BYTES_MAX,  # bytes of the frame, at most
        part: Part = part_nothing,
        keeps_whole: bool = True,
    ) -> None:
        self._part = part  # says where payloads are parted
        self._keeps_whole = keeps_whole  # whether `whole` is needed
        self._level: i64 = _IN_FRAME
        self._ends: list[int] = [int(bytes_max), 0, 0]  # by level, in bytes of the frame
        self._kept: list[list[bytes]] = [[], [], []]  # by level, what protobuf is to read
        self._seen = False  # data of the entry that is being read
        self._entries: list[bytes | Assembly] = []
        self._payloads: list[bytes | Assembly | Parted] = []
        self._byte_count: i64 = 0  # of all these
        self._filling: Assembly | None = None
        self._raw: list[bytes | Assembly] = []  # the whole frame, as far as it has come
        self._broken = False
        self._data = b""  # what is being read, from `_at` on
        self._at: i64 = 0
        self._done: i64 = 0  # bytes of the frame that were read, all those of `_filling` included

    def feed(self, data: bytes, start: i64 = 0, stop: i64 = 1 << 62) -> None:
        """Take the next bytes, which are `data[start:stop]`."""
        filling = self._filling
        if filling is not None:
            start += filling.add(data, start, stop - start)
            if filling.missing > 0:
                return
            self._filling = None
        more = data[start:stop]
        self._data = self._data + more if self._data else more
        self._at = 0
        while not self._broken and self._read_field():
            pass
        self._data = self._data[self._at :]
        if self._broken:
            self._raw.append(self._data)
            self._data = b""

    def bodies(self) -> Bodies | None:
        """Return the data, once all has come; None if protobuf is to read the frame."""
        if self._broken or self._filling is not None or self._data or self._level != _IN_FRAME:
            return None
        found = Bodies()
        found.skeleton = b"".join(self._kept[_IN_FRAME])
        found.byte_count = self._byte_count
        for data in self._entries:
            found.entries.append(data.data() if isinstance(data, Assembly) else data)
        for payload in self._payloads:
            found.application.append(payload.data() if isinstance(payload, Assembly) else payload)
        return found

    def whole(self) -> bytes:
        """Return a copy of all that has come."""
        pieces = [each.so_far() if isinstance(each, Assembly) else each for each in self._raw]
        return b"".join([*pieces, self._data])

    def _read_field(self) -> bool:
        """Read a field, or what ends a message or an entry; False where it is not complete."""
        level: i64 = self._level
        if level != _IN_FRAME and self._done == self._ends[level]:
            self._leave()
            return True
        start: i64 = self._at
        if start == len(self._data):
            return False
        limit: i64 = start + self._ends[level] - self._done
        tag: i64 = self._data[start]
        self._at = start + 1
        size: i64 = self._read(limit)
        read = False
        if size == _BROKEN:
            self._broken = True
        elif size != _INCOMPLETE:
            read = self._read_value(tag, size, start, limit)
        if not read:
            self._at = start
        return read

    def _read_value(self, tag: i64, size: i64, start: i64, limit: i64) -> bool:
        """Read the value of a tag whose field begins at `start`; `size` is the number there."""
        level: i64 = self._level
        if _is_number(level, tag):
            self._keep(start, self._at)
        elif size > limit - self._at:  # a sum might overflow
            self._broken = True
        elif level == _IN_FRAME and tag == _FRAME_MESSAGE:
            self._enter(_IN_MESSAGE, start, size)
        elif level == _IN_MESSAGE and tag == _MESSAGE_ENTRY:
            self._enter(_IN_ENTRY, start, size)
            self._seen = False
        elif _is_data(level, tag) and not (level == _IN_ENTRY and self._seen):
            return self._read_data(start, size)
        elif level == _IN_FRAME and tag == _FRAME_MARK and size < ASSEMBLED_BYTES_MIN:
            if size > len(self._data) - self._at:
                return False
            self._at += size
            self._keep(start, self._at)
        else:
            self._broken = True
        return not self._broken

    def _keep(self, start: i64, stop: i64) -> None:
        """Leave a field to protobuf."""
        field = self._data[start:stop]
        self._kept[self._level].append(field)
        if self._keeps_whole:
            self._raw.append(field)
        self._done += stop - start

    def _enter(self, level: i64, start: i64, size: i64) -> None:
        """Begin with a message or an entry of so many bytes."""
        if self._keeps_whole:
            self._raw.append(self._data[start : self._at])
        self._done += self._at - start
        self._level = level
        self._ends[level] = int(self._done + size)

    def _leave(self) -> None:
        """End the current message or entry: its kept part has another length."""
        level: i64 = self._level
        fields = b"".join(self._kept[level])
        self._kept[level] = []
        tag: i64 = _FRAME_MESSAGE
        if level == _IN_ENTRY:
            tag = _MESSAGE_ENTRY
            if not self._seen:
                self._entries.append(b"")
        self._level = level - 1
        self._kept[level - 1].append(_head(tag, len(fields)))
        self._kept[level - 1].append(fields)

    def _read_data(self, start: i64, size: i64) -> bool:
        """Read data of an entry or a payload; long data that has not come is filled in later."""
        at: i64 = self._at
        left: i64 = len(self._data) - at
        if left >= size:
            data = self._data[at : at + size]
            self._at = at + size
            self._raw_data(start, at, data)
            self._take_data(data)
        elif size < ASSEMBLED_BYTES_MIN or left < PART_HEAD_BYTES:
            return False
        else:
            cut, room = 0, 0
            if self._level == _IN_FRAME:
                cut, room = self._part(self._data[at : at + PART_HEAD_BYTES], int(size))
            filling = self._filling = Assembly(size - cut, room)
            head = self._data[at : at + cut]
            self._at = at + cut
            self._at += filling.add(self._data, self._at)
            if cut > 0:
                self._raw_data(start, at, head)
                self._raw.append(filling)
                self._payloads.append(Parted(head, filling))
            else:
                self._raw_data(start, at, filling)
                self._take_data(filling)
        self._byte_count += size
        self._done += at - start + size
        return True

    def _raw_data(self, start: i64, at: i64, data: bytes | Assembly) -> None:
        if self._keeps_whole:
            self._raw.append(self._data[start:at])
            self._raw.append(data)

    def _take_data(self, data: bytes | Assembly) -> None:
        if self._level == _IN_FRAME:
            self._payloads.append(data)
        else:
            self._entries.append(data)
            self._seen = True

    def _read(self, limit: i64) -> i64:
        """Read a number before `limit`; _BROKEN where there is none below 2**63."""
        data = self._data
        end: i64 = min(limit, len(data))
        value: i64 = 0
        shift: i64 = 0
        while self._at < end and shift < 63:
            byte: i64 = data[self._at]
            self._at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        return _INCOMPLETE if self._at < limit and shift < 63 else _BROKEN


def _is_number(level: i64, tag: i64) -> bool:
    """Return whether a field is known here and holds a number."""
    if level == _IN_FRAME:
        return tag == _FRAME_SYNCED
    if level == _IN_ENTRY:
        return tag in (_ENTRY_TERM, _ENTRY_KIND)
    return tag & _WIRE_TYPE == 0 and 0 < tag <= _MESSAGE_LAST


def _is_data(level: i64, tag: i64) -> bool:
    """Return whether a field is a payload, or the data of an entry."""
    return (
        tag == _FRAME_PAYLOAD if level == _IN_FRAME else level == _IN_ENTRY and tag == _ENTRY_DATA
    )
