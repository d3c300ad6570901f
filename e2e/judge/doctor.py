"""Histories made wrong in one place, which a judge has to reject."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec
from e2e.judge.operations import Event

Doctor = Callable[[list[Event]], list[Event]]


MESSAGES_MAX: Final = 300
KEYS_MAX: Final = 4


def reduce(events: list[Event]) -> list[Event]:
    """Leave most messages and names out, whole; what is left is right if the history is."""
    special = {each.queue for each in events if each.f in ("dead-letter", "delayed")}
    special |= {str(each.value) for each in events if each.f == "dead-letter"}
    ordinary = [each.value for each in events if each.f == "enqueue" and each.queue not in special]
    messages = set(list(dict.fromkeys(ordinary))[:MESSAGES_MAX])
    published = set(ordinary)
    keys = set(list(dict.fromkeys(each.key for each in events if each.key))[:KEYS_MAX])
    return [
        each
        for each in events
        if (each.key in keys if each.key else each.value not in published or each.value in messages)
    ]


def _ordinary(events: list[Event]) -> list[int]:
    """Return places of unflagged deliveries of a queue without dead letters."""
    letters = {str(each.value) for each in events if each.f == "dead-letter"}
    return [
        place
        for place, each in enumerate(events)
        if each.f == "dequeue" and not each.redelivered and each.queue not in letters
    ]


def lose(events: list[Event]) -> list[Event]:
    """Remove all deliveries of a confirmed message."""
    confirmed = {each.value for each in events if each.f == "enqueue" and each.type == "ok"}
    delivered = [events[place].value for place in _ordinary(events)]
    lost = next(each for each in reversed(delivered) if each in confirmed)
    return [each for each in events if not (each.f == "dequeue" and each.value == lost)]


def invent(events: list[Event]) -> list[Event]:
    """Deliver a message that was never published."""
    place = _ordinary(events)[-1]
    return _insert(events, place, msgspec.structs.replace(events[place], value="phantom"))


def repeat(events: list[Event]) -> list[Event]:
    """Deliver a message again without the flag, to another consumer."""
    place = _ordinary(events)[0]
    return [*events, msgspec.structs.replace(events[place], process="another consumer")]


def swap(events: list[Event]) -> list[Event]:
    """Exchange two first deliveries of one channel to one consumer."""
    channel = {e.value: (e.process, e.channel) for e in events if e.f == "enqueue"}
    seen: dict[tuple[str, tuple[str, int]], int] = {}
    for place in _ordinary(events):
        pair = (events[place].process, channel[events[place].value])
        if pair in seen:
            doctored = list(events)
            doctored[place], doctored[seen[pair]] = events[seen[pair]], events[place]
            return doctored
        seen[pair] = place
    raise AssertionError("no channel has two deliveries to one consumer")


def miscount(events: list[Event]) -> list[Event]:
    """Count one message fewer in a delayed queue than were confirmed there."""
    confirmed = Counter(e.queue for e in events if e.f == "enqueue" and e.type == "ok")
    return [
        msgspec.structs.replace(each, value=confirmed[each.queue] - 1)
        if each.f == "delayed"
        else each
        for each in events
    ]


def lose_letter(events: list[Event]) -> list[Event]:
    """Remove one dead letter."""
    letters = {str(each.value) for each in events if each.f == "dead-letter"}
    confirmed = {each.value for each in events if each.f == "enqueue" and each.type == "ok"}
    lost = next(e.value for e in events if e.queue in letters and e.value in confirmed)
    return [each for each in events if each.queue not in letters or each.value != lost]


def misread(events: list[Event]) -> list[Event]:
    """Invert a read that only one write of its name can explain.

    Between the beginning of that write and the end of the read no other write was under way: two
    that overlap may have taken effect in either order.
    """
    ended = {each.process: each.time for each in events if each.key and each.type == "ok"}
    writes: dict[str, list[tuple[int, int]]] = {}
    for each in events:
        if each.f == "write" and each.type == "invoke":
            span = (each.time, ended.get(each.process, 1 << 62))
            writes.setdefault(each.key, []).append(span)
    for each in events:
        if each.f == "read" and each.type == "invoke" and each.process in ended:
            end = ended[each.process]
            earlier = [span for span in writes.get(each.key, ()) if span[0] < end]
            last = max(earlier, default=(0, 0))
            if 0 < last[1] < each.time and all(o[1] < last[0] for o in earlier if o != last):
                return [
                    msgspec.structs.replace(other, value=not other.value)
                    if other.process == each.process
                    else other
                    for other in events
                ]
    raise AssertionError("no read has one write before it that alone explains it")


def _insert(events: list[Event], place: int, event: Event) -> list[Event]:
    return [*events[:place], event, *events[place:]]


MESSAGE_DOCTORS: Final[dict[str, Doctor]] = {
    "lost": lose,
    "invented": invent,
    "unflagged": repeat,
    "swapped": swap,
    "miscounted": miscount,
    "lost-letter": lose_letter,
}
NAME_DOCTORS: Final[dict[str, Doctor]] = {"misread": misread}
