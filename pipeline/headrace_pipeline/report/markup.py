"""HTML and SVG that are built from parts, so that no text can become markup by mistake.

Names of queues, accounts and nodes are what users chose. Everything that is not `Markup` is escaped
where it is put in.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Final

# What XML and HTML cannot hold: control characters, halves of surrogate pairs, non-characters.
_CANNOT_STAND: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

# What would turn the text around it.
_TURNS: Final = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

_MARK: Final = "\ufffd"


class Markup(str):
    """A text that is HTML already."""

    __slots__ = ()


Part = str | int | float | Markup | None
Given = dict[str, Part]  # attributes of an element, by name


def escape(value: Part) -> Markup:
    """Return a text as HTML; markup as it is, None as nothing.

    What cannot stand in a page, or would turn the text around it, becomes U+FFFD.
    """
    if isinstance(value, Markup):
        return value
    if value is None:
        return Markup("")
    shown = _TURNS.sub(_MARK, _CANNOT_STAND.sub(_MARK, str(value)))
    return Markup(html.escape(shown, quote=True))


def el(tag: str, attributes: Mapping[str, Part] | None = None, *children: Part) -> Markup:
    """Return an element.

    Args:
        tag: its name.
        attributes: by name; those that are None are left out.
        children: what is in it; texts are escaped.
    """
    given = "".join(
        f' {name}="{escape(value)}"'
        for name, value in (attributes or {}).items()
        if value is not None
    )
    inner = "".join(escape(child) for child in children)
    if not inner and tag in _EMPTY:
        return Markup(f"<{tag}{given}/>")
    return Markup(f"<{tag}{given}>{inner}</{tag}>")


_EMPTY: Final = frozenset({"br", "circle", "col", "line", "link", "meta", "path", "rect"})


def join(parts: list[Markup] | tuple[Markup, ...]) -> Markup:
    """Return parts one after the other."""
    return Markup("".join(parts))


def name(text: str, chars_max: int = 60) -> Markup:
    """Return a user's name, apart from the direction of the text around it, cut when long."""
    shown = cut(text, chars_max)
    whole = text if shown != text else None
    return el("bdi", {"class": "name", "title": whole}, shown if shown.strip() else "(blank)")


def cut(text: str, chars_max: int) -> str:
    """Return a text of at most `chars_max` characters: beginning and end of a longer one."""
    if len(text) <= chars_max:
        return text
    end = chars_max // 3
    return f"{text[: chars_max - end - 1]}\u2026{text[-end:]}"
