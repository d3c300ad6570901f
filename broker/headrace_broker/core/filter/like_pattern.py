"""Patterns of LIKE: `%` stands for any characters, `_` for one."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.model.limits import LIKE_CHARACTERS_MAX, LIKE_FREE_CHARACTERS_MAX

_PLAIN_SHORT: Final = (
    8  # dead letters for which str.find takes few steps for each dead letter of a text
)
_SEARCHES_UNPREPARED: Final = 2  # of one text; from the third on it pays to note places
_OPERATION_SHIFT: Final = (
    9  # of operations on a bit for each dead letter: so many dead letters a step
)


@final
class LongText:
    """A long text that many patterns may be put to."""

    def __init__(self, text: str) -> None:
        self.text = text  # the text
        self.work: i64 = len(text) >> _OPERATION_SHIFT  # steps to search it, each some 30 ns
        self._searches: i64 = 0
        self._places: dict[str, list[int]] = {}
        self._masks: dict[str, int] = {}

    def prepares(self) -> bool:
        """Count a search; return whether it is to look up places instead of dead letters."""
        self._searches += 1
        return self._searches > _SEARCHES_UNPREPARED

    def places_of(self, dead_letter: str) -> int:
        """Return a bit for each place of the text, set where the dead letter stands."""
        size: i64 = len(self.text)
        self.work += 1 + (size >> _OPERATION_SHIFT)
        mask = self._masks.get(dead_letter)
        if mask is not None:
            return mask
        if not self._places:
            self._note_places()
        data = bytearray((size >> 3) + 1)
        places = self._places.get(dead_letter)
        if places is not None:
            for place in places:
                data[place >> 3] |= 1 << (place & 7)
            self.work += len(places)
        found = int.from_bytes(data, "little")
        self._masks[dead_letter] = found
        return found

    def _note_places(self) -> None:
        text = self.text
        self.work += 2 * len(text)
        for place in range(len(text)):
            dead_letter = text[place]
            places = self._places.get(dead_letter)
            if places is None:
                self._places[dead_letter] = [place]
            else:
                places.append(place)


@final
class _Segment:
    """Text between two `%`."""

    def __init__(self, text: str, free: bytes) -> None:
        self.text = text  # its characters; any character where `free` says so
        self.free = free  # one byte a character, 1 for `_`
        self.plain = 1 not in free  # no character is free
        # Where in the segment a character may stand, a bit for each place; others only at a `_`.
        self._places: dict[str, int] = {}
        self._anywhere: int = 0
        if not self.plain:
            self._note_places()

    def _note_places(self) -> None:
        size = len(self.text)
        if size > LIKE_FREE_CHARACTERS_MAX:
            raise ValueError(
                f"{size} characters with '_' among them and no '%', at most "
                f"{LIKE_FREE_CHARACTERS_MAX} are allowed"
            )
        for k in range(size):
            if self.free[k] == 1:
                self._anywhere |= 1 << k
        for k in range(size):
            if self.free[k] == 0:
                dead_letter = self.text[k]
                self._places[dead_letter] = self._places.get(dead_letter, self._anywhere) | 1 << k

    def fits(self, subject: str, at: i64) -> bool:
        """Return whether the segment stands at a place of `subject` that has room for it."""
        if self.plain:
            return subject.startswith(self.text, at)
        for k in range(len(self.text)):
            if self.free[k] == 0 and subject[at + k] != self.text[k]:
                return False
        return True

    def find(self, subject: str, start: i64, stop: i64, long: LongText | None) -> i64:
        """Return the first place from `start` on where the segment fits before `stop`, or -1."""
        if long is None:
            if self.plain:
                return i64(subject.find(self.text, start, stop))
            return self._search(subject, start, stop)
        if self.plain and len(self.text) <= _PLAIN_SHORT:
            long.work += 1 + (len(subject) >> 4)
            return i64(subject.find(self.text, start, stop))
        if long.prepares():
            return self._look_up(long, start, stop)
        long.work += 2 * len(subject)
        if self.plain:
            return i64(subject.find(self.text, start, stop))
        return self._search(subject, start, stop)

    def _look_up(self, long: LongText, start: i64, stop: i64) -> i64:
        """Go over the segment instead of the text, with a bit for each place of the text."""
        room = int(stop - start) - len(self.text) + 1
        if room <= 0:
            return -1
        left: int = (1 << room) - 1
        for k in range(len(self.text)):
            if self.free[k] == 0:
                left &= long.places_of(self.text[k]) >> (int(start) + k)
                if not left:
                    return -1
        return start + (left & -left).bit_length() - 1

    def _search(self, subject: str, start: i64, stop: i64) -> i64:
        """Go over the text once, with a bit for each beginning that still fits.

        Source: Baeza-Yates, Gonnet, A New Approach to Text Searching, CACM 35 (1992).
        """
        size: i64 = len(self.text)
        whole: int = 1 << (len(self.text) - 1)
        begun: int = 0
        at = start
        while at < stop:
            begun = (begun << 1 | 1) & self._places.get(subject[at], self._anywhere)
            if begun & whole:
                return at - size + 1
            at += 1
        return -1


@final
class LikePattern:
    """A pattern, made ready.

    Time for one text is in proportion to its length; where a `_` stands between two `%`, times
    what it takes to go over a bit for each character between them. Where many patterns are put to
    one long text it is gone over once or twice, and then each of their dead letters takes a few
    operations on a bit for each dead letter of the text.

    Args:
        pattern: as written.
        escape: the character that takes `%`, `_` and itself literally, or "" for none.

    Raises ValueError: nothing follows the escape character, or too much stands around a `_`.
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

    def matches(self, subject: str, long: LongText | None = None) -> bool:
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
            found = segment.find(subject, at, stop, long)
            if found < 0:
                return False
            at = found + len(segment.text)
        return True
