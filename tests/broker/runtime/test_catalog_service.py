"""Changes reach the catalog's leader, are made once, and are read where they were asked for.

Three services share one log without Raft: the test says who leads, what is committed and which
links are up. Time is simulated, so waits of seconds take none.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.command import encode_request
from headrace_broker.catalog.event import Event, QueueAdded, UserChanged
from headrace_broker.catalog.request import Request
from headrace_broker.catalog.result import Exists, NotFound, Ok, Refused
from headrace_broker.model.definition import Node, User
from headrace_broker.model.limits import (
    CATALOG_COMMAND_OCTETS_MAX,
    CATALOG_REQUEST_WINDOW,
    CATALOG_REQUESTS_MAX,
)
from headrace_broker.runtime import catalog_service
from headrace_broker.runtime.catalog_service import (
    DEFAULT_USER,
    CatalogService,
    CatalogTiming,
    CatalogUnavailableError,
    split_members,
)
from headrace_raftlog.model.entry import ENTRY_NORMAL, Entry
from headrace_raftlog.model.group import BUSY, NOT_LEADER

NODES = [Node(number, f"n{number}", f"h:{number}") for number in (1, 2, 3)]
GUEST = User("guest", b"salt", b"hash", loopback_only=True)
DECLARE = commands.DeclareQueue("/", "q", "quorum", replicas=3)


class SimulatedTime(selectors.SelectSelector):
    """Instead of waiting for the next timer, it is that time already."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise AssertionError("nothing is left to happen, and somebody waits")
        self.now += max(timeout, 0.0)
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.selector = SimulatedTime()
        super().__init__(self.selector)

    def time(self) -> float:
        return self.selector.now


class Raft:
    """One node's view of the shared log."""

    def __init__(self, cluster: Cluster, node: int) -> None:
        self.boot = 1
        self.cluster = cluster
        self.node = node
        self.created: tuple[Any, ...] = ()
        self.applied = 0

    def create_group(
        self,
        group: int,
        voters: tuple[int, ...],
        learners: tuple[int, ...],
        handler: Any,
        campaign: bool = False,
    ) -> None:
        self.created = (group, voters, learners, campaign)

    def propose(self, group: int, data: bytes) -> int:
        if self.cluster.leader != self.node:
            return NOT_LEADER
        if self.cluster.busy:
            return BUSY
        self.cluster.log.append(data)
        self.cluster.soon(self.cluster.commit)
        return len(self.cluster.log)

    def leader(self, group: int) -> int:
        return self.cluster.known_leader(self.node)

    def serving(self, group: int) -> bool:
        return self.cluster.leader == self.node


class Cluster:
    """The log, the links and the services."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.log: list[bytes] = []
        self.committed = 0
        self.leader = 0
        self.term = 0
        self.busy = False
        self.holding = False
        self.deaf: set[int] = set()
        self.sent: list[tuple[int, int]] = []
        self.rafts = {node.id: Raft(self, node.id) for node in NODES}
        self.services = {node.id: self.service(node.id) for node in NODES}

    def service(self, node: int, seconds: float = 10.0) -> CatalogService:
        def send(peer: int, payload: bytes) -> bool:
            self.sent.append((node, peer))
            if {node, peer} & self.deaf:
                return False
            self.soon(lambda: self.services[peer].handle_forward(node, payload))
            return True

        timing = CatalogTiming(answer_seconds=seconds)
        return CatalogService(self.rafts[node], node, NODES, send, timing)

    def soon(self, call: Callable[[], None]) -> None:
        self.loop.call_soon(call)

    def known_leader(self, node: int) -> int:
        return 0 if node in self.deaf and node != self.leader else self.leader

    def elect(self, node: int, lose_uncommitted: bool = False) -> None:
        """Make a node lead; 0 for nobody."""
        self.leader = node
        if lose_uncommitted:
            del self.log[self.committed :]
        self.term += 1
        for each, service in self.services.items():
            service.leadership(self.known_leader(each), self.term, each == node)

    def commit(self) -> None:
        if not self.holding:
            self.committed = len(self.log)
            self.deliver()

    def deliver(self) -> None:
        for node, raft in self.rafts.items():
            if node not in self.deaf:
                entries = [
                    Entry(index + 1, 1, ENTRY_NORMAL, self.log[index])
                    for index in range(raft.applied, self.committed)
                ]
                raft.applied = self.committed
                self.services[node].apply(entries)

    def digests(self) -> set[str]:
        return {service.catalog.digest() for service in self.services.values()}


Scenario = Callable[[Cluster], Awaitable[None]]
Run = Callable[[Scenario], None]


@pytest.fixture
def run() -> Run:
    """Run a scenario on simulated time, in a cluster that has its first contents."""

    def play(scenario: Scenario) -> None:
        async def main() -> None:
            cluster = Cluster(asyncio.get_running_loop())
            first = commands.Bootstrap(tuple(NODES), "/", GUEST)
            cluster.log.append(encode_request(Request(1023, 1, 1), first))
            cluster.commit()
            try:
                await scenario(cluster)
            finally:
                for service in cluster.services.values():
                    await service.stop()

        with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
            runner.run(main())

    return play


class TestSubmit:
    @pytest.mark.parametrize("node", [1, 2, 3])
    def test_any_node_changes_the_catalog_and_reads_what_it_wrote(
        self, run: Run, node: int
    ) -> None:
        async def scenario(cluster: Cluster) -> None:
            cluster.elect(1)
            service = cluster.services[node]
            result = await service.submit(DECLARE)
            assert isinstance(result, Ok)
            assert service.catalog.queue("/", "q") == result.value
            assert await service.submit(DECLARE) == Exists(result.value)
            assert len(cluster.digests()) == 1

        run(scenario)

    def test_result_waits_for_this_node_to_apply(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            cluster.elect(1)
            task = asyncio.ensure_future(cluster.services[2].submit(DECLARE))
            await settle()
            assert task.done()
            later = asyncio.ensure_future(cluster.services[2].submit(commands.Barrier()))
            cluster.deaf = {2}
            cluster.soon(cluster.deaf.clear)
            await settle()
            assert not later.done()
            cluster.deliver()
            await settle()
            await later

        run(scenario)

    def test_many_at_once_are_each_made_once(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            cluster.elect(3)
            asked = [
                service.submit(commands.DeclareQueue("/", f"q{number}", "classic"))
                for number in range(CATALOG_REQUESTS_MAX + 10)
                for service in cluster.services.values()
            ]
            results = await asyncio.gather(*asked)
            assert sum(isinstance(result, Ok) for result in results) == len(results) // 3
            assert sum(isinstance(result, Exists) for result in results) == len(results) // 3 * 2
            assert len(cluster.digests()) == 1

        run(scenario)

    def test_under_way_are_bounded_and_the_rest_waits(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            cluster.elect(1)
            cluster.holding = True
            asked = [
                asyncio.ensure_future(cluster.services[1].submit(commands.Barrier()))
                for _ in range(CATALOG_REQUESTS_MAX + 5)
            ]
            await settle()
            assert len(cluster.log) == 1 + CATALOG_REQUESTS_MAX
            cluster.holding = False
            cluster.commit()
            assert await asyncio.gather(*asked) == [Ok()] * len(asked)

        run(scenario)

    def test_arguments_of_amqp_libraries_become_plain(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            cluster.elect(1)
            await cluster.services[2].submit(
                commands.DeclareQueue("/", "q", "classic", arguments={"x": bytearray(b"\xff")})
            )
            queue = cluster.services[3].catalog.queue("/", "q")
            assert queue is not None
            assert queue.arguments == {"x": b"\xff"}

        run(scenario)

    def test_what_cannot_be_stored_is_refused_and_never_sent(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            cluster.elect(1)
            for value in (1 << 80, "x" * CATALOG_COMMAND_OCTETS_MAX):
                command = commands.DeclareQueue("/", "q", "classic", arguments={"x": value})
                assert isinstance(await cluster.services[2].submit(command), Refused)
            assert len(cluster.log) == 1

        run(scenario)


class TestFailover:
    def test_change_that_was_lost_with_the_leader_is_made_by_the_next(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            for asking in (1, 2, 3):
                cluster.elect(1)
                cluster.holding = True
                command = commands.DeclareQueue("/", f"q{asking}", "classic")
                task = asyncio.ensure_future(cluster.services[asking].submit(command))
                await settle()
                assert len(cluster.log) == cluster.committed + 1
                cluster.holding = False
                cluster.elect(2, lose_uncommitted=True)
                assert isinstance(await task, Ok)

        run(scenario)

    def test_change_that_the_next_leader_has_already_is_made_once(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            cluster.elect(1)
            cluster.holding = True
            task = asyncio.ensure_future(cluster.services[3].submit(DECLARE))
            await settle()
            cluster.elect(2)
            await settle()
            assert len(cluster.log) == cluster.committed + 2
            cluster.holding = False
            cluster.commit()
            result = await task
            assert isinstance(result, Ok)
            assert [queue.group for queue in cluster.services[1].catalog.queues()] == [1]

        run(scenario)

    def test_repeated_change_does_not_undo_what_came_between(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            cluster.elect(1)
            await cluster.services[3].submit(DECLARE)
            resent = cluster.log[-1]
            await cluster.services[2].submit(commands.DeleteQueue("/", "q"))
            cluster.services[1].handle_forward(3, resent)
            await settle()
            assert cluster.log[-1] == resent
            assert cluster.services[1].catalog.queues() == []

        run(scenario)

    def test_leader_that_returns_proposes_again(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            cluster.elect(1)
            cluster.holding = True
            task = asyncio.ensure_future(cluster.services[1].submit(DECLARE))
            await settle()
            cluster.elect(2, lose_uncommitted=True)
            cluster.elect(1)
            cluster.holding = False
            assert isinstance(await task, Ok)

        run(scenario)

    def test_slow_leader_does_not_propose_its_own_change_twice(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            cluster.elect(1)
            cluster.holding = True
            with pytest.raises(CatalogUnavailableError):
                await cluster.services[1].submit(DECLARE)
            assert len(cluster.log) == 2

        run(scenario)

    def test_without_a_leader_it_waits_for_one(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            tasks = [asyncio.ensure_future(s.submit(DECLARE)) for s in cluster.services.values()]
            await asyncio.sleep(5)
            assert not any(task.done() for task in tasks)
            cluster.elect(2)
            kinds = sorted(type(result).__name__ for result in await asyncio.gather(*tasks))
            assert kinds == ["Exists", "Exists", "Ok"]

        run(scenario)

    def test_lost_or_refused_proposals_are_tried_again(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            cluster.elect(1)
            cluster.busy = True
            tasks = [asyncio.ensure_future(s.submit(DECLARE)) for s in cluster.services.values()]
            cluster.deaf = {3}
            await asyncio.sleep(1)
            assert cluster.services[1].dropped_count > 0
            cluster.busy = False
            cluster.deaf.clear()
            assert all(isinstance(result, Ok | Exists) for result in await asyncio.gather(*tasks))

        run(scenario)

    def test_request_that_was_passed_over_is_sent_under_a_new_number(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            # So many later numbers of node 2 are applied first that its first one is too old.
            cluster.leader = 0
            task = asyncio.ensure_future(cluster.services[2].submit(DECLARE))
            await settle()
            barrier = commands.Barrier()
            for number in range(2, CATALOG_REQUEST_WINDOW + 3):
                cluster.log.append(encode_request(Request(2, 1, number), barrier))
            cluster.commit()
            cluster.services[2]._next_number = CATALOG_REQUEST_WINDOW + 3
            cluster.elect(1)
            assert isinstance(await task, Ok)
            assert len(cluster.services[1].catalog.queues()) == 1

        run(scenario)


class TestUnavailable:
    def test_no_leader_is_told_as_no_quorum(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            began = cluster.loop.time()
            with pytest.raises(CatalogUnavailableError, match=r"no quorum: .* no leader for 10 s"):
                await cluster.services[1].submit(DECLARE)
            assert cluster.loop.time() - began == pytest.approx(10)
            assert cluster.services[1].catalog.queues() == []

        run(scenario)

    def test_silent_leader_is_named(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            cluster.elect(1)
            cluster.holding = True
            with pytest.raises(CatalogUnavailableError, match=r"no quorum: node 1, .* 2 s"):
                await cluster.services[2].submit(DECLARE, seconds=2)
            with pytest.raises(CatalogUnavailableError, match=r"no quorum: this node, .* 3 s"):
                await cluster.services[1].barrier(3)

        run(scenario)

    def test_abandoned_change_may_still_be_made(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            cluster.elect(1)
            cluster.holding = True
            with pytest.raises(CatalogUnavailableError, match="may still be made"):
                await cluster.services[2].submit(DECLARE)
            cluster.holding = False
            cluster.commit()
            assert cluster.services[2].catalog.queue("/", "q") is not None

        run(scenario)

    def test_stopping_ends_the_wait(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            task = asyncio.ensure_future(cluster.services[2].submit(DECLARE))
            await settle()
            await cluster.services[2].stop()
            for waiting in (task, cluster.services[2].submit(DECLARE)):
                with pytest.raises(CatalogUnavailableError, match="stopping"):
                    await waiting

        run(scenario)

    def test_cancelled_caller_leaves_nothing_behind(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            task = asyncio.ensure_future(cluster.services[2].submit(DECLARE))
            await settle()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert cluster.services[2]._pending == {}

        run(scenario)


class TestForward:
    @pytest.mark.parametrize(
        "payload",
        [
            b"",
            b"\xff" * 40,
            encode_request(Request(3, 1, 1), DECLARE),
            encode_request(Request(2, 1, 1), DECLARE) + bytes(CATALOG_COMMAND_OCTETS_MAX),
        ],
    )
    def test_what_is_no_request_of_that_peer_is_dropped(self, run: Run, payload: bytes) -> None:
        async def scenario(cluster: Cluster) -> None:
            cluster.elect(1)
            cluster.services[1].handle_forward(2, payload)
            assert cluster.services[1].dropped_count == 1
            assert len(cluster.log) == 1

        run(scenario)

    def test_node_that_does_not_lead_drops_it(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            cluster.elect(1)
            cluster.services[2].handle_forward(3, encode_request(Request(3, 1, 1), DECLARE))
            assert cluster.services[2].dropped_count == 1
            assert len(cluster.log) == 1

        run(scenario)


class TestListeners:
    def test_hear_of_a_change_before_its_result_is_known(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            cluster.elect(1)
            service = cluster.services[2]
            order: list[str] = []
            heard: list[Event] = []

            def listen(events: list[Event]) -> None:
                heard.extend(events)
                order.append("heard")

            service.subscribe(listen)
            assert len(heard) > len(NODES)
            assert heard == service.catalog.contents()
            heard.clear()
            order.clear()
            result = await service.submit(DECLARE)
            order.append("answered")
            assert isinstance(result, Ok)
            assert heard == [QueueAdded(result.value)]
            assert order == ["heard", "answered"]
            await service.submit(DECLARE)
            assert len(heard) == 1

        run(scenario)

    def test_get_a_lot_of_entries_in_one_call_and_in_order(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            cluster.elect(1)
            cluster.deaf = {3}
            for name in ("b", "a"):
                await cluster.services[1].submit(commands.DeclareQueue("/", name, "classic"))
            heard: list[list[str]] = []

            def listen(events: list[Event]) -> None:
                names = [event.queue.name for event in events if isinstance(event, QueueAdded)]
                heard.append(names)

            cluster.services[3].subscribe(listen)
            heard.clear()
            cluster.deaf.clear()
            cluster.deliver()
            assert heard == [["b", "a"]]

        run(scenario)


class TestMembers:
    @pytest.mark.parametrize(
        ("count", "voters"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 5), (6, 5), (9, 5)]
    )
    def test_odd_number_of_the_lowest_ids_votes(self, count: int, voters: int) -> None:
        nodes = list(range(count, 0, -1))
        voting, learning = split_members(nodes)
        assert voting == tuple(range(1, voters + 1))
        assert learning == tuple(range(voters + 1, count + 1))

    def test_start_joins_group_0_and_the_first_voter_campaigns(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            for node, service in cluster.services.items():
                service.start()
                assert cluster.rafts[node].created == (0, (1, 2, 3), (), node == 1)

        run(scenario)


class TestFirstContents:
    """On real time, for the password is hashed in a thread; every wait ends by an event."""

    def test_serving_leader_of_an_empty_catalog_fills_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(catalog_service, "new_user", cheap_user)

        async def main() -> None:
            cluster = Cluster(asyncio.get_running_loop())
            cluster.elect(2)
            await asyncio.gather(*(s.wait_ready(30) for s in cluster.services.values()))
            for service in cluster.services.values():
                assert service.catalog.nodes() == NODES
                user = service.catalog.user(DEFAULT_USER)
                assert user == cheap_user(DEFAULT_USER, "guest", ("administrator",), True)
                assert service.catalog.vhost("/") is not None
                assert service.catalog.exchange("/", "amq.topic") is not None
            assert len(cluster.digests()) == 1
            for service in cluster.services.values():
                await service.stop()

        asyncio.run(main())

    def test_two_leaders_that_try_fill_it_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(catalog_service, "new_user", cheap_user)

        async def main() -> None:
            cluster = Cluster(asyncio.get_running_loop())
            heard: list[Event] = []
            cluster.services[3].subscribe(heard.extend)
            cluster.elect(1)
            cluster.elect(2)
            cluster.elect(1)
            await cluster.services[3].wait_ready(30)
            await cluster.services[1].barrier()
            assert sum(isinstance(event, UserChanged) for event in heard) == 1
            for service in cluster.services.values():
                await service.stop()

        asyncio.run(main())

    def test_catalog_that_has_them_gets_no_second_ones(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            cluster.elect(1)
            await cluster.services[1].wait_ready(5)
            assert await cluster.services[1].submit(commands.DeleteUser("guest")) == Ok(GUEST)
            cluster.elect(2)
            await cluster.services[2].barrier()
            assert cluster.services[2].catalog.user("guest") is None

        run(scenario)

    def test_new_address_in_the_configuration_reaches_the_catalog(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            moved = [*NODES[:2], Node(3, "n3", "elsewhere:1")]
            cluster.services[1] = CatalogService(
                cluster.rafts[1], 1, moved, lambda peer, payload: False
            )
            cluster.rafts[1].applied = 0
            cluster.deliver()
            cluster.elect(1)
            await settle()
            assert [service.catalog.nodes() for service in cluster.services.values()] == [moved] * 3

        run(scenario)

    def test_without_them_nobody_is_ready(self, run: Run) -> None:
        async def scenario(cluster: Cluster) -> None:
            empty = cluster.service(2)
            with pytest.raises(CatalogUnavailableError, match="no quorum"):
                await empty.wait_ready(7)

        run(scenario)


def test_unknown_queue_is_told_through_the_whole_way(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.elect(1)
        result = await cluster.services[3].submit(commands.DeleteQueue("/", "none"))
        assert result == NotFound("queue 'none' in vhost '/'")

    run(scenario)


def cheap_user(name: str, password: str, tags: tuple[str, ...], loopback_only: bool) -> User:
    return User(name, b"salt", password.encode(), tags, loopback_only)


async def settle() -> None:
    """Let everything happen that needs no time to pass."""
    for _ in range(20):
        await asyncio.sleep(0)
