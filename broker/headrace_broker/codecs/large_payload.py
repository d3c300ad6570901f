"""Payloads that end with bytes which are too many to be copied.

    u8 0xC1, with which no MessagePack begins | u32 bytes of the head | head | bytes

The head is a payload like any other, without these bytes.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_be
from mypy_extensions import i64

from headrace_raftlog.model.pieces import Bytes

MARK: Final = 0xC1
MARK_BYTES: Final = 5


def wrap(head: bytes, pieces: list[Bytes]) -> list[Bytes]:
    """Return a payload of a head and bytes that stand behind it, uncopied."""
    mark = bytes((MARK,)) + len(head).to_bytes(4, "big")
    out: list[Bytes] = [mark + head]
    out.extend(pieces)
    return out


def body_start(data: bytes) -> int:
    """Return where the bytes behind the head begin; 0 where a payload has no such head.

    Args:
        data: the payload, or at least its head.
    """
    if len(data) < MARK_BYTES or data[0] != MARK:
        return 0
    size: i64 = i64(read_i32_be(data, 1))
    if size < 0 or size > len(data) - MARK_BYTES:
        return 0
    return int(MARK_BYTES + size)
