"""The writer: order, batches, short writes, a full disk, failures."""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections.abc import Callable

import pytest

from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.model.errors import LogWriteError
from headrace_raftlog.storage.disk.options import LogOptions
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_simulation.memory_files import MemoryFiles

Run = Callable[..., list[Entry]]
FIRST = "/log/0000000000000001.log"
SECOND = "/log/0000000000000002.log"


def until(check: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not check():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def syncs(disk: MemoryFiles, path: str = FIRST) -> int:
    return disk.calls.count(("sync", path))


class Gate:
    """Holds the writer inside a sync until it is opened."""

    def __init__(self, disk: MemoryFiles) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        disk.fault = self.hold

    def hold(self, call: str, path: str) -> None:
        if call == "sync":
            self.entered.set()
            assert self.opened.wait(30)


def test_what_gathers_during_a_sync_is_one_batch(disk: MemoryFiles, open_log, run: Run) -> None:
    opened = open_log(disk)
    opened.commit(1, run(1, 1, b"a"))
    before = syncs(disk)
    gate = Gate(disk)
    opened.append(1, run(2, 1, b"b"))
    opened.log.flush()
    assert gate.entered.wait(30)
    for group in range(2, 12):
        opened.append(group, run(1, 1, b"c"))
        opened.log.flush()
    assert opened.tokens == [1]
    gate.opened.set()
    opened.wait(lambda: len(opened.tokens) == 12)
    assert opened.tokens == list(range(1, 13))
    assert syncs(disk) - before == 2


def test_nothing_is_reported_before_its_sync_returned(
    disk: MemoryFiles, open_log, run: Run
) -> None:
    opened = open_log(disk)
    gate = Gate(disk)
    opened.append(1, run(1, 1, b"a"))
    opened.log.flush()
    assert gate.entered.wait(30)
    assert opened.log.group(1).entry(1).data == b"a"
    assert opened.tokens == []
    assert opened.log.backlog_bytes == 41
    gate.opened.set()
    opened.wait(lambda: opened.tokens == [1])
    assert opened.log.backlog_bytes == 0


def test_commit_hint_alone_causes_no_sync_but_its_token_comes(
    disk: MemoryFiles, open_log, run: Run
) -> None:
    opened = open_log(disk)
    opened.commit(1, run(1, 1, b"a"), HardState(1, 2, 0))
    calls = list(disk.calls)
    token = opened.append(1, [], HardState(1, 2, 1), must_sync=False)
    opened.log.flush()
    opened.wait(lambda: token in opened.tokens)
    assert disk.calls == calls
    opened.commit(2, run(1, 1, b"b"))
    assert len(disk.calls) == len(calls) + 2
    opened.log.close()
    assert open_log(disk).log.group(1).hard_state == HardState(1, 2, 1)


def test_hint_without_token_waits_for_company(disk: MemoryFiles, open_log, run: Run) -> None:
    opened = open_log(disk)
    opened.commit(1, run(1, 1, b"a"), HardState(1, 2, 0))
    calls = list(disk.calls)
    opened.log.append(1, HardState(1, 2, 1), [], False, None)
    opened.log.flush()
    assert disk.calls == calls
    opened.log.close()
    assert open_log(disk).log.group(1).hard_state == HardState(1, 2, 1)


def test_waiting_hint_never_undoes_a_later_state(disk: MemoryFiles, open_log, run: Run) -> None:
    opened = open_log(disk)
    opened.commit(1, run(1, 1, b"a"), HardState(1, 2, 0))
    opened.log.append(1, HardState(1, 2, 1), [], False, None)
    opened.commit(1, [], HardState(2, 3, 1))
    opened.log.close()
    assert open_log(disk).log.group(1).hard_state == HardState(2, 3, 1)


def test_hint_token_keeps_its_place_behind_earlier_appends(
    disk: MemoryFiles, open_log, run: Run
) -> None:
    opened = open_log(disk)
    gate = Gate(disk)
    opened.append(1, run(1, 1, b"a"), HardState(1, 2, 0))
    opened.log.flush()
    assert gate.entered.wait(30)
    opened.append(1, [], HardState(1, 2, 1), must_sync=False)
    opened.log.flush()
    gate.opened.set()
    opened.wait(lambda: len(opened.tokens) == 2)
    assert opened.tokens == [1, 2]


@pytest.mark.parametrize("state", [HardState(2, 0, 0), HardState(1, 3, 0)])
def test_term_or_vote_is_synced_whatever_the_caller_says(
    disk: MemoryFiles, open_log, state: HardState
) -> None:
    opened = open_log(disk)
    opened.commit(1, [], HardState(1, 0, 0))
    before = syncs(disk)
    token = opened.append(1, [], state, must_sync=False)
    opened.log.flush()
    opened.wait(lambda: token in opened.tokens)
    assert syncs(disk) == before + 1
    lost = disk.after_power_loss(lambda *_: False, names_synced=True)
    assert open_log(lost).log.group(1).hard_state == state


@pytest.mark.parametrize("most", [1, 7, 512, 600])
def test_short_writes_are_finished(disk: MemoryFiles, open_log, run: Run, most: int) -> None:
    opened = open_log(disk)
    disk.short_write_bytes = most
    assert opened.commit(1, run(1, 1, b"a" * 700, b"b" * 900))
    lost = disk.after_power_loss(lambda *_: False, names_synced=True)
    assert open_log(lost).contents() == opened.contents()


def test_write_that_takes_nothing_is_a_failure(disk: MemoryFiles, open_log, run: Run) -> None:
    opened = open_log(disk)
    real = disk.write
    disk.write = lambda fd, data, offset: min(real(fd, data[:5], offset), 0)  # type: ignore[method-assign]
    assert not opened.commit(1, run(1, 1, b"a"))
    assert "took no byte" in str(opened.failures[0])


def test_next_segment_is_ready_before_it_is_needed(disk: MemoryFiles, open_log, run: Run) -> None:
    opened = open_log(disk)
    for index in range(1, 5):
        opened.commit(1, run(index, 1, b"x" * 400))
    until(lambda: ("create", SECOND + ".new") in disk.calls)
    assert ("rename", SECOND) not in disk.calls
    index = 5
    while ("rename", SECOND) not in disk.calls:
        disk.calls.clear()
        opened.commit(1, run(index, 1, b"x" * 400))
        index += 1
    assert [call for call in disk.calls if call[1] != FIRST][:2] == [
        ("rename", SECOND),
        ("sync_directory", "/log"),
    ]


def test_long_append_spans_batches_and_segments_and_reports_once(
    disk: MemoryFiles, open_log, run: Run
) -> None:
    opened = open_log(disk)
    entries = run(1, 3, *[bytes([n]) * 500 for n in range(60)])
    assert opened.commit(1, entries, HardState(3, 1, 0))
    assert opened.tokens == [1]
    assert len(disk.names("/log")) >= 4
    opened.log.close()
    assert open_log(disk).contents() == {1: (HardState(3, 1, 0), entries)}


@pytest.mark.parametrize("call", ["write", "sync"])
@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS])
def test_failed_write_or_sync_is_final(
    disk: MemoryFiles, open_log, run: Run, call: str, code: int
) -> None:
    opened = open_log(disk)
    opened.commit(1, run(1, 1, b"a"))

    def fail(name: str, path: str) -> None:
        if name == call and path == FIRST:
            raise OSError(code, "injected", path)

    disk.fault = fail
    assert not opened.commit(1, run(2, 1, b"b"))
    disk.fault = lambda name, path: None
    calls = list(disk.calls)
    assert isinstance(opened.failures[0], LogWriteError)
    assert "injected" in str(opened.failures[0])
    assert opened.log.failure is opened.failures[0]
    with pytest.raises(LogWriteError, match="injected"):
        opened.append(1, run(3, 1, b"c"))
    opened.log.close()
    assert disk.calls == calls
    assert (len(opened.failures), opened.tokens) == (1, [1])


@pytest.mark.parametrize("call", ["create", "rename", "sync_directory"])
def test_failed_creation_of_a_segment_is_final(
    disk: MemoryFiles, open_log, run: Run, call: str
) -> None:
    opened = open_log(disk)

    def fail(name: str, path: str) -> None:
        if name == call:
            raise OSError(errno.EIO, "injected", path)

    disk.fault = fail
    committed = 0
    with contextlib.suppress(LogWriteError):
        while opened.commit(1, run(committed + 1, 1, b"x" * 400)):
            committed += 1
    assert committed > 0
    assert "injected" in str(opened.failures[0])
    disk.fault = lambda name, path: None
    opened.log.close()
    assert open_log(disk).log.group(1).last_index() in (committed, committed + 1)


def test_full_disk_is_waited_out(disk: MemoryFiles, open_log, run: Run) -> None:
    opened = open_log(disk)
    disk.capacity_bytes = 8192 + 3000
    tokens = [opened.append(1, run(index, 1, b"x" * 400)) for index in range(1, 21)]
    opened.log.flush()
    opened.wait(lambda: opened.full)
    more = opened.append(2, run(1, 1, b"more"))
    opened.log.flush()
    assert opened.log.full
    disk.capacity_bytes = 1 << 20
    opened.wait(lambda: more in opened.tokens)
    assert opened.tokens == [*tokens, more]
    assert opened.full == [True, False]
    assert not opened.log.full
    assert opened.failures == []
    before = opened.contents()
    opened.log.close()
    assert open_log(disk).contents() == before


def test_batch_refused_for_space_in_its_middle_is_written_again_whole(
    disk: MemoryFiles, open_log, run: Run
) -> None:
    opened = open_log(disk)
    left = [3]

    def fail(name: str, path: str) -> None:
        if name == "write" and path == FIRST and left[0]:
            left[0] -= 1
            if left[0] != 2:
                raise OSError(errno.ENOSPC, "injected", path)

    disk.short_write_bytes = 600
    disk.fault = fail
    assert opened.commit(1, run(1, 1, b"a" * 900))
    assert opened.full == [True, False]
    disk.fault = lambda name, path: None
    lost = disk.after_power_loss(lambda *_: False, names_synced=True)
    assert open_log(lost).contents() == opened.contents()


def test_closing_a_full_log_does_not_hang_and_keeps_what_was_reported(
    disk: MemoryFiles, open_log, run: Run
) -> None:
    opened = open_log(disk)
    disk.capacity_bytes = 8192
    for index in range(1, 31):
        opened.append(1, run(index, 1, b"x" * 400))
        opened.log.flush()
    opened.wait(lambda: opened.full)
    opened.log.close()
    again = open_log(disk)
    assert again.log.group(1).last_index() >= len(opened.tokens)


def test_seal_follows_an_idle_batch(disk: MemoryFiles, open_log, run: Run) -> None:
    opened = open_log(disk, seal_seconds=0.001)
    sealed = threading.Event()

    def watch(name: str, path: str) -> None:
        if (name, path) == ("sync", FIRST) and opened.tokens:
            sealed.set()

    disk.fault = watch
    opened.commit(1, run(1, 1, b"a"))
    assert sealed.wait(30)
    opened.log.close()
    before = disk.file(FIRST).written
    data = before.index(b"a", 1024)
    before[data] ^= 1
    again = open_log(disk)
    assert again.log.recovery.torn is None
    assert list(again.log.group(1).lost or ()) == [1]


def test_stepped_log_writes_in_steps_and_has_no_thread(disk: MemoryFiles, run: Run) -> None:
    threads = threading.active_count()
    log = SharedLog.open("/log", LogOptions(segment_bytes=8192, stepped=True), None, disk)
    tokens: list[object] = []
    log.writer.on_durable = tokens.extend
    assert threading.active_count() == threads
    for index in (1, 2):
        log.append(1, None, run(index, 1, b"x"), True, index)
        log.flush()
    before = syncs(disk)
    assert tokens == []
    log.step()
    assert tokens == [1, 2]
    assert syncs(disk) == before + 1
    log.step()
    log.step()
    assert syncs(disk) == before + 2, "one seal, and only one"
    log.append(1, None, run(3, 1, b"x"), True, 3)
    log.close()
    assert tokens == [1, 2, 3]


def test_stepped_log_tries_a_full_disk_once_per_step(disk: MemoryFiles, run: Run) -> None:
    log = SharedLog.open("/log", LogOptions(segment_bytes=8192, stepped=True), None, disk)
    tokens: list[object] = []
    log.writer.on_durable = tokens.extend
    attempts = 0

    def no_space(call: str, path: str) -> None:
        nonlocal attempts
        if call == "write":
            attempts += 1
            raise OSError(errno.ENOSPC, "no space left on device", path)

    disk.fault = no_space
    log.append(1, None, run(1, 1, b"x"), True, 1)
    log.flush()
    for count in (1, 2):
        log.step()
        assert (attempts, tokens, log.full, log.failure) == (count, [], True, None)
    disk.fault = lambda call, path: None
    log.step()
    assert (tokens, log.full) == ([1], False)
    log.close()


def test_stepped_log_does_nothing_after_a_failure(disk: MemoryFiles, run: Run) -> None:
    log = SharedLog.open("/log", LogOptions(segment_bytes=8192, stepped=True), None, disk)

    def fail(call: str, path: str) -> None:
        raise OSError(errno.EIO, "input/output error", path)

    disk.fault = fail
    log.append(1, None, run(1, 1, b"x"), True, 1)
    log.flush()
    log.step()
    calls = len(disk.calls)
    log.step()
    assert isinstance(log.failure, LogWriteError)
    log.close()
    assert len(disk.calls) == calls
