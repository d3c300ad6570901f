"""Plots as SVG: values in, markup out.

Values are drawn in a box of 1,000 by 1,000 that is stretched to the width of the page, while texts
keep their size: so one picture serves a phone, a wide window and paper. Colours are classes, which
the page gives a value for each theme. `data-values` is what a pointer is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from headrace_pipeline.report.markup import Given, Markup, el
from headrace_pipeline.report.quantity import Tick

BOX: Final = 1000
AXIS_PX: Final = 20  # below a plot, for the times
HEAD_PX: Final = 14  # above it, for the highest mark's text

Value = float | None


class Series(NamedTuple):
    """Values of one thing, one for each step of time."""

    name: str  # of the thing
    css: str  # class that has its colour
    values: Sequence[Value]  # None where nothing is known


class Axis(NamedTuple):
    """Axis of values."""

    top: float  # value at the upper edge; the lower one is 0
    text: str  # of the upper edge, with the unit
    half: str  # of the middle


class Run(NamedTuple):
    """A stretch of time of one class."""

    start: float  # 0 to 1 of the axis of time
    end: float  # likewise
    css: str  # class that has its colour
    text: str  # in words, for who points at it or cannot see it
    label: str = ""  # short, written on it where there is room
    level: int = 3  # height in thirds, 1 to 3


def line_plot(
    what: str, series: Sequence[Series], axis: Axis, times: Sequence[Tick], height: int
) -> Markup:
    """Return lines over time; those of class `area` are filled to the ground.

    Args:
        what: the picture in words.
        series: drawn in order, each of as many values.
        axis: of the values.
        times: of the axis of time; none leaves it out.
        height: of the values, in pixels.
    """
    drawn = [_line(each, axis.top) for each in series]
    return _frame(what, drawn, axis, times, height)


def stack_plot(
    what: str, series: Sequence[Series], axis: Axis, times: Sequence[Tick], height: int
) -> Markup:
    """Return series on top of each other, in steps, the first one at the ground."""
    ground = [0.0] * max((len(each.values) for each in series), default=0)
    drawn = []
    for each in series:
        upper = [below + (value or 0.0) for below, value in zip(ground, each.values, strict=True)]
        path = _steps(ground, upper, axis.top)
        if path:
            drawn.append(_path(each, f"stack {each.css}", path))
        ground = upper
    return _frame(what, drawn, axis, times, height)


def strip(what: str, runs: Sequence[Run], height: int = 18) -> Markup:
    """Return one row of stretches of time."""
    parts = [el("rect", {"class": "gap", "y": 0.5, "width": "100%", "height": height - 1})]
    for run in runs:
        width = max(run.end - run.start, 0.0) * 100
        high = height * run.level // 3
        place: Given = {"x": f"{run.start * 100:.3f}%", "width": f"{width:.3f}%", "height": high}
        place["y"] = height - high
        parts.append(el("rect", {"class": run.css, **place}, el("title", None, run.text)))
        if run.label and run.level == 3 and width > len(run.label) * 1.1:
            at: Given = {"x": f"{(run.start + run.end) * 50:.3f}%", "y": height - 5}
            parts.append(el("text", {"class": f"on {run.css}", **at}, run.label))
    return _picture("strip", what, height, parts)


def time_axis(times: Sequence[Tick]) -> Markup:
    """Return the marks of time for rows of strips above it."""
    return el(
        "svg",
        {"class": "axis", "width": "100%", "height": AXIS_PX, "aria-hidden": "true"},
        *_times(times, 0),
    )


def bar(what: str, parts: Sequence[tuple[str, str, float]], total: float) -> Markup:
    """Return one bar of parts that lie beside each other.

    Args:
        what: the bar in words.
        parts: name, class and value of each.
        total: value at the full width.
    """
    drawn, at = [], 0.0
    for name, css, value in parts:
        width = value / total * 100 if total > 0 else 0.0
        place: Given = {"x": f"{at:.3f}%", "width": f"{width:.3f}%", "height": 14}
        drawn.append(el("rect", {"class": css, **place}, el("title", None, name)))
        at += width
    return _picture("bar", what, 14, drawn)


def range_bar(what: str, middle: float, peak: float, limit: float, full: float) -> Markup:
    """Return a bar of something's usual share of its limit, with a line at the peak.

    Args:
        what: the picture in words.
        middle: what is usual, at most `full`, as are the others.
        peak: the highest value.
        limit: where the mark stands.
        full: value at the full width.
    """

    def at(value: float) -> str:
        return f"{max(0.0, min(value / full, 1.0)) * 100:.2f}%"

    tone = "over" if peak >= limit else "near" if peak >= 0.8 * limit else "within"
    parts = [
        el("rect", {"class": "track", "y": 3, "width": at(limit), "height": 10}),
        el("rect", {"class": f"usual {tone}", "y": 3, "width": at(middle), "height": 10}),
        el("line", {"class": "peak", "x1": at(middle), "x2": at(peak), "y1": 8, "y2": 8}),
        el("line", {"class": "peak", "x1": at(peak), "x2": at(peak), "y1": 3, "y2": 13}),
        el("line", {"class": "limit", "x1": at(limit), "x2": at(limit), "y1": 0, "y2": 16}),
    ]
    return _picture("range", what, 16, parts)


def move(what: str, now: float, then: float, full: float) -> Markup:
    """Return a change from one number to another: a ring, an arrow, a dot."""

    def at(value: float) -> str:
        return f"{2 + 96 * min(value / full, 1.0):.2f}%"

    parts = [
        el("line", {"class": "track", "x1": "0", "x2": "100%", "y1": 8, "y2": 8}),
        el("line", {"class": "change", "x1": at(now), "x2": at(then), "y1": 8, "y2": 8}),
        el("circle", {"class": "now", "cx": at(now), "cy": 8, "r": 4}),
        el("circle", {"class": "then", "cx": at(then), "cy": 8, "r": 5}),
    ]
    return _picture("move", what, 16, parts)


def _frame(
    what: str, drawn: list[Markup], axis: Axis, times: Sequence[Tick], height: int
) -> Markup:
    box: Given = {"class": "box", "y": HEAD_PX, "width": "100%", "height": height}
    view: Given = {
        "viewBox": f"0 0 {BOX} {BOX}",
        "preserveAspectRatio": "none",
        "data-top": axis.top,
    }
    ground = HEAD_PX + height
    parts = [*_grid(axis, height), el("svg", {**box, **view}, *drawn)]
    parts.append(el("line", {"class": "ground", "x2": "100%", "y1": ground, "y2": ground}))
    parts += _marks(axis, height) + _times(times, ground)
    return _picture("plot", what, ground + (AXIS_PX if times else 2), parts)


def _picture(css: str, what: str, height: int, parts: list[Markup]) -> Markup:
    given: Given = {
        "class": css,
        "width": "100%",
        "height": height,
        "role": "img",
        "aria-label": what,
    }
    return el("svg", given, *parts)


def _grid(axis: Axis, height: int) -> list[Markup]:
    lines = [HEAD_PX, HEAD_PX + height / 2]
    return [el("line", {"class": "grid", "x2": "100%", "y1": y, "y2": y}) for y in lines]


def _marks(axis: Axis, height: int) -> list[Markup]:
    at: Given = {"class": "mark", "x": 0}
    return [
        el("text", {**at, "y": HEAD_PX - 3}, axis.text),
        el("text", {**at, "y": HEAD_PX + height / 2 - 3}, axis.half),
    ]


def _times(times: Sequence[Tick], ground: float) -> list[Markup]:
    parts = []
    for number, tick in enumerate(times):
        x = f"{tick.at * 100:.3f}%"
        parts.append(
            el("line", {"class": "tick", "x1": x, "x2": x, "y1": ground, "y2": ground + 12})
        )
        given: Given = {"class": f"time nth{number % 4}", "x": x, "dx": 3, "y": ground + 12}
        parts.append(el("text", given, tick.text))
    return parts


def _path(series: Series, css: str, path: str) -> Markup:
    values = " ".join("-" if value is None else f"{value:.4g}" for value in series.values)
    given: Given = {"class": css, "d": path, "data-name": series.name, "data-values": values}
    return el("path", given)


def _line(series: Series, highest: float) -> Markup:
    """Draw from the middle of each step to that of the next; a gap ends the line."""
    path: list[str] = []
    open_at: str | None = None
    last = ""
    filled = "area" in series.css
    for number, value in enumerate([*series.values, None]):
        x = _x(number + 0.5, len(series.values))
        if value is None:
            if open_at is not None:
                path.append(f"L{last} {BOX}H{open_at}Z" if filled else "h.01")
            open_at = None
            continue
        path.append(f"{'M' if open_at is None else 'L'}{x} {_y(value, highest)}")
        open_at, last = (x if open_at is None else open_at), x
    return _path(series, f"line {series.css}", "".join(path))


def _steps(lower: Sequence[float], upper: Sequence[float], highest: float) -> str:
    """Return the outline of each stretch where `upper` is above `lower`."""
    count, path, number = len(upper), [], 0
    while number < count:
        if upper[number] <= lower[number]:
            number += 1
            continue
        begin = number
        while number < count and upper[number] > lower[number]:
            number += 1
        path.append(f"M{_x(begin, count)} {_y(lower[begin], highest)}")
        path += [f"V{_y(upper[n], highest)}H{_x(n + 1, count)}" for n in range(begin, number)]
        path += [f"V{_y(lower[n], highest)}H{_x(n, count)}" for n in reversed(range(begin, number))]
        path.append("Z")
    return "".join(path)


def _x(number: float, count: int) -> str:
    return f"{number / max(count, 1) * BOX:.4g}"


def _y(value: float, highest: float) -> int:
    return round(BOX - min(max(value / highest, 0.0), 1.0) * BOX)
