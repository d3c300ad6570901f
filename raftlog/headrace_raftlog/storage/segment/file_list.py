"""Which segments a log consists of, as the log itself says it."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_raftlog.storage.segment.record import (
    BATCH_FRAME_BYTES,
    HEADER_BYTES,
    RECORD_FILES,
    RECORD_GONE,
    SECTOR_BYTES,
    encode_record,
)

GONE_MAX: Final = (SECTOR_BYTES - BATCH_FRAME_BYTES - HEADER_BYTES) // 8  # sequences in one sector


@final
class FileSpan:
    """One segment and the batches in it."""

    def __init__(self, sequence: i64, first: i64, last: i64) -> None:
        self.sequence = sequence  # of the segment
        self.first = first  # number of its first batch
        self.last = last  # number of its last batch


def _write_number(out: bytearray, number: i64) -> None:
    while number > 127:
        out.append((number & 127) | 128)
        number >>= 7
    out.append(number)


def encode_files(salt: i64, spans: list[FileSpan]) -> bytes:
    """Return the record that lists all closed segments; it stands first in every segment.

    Each takes three numbers of 7 bits a byte: how far its sequence is from the one before, how far
    its first batch is from the end of the one before, and how many batches follow the first.
    """
    out = bytearray()
    sequence: i64 = 0
    number: i64 = 0
    for span in spans:
        _write_number(out, span.sequence - sequence)
        _write_number(out, span.first - number)
        _write_number(out, span.last - span.first)
        sequence = span.sequence
        number = span.last
    payload = bytes(out)
    return encode_record(salt, RECORD_FILES, 0, 0, 0, 0, len(spans), payload) + payload


def encode_gone(salt: i64, sequences: list[int]) -> bytes:
    """Return the record after which the named segments, GONE_MAX at most, do not exist."""
    payload = b"".join([sequence.to_bytes(8, "little") for sequence in sequences])
    return encode_record(salt, RECORD_GONE, 0, 0, 0, 0, len(sequences), payload) + payload


def decode_files(payload: bytes) -> list[FileSpan]:
    """Read a list of closed segments.

    Raises ValueError: the payload is not one.
    """
    numbers: list[int] = []
    value: i64 = 0
    shift: i64 = 0
    for byte in payload:
        value |= (i64(byte) & 127) << shift
        if byte > 127:
            shift += 7
            if shift > 56:
                raise ValueError("a number in the list of segments is too long")
            continue
        numbers.append(value)
        value = 0
        shift = 0
    if shift or len(numbers) % 3:
        raise ValueError("the list of segments is cut short")
    spans: list[FileSpan] = []
    sequence: i64 = 0
    number: i64 = 0
    for at in range(0, len(numbers), 3):
        sequence += numbers[at]
        first: i64 = number + numbers[at + 1]
        number = first + numbers[at + 2]
        spans.append(FileSpan(sequence, first, number))
    return spans


def decode_gone(payload: bytes) -> list[int]:
    """Read which segments were removed."""
    return [int.from_bytes(payload[at : at + 8], "little") for at in range(0, len(payload), 8)]
