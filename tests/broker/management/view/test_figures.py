"""Figures over time, as RabbitMQ's API shows them."""

from __future__ import annotations

import msgspec
import pytest

from headrace_broker.catalog.command import DeclareQueue
from headrace_broker.management.view.figures import details, rate, summed, summed_last
from headrace_broker.model.stats import (
    NODE_FIGURES,
    QUEUE_FIGURES,
    VHOST_FIGURES,
    Listener,
    NodeStats,
    QueueStats,
    Samples,
    StatsRow,
    VhostStats,
)
from headrace_broker.model.status import MessageCounters, ObjectTotals

LAST: Samples = [(10_000, 4, 1, 100, 50, 40, 0), (15_000, 6, 1, 200, 60, 50, 0)]
SAMPLES: Samples = [LAST[1], LAST[0], (5_000, 0, 0, 0, 0, 0, 0)]


def node_row(number: int, **figures: int) -> NodeStats:
    before = (10_000, *(0 for _ in NODE_FIGURES))
    after = (15_000, *(figures.get(name, 0) for name in NODE_FIGURES))
    return NodeStats(
        number,
        f"n{number}",
        "0.1",
        1_000,
        77,
        2,
        ObjectTotals(connections=number, channels=2, consumers=3, exchanges=7, queues=5),
        MessageCounters(),
        (Listener("amqp", "127.0.0.1", 5672), Listener("http", "127.0.0.1", 15672)),
        [before, after],
        [after, before],
    )


def test_a_rate_is_that_between_the_last_two_samples():
    assert rate(LAST, 2) == 20.0
    assert rate(LAST[:1], 2) == 0.0
    assert rate([LAST[1], LAST[1]], 2) == 0.0


def test_samples_come_for_who_asks_the_newest_first():
    assert details(LAST, SAMPLES, 0, 0) == {"rate": 0.4}
    assert details(LAST, SAMPLES, 0, 5_000) == {
        "rate": 0.4,
        "samples": [{"sample": 6, "timestamp": 15_000}, {"sample": 4, "timestamp": 10_000}],
        "avg_rate": 0.4,
        "avg": 5.0,
    }
    assert details([], [], 0, 5_000) == {"rate": 0.0, "samples": []}


def test_figures_of_nodes_are_added_up_at_the_times_of_the_first():
    first: Samples = [(20, 5), (10, 3)]
    second: Samples = [(19, 100), (12, 50), (8, 10)]
    assert summed([first, second]) == [(20, 105), (10, 13)]
    assert summed([first, [(25, 7)]]) == [(20, 12), (10, 10)]
    assert summed([[], []]) == []
    assert summed_last([[(1, 5), (2, 7)], [(3, 1), (4, 2)], [(5, 9)]]) == [(1, 6), (2, 9)]


def test_a_queue_has_rates_and_the_history_that_is_asked_for(api, node):
    node.do(DeclareQueue("/", "q", "quorum"))
    node.stats.rows = [QueueStats(node.view.queue("/", "q").group, LAST, SAMPLES)]
    for path in ("/api/queues/%2F/q", "/api/queues?page=1&name=q"):
        status, body = api("GET", path)
        assert status == 200
        queue = body["items"][0] if "items" in body else body
        assert queue["message_stats"]["publish_details"] == {"rate": 20.0}
        assert queue["message_stats"]["deliver_get_details"] == {"rate": 2.0}
        assert (queue["message_stats"]["ack"], queue["messages_details"]) == (50, {"rate": 0.4})
    _, body = api(
        "GET", "/api/queues/%2F/q?lengths_age=60&lengths_incr=5&msg_rates_age=5&msg_rates_incr=5"
    )
    assert [each["sample"] for each in body["messages_details"]["samples"]] == [7, 5, 0]
    assert [each["sample"] for each in body["messages_ready_details"]["samples"]] == [6, 4, 0]
    assert [each["sample"] for each in body["message_stats"]["publish_details"]["samples"]] == [
        200,
        100,
    ]
    assert (node.stats.asked[-1].age_ms, node.stats.asked[-1].step_ms) == (60_000, 5_000)


def of(figures: tuple[str, ...], **counts: int) -> Samples:
    """Return the last two samples of something that holds this since the first of them."""
    row = [counts.get(name, 0) for name in figures]
    return [(10_000, *row), (15_000, *row)]


def test_messages_of_queues_add_up_to_those_of_their_vhost_and_of_the_cluster(api, node):
    """Delayed messages, and dead letters that are kept, count everywhere."""
    for name in ("a", "b"):
        node.do(DeclareQueue("/", name, "quorum"))
    counts = (
        {"messages_ready": 4, "messages_unacknowledged": 1, "messages_later": 7},
        {"messages_ready": 2, "messages_later": 20},
    )
    rows: list[StatsRow] = []
    for number, (name, held) in enumerate(zip("ab", counts, strict=True), 1):
        group = node.view.queue("/", name).group
        last = [of(names, **held) for names in (QUEUE_FIGURES, VHOST_FIGURES, NODE_FIGURES)]
        rows.append(QueueStats(group, last[0], last[0][::-1]))
        rows.append(VhostStats("/", last[1], last[1][::-1]))
        row = node_row(number)
        rows.append(msgspec.structs.replace(row, last=last[2], samples=last[2][::-1]))
    node.stats.rows = rows
    asked = "lengths_age=60"
    queues = api("GET", f"/api/queues?{asked}")[1]
    [vhost] = api("GET", f"/api/vhosts?{asked}")[1]
    total = api("GET", f"/api/overview?{asked}")[1]["queue_totals"]
    assert [queue["messages"] for queue in queues] == [12, 22]
    for name in ("messages", "messages_ready", "messages_unacknowledged"):
        expected = sum(queue[name] for queue in queues)
        assert (vhost[name], total[name]) == (expected, expected)
        for found in (vhost, total):
            samples = found[f"{name}_details"]["samples"]
            assert [each["sample"] for each in samples] == [expected, expected]


def test_older_release_beside_this_one_counts_with_what_it_tells(api, node):
    newer, older = of(VHOST_FIGURES, messages_ready=1, messages_later=5), of(VHOST_FIGURES[:-1])
    older = [(row[0], 3, *row[2:]) for row in older]
    for series in ((newer, older), (older, newer)):
        node.stats.rows = [VhostStats("/", each, each[::-1]) for each in series]
        [vhost] = api("GET", "/api/vhosts?lengths_age=60")[1]
        assert (vhost["messages"], vhost["messages_ready"]) == (9, 4)
        assert [each["sample"] for each in vhost["messages_details"]["samples"]] == [9, 9]


def test_a_queue_in_which_nothing_moved_has_rates_of_nothing(api, node):
    node.do(DeclareQueue("/", "q", "quorum"))
    _, body = api("GET", "/api/queues/%2F/q")
    assert body["message_stats"]["publish_details"] == {"rate": 0.0}
    assert "messages" not in body  # nobody has said how many there are


@pytest.mark.parametrize(
    "field", ["lengths_age", "lengths_incr", "msg_rates_age", "msg_rates_incr"]
)
def test_an_age_out_of_range_is_refused(refused, node, field):
    node.do(DeclareQueue("/", "q", "quorum"))
    for path in ("/api/queues/%2F/q", "/api/overview"):
        for value in ("0", "x", "99999"):
            assert refused(400, "GET", f"{path}?{field}={value}").startswith(f"{field}:")


def test_overview_adds_up_what_nodes_say(api, node):
    node.stats.rows = [
        node_row(1, publish=100, messages_ready=4, channel_created=5),
        node_row(2, publish=50, messages_unacknowledged=2),
    ]
    node.stats.missing = ("n3",)
    _, body = api("GET", "/api/overview?lengths_age=60&columns=churn_rates.channel_created")
    assert body == {"churn_rates": {"channel_created": 5}}
    _, body = api("GET", "/api/overview?lengths_age=60")
    assert body["object_totals"] == {
        "connections": 3,
        "channels": 4,
        "consumers": 6,
        "exchanges": 7,
        "queues": 5,
    }
    assert (body["message_stats"]["publish"], body["queue_totals"]["messages"]) == (150, 6)
    assert body["message_stats"]["publish_details"] == {"rate": 30.0}
    assert body["message_stats"]["return_unroutable"] == 0
    assert [s["sample"] for s in body["queue_totals"]["messages_details"]["samples"]] == [6, 0]
    assert {(each["node"], each["protocol"]) for each in body["listeners"]} == {
        ("n1", "amqp"),
        ("n1", "http"),
        ("n2", "amqp"),
        ("n2", "http"),
    }
    assert [each["port"] for each in body["contexts"]] == ["15672", "15672"]
    assert "n3" in api.headers["X-Headrace-Partial"]
    assert "listeners" not in api("GET", "/api/overview", user="alice")[1]


def test_overview_says_what_became_of_messages_in_all_vhosts(api, node):
    before, after = (1_000, *[1] * 17), (6_000, *[11] * 17)
    node.stats.rows = [VhostStats(name, [before, after]) for name in ("/", "v")]
    stats = api("GET", "/api/overview")[1]["message_stats"]
    assert (stats["drop_unroutable"], stats["drop_unroutable_details"]) == (22, {"rate": 4.0})
