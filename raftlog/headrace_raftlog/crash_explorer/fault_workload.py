"""Disks that are full, take a part of a write, or fail."""

from __future__ import annotations

import errno
import random

from headrace_raftlog.crash_explorer.driver import Driver

Dice = random.Random


def short_writes(driver: Driver, dice: Dice) -> None:
    """Writes that accept a part of their bytes."""
    driver.files.short_write_bytes = dice.choice((100, 512, 700))
    driver.append(1, [900, 900], vote=1)
    driver.append(2, [10])
    driver.commit()
    driver.append(1, [600, 10], back=1)
    driver.commit()
    driver.files.short_write_bytes = 0
    driver.append(1, [300])
    driver.commit()


def full_disk(driver: Driver, dice: Dice) -> None:
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


def failed_calls(driver: Driver, dice: Dice) -> None:
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
