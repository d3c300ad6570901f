"""Salvage of a log: intact parts are read, and the rest is named."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.storage.disk.memory_files import MemoryFiles
from headrace_raftlog.storage.inspection.salvage import Salvage

Run = Callable[..., list[Entry]]
FIRST = "/log/0000000000000001.log"
SECOND = "/log/0000000000000002.log"
BODY = b"x" * 600


@pytest.fixture
def stored(disk: MemoryFiles, open_log, run: Run) -> MemoryFiles:
    """Two groups over some segments."""
    opened = open_log(disk)
    opened.commit(2, run(1, 1, b"small"), HardState(1, 1, 0))
    for index in range(1, 41):
        opened.commit(1, run(index, 1, b"%02d" % index + BODY))
    opened.log.close()
    return disk


def salvaged(disk: MemoryFiles) -> Salvage:
    salvage = Salvage(disk, "/log")
    salvage.run()
    return salvage


def readable(salvage: Salvage, group: int) -> dict[int, bytes]:
    left = salvage.group(group)
    out = {}
    for index in range(1, left.last + 1):
        try:
            out[index] = left.entry(index).data
        except (KeyError, CorruptLogError):
            continue
    return out


EVERYTHING = {index: b"%02d" % index + BODY for index in range(1, 41)}


def test_intact_log_is_read_whole(stored: MemoryFiles) -> None:
    salvage = salvaged(stored)
    assert salvage.damaged == []
    assert readable(salvage, 1) == EVERYTHING
    assert readable(salvage, 2) == {1: b"small"}
    assert not salvage.group(1).problem
    with pytest.raises(KeyError):
        salvage.group(3)


def test_missing_segment_takes_nothing_but_what_stood_in_it(stored: MemoryFiles) -> None:
    there = bytes(stored.file(SECOND).written)
    stored.remove(SECOND)
    salvage = salvaged(stored)
    assert [damage.path for damage in salvage.damaged] == [SECOND]
    assert salvage.group(1).problem
    gone = [index for index, body in EVERYTHING.items() if body in there]
    assert gone
    assert readable(salvage, 1) == {i: b for i, b in EVERYTHING.items() if i not in gone}
    assert readable(salvage, 2) == {1: b"small"}


def test_damaged_segment_header_and_both_ends_of_a_batch_are_passed_over(
    stored: MemoryFiles,
) -> None:
    data = bytearray(stored.file(FIRST).written)
    data[20] ^= 1
    at = data.index(b"03" + BODY)
    data[at // 512 * 512 + 20] ^= 1
    data[data.index(bytes([17]), at)] ^= 1
    stored.put(FIRST, bytes(data))
    salvage = salvaged(stored)
    assert [(damage.path, damage.offset) for damage in salvage.damaged] == [
        (FIRST, 0),
        (FIRST, at // 512 * 512),
    ]
    assert readable(salvage, 1) == {i: b for i, b in EVERYTHING.items() if i != 3}


def test_entry_that_is_not_intact_is_not_given_out(stored: MemoryFiles) -> None:
    data = bytearray(stored.file(FIRST).written)
    data[data.index(b"05" + BODY) + 9] ^= 1
    stored.put(FIRST, bytes(data))
    salvage = salvaged(stored)
    with pytest.raises(CorruptLogError):
        salvage.group(1).entry(5)
    assert readable(salvage, 1) == {i: b for i, b in EVERYTHING.items() if i != 5}
