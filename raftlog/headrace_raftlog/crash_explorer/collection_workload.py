"""Files that are given back: removed when dead, their live records moved forward before."""

from __future__ import annotations

import random

from headrace_raftlog.crash_explorer.driver import Driver

Dice = random.Random


def turn(driver: Driver, count: int = 1) -> None:
    """Collect and write, some times."""
    for _ in range(count):
        driver.collect()
        driver.commit()


def deletions(driver: Driver, dice: Dice) -> None:
    """Whole files die."""
    driver.begin(1, 1)
    for step in range(9):
        driver.append(1, [900, dice.randrange(300)], vote=step // 4, commit=2 * step)
        driver.commit()
        if step % 3 == 2:
            driver.snapshot(1, driver.image(1).last_index() - 1, [], 30)
            driver.commit()
        turn(driver)
    driver.verify()
    driver.kill()
    turn(driver)


def moves(driver: Driver, dice: Dice) -> None:
    """Single live entries, hard states and snapshots in files that are dead otherwise."""
    driver.begin(1, 1)
    driver.begin(2, 1)
    driver.append(2, [100, 100], vote=1, commit=2)
    driver.snapshot(2, 1, [1], 300)
    driver.append(1, [500, 60], vote=1)
    driver.commit()
    for step in range(8):
        driver.append(1, [800, dice.randrange(200)], commit=2 * step + 2)
        driver.commit()
        if step % 2:
            last = driver.image(1).last_index()
            driver.snapshot(1, last - 2, [2, last - 3] if step > 3 else [1, 2], 50)
            driver.commit()
        turn(driver)
        driver.collect()
        turn(driver)
    driver.verify()
    driver.restart()
    turn(driver, 2)
    driver.verify()


def replaced_and_collected(driver: Driver, dice: Dice) -> None:
    """A file that only entries in it keep which are being replaced right now."""
    driver.begin(1, 1)
    driver.append(1, [100], vote=1, commit=1)
    driver.commit()
    for step in range(3):
        driver.append(1, [800, 800, dice.randrange(700, 900), 800])
        driver.commit()
        driver.append(2, [900, 900])
        driver.commit()
        driver.append(1, [10] * (1 + step), back=4)
        turn(driver, 2)
        driver.append(1, [800, 800, 800])
        driver.commit()
        driver.append(2, [900, 900], back=1)
        driver.commit()
        driver.fetch(1, [1, 20 + step], 2)
        driver.install(1, 20 + step, [1, 20 + step], 10, keep=False)
        turn(driver, 2)
        driver.append(3, [800, 800, 800])
        driver.commit()
        driver.append(2, [900, 900], back=1)
        driver.commit()
        driver.begin(3, step + 1)
        driver.append(2, [10])
        turn(driver, 2)
    driver.verify()


def moves_and_truncations(driver: Driver, dice: Dice) -> None:
    """Entries replaced before and after they, or those in their place, were moved."""
    driver.begin(1, 1)
    driver.append(1, [100, 100, 100, 100], vote=1)
    driver.append(2, [700])
    driver.commit()
    for step in range(9):
        driver.append(2, [850, dice.randrange(60)], back=1, commit=0)
        driver.commit()
        turn(driver)
        if step % 3 == 1:
            driver.append(1, [120, 130], back=2)
            driver.commit()
        if step % 3 == 2:
            turn(driver)
            driver.append(1, [20], back=3)
            driver.commit()
            turn(driver)
            if step < 6:
                driver.append(1, [30, 30, 30])
                driver.commit()
    driver.verify()
    driver.append(1, [10], commit=4)
    driver.snapshot(1, 3, [2, 3], 20)
    driver.commit()
    turn(driver, 4)
    driver.append(1, [15], back=1)
    turn(driver, 2)
    driver.verify()


def moves_of_parts(driver: Driver, dice: Dice) -> None:
    """A snapshot in many parts, some of them moved, replaced while others are on the move."""
    driver.begin(1, 1)
    driver.begin(2, 1)
    driver.append(1, [100] * 3, vote=1, commit=2)
    driver.commit()
    driver.snapshot(1, 2, [2], 700)
    for step in range(12):
        driver.append(2, [850, dice.randrange(100)], commit=2 * step)
        driver.commit()
        if step % 2:
            driver.snapshot(2, 2 * step, [], 10)
            driver.commit()
        if step == 8:
            driver.collect()
            driver.append(1, [20], commit=3)
            driver.snapshot(1, 3, [2, 3], 1300)
        turn(driver, 2)
    driver.verify()
    driver.kill()
    turn(driver, 3)
    driver.verify()


def moves_and_rebirths(driver: Driver, dice: Dice) -> None:
    """Groups begun anew after, and while, their records move."""
    driver.begin(1, 1)
    driver.begin(2, 1)
    driver.append(1, [100, 100, 50, 50], vote=1, commit=3)
    driver.append(2, [100])
    driver.commit()
    driver.snapshot(1, 2, [1, 2], 100)
    driver.fetch(2, [2, 3, 5, 6], 3)
    for step in range(10):
        driver.append(3, [900, dice.randrange(200)], commit=2 * step)
        driver.commit()
        if step % 2:
            driver.snapshot(3, 2 * step, [], 10)
            driver.commit()
        if step == 4:
            driver.append(1, [70])
            driver.begin(1, 4 << 10 | 1)
            driver.append(1, [20, 20, 20], vote=1)
        if step == 6:
            driver.collect()
            driver.begin(1, 5 << 10 | 1)
        if step == 8:
            driver.collect()
            driver.fetch(2, [2, 3, 5, 6], 9)
            driver.install(2, 4, [2, 3], 60, keep=False)
        turn(driver, 2)
    driver.verify()
    driver.install(2, 6, [2, 5, 6], 60, keep=False)
    driver.append(1, [30, 30], back=1)
    turn(driver, 2)
    driver.verify()


def moves_of_tombstones(driver: Driver, dice: Dice) -> None:
    """A tombstone leaves a file while another one still has entries of its group."""
    driver.begin(2, 1)
    driver.append(2, [100, 100], vote=1)
    driver.append(3, [900, 900, 900], vote=1)
    driver.commit()
    driver.append(1, [800, 900], vote=1)
    driver.remove(2)
    driver.append(1, [800, 10], commit=3)
    driver.commit()
    for step in range(8):
        driver.append(1, [900, dice.randrange(200)], commit=4 + 2 * step)
        driver.snapshot(1, driver.image(1).commit, [], 10)
        driver.commit()
        turn(driver, 2)
    driver.verify()
    driver.snapshot(3, 3, [], 10)
    driver.remove(1)
    driver.commit()
    for _ in range(5):
        driver.append(4, [900, 900])
        driver.commit()
        turn(driver, 2)
    driver.verify()


def hints_of_death(driver: Driver, dice: Dice) -> None:
    """Report dead entries as the application does, and take the requested snapshots."""
    driver.begin(1, 1)
    driver.begin(2, 1)
    for step in range(10):
        group = 1 + step % 2
        driver.append(group, [700, dice.randrange(100)], commit=step // 2 * 2)
        driver.commit()
        if step > 2:
            for index in range(2, step - 1):
                driver.dead(group, index)
        for asked in driver.collect():
            held = driver.image(asked)
            if held.last_index() > held.first_index() and not held.removed:
                driver.snapshot(asked, held.last_index() - 1, [1], 20)
        driver.commit()
    driver.verify()


def removed_and_collected(driver: Driver, dice: Dice) -> None:
    """Tombstones live as long as anything of their group may come back."""
    driver.begin(1, 1)
    driver.begin(2, 1)
    driver.append(1, [300, 300], vote=1)
    driver.append(2, [300, 300], vote=1)
    driver.commit()
    for step in range(8):
        driver.append(1, [900, dice.randrange(200)], commit=2)
        if step == 1:
            driver.append(2, [700])
        driver.commit()
        if step == 2:
            driver.remove(2)
            driver.commit()
        if step > 2:
            driver.snapshot(1, driver.image(1).last_index(), [1], 10)
            driver.commit()
        turn(driver, 2)
    driver.verify()
    driver.remove(1)
    driver.append(3, [900] * 4)
    driver.commit()
    turn(driver, 3)
    driver.append(3, [900] * 4)
    driver.commit()
    turn(driver, 3)
    driver.verify()


def collected_on_a_full_disk(driver: Driver, dice: Dice) -> None:
    """Space comes from collection alone."""
    driver.begin(1, 1)
    driver.append(1, [100], vote=1)
    driver.commit()
    for step in range(5):
        driver.append(1, [900, 20], commit=2 * step)
        driver.commit()
    driver.files.fill(dice.choice((0, 500, 2000)))
    for _ in range(4):
        driver.append(1, [900])
        driver.commit()
        driver.snapshot(1, driver.image(1).last_index() - 1, [1], 10)
        driver.commit()
        turn(driver, 2)
    driver.kill()
    turn(driver, 2)
    driver.files.heal()
    driver.commit()
    driver.verify()


def settle(driver: Driver, dice: Dice) -> None:
    """Take a snapshot of everything and collect until nothing changes."""
    del dice
    for group in range(1, driver.subject.universe + 1):
        held = driver.image(group)
        if not held.removed and held.entries:
            live = [entry[0] for entry in (*held.live, *held.entries)][::2]
            driver.snapshot(group, held.last_index(), live, 10)
    driver.commit()
    turn(driver, 4)
    driver.verify()
