"""Snapshots taken and installed."""

from __future__ import annotations

import random

from headrace_simulation.crash_explorer.driver import Driver

Dice = random.Random


def snapshots(driver: Driver, dice: Dice) -> None:
    """Taken one after another, with live entries, between appends and truncations."""
    driver.begin(1, 1)
    driver.append(1, [100, 200, 50, 10], vote=1)
    driver.commit()
    driver.append(1, [dice.randrange(300)], commit=4)
    driver.snapshot(1, 3, [2], 300)
    driver.append(1, [10])
    driver.append(2, [10])
    driver.commit()
    driver.append(1, [20, 20], back=2, commit=4)
    driver.commit()
    driver.snapshot(1, 4, [2, 4], 20)
    driver.flush()
    driver.append(1, [30], back=1, commit=5)
    driver.commit()
    driver.restart()
    driver.snapshot(1, 6, [4], 700)
    driver.commit()
    driver.append(1, [10], commit=7)
    driver.snapshot(1, 7, [], 0)
    driver.snapshot(2, 1, [1], 100)
    driver.commit()
    driver.append(1, [10, 600], back=1)
    driver.remove(2)
    driver.commit()


def long_snapshots(driver: Driver, dice: Dice) -> None:
    """States that need several batches and several files."""
    driver.begin(1, 1)
    driver.append(1, [100, 900, 50], vote=1, commit=3)
    driver.commit()
    driver.snapshot(1, 2, [1], dice.randrange(6000, 9000))
    driver.append(1, [70])
    driver.append(2, [70])
    driver.commit()
    driver.append(1, [80], back=1, commit=4)
    driver.commit()
    driver.snapshot(1, 4, [1, 4], 5000)
    driver.commit()
    driver.append(1, [80], commit=4)
    driver.commit()
    driver.snapshot(1, 5, [4], 4000)
    driver.flush()
    driver.kill()
    driver.snapshot(1, 5, [4], 4000)
    driver.commit()


def fetch_and_install(driver: Driver, dice: Dice) -> None:
    """Replace everything by a peer's snapshot whose live entries are fetched in turns."""
    del dice
    live = [2, 4, 8, 9]
    if driver.image(1).snapshot_index() < 10:
        for _ in range(3):
            driver.fetch(1, live, 2)
            driver.commit()
        driver.install(1, 10, live, 150, keep=False)
        driver.commit()


def installs(driver: Driver, dice: Dice) -> None:
    """A peer's snapshots in place of everything, and of the beginning of the log."""
    driver.begin(1, 1)
    driver.append(1, [100, 90, 80, 70, 60], vote=1, commit=3)
    driver.append(2, [10])
    driver.commit()
    fetch_and_install(driver, dice)
    driver.append(1, [10, 20, 30, 40], vote=2, commit=12)
    driver.commit()
    driver.install(1, 12, [4, 9, 11], 50, keep=True)
    driver.append(1, [5], back=1, commit=13)
    driver.commit()
    driver.append(1, [5, 40, 5, 40])
    driver.commit()
    driver.vote(1, 3)
    driver.fetch(1, [9, 11, 13, 14], 4)
    driver.install(1, 14, [9, 11, 13, 14], 30, keep=False)
    driver.commit()
    driver.append(1, [600], commit=15)
    driver.fetch(1, [16, 18], 2)
    driver.commit()
    driver.install(1, 15, [9, 13, 15], 30, keep=True)
    driver.commit()
    driver.restart()
    driver.append(1, [50], commit=16)
    driver.snapshot(1, 16, [13, 15], 100)
    driver.commit()


def rebirths(driver: Driver, dice: Dice) -> None:
    """Groups begun anew as another member, and joiners that know nothing yet."""
    driver.begin(1, 1)
    driver.append(1, [100, 90], vote=1, commit=2)
    driver.commit()
    driver.snapshot(1, 1, [1], 40)
    driver.begin(2, 1)
    driver.commit()
    driver.begin(1, 5 << 10 | 1)
    driver.append(2, [dice.randrange(600)])
    driver.commit()
    driver.append(1, [30, 30], vote=7)
    driver.begin(1, 7 << 10 | 1)
    driver.commit()
    driver.kill()
    driver.begin(1, 6 << 10 | 1)
    driver.begin(3, 1)
    driver.fetch(1, [1, 2], 2)
    driver.commit()
    driver.install(1, 2, [1, 2], 100, keep=False)
    driver.append(3, [10])
    driver.commit()
