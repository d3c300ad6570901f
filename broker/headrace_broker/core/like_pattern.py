"""Patterns of LIKE: `%` stands for any characters, `_` for one."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.model.limits import LIKE_CHARACTERS_MAX


@final
class _Segment:
    """What stands between two `%`.

    Attributes:
        text: its characters; any character where `free` says so.
        free: one octet a character, 1 for `_`.
        plain: no character is free.
    """

    def __init__(self, text: str, free: bytes) -> None:
        self.text = text
        self.free = free
        self.plain = 1 not in free

    def fits(self, subject: str, at: i64) -> bool:
        """Return whether the segment stands at a place of `subject` that has room for it."""
        if self.plain:
            return subject.startswith(self.text, at)
        for k in range(len(self.text)):
            if self.free[k] == 0 and subject[at + k] != self.text[k]:
                return False
        return True

    def find(self, subject: str, start: i64, stop: i64) -> i64:
        """Return the first place from `start` on where the segment fits before `stop`, or -1."""
        if self.plain:
            return i64(subject.find(self.text, start, stop))
        last: i64 = stop - len(self.text)
        at = start
        while at <= last:
            if self.fits(subject, at):
                return at
            at += 1
        return -1


@final
class LikePattern:
    """A pattern, made ready.

    Time for one text is in proportion to its length where no `_` stands between two `%`, else to
    the product of its length and the pattern's.

    Args:
        pattern: as written.
        escape: the character that takes `%`, `_` and itself literally, or "" for none.

    Raises:
        ValueError: nothing follows the escape character.
    """

    def __init__(self, pattern: str, escape: str) -> None:
        self._segments: list[_Segment] = []
        text: list[str] = []
        free = bytearray()
        escaped = False
        for character in pattern:
            if not escaped and character == escape:
                escaped = True
                continue
            if not escaped and character == "%":
                self._segments.append(_Segment("".join(text), bytes(free)))
                text = []
                free = bytearray()
                continue
            free.append(1 if character == "_" and not escaped else 0)
            text.append(character)
            escaped = False
        if escaped:
            raise ValueError("nothing follows the escape character at its end")
        self._segments.append(_Segment("".join(text), bytes(free)))

    def matches(self, subject: str) -> bool:
        """Return whether the whole of `subject` is like the pattern."""
        size: i64 = len(subject)
        if size > LIKE_CHARACTERS_MAX:
            return False
        first = self._segments[0]
        count: i64 = len(self._segments)
        if count == 1:
            return size == len(first.text) and first.fits(subject, 0)
        last = self._segments[count - 1]
        at: i64 = len(first.text)
        stop: i64 = size - len(last.text)
        if at > stop or not first.fits(subject, 0) or not last.fits(subject, stop):
            return False
        for k in range(1, count - 1):
            segment = self._segments[k]
            found = segment.find(subject, at, stop)
            if found < 0:
                return False
            at = found + len(segment.text)
        return True
