"""Advice on queues: limits and numbers of consumers that a monitoring program proposes.

The broker does not follow it. It lapses at a time that its author gives, by the clock of the node
through which advice comes in: each command brings that time, and the catalog itself has no clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import msgspec

from headrace_broker.model.limits import (
    ADVICE_AUTHOR_BYTES_MAX,
    ADVICE_FIGURE_BYTES_MAX,
    ADVICE_FIGURES_MAX,
    ADVICE_ITEMS_MAX,
    ADVICE_MAX,
    ADVICE_REASON_BYTES_MAX,
    ADVICE_VALID_MS_MAX,
)

CONSUMERS: Final = "consumers"
PREFETCH: Final = "prefetch"
HIGH_WATERMARK: Final = "high-watermark"
HIGH_WATERMARK_BYTES: Final = "high-watermark-bytes"
KINDS: Final = (CONSUMERS, PREFETCH, HIGH_WATERMARK, HIGH_WATERMARK_BYTES)
VALUE_MAX: Final = (1 << 53) - 1  # what programs of all languages can read from JSON


class Advice(msgspec.Struct, frozen=True):
    """One piece of advice."""

    vhost: str
    queue: str
    kind: str  # one of KINDS: what it is about
    value: int  # that is advised
    current: int  # that it was then
    reason: str  # for people
    valid_until_ms: int  # Unix time at which it lapses
    author: str  # who gives it; a second one of the same about the same thing takes its place
    given_ms: int  # Unix time
    figures: tuple[tuple[str, str], ...] = ()  # what it was worked out from; numbers as text


Key = tuple[str, str, str, str]


def key_of(advice: Advice) -> Key:
    """Return what tells advice apart: vhost, queue, kind and author."""
    return advice.vhost, advice.queue, advice.kind, advice.author


class AdviceBoard:
    """The advice that has not lapsed, as far as that was noticed."""

    def __init__(self) -> None:
        self._items: dict[Key, Advice] = {}

    def all(self) -> list[Advice]:
        """Return everything that is kept, in order of its keys."""
        return [self._items[key] for key in sorted(self._items)]

    def valid(
        self, now_ms: int, vhost: str = "", queue: str = "", author: str = ""
    ) -> Iterator[Advice]:
        """Return advice that has not lapsed by a time, in order of its keys; "" stands for all."""
        for advice in self.all():
            if advice.valid_until_ms <= now_ms:
                continue
            wanted = ((vhost, advice.vhost), (queue, advice.queue), (author, advice.author))
            if all(asked in ("", known) for asked, known in wanted):
                yield advice

    def lapse(self, now_ms: int) -> None:
        """Drop lapsed advice."""
        self._items = {
            key: advice for key, advice in self._items.items() if advice.valid_until_ms > now_ms
        }

    def fits(self, items: tuple[Advice, ...]) -> bool:
        """Return whether there is room for more advice."""
        new = {key_of(advice) for advice in items} - self._items.keys()
        return len(self._items) + len(new) <= ADVICE_MAX

    def put(self, items: tuple[Advice, ...] | list[Advice]) -> None:
        """Keep advice, in place of what its author has given before."""
        for advice in items:
            self._items[key_of(advice)] = advice

    def drop(self, vhost: str, queue: str, kind: str, author: str) -> tuple[Advice, ...]:
        """Drop advice on a queue, "" for any kind or author; return what there was."""
        doomed = [
            advice
            for advice in self.all()
            if (advice.vhost, advice.queue) == (vhost, queue)
            and kind in ("", advice.kind)
            and author in ("", advice.author)
        ]
        for advice in doomed:
            del self._items[key_of(advice)]
        return tuple(doomed)

    def drop_queue(self, vhost: str, queue: str) -> None:
        """Forget advice on a queue that is no more."""
        self.drop(vhost, queue, "", "")


def advice_problem(items: tuple[Advice, ...], now_ms: int) -> str:
    """Return why advice must not be proposed, naming the field, "" when it may."""
    if not 1 <= len(items) <= ADVICE_ITEMS_MAX:
        return f"items: must be 1 to {ADVICE_ITEMS_MAX}, not {len(items)}"
    for number, advice in enumerate(items):
        problem = _problem(advice, now_ms)
        if problem:
            return f"items[{number}].{problem}"
    return ""


def _problem(advice: Advice, now_ms: int) -> str:
    if advice.kind not in KINDS:
        return f"kind: must be one of {', '.join(KINDS)}"
    for field in ("value", "current"):
        if not 0 <= getattr(advice, field) <= VALUE_MAX:
            return f"{field}: must be 0 to {VALUE_MAX}"
    for field, most in (("reason", ADVICE_REASON_BYTES_MAX), ("author", ADVICE_AUTHOR_BYTES_MAX)):
        if not 1 <= len(getattr(advice, field).encode()) <= most:
            return f"{field}: must have 1 to {most} bytes"
    if not now_ms < advice.valid_until_ms <= now_ms + ADVICE_VALID_MS_MAX:
        return f"valid_until_ms: must be later than {now_ms}, by {ADVICE_VALID_MS_MAX} at most"
    if len(advice.figures) > ADVICE_FIGURES_MAX:
        return f"figures: must be at most {ADVICE_FIGURES_MAX}"
    for name, text in advice.figures:
        if not 1 <= len(name.encode()) <= ADVICE_FIGURE_BYTES_MAX:
            return f"figures: a name must have 1 to {ADVICE_FIGURE_BYTES_MAX} bytes"
        if not math.isfinite(float(text)):
            return f"figures: '{name}' must be a finite number"
    return ""
