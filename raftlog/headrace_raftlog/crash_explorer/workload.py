"""What is done with a log while it is watched."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass

from headrace_raftlog.crash_explorer.driver import Driver

Dice = random.Random


@dataclass(frozen=True, slots=True)
class Workload:
    """A run of a log.

    Attributes:
        name: for the command line.
        run: does it; the dice are seeded and decide what a directed workload leaves open.
        segment_bytes: length of the log's files.
        with_identity: whether starts are counted in the data directory.
    """

    name: str
    run: Callable[[Driver, Dice], None]
    segment_bytes: int = 4096
    with_identity: bool = False


def _batches(driver: Driver, dice: Dice) -> None:
    """Several groups in one batch, one group in several, sizes around sector boundaries."""
    driver.append(1, [dice.randrange(1, 60)], vote=1)
    driver.append(2, [0, 472, 1])
    driver.commit()
    driver.append(1, [512 - 80 - 40, 300])
    driver.flush()
    driver.append(3, [700, 900], commit=1, vote=2)
    driver.append(1, [10], commit=2)
    driver.commit()
    driver.step()
    driver.append(2, [200])
    driver.commit()


def _hard_states(driver: Driver, dice: Dice) -> None:
    """Terms and votes alone, with entries of their term, and hints that may get lost."""
    driver.append(1, [20, 20], vote=1)
    driver.commit()
    driver.vote(1, 2)
    driver.vote(2, dice.randrange(1, 4))
    driver.commit()
    driver.hint(1, 1)
    driver.flush()
    driver.step()
    driver.hint(1, 2)
    driver.vote(2, 3)
    driver.commit()
    driver.append(1, [600], vote=3, commit=2)
    driver.hint(1, 3)
    driver.commit()


def _truncations(driver: Driver, dice: Dice) -> None:
    """Entries replaced in new terms, in the same batch and in later ones."""
    driver.append(1, [100, 100, 400], vote=1)
    driver.commit()
    driver.append(1, [dice.randrange(300), 10], back=2, vote=2)
    driver.append(2, [50, 50])
    driver.append(2, [60], back=1)
    driver.commit()
    driver.append(1, [5], back=4)
    driver.append(1, [600])
    driver.append(1, [7, 7], back=1)
    driver.commit()


def _rotations(driver: Driver, dice: Dice) -> None:
    """Enough for several files."""
    for turn in range(7):
        driver.append(1 + turn % 3, [dice.randrange(600, 900), 20], back=turn // 3 % 2)
        driver.commit()
        if turn % 4 == 3:
            driver.step()


def _long_appends(driver: Driver, dice: Dice) -> None:
    """Appends that need several batches, and several files."""
    driver.append(1, [10], vote=1)
    driver.commit()
    driver.append(1, [900] * 5, vote=2, commit=1)
    driver.append(2, [dice.randrange(100)])
    driver.commit()
    driver.append(1, [1000] * 4, back=3)
    driver.commit()


def _removals(driver: Driver, dice: Dice) -> None:
    """Groups removed right after, and long after, they were written to."""
    driver.append(1, [30, 30], vote=1)
    driver.append(2, [dice.randrange(500)])
    driver.commit()
    driver.append(2, [40])
    driver.remove(2)
    driver.append(3, [5])
    driver.commit()
    driver.remove(1)
    driver.remove(4)
    driver.commit()
    driver.append(3, [600], vote=2)
    driver.commit()


def _restarts(driver: Driver, dice: Dice) -> None:
    """Closed and opened again, killed and opened again, in the middle of things."""
    driver.append(1, [100], vote=1)
    driver.commit()
    driver.restart()
    driver.append(1, [dice.randrange(700), 30], commit=1)
    driver.append(2, [10], vote=2)
    driver.commit()
    driver.append(2, [20])
    driver.kill()
    driver.append(1, [900], back=1)
    driver.commit()
    driver.kill()
    driver.remove(2)
    driver.commit()
    driver.restart()
    driver.append(1, [900])
    driver.commit()


def _short_writes(driver: Driver, dice: Dice) -> None:
    """Writes that take a part of what they were given."""
    driver.files.short_write_bytes = dice.choice((100, 512, 700))
    driver.append(1, [900, 900], vote=1)
    driver.append(2, [10])
    driver.commit()
    driver.append(1, [600, 10], back=1)
    driver.commit()
    driver.files.short_write_bytes = 0
    driver.append(1, [300])
    driver.commit()


def _full_disk(driver: Driver, dice: Dice) -> None:
    """No space for the next file; more comes in meanwhile; restarts while it is full."""
    driver.append(1, [900], vote=1)
    driver.commit()
    driver.files.fill(dice.choice((0, 300, 512, 1000)))
    for turn in range(4):
        driver.append(1 + turn % 2, [1000, 10], back=turn // 3)
        driver.commit()
    if dice.random() < 0.3:
        driver.kill()
        driver.append(2, [700])
        driver.commit()
    driver.files.heal()
    driver.commit()
    driver.append(1, [900])
    driver.commit()


def _failed_calls(driver: Driver, dice: Dice) -> None:
    """A call fails for good: the log stops, and another process opens it."""
    driver.append(1, [100], vote=1)
    driver.commit()
    for turn in range(4):
        call = dice.choice(("sync", "write", "create", "rename", "sync_directory"))
        if turn == 0:
            driver.files.fail("sync", 0, errno.EIO)
        else:
            driver.files.fail(call, dice.randrange(4), errno.EIO)
        for turn in range(5):
            driver.append(1 + turn % 2, [dice.randrange(1000), 5], back=turn % 2)
            driver.commit()
        if dice.random() < 0.5:
            driver.files.heal()
        if dice.random() < 0.5:
            driver.kill()
        else:
            driver.restart()
        driver.append(2, [60])
        driver.commit()
    driver.files.heal()
    driver.kill()


def _act(driver: Driver, dice: Dice) -> None:
    group = dice.randrange(1, driver.subject.universe + 1)
    held = driver.image(group)
    choice = dice.random()
    if choice < 0.55 and not held.removed:
        sizes = [int(900 * dice.random() ** 3) for _ in range(dice.choice((1, 1, 2, 3, 6)))]
        driver.append(group, sizes, dice.choice((0, 0, 0, 1, 2)), dice.choice((None, None, 1, 2)))
    elif choice < 0.6 and not held.removed:
        driver.vote(group, dice.randrange(1, 4))
    elif choice < 0.65 and not held.removed:
        driver.hint(group, dice.randrange(held.commit, max(held.commit, held.last_index()) + 1))
    elif choice < 0.66:
        driver.remove(group)
    elif choice < 0.69:
        driver.restart()
    elif choice < 0.72:
        driver.kill()
    elif choice < 0.77:
        driver.step()
    elif choice < 0.82:
        driver.flush()
    else:
        driver.commit()


def _mixed(driver: Driver, dice: Dice) -> None:
    """Anything, as the seed decides."""
    for _ in range(dice.randrange(8, 30)):
        _act(driver, dice)
    driver.commit()


def _mixed_faults(driver: Driver, dice: Dice) -> None:
    """Anything on a bad disk."""
    for _ in range(dice.randrange(10, 40)):
        choice = dice.random()
        if choice < 0.1:
            call = dice.choice(("sync", "write", "create", "rename", "remove", "sync_directory"))
            driver.files.fail(call, dice.randrange(6), dice.choice((errno.EIO, errno.ENOSPC)))
        elif choice < 0.15:
            driver.files.fill(dice.randrange(5000))
        elif choice < 0.2:
            driver.files.short_write_bytes = dice.choice((0, 100, 512, 1500))
        elif choice < 0.4:
            driver.files.heal()
        elif driver.log.failure is not None:
            driver.kill()
        else:
            _act(driver, dice)
    driver.files.heal()
    driver.kill()


WORKLOADS = {
    each.name: each
    for each in (
        Workload("batches", _batches, 8192),
        Workload("hard_states", _hard_states, 8192),
        Workload("truncations", _truncations, 8192),
        Workload("rotations", _rotations),
        Workload("long_appends", _long_appends),
        Workload("removals", _removals, 8192),
        Workload("restarts", _restarts, with_identity=True),
        Workload("short_writes", _short_writes, 8192),
        Workload("full_disk", _full_disk),
        Workload("failed_calls", _failed_calls, with_identity=True),
        Workload("mixed", _mixed),
        Workload("mixed_faults", _mixed_faults),
    )
}
