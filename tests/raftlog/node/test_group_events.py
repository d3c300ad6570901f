"""Lines of the log about elections, transfers and members, and what they say of the reason."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace_raftlog.log_event import RAFT
from headrace_raftlog.model.group import CoreOptions
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.node.group_events import _reason

CATALOG = 0
QUEUE = 5


class Lines:
    """Events of the log of all nodes, oldest first."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._caplog = caplog

    def of(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """Return the fields of lines of an event that have these among them."""
        records = [each for each in self._caplog.records if hasattr(each, "event")]
        found = [each.__dict__["fields"] for each in records if each.__dict__["event"] == event]
        return [each for each in found if fields.items() <= each.items()]

    def levels(self, event: str, group: int) -> set[int]:
        records = [each for each in self._caplog.records if hasattr(each, "event")]
        return {
            each.levelno
            for each in records
            if each.__dict__["event"] == event and each.__dict__["fields"]["group"] == group
        }


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Lines:
    caplog.set_level(logging.DEBUG, RAFT.name)
    return Lines(caplog)


async def two_groups(running: Any) -> None:
    """Make node 1 lead the catalog's group and a queue's."""
    await running.start(1, 2, 3)
    for group in (CATALOG, QUEUE):
        running.create(group, campaign=1)
        await running.propose(group, b"first")
        await running.ticks(lambda group=group: bring(running, group, 1))


def bring(running: Any, group: int, node: int) -> bool:
    leader = running.leader(group)
    if leader not in (0, node):
        running.nodes[leader].transfer(group, node)
    return bool(leader == node)


def test_an_election_is_told_by_who_stood_who_won_and_who_follows(
    cluster: Callable[..., Any], lines: Lines
) -> None:
    async def body() -> None:
        running = cluster()
        await two_groups(running)
        for group in (CATALOG, QUEUE):
            won = lines.of("leader_elected", group=group)[-1]
            term = won["term"]
            assert won["leader"] == won["node"] == 1
            assert lines.of("election_started", group=group, term=term, node=1)
            for node in (2, 3):
                await running.ticks(
                    lambda node=node, group=group, term=term: lines.of(
                        "leader_followed", group=group, term=term, node=node, leader=1
                    )
                )
        await running.stop()

    asyncio.run(body())
    assert lines.levels("leader_elected", CATALOG) == {logging.INFO}
    assert lines.levels("leader_elected", QUEUE) == {logging.DEBUG}


def test_a_transfer_is_the_reason_why_the_old_leader_stepped_down(
    cluster: Callable[..., Any], lines: Lines
) -> None:
    async def body() -> None:
        running = cluster()
        await two_groups(running)
        term = running.nodes[1]._host.find(QUEUE).core.term
        await running.ticks(lambda: bring(running, QUEUE, 2))
        await running.ticks(lambda: lines.of("leader_stepped_down", group=QUEUE, led_term=term))
        assert lines.of("transfer_started", group=QUEUE, node=1, target=2)
        down = lines.of("leader_stepped_down", group=QUEUE, led_term=term)[-1]
        assert (down["node"], down["reason"]) == (1, "it handed over to node 2")
        assert lines.of("leader_elected", group=QUEUE, leader=2)[-1]["term"] == down["term"]
        await running.stop()

    asyncio.run(body())


def test_a_leader_without_a_majority_says_so_when_it_steps_down(
    cluster: Callable[..., Any], lines: Lines
) -> None:
    async def body() -> None:
        running = cluster(core=CoreOptions(quiesce_ticks=0))
        await two_groups(running)
        term = running.nodes[1]._host.find(CATALOG).core.term
        await running.stop(2, 3)
        await running.ticks(
            lambda: lines.of("leader_stepped_down", group=CATALOG, node=1, led_term=term)
        )
        [down] = lines.of("leader_stepped_down", group=CATALOG, node=1, led_term=term)
        assert down["reason"] == "it heard no majority of the voters for an election timeout"
        assert "leader" not in down
        assert lines.of("peer_down", peer=2)
        await running.stop()

    asyncio.run(body())


def test_the_leader_tells_of_members_that_come_and_go(
    cluster: Callable[..., Any], lines: Lines
) -> None:
    async def body() -> None:
        running = cluster()
        await running.start(1, 2, 3)
        running.create(QUEUE, 1, 2, campaign=1, founders=(1, 2))
        await running.propose(QUEUE, b"first")
        running.create(QUEUE, 3, founders=(1, 2))
        for node in running.nodes.values():
            node.set_members(QUEUE, (2, 3))
        await running.ticks(
            lambda: any(each["members"] == [2, 3] for each in lines.of("members_changed"))
        )
        await running.stop()

    asyncio.run(body())
    told = lines.of("members_changed", group=QUEUE)
    assert {node for each in told for node in each["added"]} == {3}
    assert {node for each in told for node in each["removed"]} == {1}
    assert told[-1]["voters"] == [2, 3]


def test_the_application_names_groups(cluster: Callable[..., Any], lines: Lines) -> None:
    async def body() -> None:
        running = cluster()
        await running.start(1, 2, 3)
        for node in running.nodes.values():
            node.labels = lambda group: {"queue": f"q{group}", "vhost": "/"}
        running.create(QUEUE, campaign=1)
        await running.propose(QUEUE, b"first")
        await running.stop()

    asyncio.run(body())
    assert lines.of("leader_elected", group=QUEUE, queue="q5", vhost="/")


def test_nothing_is_gathered_where_the_level_is_off(
    cluster: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, RAFT.name)
    asked: list[int] = []

    def ask(group: int) -> dict[str, str]:
        asked.append(group)
        return {}

    async def body() -> None:
        running = cluster()
        await running.start(1, 2, 3)
        for node in running.nodes.values():
            node.labels = ask
        running.create(QUEUE, campaign=1)
        await running.propose(QUEUE, b"first")
        await running.stop()

    asyncio.run(body())
    assert not asked


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"vote": 2}, "term 6 was begun by another node"),
        ({"vote": 0}, "term 6 was begun by another node"),
        ({"vote": 1}, "it heard no majority of the voters for an election timeout"),
        ({"vote": 2, "handing_over": True}, "its disk does not answer"),
    ],
)
def test_reason_is_what_ended_the_term(changes: dict[str, Any], reason: str) -> None:
    core = SimpleNamespace(
        member=1, vote=changes["vote"], leader=0, term=6, membership=Membership((1, 2, 3), ())
    )
    hosted: Any = SimpleNamespace(
        core=core,
        led_term=5,
        successor_named=0,
        suspended=False,
        handing_over=changes.get("handing_over", False),
    )
    assert _reason(hosted) == reason
