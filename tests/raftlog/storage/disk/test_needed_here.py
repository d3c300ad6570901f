"""Groups without a majority if a log is damaged."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace_raftlog.model.entry import ENTRY_CONFIG, Entry, HardState
from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.storage.disk.memory_files import MemoryFiles
from headrace_raftlog.storage.disk.options import LogOptions
from headrace_raftlog.storage.inspection.set_aside import needed_here
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_raftlog.storage.writing.identity import Identity

Run = Callable[..., list[Entry]]
SECOND = "/log/0000000000000002.log"
OPTIONS = LogOptions(segment_bytes=8192)


@pytest.fixture
def owned(disk: MemoryFiles, open_log, run: Run) -> tuple[MemoryFiles, Identity]:
    """The log of node 1, of three segments, with groups of different members."""
    identity = Identity.open("/log", "test", 1, disk).form("/log", {1: 9, 2: 8, 3: 7}, disk)
    opened = open_log(disk, identity=identity)
    opened.log.begin(1, 1, Membership((1, 2, 3)))
    opened.log.begin(2, 1, Membership((1,)))
    opened.log.begin(3, 1, Membership((1, 2)))
    opened.log.begin(4, 1, Membership((1,)))
    grown = Membership((1, 2, 3)).encode()
    opened.append(4, [Entry(1, 1, ENTRY_CONFIG, grown)], HardState(1, 1, 1))
    opened.log.begin(5, 1, Membership((1,)))
    opened.log.remove_group(5)
    opened.commit(1, run(1, 1, b"a"), HardState(1, 1, 0))
    for index in range(2, 40):
        opened.commit(1, run(index, 1, b"x" * 500))
    opened.log.close()
    return disk, identity


def test_groups_that_too_few_others_have_are_needed(owned) -> None:
    disk, _ = owned
    disk.remove(SECOND)
    with pytest.raises(CorruptLogError):
        SharedLog.open("/log", OPTIONS, None, disk)
    assert needed_here("/log", 1, disk) == [2, 3]
    assert needed_here("/log", 3, disk) == []
