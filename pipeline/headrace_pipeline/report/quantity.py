"""Numbers as people read them, and round numbers for axes. Times are UTC."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Final, NamedTuple

_THIN: Final = "\u202f"  # between a number and its unit, and never at the end of a line
_BYTES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")

_STEPS: Final = tuple(
    timedelta(minutes=minutes)
    for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080, 20160, 40320)
)


class Tick(NamedTuple):
    """A mark of an axis of time."""

    at: float  # where, 0 to 1 of the axis
    text: str  # beside it


def count(value: float) -> str:
    """Return a number: 0.4, 7, 1,240, 38.2 k, 4.1 M, 1.8 bn; a dash for NaN."""
    if math.isnan(value):
        return "\u2013"
    size = abs(value)
    if size >= 999_500_000:
        return f"{value / 1e9:,.1f}{_THIN}bn"
    if size >= 999_950:
        return f"{value / 1e6:.1f}{_THIN}M"
    if size >= 9_999.5:
        return f"{value / 1e3:.1f}{_THIN}k" if size < 99_950 else f"{value / 1e3:.0f}{_THIN}k"
    if size >= 9.95 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 1 else f"{value:.2g}" if size >= 0.005 else "<0.01"


def many(number: int, thing: str) -> str:
    """Return how many of a thing: 1 node, 3 nodes."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def rate(value: float) -> str:
    """Return messages a second."""
    return f"{count(value)}/s"


def size(value: float) -> str:
    """Return a size: 512 B, 1.6 MiB."""
    size, unit = float(value), 0
    while abs(size) >= 1000 and unit + 1 < len(_BYTES):
        size, unit = size / 1024, unit + 1
    text = f"{size:.0f}" if unit == 0 or abs(size) >= 99.95 else f"{size:.1f}"
    return f"{text}{_THIN}{_BYTES[unit]}"


def share(part: float) -> str:
    """Return a share, 0 to 1, in per cent."""
    if 0 < part < 0.005:
        return f"<{_THIN}1{_THIN}%"
    if 0.995 <= part < 1:
        return f">{_THIN}99{_THIN}%"
    return f"{part * 100:.0f}{_THIN}%"


def duration(seconds: float) -> str:
    """Return a time: 0.4 s, 48 s, 12 min, 3.4 h, 2.1 days."""
    if seconds < 10:
        return f"{seconds:.1f}{_THIN}s" if seconds else f"0{_THIN}s"
    if seconds < 99.5 and seconds != 60:
        return f"{seconds:.0f}{_THIN}s"
    if seconds % 3600 == 0 and seconds < 48 * 3600:
        return f"{seconds / 3600:.0f}{_THIN}h"
    if seconds < 5970:
        minutes = seconds / 60
        part = minutes < 9.95 and seconds % 60 != 0
        return f"{minutes:.1f}{_THIN}min" if part else f"{minutes:.0f}{_THIN}min"
    hours = seconds / 3600
    if hours < 47.5:
        return f"{hours:.1f}{_THIN}h" if hours < 9.95 else f"{hours:.0f}{_THIN}h"
    return f"{hours / 24:.1f} days"


def top(highest: float) -> float:
    """Return a round number at or above the highest value of an axis, 1 where that is 0."""
    if highest <= 0 or not math.isfinite(highest):
        return 1.0
    base = 10.0 ** math.floor(math.log10(highest))
    return next(base * step for step in (1, 1.6, 2, 3, 4, 5, 6, 8, 10) if base * step >= highest)


def instant(at: datetime) -> str:
    """Return a time to the minute: Tue 17 Nov 09:40."""
    return f"{at:%a} {at.day} {at:%b %H:%M}"


def span(start: datetime, end: datetime) -> str:
    """Return from when to when, the day said once where it is the same."""
    if start.date() == end.date():
        return f"{instant(start)}\u2013{end:%H:%M}"
    return f"{instant(start)} \u2013 {instant(end)}"


def ticks(start: datetime, end: datetime, at_most: int = 8) -> list[Tick]:
    """Return marks at round times, none where its text would reach beyond the end.

    A midnight says the day.
    """
    length = end - start
    if length <= timedelta(0):
        return []
    step = next((step for step in _STEPS if length / step <= at_most), _STEPS[-1])
    midnight = start.replace(hour=0, minute=0, second=0, microsecond=0)
    if step >= timedelta(days=7):  # on Mondays
        midnight -= timedelta(days=midnight.weekday())
    at = midnight + step * math.ceil((start - midnight) / step)
    found = []
    while (at - start) / length <= 1 - 0.6 / at_most:
        whole_day = at.hour == 0 and at.minute == 0
        text = f"{at:%H:%M}"
        if whole_day:
            text = f"{at.day} {at:%b}" if step > timedelta(days=1) else f"{at:%a} {at.day}"
        found.append(Tick((at - start) / length, text))
        at += step
    return found
