"""Sender-selected distribution: further routing keys in the headers CC and BCC of a message.

Source: https://www.rabbitmq.com/docs/sender-selected
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from headrace_broker.core.property_reader import PropertyReader, field_stop
from headrace_broker.model.limits import DISTRIBUTION_WORDS_MAX

CC: Final = b"CC"
BCC: Final = b"BCC"

_DEAD_LETTER_B: Final = 0x42
_DEAD_LETTER_C: Final = 0x43
_TYPE_ARRAY: Final = 0x41  # A
_TYPE_LONG_STRING: Final = 0x53  # S


class DistributionError(ValueError):
    """A header CC or BCC is invalid; the text names it and the rule."""


def holds_copies(block: bytes, pos: i64, stop: i64) -> bool:
    """Return whether CC or BCC is among a block's headers, which begin at `pos`."""
    while pos < stop:
        size: i64 = block[pos]
        if (size == 2 or size == 3) and _names_copies(block, pos + 1, size):
            return True
        pos = field_stop(block, pos + 1 + size, stop)
        if pos < 0:
            return False
    return False


def _names_copies(block: bytes, pos: i64, size: i64) -> bool:
    """Return whether the 2 or 3 bytes at `pos` are CC or BCC."""
    if size == 3:
        if block[pos] != _DEAD_LETTER_B:
            return False
        pos += 1
    return block[pos] == _DEAD_LETTER_C and block[pos + 1] == _DEAD_LETTER_C


def distribution_keys(properties: bytes) -> list[str]:
    """Return the routing keys in CC, then those in BCC; DistributionError if malformed."""
    keys: list[str] = []
    if CC in properties:  # bytes that stand in BCC too; a rare find
        reader = PropertyReader()
        reader.scan_block(properties, 0, len(properties))
        for name in (CC, BCC):
            value = reader.header(properties, name)
            if value >= 0:
                _add_keys(properties, value, reader.headers_stop, name, keys)
    words = len(keys)
    for key in keys:
        words += key.count(".")
    if words > DISTRIBUTION_WORDS_MAX:
        raise DistributionError(
            f"the routing keys in headers 'CC' and 'BCC' have {words} words, "
            f"more than {DISTRIBUTION_WORDS_MAX}"
        )
    return keys


def _add_keys(block: bytes, pos: i64, stop: i64, name: bytes, keys: list[str]) -> None:
    if block[pos] != _TYPE_ARRAY:
        raise _wrong(name, f"type '{chr(block[pos])}'")
    end = field_stop(block, pos, stop)
    pos += 5
    while pos < end:
        after = field_stop(block, pos, end)
        if block[pos] != _TYPE_LONG_STRING or after < 0:
            raise _wrong(name, f"an array with type '{chr(block[pos])}'")
        keys.append(block[pos + 5 : after].decode("utf-8", "surrogateescape"))
        pos = after


def _wrong(name: bytes, kind: str) -> DistributionError:
    return DistributionError(
        f"header '{name.decode()}' must be an array of long strings, not {kind}"
    )
