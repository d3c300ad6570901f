"""Appends, votes, removals, restarts on a disk without faults."""

from __future__ import annotations

import random

from headrace_raftlog.crash_explorer.driver import Driver

Dice = random.Random


def batches(driver: Driver, dice: Dice) -> None:
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


def hard_states(driver: Driver, dice: Dice) -> None:
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


def truncations(driver: Driver, dice: Dice) -> None:
    """Entries replaced in new terms, in the same batch and in later ones."""
    driver.append(1, [100, 100, 400], vote=1)
    driver.commit()
    driver.append(1, [dice.randrange(300), 10], back=2, vote=2)
    driver.append(2, [50, 50])
    driver.append(2, [60], back=1)
    driver.commit()
    driver.append(1, [5], back=3)
    driver.commit()
    driver.append(1, [600])
    driver.append(1, [7, 7], back=1)
    driver.commit()


def rotations(driver: Driver, dice: Dice) -> None:
    """Enough for several files."""
    for turn in range(7):
        driver.append(1 + turn % 3, [dice.randrange(600, 900), 20], back=turn // 3 % 2)
        driver.commit()
        if turn % 4 == 3:
            driver.step()


def long_appends(driver: Driver, dice: Dice) -> None:
    """Appends that need several batches, and several files."""
    driver.append(1, [10], vote=1)
    driver.commit()
    driver.append(1, [900] * 5, vote=2, commit=1)
    driver.append(2, [dice.randrange(100)])
    driver.commit()
    driver.append(1, [1000] * 4, back=3)
    driver.commit()


def removals(driver: Driver, dice: Dice) -> None:
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


def restarts(driver: Driver, dice: Dice) -> None:
    """Closed and opened again, killed and opened again, in the middle of things."""
    driver.append(1, [100], vote=1)
    driver.commit()
    driver.restart()
    driver.form()
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
