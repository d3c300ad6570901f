"""A part of a report: title, conclusion, a plot, and the figures behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace_pipeline.report.markup import Markup, Part, el, join


class Section(NamedTuple):
    """A part of the page."""

    id: str  # of its place in the page
    title: str  # what it shows, with units
    conclusion: Markup  # a sentence
    body: Markup  # pictures and tables

    def page(self) -> Markup:
        """Return it as a part of the page."""
        head = el("h2", {"id": f"{self.id}-title"}, self.title)
        said = el("p", {"class": "conclusion"}, self.conclusion)
        given = {"id": self.id, "aria-labelledby": f"{self.id}-title"}
        return el("section", given, head, said, self.body)


def sentence(*parts: Part) -> Markup:
    """Return texts and names one after the other."""
    return el("span", None, *parts)


def keys(pairs: Sequence[tuple[str, Part]], shape: str = "") -> Markup:
    """Return what colours mean: pairs of class and text."""
    items = [
        el("li", None, el("span", {"class": f"key {shape} {css}"}), text) for css, text in pairs
    ]
    return el("ul", {"class": "keys"}, *items)


def rows_of(rows: Sequence[tuple[Part, Part, Part]], css: str) -> Markup:
    """Return rows of a name, a picture and what it says, below each other."""
    parts = []
    for title, picture, said in rows:
        cells = [
            el("div", {"class": "row-name"}, title),
            el("div", {"class": "row-picture"}, picture),
            el("div", {"class": "row-said"}, said),
        ]
        parts.append(el("div", {"class": "row"}, *cells))
    return el("div", {"class": f"rows {css}"}, join(parts))
