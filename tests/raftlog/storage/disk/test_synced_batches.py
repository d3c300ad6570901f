"""The number of the newest synced batch stands for all that was promised on a disk."""

from __future__ import annotations

import pytest

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.storage.disk.options import LogOptions
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_simulation.memory_files import MemoryFiles

OPTIONS = LogOptions(segment_bytes=8192, stepped=True)
BODY = b"x" * 600


def found(disk: MemoryFiles, names_synced: bool) -> int:
    """Return the last batch that is there after a power failure that keeps nothing unsynced."""
    after = disk.after_power_loss(lambda *_: False, names_synced=names_synced)
    log = SharedLog.open("/log", OPTIONS, files=after)
    last = log.recovery.next_number - 1
    log.close()
    return last


@pytest.mark.parametrize("names_synced", [False, True])
def test_power_failure_never_leaves_less_than_was_synced(names_synced: bool) -> None:
    disk = MemoryFiles()
    before = 0
    for start in range(3):
        log = SharedLog.open("/log", OPTIONS, files=disk)
        assert log.recovery.next_number - 1 >= before
        for index in range(1 + start * 20, 21 + start * 20):
            log.append(1, HardState(1, 0, 0), [Entry(index, 1, 0, BODY)], True, None)
            log.flush()
            log.step()
            assert log.synced() <= found(disk, names_synced)
        log.step()  # a seal
        assert log.synced() <= found(disk, names_synced)
        assert log.synced() > before
        log.close()
        before = log.synced()
        assert before <= found(disk, names_synced)


def test_batch_that_was_not_synced_does_not_count() -> None:
    disk = MemoryFiles()
    log = SharedLog.open("/log", OPTIONS, files=disk)
    synced = log.synced()
    log.append(1, HardState(1, 0, 0), [Entry(1, 1, 0, BODY)], True, None)
    log.flush()
    assert log.synced() == synced

    def fail(call: str, path: str) -> None:
        raise OSError(5, f"{call} {path}")

    disk.fault = fail
    log.step()
    assert log.failure is not None
    assert log.synced() == synced
