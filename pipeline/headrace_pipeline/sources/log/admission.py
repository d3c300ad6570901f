"""Rows of each shard that the next batch gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Waiting(NamedTuple):
    """Unread rows of a shard."""

    rows: int  # 1 or more
    row_bytes: int  # of one, on average; 1 or more


def admit(
    waiting: Mapping[str, Waiting], rows_max: int, bytes_max: int, in_step: bool, turn: int
) -> dict[str, int]:
    """Return how many rows each shard may give; where there are some, one row is.

    Args:
        waiting: by shard.
        rows_max: of all, 0 for any number.
        bytes_max: likewise; bytes are known on average only, so it may be exceeded.
        in_step: each gives the same part of what it has, so that all come to the present together:
            else the times of one would run ahead, and those of the others be too late for windows.
            Otherwise all give alike as far as they can, so that a small one never waits for a
            large one.
        turn: grows with each batch: where there is less than a row for each, others come first.
    """
    divide = divide_in_step if in_step else divide_alike
    wants = {name: each.rows for name, each in waiting.items()}
    if rows_max:
        wants = divide(wants, rows_max, turn)
    if bytes_max:
        byte_counts = {name: rows * waiting[name].row_bytes for name, rows in wants.items()}
        given = divide(byte_counts, bytes_max, turn)
        wants = {name: given[name] // waiting[name].row_bytes for name in wants}
    if waiting and not any(wants.values()):
        names = sorted(waiting)
        wants[names[turn % len(names)]] = 1
    return wants


def divide_alike(wants: Mapping[str, int], budget: int, turn: int) -> dict[str, int]:
    """Divide a number equally, without giving more than wanted.

    Args:
        wants: the most that each takes.
        budget: to divide.
        turn: whose turn it is to get what cannot be divided.
    """
    found: dict[str, int] = {}
    left = budget
    order = sorted(wants, key=lambda name: (wants[name], name))
    for at, name in enumerate(order):
        found[name] = min(wants[name], left // (len(order) - at))
        left -= found[name]
    return _hand_out(found, wants, left, turn)


def divide_in_step(wants: Mapping[str, int], budget: int, turn: int) -> dict[str, int]:
    """Divide a number so that each gets the same fraction of its demand."""
    total = sum(wants.values())
    if total <= budget:
        return dict(wants)
    found = {name: want * budget // total for name, want in wants.items()}
    return _hand_out(found, wants, budget - sum(found.values()), turn)


def _hand_out(
    found: dict[str, int], wants: Mapping[str, int], left: int, turn: int
) -> dict[str, int]:
    """Give one each of the rest, beginning with another name in each turn."""
    short = sorted(name for name in wants if found[name] < wants[name])
    for at in range(min(left, len(short))):
        found[short[(turn + at) % len(short)]] += 1
    return found
