"""Rates of the whole cluster out of counters of its nodes."""

from __future__ import annotations

from headrace_broker.management.page.pace import LOOKS_MAX, SECONDS_MAX, Pace
from headrace_broker.model.status import MessageCounters


def published(**counts: int) -> dict[str, MessageCounters]:
    return {node: MessageCounters(publish=count) for node, count in counts.items()}


def rate(pace: Pace, now: float, **counts: int) -> float:
    found = pace.poll(now, published(**counts))
    assert found is not None
    return found["publish"]


def test_rates_of_nodes_are_added_up():
    pace = Pace()
    assert pace.poll(10.0, published(n1=100, n2=0)) is None
    found = pace.poll(12.0, published(n1=200, n2=50))
    assert found is not None
    assert found["publish"] == 75
    assert set(found) == {"publish", "confirm", "deliver", "redeliver", "ack"}


def test_a_rate_is_that_of_the_last_looks():
    pace = Pace()
    for second in range(LOOKS_MAX):
        pace.poll(float(second), published(n1=1000 * second))
    for second in range(LOOKS_MAX, 2 * LOOKS_MAX):
        found = pace.poll(float(second), published(n1=1000 * LOOKS_MAX))
    assert found is not None
    assert found["publish"] == 0


def test_looks_in_quick_succession_count_as_one():
    pace = Pace()
    pace.poll(0.0, published(n1=0))
    assert pace.poll(0.2, published(n1=90)) is None
    assert rate(pace, 1.0, n1=100) == 100
    assert rate(pace, 1.2, n1=120) == 100


def test_a_node_that_did_not_answer_does_not_count_and_one_that_began_anew_from_0():
    pace = Pace()
    pace.poll(0.0, published(n1=500, n2=100))
    assert rate(pace, 1.0, n1=600, n3=10**9) == 100
    assert rate(pace, 2.0, n1=40, n2=100) == 20


def test_what_was_counted_long_ago_is_forgotten():
    pace = Pace()
    pace.poll(0.0, published(n1=0))
    assert pace.poll(SECONDS_MAX + 1, published(n1=10**6)) is None
