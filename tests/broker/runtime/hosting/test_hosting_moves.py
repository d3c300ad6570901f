"""Queues that come to this node, and go, while sessions talk to them; nodes that go for good."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from headrace_broker.core.queue.command.command import NodeDown, encode_attach, stamp_command
from headrace_broker.core.queue.command.decoder import decode_command
from headrace_broker.flow.account import Account
from headrace_broker.model.definition import QUEUE_QUORUM, Queue
from headrace_broker.model.flow import CONNECTION, Cause
from headrace_broker.model.session import NO_BOOT, session_id
from headrace_broker.runtime.hosting.hosting import Hosting
from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry
from headrace_raftlog.model.group import NOT_LEADER
from headrace_raftlog.model.pieces import Pieces

HERE = Queue("/", "q", QUEUE_QUORUM, 7, (1, 2, 3), founders=(1, 2, 3))
AWAY = Queue("/", "q", QUEUE_QUORUM, 7, (2, 3), founders=(2, 3))


def moved(
    queue: Queue, members: tuple[int, ...], leaving: tuple[int, ...] = (), revision: int = 1
) -> Queue:
    return msgspec.structs.replace(queue, members=members, leaving=leaving, revision=revision)


class Raft:
    """Groups of node 1 that commit nothing by themselves."""

    def __init__(self) -> None:
        self.boot = 5
        self.groups: dict[int, Any] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.leaders: dict[int, int] = {}
        self.proposed: list[bytes] = []

    def create_group(
        self, group: int, voters: Any, learners: Any, handler: Any, campaign: bool = False
    ) -> None:
        self.groups[group] = handler
        self.calls.append(("create", group, campaign))

    def set_members(self, group: int, nodes: tuple[int, ...], revision: int) -> None:
        self.calls.append(("members", group, nodes))

    def leave_group(self, group: int) -> None:
        self.calls.append(("leave", group))

    def remove_group(self, group: int) -> None:
        self.calls.append(("remove", group))

    def leader(self, group: int) -> int:
        return self.leaders.get(group, 0)

    def entry_dead(self, group: int, index: int) -> None:
        """Ignore it: nothing is counted here."""

    def propose(self, group: int, data: bytes, urgent: bool = False) -> int:
        if self.leaders.get(group) != 1:
            return NOT_LEADER
        self.proposed.append(data)
        return len(self.proposed)

    def downs(self) -> list[tuple[int, int]]:
        found = [decode_command(data) for data in self.proposed]
        return [(each.node, each.boot_keep) for each in found if isinstance(each, NodeDown)]


class World:
    """Node 1 of four."""

    def __init__(self, siblings: frozenset[int] = frozenset()) -> None:
        self.raft = Raft()
        raft: Any = self.raft
        self.sent: list[int] = []
        self.payloads: list[Any] = []
        self.hosting = Hosting(raft, 1, [2, 3, 4], self._send, siblings=siblings)
        for peer in (2, 3, 4):
            self.hosting.peer_changed(peer, True, 1)

    def _send(self, node: int, payload: bytes | Pieces) -> bool:
        self.sent.append(node)
        self.payloads.append(payload)
        return True

    def open(self, queue: Queue, listener: Any) -> Any:
        cause = Cause("n1/1/1", CONNECTION, "", "n1")
        account: Account = self.hosting.ledger.open(cause)
        return self.hosting.open_session(queue, listener, account)


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
def run() -> Any:
    def runner(scenario: Any) -> None:
        async def work() -> None:
            world = World()
            try:
                await scenario(world)
            finally:
                world.hosting.stop()

        asyncio.run(work())

    return runner


def test_replica_starts_where_a_queue_comes_to_and_asks_to_join(run: Any) -> None:
    async def scenario(world: World) -> None:
        world.hosting.add_queue(AWAY)
        assert world.raft.calls == []
        world.hosting.move_queue(moved(AWAY, (2, 3, 1)))
        assert world.raft.calls == [("create", 7, False), ("members", 7, (2, 3, 1))]
        assert list(world.hosting.hosts) == [7]

    run(scenario)


def test_replica_that_is_to_go_stays_until_it_may(run: Any) -> None:
    async def scenario(world: World) -> None:
        world.hosting.departures.settle()
        world.hosting.add_queue(HERE)
        world.raft.calls.clear()
        world.hosting.move_queue(moved(HERE, (2, 3), (1,)))
        assert world.raft.calls == [("members", 7, (2, 3))]
        assert world.hosting.hosts[7].queue.members == (2, 3)
        world.hosting.move_queue(moved(HERE, (2, 3)))
        assert world.raft.calls[1:] == [("leave", 7)]
        assert world.hosting.hosts == {}
        assert world.hosting.session_router.hosts == {}

    run(scenario)


def test_replica_that_left_while_this_node_slept_goes_when_it_wakes(run: Any) -> None:
    async def scenario(world: World) -> None:
        world.hosting.departures.settle()
        world.hosting.add_queue(moved(HERE, (2, 3)))
        assert world.raft.calls == [("leave", 7)]
        world.hosting.remove_queue(moved(HERE, (2, 3)))
        assert world.raft.calls[1:] == [("remove", 7)]

    run(scenario)


def test_replica_that_came_back_keeps_its_log_while_its_past_is_applied_anew(run: Any) -> None:
    async def scenario(world: World) -> None:
        world.hosting.add_queue(HERE)
        world.hosting.move_queue(moved(HERE, (2, 3)))
        assert list(world.hosting.hosts) == [7]
        world.hosting.move_queue(moved(HERE, (1, 2)))
        world.hosting.departures.settle()
        assert world.raft.calls == [
            ("create", 7, True),
            ("members", 7, HERE.members),
            ("members", 7, (1, 2)),
        ]
        assert world.hosting.hosts[7].queue.members == (1, 2)

    run(scenario)


def test_replica_that_came_back_keeps_its_log_though_its_beginning_was_elsewhere(run: Any) -> None:
    async def scenario(world: World) -> None:
        world.hosting.add_queue(moved(HERE, (2, 3)))
        world.hosting.move_queue(moved(HERE, (1, 2)))
        world.hosting.departures.settle()
        assert [call[0] for call in world.raft.calls] == ["create", "members"]

    run(scenario)


@pytest.mark.parametrize("hosted", [False, True])
def test_replica_goes_once_all_of_the_past_is_applied(run: Any, hosted: bool) -> None:
    async def scenario(world: World) -> None:
        if hosted:
            world.hosting.add_queue(HERE)
            world.raft.calls.clear()
            world.hosting.move_queue(moved(HERE, (2, 3)))
        else:
            world.hosting.add_queue(moved(HERE, (2, 3)))
        assert world.raft.calls == []
        world.hosting.departures.settle()
        assert world.raft.calls == [("leave", 7)]
        assert world.hosting.hosts == {}
        world.hosting.move_queue(moved(HERE, (1, 2)))
        world.hosting.move_queue(moved(HERE, (2, 3)))
        assert world.raft.calls[-1] == ("leave", 7)

    run(scenario)


def test_queue_that_is_deleted_meanwhile_is_not_left_but_removed(run: Any) -> None:
    async def scenario(world: World) -> None:
        world.hosting.add_queue(HERE)
        world.hosting.move_queue(moved(HERE, (2, 3)))
        world.hosting.remove_queue(moved(HERE, (2, 3)))
        world.hosting.departures.settle()
        assert [call[0] for call in world.raft.calls] == ["create", "members", "remove"]

    run(scenario)


def test_replica_that_may_still_be_needed_starts_when_this_node_wakes(run: Any) -> None:
    async def scenario(world: World) -> None:
        world.hosting.add_queue(moved(HERE, (2, 3), (1,)))
        assert world.raft.calls == [("create", 7, False), ("members", 7, (2, 3))]

    run(scenario)


def test_queue_that_moved_is_removed_for_good_wherever_it_was(run: Any) -> None:
    async def scenario(world: World) -> None:
        world.hosting.departures.settle()
        world.hosting.add_queue(AWAY)
        world.hosting.remove_queue(AWAY)
        assert world.raft.calls == []
        world.hosting.add_queue(moved(AWAY, (2, 4)))
        world.hosting.remove_queue(moved(AWAY, (2, 4)))
        assert world.raft.calls == [("leave", 7), ("remove", 7)]

    run(scenario)


def test_session_follows_a_queue_to_nodes_where_it_was_not_before(run: Any, listener: Any) -> None:
    async def scenario(world: World) -> None:
        world.hosting.add_queue(AWAY)
        session = world.open(AWAY, listener)
        assert session.target in (2, 3)
        world.hosting.peer_changed(2, False, 0)
        world.hosting.peer_changed(3, False, 0)
        assert session.target == 0
        world.hosting.move_queue(moved(AWAY, (3, 4)))
        await turns()
        assert session.target == 4

    run(scenario)


def test_session_of_a_queue_whose_replica_here_is_to_join_asks_the_others(
    run: Any, listener: Any
) -> None:
    async def scenario(world: World) -> None:
        world.hosting.add_queue(AWAY)
        world.hosting.move_queue(moved(AWAY, (2, 1)))
        assert world.hosting.locate(AWAY) == 2
        world.raft.leaders[7] = 1
        assert world.hosting.locate(AWAY) == 1

    run(scenario)


def test_session_leaves_a_replica_that_went(run: Any, listener: Any) -> None:
    async def scenario(world: World) -> None:
        world.hosting.departures.settle()
        world.raft.leaders[7] = 1
        world.hosting.add_queue(HERE)
        session = world.open(HERE, listener)
        assert session.target == 1
        world.hosting.move_queue(moved(HERE, (2, 3)))
        await turns()
        assert session.target in (2, 3)

    run(scenario)


def attach(world: World, node: int) -> None:
    session = session_id(node, 1, 1)
    data = stamp_command(1, encode_attach(session, 1, 1, 10, False, b"c"))
    world.raft.groups[7].apply([Entry(1, 1, ENTRY_NORMAL, data)])


def test_sessions_of_a_node_that_was_removed_end(run: Any) -> None:
    async def scenario(world: World) -> None:
        world.hosting.add_queue(HERE)
        world.raft.leaders[7] = 1
        world.raft.groups[7].leadership(1, 1, True)
        await turns()
        attach(world, 4)
        world.hosting.peer_removed(4)
        assert world.raft.downs() == [(4, NO_BOOT)]
        assert world.hosting.locate(moved(HERE, (4,))) in (0, 1)

    run(scenario)


def test_leader_that_comes_later_ends_them_as_well_unless_the_node_is_back(run: Any) -> None:
    async def scenario(world: World) -> None:
        world.hosting.add_queue(HERE)
        attach(world, 4)
        world.hosting.peer_removed(4)
        assert world.raft.downs() == []
        world.raft.leaders[7] = 1
        world.raft.groups[7].leadership(1, 1, True)
        await turns()
        assert world.raft.downs() == [(4, NO_BOOT)]
        world.raft.proposed.clear()
        world.hosting.peer_added(4)
        world.hosting.peer_changed(4, True, 9)
        assert world.raft.downs() == [(4, 9)]

    run(scenario)


def test_a_shard_tells_its_siblings_what_it_leads_and_no_longer_leads() -> None:
    async def scenario() -> None:
        world = World(frozenset({3}))
        told = []

        async def tell() -> None:
            world.sent.clear()
            world.payloads.clear()
            await turns()
            told.append((world.sent[:], [msgspec.msgpack.decode(x) for x in world.payloads]))

        memory = Queue("/", "here", "classic", 9, (1,), durable=False)
        world.hosting.departures.settle()
        world.hosting.add_queue(HERE)
        world.raft.groups[7].leadership(1, 1, True)
        world.hosting.add_queue(memory)
        await tell()
        world.raft.groups[7].leadership(2, 2, False)
        world.hosting.remove_queue(memory)
        await tell()
        world.hosting.stop()
        assert told == [
            ([3], [["leading", [7, 9], [], False]]),
            ([3], [["leading", [], [7, 9], False]]),
        ]

    asyncio.run(scenario())
