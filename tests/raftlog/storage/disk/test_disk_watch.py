"""Detection of a disk that hangs and answers again, in time that a loop sees pass."""

from __future__ import annotations

from headrace_raftlog.model.limits import DISK_STEADY_FRACTION
from headrace_raftlog.storage.disk.disk_watch import DiskWatch

STALL_S = 4.0


def test_disk_hangs_when_one_step_takes_too_long_and_not_when_many_do() -> None:
    watch = DiskWatch(STALL_S)
    assert not any(watch.tick(1.0, (step, 0)) for step in range(20))
    assert not any(watch.tick(1.0, (20, filled)) for filled in range(20))
    assert [watch.tick(1.0, (21, 0)) for _ in range(5)] == [False, False, False, False, True]
    assert watch.stalled
    assert watch.stalled_s == STALL_S


def test_disk_that_does_nothing_does_not_hang() -> None:
    watch = DiskWatch(STALL_S)
    assert not any(watch.tick(1.0, None) for _ in range(20))


def hang(watch: DiskWatch) -> None:
    while not watch.stalled:
        watch.tick(1.0, (0, 0))


def test_disk_answers_again_after_as_long_without_a_long_step() -> None:
    watch = DiskWatch(STALL_S)
    hang(watch)
    assert not any(watch.tick(1.0, (0, 0)) for _ in range(10))
    assert [watch.tick(1.0, None) for _ in range(4)] == [False, False, False, True]
    assert not watch.stalled
    assert watch.stalled_s == STALL_S + 14


def test_disk_that_answers_now_and_then_goes_on_hanging() -> None:
    watch = DiskWatch(STALL_S)
    hang(watch)
    held_s = STALL_S / DISK_STEADY_FRACTION + 1
    for step in range(1, 20):
        assert not any(watch.tick(1.0, (step, 0)) for _ in range(1 + int(held_s)))
    assert watch.stalled
    changes = [watch.tick(STALL_S / DISK_STEADY_FRACTION, (step, 0)) for step in range(20, 25)]
    assert changes.count(True) == 1
    assert not watch.stalled


def test_disk_that_hangs_again_is_counted_anew() -> None:
    watch = DiskWatch(STALL_S)
    hang(watch)
    while watch.stalled:
        watch.tick(1.0, None)
    assert not watch.tick(1.0, (1, 0))
    hang(watch)
    assert watch.stalled_s == STALL_S
