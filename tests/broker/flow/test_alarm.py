"""A node's knowledge of the alarms of its cluster."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.flow.alarm import STAGE_ALARM, STAGE_PAGING, ClusterAlarms, NodeReport
from headrace_broker.model.flow import LIMIT_DISK, LIMIT_MEMORY
from headrace_broker.model.limits import ALARM_LEASE_MS

LEASE_US = ALARM_LEASE_MS * 1000


def report(node: int, number: int, stage: int = 0, disk: bool = False, boot: int = 1) -> NodeReport:
    made = NodeReport(node, boot, number)
    made.memory_stage = stage
    made.disk_alarm = disk
    return made


def on(alarms: ClusterAlarms) -> list[tuple[int, int]]:
    return [(alarm.report.node, alarm.limit) for alarm in alarms.alarms()]


def test_publishers_go_on_when_the_last_alarm_is_over():
    alarms = ClusterAlarms(1)
    alarms.receive(report(1, 1), 0)
    alarms.receive(report(2, 1, STAGE_ALARM), 0)
    alarms.receive(report(3, 1, STAGE_ALARM, disk=True), 0)
    assert on(alarms) == [(2, LIMIT_MEMORY), (3, LIMIT_MEMORY), (3, LIMIT_DISK)]
    alarms.receive(report(2, 2), 1)
    alarms.receive(report(3, 2, disk=True), 1)
    assert on(alarms) == [(3, LIMIT_DISK)]
    alarms.receive(report(3, 3, STAGE_PAGING), 2)
    assert on(alarms) == []


def test_a_node_that_reports_no_more_has_no_alarms_after_its_lease():
    alarms = ClusterAlarms(1)
    alarms.receive(report(1, 1, disk=True), 0)
    alarms.receive(report(2, 1, STAGE_ALARM), 0)
    assert alarms.expire(LEASE_US - 1) == []
    assert [each.node for each in alarms.expire(LEASE_US)] == [2]
    assert on(alarms) == [(1, LIMIT_DISK)], "its own counts for ever"
    assert not alarms.receive(report(2, 1, STAGE_ALARM), LEASE_US), "it comes late"
    assert on(alarms) == [(1, LIMIT_DISK)]
    assert alarms.receive(report(2, 2, STAGE_ALARM), LEASE_US)
    assert on(alarms) == [(1, LIMIT_DISK), (2, LIMIT_MEMORY)]


def test_a_node_that_starts_anew_counts_from_one():
    alarms = ClusterAlarms(1)
    alarms.receive(report(2, 9, STAGE_ALARM, boot=1), 0)
    assert alarms.receive(report(2, 1, boot=2), 0)
    assert not alarms.receive(report(2, 10, STAGE_ALARM, boot=1), 0)
    assert on(alarms) == []


def test_alarms_say_node_and_figures():
    made = report(2, 1, STAGE_ALARM, disk=True)
    made.memory_used, made.memory_limit, made.memory_total = 700 << 20, 600 << 20, 1000 << 20
    made.disk_free, made.disk_limit = 5 << 20, 50 << 20
    alarms = ClusterAlarms(1)
    alarms.receive(made, 0)
    memory, disk = alarms.alarms()
    assert (memory.resource, disk.resource) == ("memory", "disk")
    assert (
        memory.describe("b")
        == "low on memory: node b uses 700 MiB of 1000 MiB, the mark is 600 MiB"
    )
    assert disk.describe("b") == "low on disk: node b has 5 MiB free, the limit is 50 MiB"
    made.disk_full = True
    assert disk.describe("b") == "low on disk: the disk of node b is full"


STATES = st.tuples(st.sampled_from([0, STAGE_PAGING, STAGE_ALARM]), st.booleans())


@given(data=st.data(), states=st.lists(STATES, min_size=1, max_size=12))
def test_reports_that_are_late_or_repeated_change_nothing(data, states):
    reports = [report(2, number, *state) for number, state in enumerate(states, 1)]
    arriving = data.draw(st.lists(st.sampled_from(reports), min_size=1, max_size=40))
    alarms = ClusterAlarms(1)
    newest = 0
    for each in arriving:
        assert alarms.receive(each, 0) == (each.number > newest)
        newest = max(newest, each.number)
        assert on(alarms) == [(2, limit) for limit in reports[newest - 1].limits()]


@given(heard=st.lists(st.tuples(st.integers(2, 5), st.integers(0, 3_000_000)), max_size=40))
def test_of_a_lost_node_nothing_is_left_when_its_lease_is_over(heard):
    alarms = ClusterAlarms(1)
    now_us = 0
    last: dict[int, int] = {}
    for number, (node, pause_us) in enumerate(heard, 1):
        now_us += pause_us
        alarms.expire(now_us)
        alarms.receive(report(node, number, STAGE_ALARM), now_us)
        last[node] = now_us
        counting = sorted(each for each, at in last.items() if at + LEASE_US > now_us)
        assert on(alarms) == [(each, LIMIT_MEMORY) for each in counting]
    alarms.expire(now_us + LEASE_US)
    assert on(alarms) == []
