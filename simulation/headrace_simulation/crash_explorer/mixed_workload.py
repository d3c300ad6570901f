"""Anything, as the seed decides."""

from __future__ import annotations

import errno
import random

from headrace_simulation.crash_explorer.driver import Driver
from headrace_simulation.crash_explorer.image import FETCHED_INDEX_MAX

Dice = random.Random


def nothing(driver: Driver, dice: Dice) -> None:
    """Do nothing more."""


def act(driver: Driver, dice: Dice) -> None:
    """Do one thing."""
    group = dice.randrange(1, driver.subject.universe + 1)
    held = driver.image(group)
    choice = dice.random()
    if dice.random() < 0.35:
        compact(driver, dice, group)
    elif choice < 0.55 and not held.removed:
        sizes = [int(900 * dice.random() ** 3) for _ in range(dice.choice((1, 1, 2, 3, 6)))]
        back = dice.choice((0, 0, 0, 1, 2))
        driver.append(group, sizes, back, dice.choice((None, None, 1, 2)))
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


def compact(driver: Driver, dice: Dice, group: int) -> None:
    """Take or install a snapshot, begin anew, or collect garbage."""
    held = driver.image(group)
    last = held.last_index()
    choice = dice.random()
    if held.removed or choice < 0.4:
        driver.collect(dice.choice((1, 500, 2000, 1 << 20)))
        if dice.random() < 0.7:
            driver.commit()
    elif choice < 0.7 and last > held.snapshot_index():
        index = dice.randrange(held.first_index(), last + 1)
        known = [entry[0] for entry in (*held.live, *held.entries) if entry[0] <= index]
        live = [each for each in known if dice.random() < 0.3]
        driver.append(group, [10], commit=index)
        driver.snapshot(group, index, live, int(5000 * dice.random() ** 4))
    elif choice < 0.78:
        driver.verify()
    elif choice < 0.82:
        driver.begin(group, dice.randrange(1, 1 << 20))
    elif choice < 0.9 and held.entries:
        driver.dead(group, dice.choice(held.entries)[0])
    else:
        index = last + dice.randrange(-1, 4)
        if held.snapshot_index() < index < FETCHED_INDEX_MAX:
            lives = [entry[0] for entry in held.live]
            lives += [each for each in range(held.first_index(), index + 1) if dice.random() < 0.3]
            driver.fetch(group, lives, 99)
            if dice.random() < 0.3:
                driver.commit()
            keep = index <= last and dice.random() < 0.5
            driver.install(group, index, lives, dice.randrange(300), keep)


def mixed(driver: Driver, dice: Dice) -> None:
    """Anything, as the seed decides."""
    for _ in range(dice.randrange(8, 30)):
        act(driver, dice)
    driver.commit()


def mixed_collection(driver: Driver, dice: Dice) -> None:
    """Much that dies soon, little that lives long, and steady collection."""
    for _ in range(dice.randrange(30, 80)):
        group = dice.randrange(1, driver.subject.universe + 1)
        held = driver.image(group)
        choice = dice.random()
        if choice < 0.4 and not held.removed:
            last = held.last_index()
            sizes = [int(900 * dice.random()) for _ in range(dice.choice((1, 2, 3)))]
            commit = dice.randrange(held.commit, max(held.commit, last) + 1)
            driver.append(group, sizes, dice.choice((0, 0, 0, 1, 2, 3)), commit=commit)
        elif choice < 0.6:
            compact(driver, dice, group)
        elif choice < 0.75:
            act(driver, dice)
        else:
            driver.collect()
            if dice.random() < 0.8:
                driver.commit()
    driver.commit()


def mixed_faults(driver: Driver, dice: Dice) -> None:
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
            act(driver, dice)
    driver.files.heal()
    driver.kill()
