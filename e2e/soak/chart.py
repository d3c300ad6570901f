"""Line charts as inline SVG, without scripts."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Final

import msgspec

WIDTH: Final = 920
HEIGHT: Final = 190
LEFT: Final = 76
RIGHT: Final = 12
TOP: Final = 10
BOTTOM: Final = 24
LANE_HEIGHT: Final = 16
TICKS: Final = 4
POINTS_MAX: Final = 1200  # of a line; more than there are pixels


class Line(msgspec.Struct, frozen=True):
    """A named line of (seconds, value); where the gap is too long, it is broken."""

    name: str
    points: list[tuple[float, float]]
    gap: float = math.inf  # seconds without a point that break it


class Band(msgspec.Struct, frozen=True):
    """A stretch of time with something in force; drawn in the lane of its kind."""

    kind: str
    text: str
    begin: float
    end: float


def nice_ceiling(value: float) -> float:
    """Return the least of 1, 2, 2.5, 5 times a power of ten that is not below a value > 0."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 2.5, 5, 10) if step * power >= value * 0.999999)


class Axis:
    """Maps values to pixels from the top, linear from zero or logarithmic."""

    def __init__(self, values: Sequence[float], logarithmic: bool) -> None:
        top = max(values, default=1.0) or 1.0
        if logarithmic:
            low = min((value for value in values if value > 0), default=1.0)
            self._low: float = math.floor(math.log10(low))
            self._high: float = max(self._low + 1, math.ceil(math.log10(top)))
            self.ticks = [10.0**power for power in range(self._low, self._high + 1)]
        else:
            step = nice_ceiling(top / TICKS)
            self._low, self._high = 0, math.ceil(top / step) * step
            self.ticks = [step * number for number in range(round(self._high / step) + 1)]
        self._logarithmic = logarithmic

    def at(self, value: float) -> float:
        """Return the pixel of a value."""
        if self._logarithmic:
            value = math.log10(max(value, 10.0**self._low))
        part = (value - self._low) / (self._high - self._low)
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - part)


def chart(
    title: str,
    unit: str,
    lines: Sequence[Line],
    bands: Sequence[Band],
    seconds: float,
    *,
    logarithmic: bool = False,
) -> str:
    """Return a chart of lines over `seconds`; bands of nodes that are down shade it."""
    axis = Axis([value for line in lines for _, value in line.points], logarithmic)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">',
        *(_shade(band, seconds) for band in bands),
    ]
    for tick in axis.ticks:
        y = axis.at(tick)
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(f'<text class="y" x="{LEFT - 6}" y="{y + 4:.1f}">{_number(tick)}</text>')
    parts += _time_axis(seconds, HEIGHT)
    for number, line in enumerate(lines):
        path = _path(line, axis, seconds)
        parts.append(f'<path class="line l{number}" d="{path}"/>')
    keys = "".join(
        f'<span class="key k{number}">{html.escape(line.name)}</span>'
        for number, line in enumerate(lines)
    )
    return (
        f"<figure><figcaption><b>{html.escape(title)}</b>, {html.escape(unit)} {keys}"
        f"</figcaption>{''.join(parts)}</svg></figure>"
    )


def lanes(kinds: Sequence[str], bands: Sequence[Band], seconds: float) -> str:
    """Return a chart with a lane for each kind of band; each band has its text as a tooltip."""
    height = LANE_HEIGHT * len(kinds) + BOTTOM
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="faults over time">']
    for number, kind in enumerate(kinds):
        y = LANE_HEIGHT * number
        parts.append(f'<text class="y" x="{LEFT - 6}" y="{y + 12}">{html.escape(kind)}</text>')
        parts += [
            f'<rect class="band b{number}" x="{(x := _x(each.begin, seconds)):.1f}" y="{y + 2}" '
            f'width="{max(1.0, _x(each.end, seconds) - x):.1f}" height="{LANE_HEIGHT - 4}">'
            f"<title>{html.escape(each.text)}</title></rect>"
            for each in bands
            if each.kind == kind
        ]
    parts += _time_axis(seconds, height)
    return (
        f"<figure><figcaption><b>Faults and backups</b></figcaption>{''.join(parts)}</svg></figure>"
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"


def _x(at: float, seconds: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * min(1.0, at / seconds)


def _shade(band: Band, seconds: float) -> str:
    x, end = _x(band.begin, seconds), _x(band.end, seconds)
    return (
        f'<rect class="down" x="{x:.1f}" y="{TOP}" width="{end - x:.1f}" '
        f'height="{HEIGHT - TOP - BOTTOM}"><title>{html.escape(band.text)}</title></rect>'
    )


def _time_axis(seconds: float, height: int) -> list[str]:
    step = nice_ceiling(seconds / 60 / 8)
    return [
        f'<text class="x" x="{_x(number * step * 60, seconds):.1f}" y="{height - 6}">'
        f"{number * step:g} min</text>"
        for number in range(int(seconds / 60 / step + 1e-9) + 1)
    ]


def _path(line: Line, axis: Axis, seconds: float) -> str:
    stride = max(1, len(line.points) // POINTS_MAX)
    parts: list[str] = []
    before = -math.inf
    for at, value in line.points[::stride]:
        verb = "M" if at - before > line.gap * stride else "L"
        parts.append(f"{verb if parts else 'M'}{_x(at, seconds):.1f} {axis.at(value):.1f}")
        before = at
    return "".join(parts)
