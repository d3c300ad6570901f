"""Long records, written in slices while others pass them."""

from __future__ import annotations

import errno
import random

from headrace_simulation.crash_explorer import mixed_workload
from headrace_simulation.crash_explorer.driver import Driver

Dice = random.Random


def slices(driver: Driver, dice: Dice) -> None:
    """Small records of other groups between the slices, the group's own behind them."""
    driver.append(1, [30], vote=1)
    driver.commit()
    driver.append(1, [dice.randrange(1800, 2600)], vote=2)
    driver.flush()
    driver.append(2, [20])
    driver.flush()
    driver.append(1, [10], commit=1)
    driver.vote(3, 1)
    driver.flush()
    driver.append(4, [dice.randrange(600)])
    driver.flush()
    driver.append(2, [900, 400], commit=1)
    driver.hint(2, 1)
    driver.commit()
    driver.append(1, [5])
    driver.commit()


def replaced(driver: Driver, dice: Dice) -> None:
    """Replaced by a new term while the slices are being written."""
    driver.append(1, [30], vote=1)
    driver.commit()
    driver.append(1, [1700])
    driver.flush()
    driver.append(1, [dice.choice((40, 1200))], back=1)
    driver.flush()
    driver.append(2, [20], vote=1)
    driver.flush()
    driver.vote(1, 2)
    driver.append(1, [60], back=dice.choice((0, 1)))
    driver.commit()
    driver.append(1, [600])
    driver.append(3, [900])
    driver.commit()


def removed(driver: Driver, dice: Dice) -> None:
    """Removed, or begun anew, while the slices are being written."""
    driver.append(1, [30], vote=1)
    driver.append(3, [30])
    driver.commit()
    driver.append(1, [1500])
    driver.flush()
    driver.remove(1)
    driver.append(2, [20])
    driver.flush()
    driver.append(3, [1100])
    driver.flush()
    driver.append(2, [dice.randrange(500)])
    driver.begin(3, 7)
    driver.flush()
    driver.append(3, [10], vote=1)
    driver.commit()
    driver.append(2, [700])
    driver.commit()


def in_files(driver: Driver, dice: Dice) -> None:
    """One long record after the other, through several files."""
    for turn in range(5):
        driver.append(1 + turn % 2, [dice.randrange(1100, 2800)], back=turn // 2 % 2)
        driver.flush()
        driver.append(3, [dice.randrange(400)])
        driver.flush()
        driver.append(1 + turn % 2, [10])
        driver.flush()
        if turn % 2:
            driver.commit()
    driver.commit()


def filled(driver: Driver, dice: Dice) -> None:
    """So much beside a long record that its file is full before it is whole."""
    for turn in range(2):
        driver.append(1, [3000 + dice.randrange(100)])
        driver.flush()
        for _ in range(6):
            driver.append(2 + turn, [500 + dice.randrange(300)])
            driver.flush()
        driver.commit()


def restarted(driver: Driver, dice: Dice) -> None:
    """Killed and closed with long records handed over."""
    driver.append(1, [1200], vote=1)
    driver.commit()
    driver.append(1, [dice.randrange(1100, 2200)])
    driver.flush()
    driver.append(2, [20])
    driver.kill()
    driver.append(1, [1300], back=1)
    driver.flush()
    driver.append(2, [700])
    driver.restart()
    driver.append(2, [10])
    driver.commit()


def collected(driver: Driver, dice: Dice) -> None:
    """Dead ones given back, live ones moved in slices while others pass them."""
    driver.append(1, [dice.randrange(700, 1200)], vote=1)
    driver.append(2, [10])
    driver.commit()
    for turn in range(6):
        driver.append(2, [900, 600], back=2 if turn % 3 == 2 else 0)
        driver.flush()
        driver.append(3, [50])
        driver.commit()
    last = driver.image(2).last_index()
    driver.hint(2, last)
    driver.snapshot(2, last, [last], dice.randrange(900))
    driver.commit()
    for _ in range(8):
        driver.collect()
        driver.append(3, [20])
        driver.commit()


def in_own_files(driver: Driver, dice: Dice) -> None:
    """Longer than a usual file, in files of their own, on a disk that may fill meanwhile."""
    driver.append(1, [30], vote=1)
    driver.commit()
    for turn in range(3):
        if turn == 1 and dice.random() < 0.5:
            driver.files.fail("write", dice.randrange(3), errno.ENOSPC)
        driver.append(1, [dice.randrange(4000, 9000)], back=turn // 2)
        driver.flush()
        driver.append(2, [dice.randrange(600)])
        driver.flush()
        driver.append(1, [10])
        driver.step()
        driver.files.heal()
        driver.commit()
    last = driver.image(1).last_index()
    driver.hint(1, last - 1)
    driver.snapshot(1, last, [], 20)
    driver.commit()
    for _ in range(4):
        driver.collect()
        driver.append(3, [20])
        driver.commit()


def freed(driver: Driver, dice: Dice) -> None:
    """A file of which a long record, half written, takes the last that is needed."""
    driver.append(1, [500])
    driver.commit()
    for _ in range(5):
        driver.append(2, [900, 500 + dice.randrange(400)], back=2)
        driver.commit()
    driver.vote(1, 2)
    driver.commit()
    driver.append(1, [2000], back=1)
    driver.append(2, [10])
    driver.files.fail("write", dice.randrange(2, 4), errno.ENOSPC)
    driver.commit()
    driver.files.heal()
    driver.collect()
    driver.commit()
    driver.append(3, [30])
    driver.commit()


def on_a_bad_disk(driver: Driver, dice: Dice) -> None:
    """A call that fails, a disk that fills, writes that are cut short, between slices."""
    driver.append(1, [20])
    driver.commit()
    kind = dice.randrange(3)
    if kind == 0:
        driver.files.fail(dice.choice(("write", "sync")), dice.randrange(8), errno.EIO)
    elif kind == 1:
        driver.files.fail("write", dice.randrange(6), errno.ENOSPC)
    else:
        driver.files.short_write_bytes = dice.choice((100, 512, 700))
    driver.append(1, [2000])
    driver.flush()
    driver.append(2, [30])
    driver.flush()
    driver.append(3, [600])
    driver.commit()
    driver.step()
    driver.files.heal()
    driver.step()
    driver.kill()


def mixed(driver: Driver, dice: Dice) -> None:
    """Anything, handed over in small parts, as the seed decides."""
    for _ in range(dice.randrange(8, 30)):
        mixed_workload.act(driver, dice)
        if dice.random() < 0.5:
            driver.flush()
    driver.commit()
