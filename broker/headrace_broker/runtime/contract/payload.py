"""Base of everything that nodes send each other, and its encoding.

A payload is a MessagePack array: its tag, then its fields. A decoder ignores fields behind those it
knows and fills in defaults for those that are missing; a tag that it does not know is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec


class Payload(msgspec.Struct, array_like=True, gc=False):
    """One message from node to node; each kind is a subclass with a tag of its own."""


encode: Final[Callable[[Payload], bytes]] = msgspec.msgpack.Encoder().encode

# Errors of a decoder that is given what is no MessagePack, or another type.
MALFORMED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_TEXT_CHARACTERS_MAX: Final = 200  # of an error's text: a decoder's may quote what came


def brief(error: Exception) -> str:
    """Return an error's text, cut where it is long."""
    return str(error)[:_TEXT_CHARACTERS_MAX]
