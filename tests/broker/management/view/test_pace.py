"""Rates of nodes together, out of their counters."""

from __future__ import annotations

from headrace_broker.management.view.pace import LOOKS_MAX, SECONDS_MAX, Pace
from headrace_broker.model.stats import NodeStats, Samples
from headrace_broker.model.status import MessageCounters, ObjectTotals


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


def stats(name: str, published: int, last: Samples) -> NodeStats:
    counters = MessageCounters(publish=published)
    return NodeStats(1, name, "1", 0, 1, 1, ObjectTotals(), counters, (), last)


def test_rates_that_nobody_has_measured_yet_are_those_of_the_last_samples():
    first = (1000, 0, 0, 10, 20, 30, 0, 0)
    second = (6000, 0, 0, 60, 30, 80, 5, 0)
    pace, node = Pace(), stats("n1", 60, [second, first])
    found = pace.rates(10.0, [node, node, stats("n2", 0, [])])
    assert found == {"publish": 20, "confirm": 4, "deliver": 20, "redeliver": 2, "ack": 0}
    found = pace.rates(12.0, [stats("n1", 160, [second, first])])
    assert found == {"publish": 50, "confirm": 0, "deliver": 0, "redeliver": 0, "ack": 0}


def test_samples_of_one_moment_give_no_rate_that_cannot_be_told():
    still = (1000, 0, 0, 10, 20, 30, 0, 0)
    assert set(Pace().rates(0.0, [stats("n1", 0, [still, still])]).values()) == {0}
