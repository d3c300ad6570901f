"""What is done with a log while it is watched."""

from __future__ import annotations

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
    """

    name: str
    run: Callable[[Driver, Dice], None]
    segment_bytes: int = 4096


def _batches(driver: Driver, dice: Dice) -> None:
    """Several groups in one batch, one group in several, sizes around sector boundaries."""
    driver.append(1, [dice.randrange(1, 60)], vote=1)
    driver.append(2, [0, 472, 1])
    driver.commit()
    driver.append(1, [512 - 80 - 40, 300])
    driver.flush()
    driver.append(3, [700], commit=1, vote=2)
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


def _mixed(driver: Driver, dice: Dice) -> None:
    """Anything, as the seed decides."""
    for _ in range(dice.randrange(8, 30)):
        group = dice.randrange(1, driver.subject.universe + 1)
        held = driver.image(group)
        choice = dice.random()
        if choice < 0.5 and not held.removed:
            sizes = [int(900 * dice.random() ** 3) for _ in range(dice.choice((1, 1, 2, 3, 6)))]
            back = dice.choice((0, 0, 0, 1, 2))
            driver.append(group, sizes, back, dice.choice((None, None, 1, 2)))
        elif choice < 0.55 and not held.removed:
            driver.vote(group, dice.randrange(1, 4))
        elif choice < 0.6 and not held.removed:
            driver.hint(group, dice.randrange(held.commit, max(held.commit, held.last_index()) + 1))
        elif choice < 0.62:
            driver.remove(group)
        elif choice < 0.65:
            driver.restart()
        elif choice < 0.68:
            driver.kill()
        elif choice < 0.75:
            driver.step()
        elif choice < 0.8:
            driver.flush()
        else:
            driver.commit()
    driver.commit()


WORKLOADS = {
    each.name: each
    for each in (
        Workload("batches", _batches, 8192),
        Workload("hard_states", _hard_states, 8192),
        Workload("truncations", _truncations, 8192),
        Workload("rotations", _rotations),
        Workload("long_appends", _long_appends),
        Workload("removals", _removals, 8192),
        Workload("restarts", _restarts),
        Workload("mixed", _mixed),
    )
}
