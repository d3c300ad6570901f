"""Messages of protobuf around octets that are too many to be copied: where they stand.

Whoever sends writes all other fields first, by protobuf, and these octets behind them. Whoever
receives finds them in whatever place.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_raftlog.model.pieces import Octets

_NUMBER: Final = 0  # wire types
_OCTETS: Final = 2
_BROKEN: Final = -1


@final
class Found:
    """Position of one field's bytes.

    Attributes:
        start: offset of the first of them.
        stop: offset after the last.
        fields: all other fields of the message.
    """

    def __init__(self, start: i64, stop: i64, fields: bytes) -> None:
        self.start = start
        self.stop = stop
        self.fields = fields


def wrap(fields: bytes, number: i64, pieces: list[Octets]) -> list[Octets]:
    """Return a message of protobuf that ends with one more field of octets.

    Args:
        fields: all of it but that field.
        number: of that field, 1 to 15.
        pieces: its octets.
    """
    size: i64 = 0
    for piece in pieces:
        size += len(piece)
    out: list[Octets] = [fields + _head(number, size)]
    out.extend(pieces)
    return out


def find(data: bytes, number: i64, start: i64, stop: i64) -> Found | None:
    """Return where a field of octets stands in the message `data[start:stop]`.

    `data` may end before `stop`, where the field that is looked for is the last one.

    Returns:
        None where there is no such field, more than one, or anything else that is not known here.
    """
    kept: list[bytes] = []
    found_start: i64 = _BROKEN
    found_stop: i64 = _BROKEN
    at: i64 = start
    while at < stop:
        begin: i64 = at
        if at >= len(data):
            return None
        tag: i64 = data[at]
        value, at = _read(data, at + 1, min(stop, len(data)))
        if value == _BROKEN or tag & 7 not in (_NUMBER, _OCTETS) or tag > 0x7F:
            return None
        if tag & 7 == _OCTETS:
            if value > stop - at:
                return None
            at += value
        if tag == number << 3 | _OCTETS:
            if found_start != _BROKEN:
                return None
            found_start, found_stop = at - value, at
        elif at > len(data):
            return None
        else:
            kept.append(data[begin:at])
    if found_start == _BROKEN:
        return None
    return Found(found_start, found_stop, b"".join(kept))


def _head(number: i64, size: i64) -> bytes:
    """Return the tag of a field of octets, and how many they are, in steps of 7 bits."""
    octets: list[int] = [int(number << 3 | _OCTETS)]
    rest: i64 = size
    while rest > 0x7F:
        octets.append(int(rest & 0x7F | 0x80))
        rest >>= 7
    octets.append(int(rest))
    return bytes(octets)


def _read(data: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    """Return the number at an offset, or _BROKEN unless it is below 2**63, and the next offset."""
    value: i64 = 0
    shift: i64 = 0
    while at < end and shift < 63:
        octet: i64 = data[at]
        at += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return value, at
        shift += 7
    return _BROKEN, at
