from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace_broker.gateways.amqp.messages.consumer import Consumer
from headrace_broker.gateways.amqp.messages.unsettled import ALL_HELD, TagRange, Unsettled


@pytest.fixture
def pair(any_link) -> list[Consumer]:
    return [Consumer(any_link, number, f"c{number}", False) for number in (1, 2)]


def spread(ranges: list[TagRange]) -> list[tuple[int, int, int]]:
    """(tag, consumer number, delivery number) of every message."""
    return [
        (each.tag + at, each.consumer.number, each.number + at)
        for each in ranges
        for at in range(each.count)
    ]


def test_consecutive_deliveries_of_one_consumer_are_one_range(pair):
    held = Unsettled()
    held.add(1, 10, pair[0], 1)
    held.add(11, 5, pair[0], 11)
    assert (len(held._ranges) - held._head, held.count) == (1, 15)
    held.add(16, 1, pair[1], 1)
    assert len(held._ranges) - held._head == 2


def test_number_gap_begins_a_new_range(pair):
    held = Unsettled()
    held.add(1, 1, pair[0], 1)
    held.add(2, 1, pair[0], 3)
    out: list[TagRange] = []
    assert held.take(1, 2, out) == ALL_HELD
    assert spread(out) == [(1, 1, 1), (2, 1, 3)]


def test_take_in_the_middle_leaves_both_sides(pair):
    held = Unsettled()
    held.add(1, 10, pair[0], 101)
    out: list[TagRange] = []
    assert held.take(4, 5, out) == ALL_HELD
    assert spread(out) == [(4, 1, 104), (5, 1, 105)]
    assert spread(held.take_all()) == [(tag, 1, 100 + tag) for tag in (1, 2, 3, 6, 7, 8, 9, 10)]


def test_take_names_the_first_tag_that_is_missing_and_removes_those_before(pair):
    held = Unsettled()
    held.add(1, 3, pair[0], 1)
    out: list[TagRange] = []
    assert held.take(2, 9, out) == 4
    assert spread(out) == [(2, 1, 2), (3, 1, 3)]
    assert held.count == 1


def test_take_through_an_unknown_tag_removes_nothing(pair):
    held = Unsettled()
    held.add(1, 3, pair[0], 1)
    out: list[TagRange] = []
    assert held.take_through(4, out) == 4
    assert out == []
    assert held.count == 3


def test_take_through_zero_removes_all_and_needs_none(pair):
    held = Unsettled()
    out: list[TagRange] = []
    assert held.take_through(0, out) == ALL_HELD
    held.add(1, 3, pair[0], 1)
    assert held.take_through(0, out) == ALL_HELD
    assert (held.count, len(spread(out))) == (0, 3)


def test_take_zero_is_unknown(pair):
    held = Unsettled()
    held.add(1, 3, pair[0], 1)
    assert held.take(0, 0, []) == 0


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 1), st.integers(1, 5)),
        st.tuples(st.just("take"), st.integers(0, 40), st.integers(0, 3)),
        st.tuples(st.just("through"), st.integers(0, 40), st.just(0)),
        st.tuples(st.just("back"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(steps=STEPS)
@settings(max_examples=150)
def test_behaves_as_a_map_from_tag_to_delivery(any_link, steps):
    pair = [Consumer(any_link, number, "", False) for number in (1, 2)]
    held = Unsettled()
    model: dict[int, tuple[int, int]] = {}
    taken: list[TagRange] = []
    numbers = [1, 1]
    next_tag = 1
    for kind, first, second in steps:
        out: list[TagRange] = []
        if kind == "add":
            held.add(next_tag, second, pair[first], numbers[first])
            for at in range(second):
                model[next_tag + at] = (first + 1, numbers[first] + at)
            next_tag += second
            numbers[first] += second
            continue
        if kind == "back":
            model.update((tag, (consumer, number)) for tag, consumer, number in spread(taken))
            held.put_back(taken)
            taken = []
            assert held.count == len(model)
            continue
        if kind == "take":
            wanted = list(range(first, first + second + 1))
            missing = held.take(first, first + second, out)
        else:
            missing = held.take_through(first, out)
            if first and first not in model:
                assert missing == first
                continue
            wanted = [tag for tag in sorted(model) if tag <= first or first == 0]
        expected = []
        for tag in wanted:
            if tag not in model:
                break
            expected.append((tag, *model.pop(tag)))
        assert spread(out) == expected
        taken.extend(out)
        assert missing == (ALL_HELD if len(expected) == len(wanted) else wanted[len(expected)])
        assert held.count == len(model)
    assert spread(held.take_all()) == [(tag, *each) for tag, each in sorted(model.items())]


def test_long_run_of_single_acks_keeps_the_list_short(pair):
    held = Unsettled()
    for tag in range(1, 2001):
        held.add(tag, 1, pair[tag % 2], tag)
    for tag in range(1, 2001):
        assert held.take(tag, tag, []) == ALL_HELD
        assert len(held._ranges) - held._head == 2000 - tag
    assert held.count == 0
