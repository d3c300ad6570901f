"""The checker of register histories tells good ones from bad ones."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest

from headrace_simulation.simulator.linearizability import (
    NEVER,
    READ,
    WRITE,
    Operation,
    first_anomaly,
)


def write(value, start, end=NEVER):
    return Operation(WRITE, 0, value, start, end)


def read(value, start, end):
    return Operation(READ, 0, value, start, end)


@pytest.mark.parametrize(
    "history",
    [
        [],
        [read(0, 1, 2)],
        [write(1, 1, 2), read(1, 3, 4)],
        [write(1, 1, 5), read(0, 2, 3), read(1, 4, 6)],
        [write(1, 1, 9), write(2, 1, 9), read(2, 2, 3), read(1, 4, 5)],
        # In doubt: may have happened at once, much later, or never.
        [write(1, 1), read(1, 2, 3)],
        [write(1, 1), read(0, 2, 3), read(1, 4, 5)],
        [write(1, 1), write(2, 2, 3), read(2, 4, 5), read(1, 6, 7)],
        [write(1, 1), read(0, 5, 6)],
    ],
)
def test_history_that_an_order_explains(history):
    assert first_anomaly(history) == ""


@pytest.mark.parametrize(
    "history",
    [
        [read(7, 1, 2)],  # from nowhere
        [write(1, 1, 2), read(0, 3, 4)],  # stale
        [write(1, 1, 2), write(2, 3, 4), read(1, 5, 6)],  # overwritten before
        [write(1, 1, 9), read(1, 2, 3), read(0, 4, 5)],  # seen, then unseen
        [write(1, 1), read(1, 2, 3), read(0, 4, 5)],  # the same with a write in doubt
        [write(1, 1), write(2, 1), read(1, 2, 3), read(2, 4, 5), read(1, 6, 7)],  # back again
        [write(1, 5, 6), read(1, 1, 2)],  # before it began
    ],
)
def test_history_that_no_order_explains(history):
    assert first_anomaly(history) != ""


def legal(order):
    value = 0
    for operation in order:
        if operation.kind == WRITE:
            value = operation.value
        elif operation.value != value:
            return False
    return True


def explained_by_brute_force(history):
    for order in permutations(history):
        in_time = all(
            not later.end < earlier.start
            for at, earlier in enumerate(order)
            for later in order[at + 1 :]
        )
        if in_time and legal(order):
            return True
    return False


def test_agrees_with_trying_every_order():
    rng = Random(5)
    outcomes = set()
    for _ in range(1500):
        history = []
        for value in range(1, 6):
            start = rng.randint(1, 12)
            end = start + rng.randint(0, 6)
            if rng.random() < 0.5:
                history.append(write(value, start, end))
            else:
                history.append(read(rng.randint(0, 5), start, end))
        written = {operation.value for operation in history if operation.kind == WRITE} | {0}
        expected = all(operation.value in written for operation in history)
        expected = expected and explained_by_brute_force(history)
        outcomes.add(expected)
        assert (first_anomaly(history) == "") == expected, history
    assert outcomes == {True, False}


def test_many_writes_at_once_take_few_steps():
    """There are more orders of them than any search can try."""
    history = [write(value, 1, 100) for value in range(1, 60)]
    history += [read(value, 1, 100) for value in range(1, 60)]
    assert first_anomaly(history) == ""
    assert first_anomaly([*history, read(0, 2, 50), write(70, 1, 2), read(0, 3, 4)]) != ""


def test_long_history_takes_few_steps():
    history = []
    for value in range(1, 400):
        history.append(write(value, 10 * value, 10 * value + 12))
        history.append(read(value - 1, 10 * value - 3, 10 * value + 4))
    assert first_anomaly(history) == ""
