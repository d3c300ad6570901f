"""Tables of a report, which a click on a head sorts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from headrace_pipeline.limits import REPORT_TABLE_ROWS_MAX
from headrace_pipeline.report.markup import Given, Markup, Part, el
from headrace_pipeline.report.quantity import instant


class Cell(NamedTuple):
    """A cell of a table."""

    text: Part  # that is read
    value: float | None = None  # that rows are sorted by; None for a text, which is sorted as such


Row = Sequence[Cell | Part]


def table(
    caption: str, heads: Sequence[str], rows: Sequence[Row], numbers_from: int = 1, css: str = ""
) -> Markup:
    """Return a table; the first cell of each row is its head.

    Args:
        caption: what it shows, for who cannot see where it stands.
        heads: of the columns, with units.
        rows: those beyond REPORT_TABLE_ROWS_MAX are counted only.
        numbers_from: number of the first column that is set to the right.
        css: further class.
    """
    shown = rows[:REPORT_TABLE_ROWS_MAX]
    head = el("tr", None, *(_head(text, at >= numbers_from) for at, text in enumerate(heads)))
    body = [
        el("tr", None, *(_cell(c, n, numbers_from) for n, c in enumerate(row))) for row in shown
    ]
    parts = [
        el("caption", {"class": "unseen"}, caption),
        el("thead", None, head),
        el("tbody", None, *body),
    ]
    made = el("table", {"class": f"sortable {css}".strip()}, *parts)
    note = None
    if len(rows) > len(shown):
        note = el("p", {"class": "note"}, f"and {len(rows) - len(shown):,} more")
    scroll: Given = {"class": "scroll", "tabindex": 0, "role": "region", "aria-label": caption}
    return Markup(el("div", scroll, made) + (note or ""))


def figure(value: float, form: Callable[[float], str]) -> Cell:
    """Return a cell with a figure; an empty one for NaN."""
    return number("", None) if value != value else number(form(float(value)), float(value))


def behind(caption: str, made: Markup) -> Markup:
    """Return a table that is opened when wanted."""
    return el("details", None, el("summary", None, caption), made)


def moment(at: datetime) -> Cell:
    """Return a time."""
    text = el("time", {"datetime": f"{at:%Y-%m-%dT%H:%MZ}"}, instant(at))
    return Cell(text, at.timestamp())


def number(text: str, value: float | None) -> Cell:
    """Return a number; None is a dash, and sorted first."""
    return Cell("\u2013", -1.0) if value is None else Cell(text, value)


def _head(text: str, is_number: bool) -> Markup:
    return el("th", {"scope": "col", "class": "n" if is_number else None}, text)


def _cell(cell: Cell | Part, at: int, numbers_from: int) -> Markup:
    text, value = cell if isinstance(cell, Cell) else (cell, None)
    key = None if value is None else f"{value:.6g}" if abs(value) < 1e6 else f"{value:.0f}"
    given: Given = {"data-v": key}
    if at == 0:
        return el("th", {"scope": "row", **given}, text)
    return el("td", {"class": "n" if at >= numbers_from else None, **given}, text)
