"""Files of messages: they are read as written, and damage is detected."""

from __future__ import annotations

import io

import google_crc32c
import pytest
from tests.broker.cli.backup.sample import block, data_file

from headrace_broker.cli.backup.data_file import Block, DamagedError, read_blocks

BLOCKS = [block(1, b"a", b"bb"), block(5, b"", b"c"), block(9, b"x" * 40)]


def read(data: bytes) -> list[Block]:
    return list(read_blocks(io.BytesIO(data), "00001.hrb"))


def test_blocks_come_back_as_they_were() -> None:
    assert read(data_file(*BLOCKS)) == BLOCKS
    assert read(data_file()) == []
    assert [block.messages for block in BLOCKS] == [2, 2, 1]
    [head, _] = BLOCKS[0].read_heads()
    assert (head.id, head.acquired_count, head.delivery_count, head.priority) == (1, 2, 1, 3)


def test_file_that_ends_anywhere_before_its_end_is_torn() -> None:
    data = data_file(*BLOCKS)
    for byte_count in range(len(data)):
        with pytest.raises(DamagedError, match=r"00001.hrb is torn: it ends at \d+, within"):
            read(data[:byte_count])


def test_every_flipped_byte_is_noticed() -> None:
    data = data_file(*BLOCKS)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x20
        with pytest.raises(DamagedError, match=r"00001\.hrb"):
            read(bytes(changed))


def test_what_follows_the_end_is_noticed() -> None:
    with pytest.raises(DamagedError, match="something follows the end"):
        read(data_file(*BLOCKS) + b"\x00")


def test_blocks_that_do_not_ascend_are_noticed() -> None:
    with pytest.raises(DamagedError, match="ids do not ascend: 1 behind 6"):
        read(data_file(BLOCKS[1], BLOCKS[0]))


def test_file_of_another_kind_or_version_is_refused_as_that() -> None:
    with pytest.raises(DamagedError, match="it is no file of a backup"):
        read(b"PK\x03\x04" + bytes(100))
    newer = _with_version(data_file(*BLOCKS), 2)
    with pytest.raises(DamagedError, match="has version 2 of the format, known here is 1: take a"):
        read(newer)


def _with_version(data: bytes, version: int) -> bytes:
    head = data[:8] + version.to_bytes(2, "big") + data[10:12]
    crc: int = google_crc32c.value(head)
    return head + crc.to_bytes(4, "big") + data[16:]
