"""Histories of one register that have an order, and such that have none."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import msgspec
import pytest
from e2e.chaos.history import Operation
from e2e.chaos.linearizability import Reads, explainable, first_unexplained, precedes


def write(value: bool, start: float, end: float | None, node: str = "n1") -> Operation:
    return Operation("x", node, True, value, start, end)


def read(value: bool, start: float, end: float, node: str = "n1") -> Operation:
    return Operation("x", node, False, value, start, end)


EXPLAINABLE = {
    "nothing": [],
    "read of the initial value": [read(False, 0, 1)],
    "read after write": [write(True, 0, 1), read(True, 2, 3)],
    "read beside a write sees the old value": [write(True, 0, 3), read(False, 1, 2)],
    "read beside a write sees the new value": [write(True, 0, 3), read(True, 1, 2)],
    "two writes beside each other, in the order that helps": [
        write(True, 0, 5),
        write(False, 0, 5),
        read(True, 6, 7),
    ],
    "unknown write took effect late": [
        write(True, 0, None),
        read(False, 1, 2),
        read(False, 5, 6),
        read(True, 7, 8),
    ],
    "unknown write took effect between others": [
        write(True, 0, None),
        write(True, 1, 2),
        write(False, 3, 4),
        read(True, 5, 6),
    ],
    "a slow write is used for the last look": [
        write(True, 0, 10),
        write(True, 1, 2),
        write(False, 3, 4),
        read(False, 5, 6),
        read(True, 7, 8),
    ],
}
UNEXPLAINABLE = {
    "read from nowhere": [read(True, 0, 1)],
    "stale read after a write": [write(True, 0, 1), read(False, 2, 3)],
    "value flips back without a write": [write(True, 0, 9), read(True, 1, 2), read(False, 3, 4)],
    "unknown write used twice": [
        write(True, 0, None),
        read(True, 1, 2),
        write(False, 3, 4),
        read(True, 5, 6),
        write(False, 7, 8),
        read(True, 9, 10),
        read(False, 11, 12),
        read(True, 13, 14),
    ],
    "write that was answered is undone": [write(True, 0, 1), write(False, 2, 3), read(True, 4, 5)],
    "unknown write seen before it was asked for": [read(True, 0, 1), write(True, 2, None)],
}


@pytest.mark.parametrize("name", EXPLAINABLE)
def test_history_has_an_order(name: str) -> None:
    assert explainable(EXPLAINABLE[name])
    assert first_unexplained(EXPLAINABLE[name]) is None


@pytest.mark.parametrize("name", UNEXPLAINABLE)
def test_history_has_none(name: str) -> None:
    assert not explainable(UNEXPLAINABLE[name])
    assert first_unexplained(UNEXPLAINABLE[name]) is not None


def test_the_operation_that_nothing_explains_is_found() -> None:
    wrong = read(False, 4, 5)
    history = [write(True, 0, 1), read(True, 2, 3), wrong, read(False, 6, 7), read(True, 8, 9)]
    assert first_unexplained(history) is wrong


def test_the_initial_value_counts() -> None:
    assert explainable([read(True, 0, 1)], initial=True)
    assert not explainable([read(False, 0, 1)], initial=True)


def test_stale_read_of_another_node_is_excused_on_request_only() -> None:
    history = [write(True, 0, 1, "n1"), read(False, 2, 3, "n2")]
    assert not explainable(history, reads=Reads.STRICT)
    assert explainable(history, reads=Reads.OWN_NODE)


def test_a_node_never_excuses_what_contradicts_itself() -> None:
    own_write = [write(True, 0, 1, "n2"), read(False, 2, 3, "n2")]
    backwards = [write(True, 0, 1, "n1"), read(True, 2, 3, "n2"), read(False, 4, 5, "n2")]
    for history in (own_write, backwards):
        assert not explainable(history, reads=Reads.OWN_NODE)


def test_bindings_alone_may_be_late_on_request() -> None:
    history = [write(True, 0, 1, "n1"), read(False, 2, 3, "n2")]
    routing = [msgspec.structs.replace(each, routing=True) for each in history]
    assert [Reads.STRICT.of(routing), Reads.OWN_NODE.of(history)] == ["strict", "own-node"]
    assert Reads.OWN_ROUTING.of(history) is Reads.STRICT
    assert Reads.OWN_ROUTING.of(routing) is Reads.OWN_NODE


def by_trying_all_orders(operations: Sequence[Operation], reads: Reads) -> bool:
    """The definition itself: some order of the answered and some of the unknown ones fits."""
    unknown = [each for each in operations if each.completed is None]
    answered = [each for each in operations if each.completed is not None]
    for count in range(len(unknown) + 1):
        for made in itertools.combinations(unknown, count):
            for order in itertools.permutations([*answered, *made]):
                if fits(order, reads):
                    return True
    return False


def fits(order: Sequence[Operation], reads: Reads) -> bool:
    value = False
    for place, each in enumerate(order):
        if any(precedes(later, each, reads) for later in order[place + 1 :]):
            return False
        if each.write:
            value = each.value
        elif each.value != value:
            return False
    return True


def random_history(draw: random.Random) -> list[Operation]:
    made = []
    for _ in range(draw.randint(1, 6)):
        start = draw.randint(0, 12)
        end = start + draw.randint(1, 6)
        is_write = draw.random() < 0.5
        answered = not is_write or draw.random() < 0.7
        made.append(
            Operation(
                "x",
                draw.choice(("n1", "n2")),
                is_write,
                draw.random() < 0.5,
                float(start),
                float(end) if answered else None,
            )
        )
    return made


@pytest.mark.parametrize("reads", [Reads.STRICT, Reads.OWN_NODE])
def test_it_agrees_with_the_definition(reads: Reads) -> None:
    draw = random.Random(4)
    verdicts = []
    for _ in range(1500):
        history = random_history(draw)
        verdicts.append(by_trying_all_orders(history, reads))
        assert explainable(history, reads=reads) is verdicts[-1], history
    assert 300 < sum(verdicts) < 1200  # both verdicts are well represented


def test_a_long_history_with_many_unknown_writes_is_judged_quickly() -> None:
    """Without leaving out orders that others stand for, this would take for ever."""
    unknown = [write(place % 2 == 0, place, None) for place in range(60)]
    slow = [read(place // 20 % 2 == 0, place, place + 0.5) for place in range(60, 400)]
    assert explainable(unknown + slow)
    more_flips_than_writes = [read(place % 2 == 0, place, place + 0.5) for place in range(400, 460)]
    assert not explainable(unknown + slow + more_flips_than_writes)
