"""Outline of a batch of messages, seen without making objects of it.

A parser makes objects of some 80 bytes for each byte of a hostile batch. What is a body costs
nothing of that kind, so a large body is fine where as many bytes of anything else are not.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

_VARINT: Final = 0
_FIXED64: Final = 1
_NESTED: Final = 2  # a length, and so many bytes
_GROUP_START: Final = 3
_GROUP_END: Final = 4
_FIXED32: Final = 5
_VARINT_BYTES_MAX: Final = 10
_USED_BITS: Final = 35  # of a number: five bytes, in which any tag and any size fits
_TAG_MAX: Final = (1 << 32) - 1


class BrokenBatchError(ValueError):
    """The bytes are no message of protobuf."""


class BatchBoundError(ValueError):
    """A batch has too much of something."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule  # what it broke


@final
class BatchOutline:
    """Walks over the fields of a request down to those of its messages, within bounds."""

    def __init__(self, spine: list[int], body: i64, fields_max: i64, rest_bytes_max: i64) -> None:
        self.fields: i64 = 0  # that were seen
        self.rest_bytes: i64 = 0  # likewise
        self._spine = spine  # numbers of the fields that lead from the request to what holds a body
        self._body = body  # number of the field that is one
        self._fields_max = fields_max  # of fields on the way
        self._rest_bytes_max = rest_bytes_max  # of bytes that are neither on the way nor in a body
        self._data = b""
        self._pos: i64 = 0

    def walk(self, data: bytes) -> None:
        """Scan a request.

        Raises:
            BatchBoundError: it has too many fields, or bytes beside bodies.
            BrokenBatchError: it is cut short, or no message at all.
        """
        self.fields = 0
        self.rest_bytes = 0
        self._data = data
        self._pos = 0
        try:
            self._message(0, len(data))
        finally:
            self._data = b""

    def _message(self, level: i64, stop: i64) -> None:
        """Scan one message, which ends at `stop`."""
        is_last = level == len(self._spine)
        inward: i64 = self._body if is_last else self._spine[level]
        while self._pos < stop:
            tag = self._varint(stop)
            if tag < 0 or tag > _TAG_MAX:
                raise BrokenBatchError
            self.fields += 1
            if self.fields > self._fields_max:
                rule = f"must have at most {self._fields_max} fields in its messages"
                raise BatchBoundError(rule)
            kind = tag & 7
            if kind == _VARINT:
                self._varint(stop)
            elif kind == _NESTED:
                size = self._varint(stop)
                end = self._pos + size
                if size < 0 or end > stop:
                    raise BrokenBatchError
                if tag >> 3 != inward:
                    self._rest(size)
                elif not is_last:
                    self._message(level + 1, end)
                self._pos = end
            elif kind == _FIXED64:
                self._pos += 8
            elif kind == _FIXED32:
                self._pos += 4
            elif kind != _GROUP_START and kind != _GROUP_END:
                raise BrokenBatchError
        if self._pos != stop:
            raise BrokenBatchError

    def _rest(self, byte_count: i64) -> None:
        self.rest_bytes += byte_count
        if self.rest_bytes > self._rest_bytes_max:
            rule = f"must have at most {self._rest_bytes_max} bytes beside bodies"
            raise BatchBoundError(rule)

    def _varint(self, stop: i64) -> i64:
        """Read a number; return -1 for one that is neither a tag nor a size."""
        data = self._data
        value: i64 = 0
        shift: i64 = 0
        pos = self._pos
        is_large = False
        while pos < stop and shift < 7 * _VARINT_BYTES_MAX:
            byte: i64 = data[pos]
            bits: i64 = byte & 0x7F
            pos += 1
            if shift < _USED_BITS:
                value |= bits << shift
            elif bits:
                is_large = True
            if byte < 0x80:
                self._pos = pos
                return -1 if is_large else value
            shift += 7
        raise BrokenBatchError
