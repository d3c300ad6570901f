"""Texts that others wrote, such as names, as a terminal and a log may have them."""

from __future__ import annotations


def printable(text: str, kept: str = "") -> str:
    """Return a text with what cannot be shown, but for what is kept, as Python writes it.

    That is control characters, separators of lines, what changes the direction of text or has no
    width, and lone surrogates, which no file takes.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in kept else each.encode("unicode_escape").decode()
        for each in text
    )
