"""Changes are made from any node, and read where they were asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.result import Exists, NotFound, Ok, Refused
from headrace_broker.model.definition import Binding, Policy, User
from headrace_broker.model.limits import CATALOG_COMMAND_BYTES_MAX, CATALOG_REQUESTS_MAX
from headrace_broker.runtime.cluster.catalog_service import CatalogUnavailableError

DECLARE = commands.DeclareQueue("/", "q", "quorum", replicas=3)


NO_LEADER = "no quorum: this node has reached no leader of the catalog "

Run = Callable[[Callable[[Any], Awaitable[None]]], None]


class TestSubmit:
    @pytest.mark.parametrize("node", [1, 2, 3])
    def test_any_node_changes_the_catalog_and_reads_what_it_wrote(
        self, run: Run, node: int
    ) -> None:
        async def scenario(cluster: Any) -> None:
            cluster.elect(1)
            service = cluster.services[node]
            result = await service.submit(DECLARE)
            assert isinstance(result, Ok)
            assert service.catalog.queue("/", "q") == result.value
            assert await service.submit(DECLARE) == Exists(result.value)
            assert len(cluster.digests()) == 1

        run(scenario)

    def test_what_breaks_a_rule_is_not_proposed(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            cluster.elect(1)
            policy = Policy("/", "p", "(", {"max-length": 1})
            before = cluster.services[1].catalog.applied_index
            answer = await cluster.services[1].submit(commands.PutPolicy(policy))
            assert isinstance(answer, Refused)
            assert answer.text.startswith("pattern: ")
            assert cluster.services[1].catalog.applied_index == before

        run(scenario)

    def test_two_administrators_do_not_go_because_each_sees_the_other(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            cluster.elect(1)
            service = cluster.services[1]
            for name in ("ann", "bob"):
                user = User(name, b"", b"", ("administrator",))
                assert isinstance(await service.submit(commands.PutUser(user)), Ok)
            results = await asyncio.gather(
                service.submit(commands.PutUser(User("ann", b"", b""))),
                service.submit(commands.DeleteUser("bob")),
            )
            assert [isinstance(each, Ok) for each in results] == [True, False]
            assert results[1].text.startswith("name: 'bob' is the last user")
            assert service.catalog.user("bob").tags == ("administrator",)

        run(scenario)

    def test_result_waits_for_this_node_to_apply(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            cluster.elect(1)
            task = asyncio.ensure_future(cluster.services[2].submit(DECLARE))
            await cluster.settle()
            assert task.done()
            later = asyncio.ensure_future(cluster.services[2].submit(commands.Barrier()))
            cluster.deaf = {2}
            cluster.soon(cluster.deaf.clear)
            await cluster.settle()
            assert not later.done()
            cluster.deliver()
            await cluster.settle()
            await later

        run(scenario)

    def test_many_at_once_are_each_made_once(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
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
        async def scenario(cluster: Any) -> None:
            cluster.elect(1)
            cluster.holding = True
            asked = [
                asyncio.ensure_future(cluster.services[1].submit(commands.Barrier()))
                for _ in range(CATALOG_REQUESTS_MAX + 5)
            ]
            await cluster.settle()
            assert len(cluster.log) == cluster.begun + CATALOG_REQUESTS_MAX
            cluster.holding = False
            cluster.commit()
            assert await asyncio.gather(*asked) == [Ok()] * len(asked)

        run(scenario)

    def test_arguments_of_amqp_libraries_become_plain(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            cluster.elect(1)
            await cluster.services[2].submit(
                commands.DeclareQueue("/", "q", "classic", arguments={"x": bytearray(b"\xff")})
            )
            queue = cluster.services[3].catalog.queue("/", "q")
            assert queue is not None
            assert queue.arguments == {"x": b"\xff"}

        run(scenario)

    def test_what_cannot_be_stored_is_refused_and_never_sent(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            cluster.elect(1)
            for value in (1 << 80, "x" * CATALOG_COMMAND_BYTES_MAX):
                command = commands.DeclareQueue("/", "q", "classic", arguments={"x": value})
                assert isinstance(await cluster.services[2].submit(command), Refused)
            assert len(cluster.log) == cluster.begun

        run(scenario)

    def test_binding_that_makes_its_exchange_too_costly_is_not_proposed(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            cluster.elect(1)
            service = cluster.services[2]
            service.binding_problem = lambda binding: f"too much for '{binding.source}'"
            answer = await service.submit(
                commands.Bind(Binding("/", "amq.topic", "queue", "q", "#.a"))
            )
            assert answer == Refused("too much for 'amq.topic'")
            assert len(cluster.log) == cluster.begun

        run(scenario)


class TestUnavailable:
    def test_no_leader_is_told_as_no_quorum(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            began = cluster.loop.time()
            with pytest.raises(CatalogUnavailableError, match=NO_LEADER + "for 5 s"):
                await cluster.services[1].submit(DECLARE)
            assert cluster.loop.time() - began == pytest.approx(5)
            assert cluster.services[1].catalog.queues() == []

        run(scenario)

    def test_node_that_was_cut_off_before_answers_at_once(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            service = cluster.services[1]
            cluster.elect(2)
            peers = service.reach.peers_up = {2: 1, 3: 1}
            peers[2] = 0  # its log does not notice while the group sleeps
            cluster.deaf = {1}
            service.reach.poll()
            await asyncio.sleep(7)
            began = cluster.loop.time()
            for ask in (service.submit(DECLARE), service.catch_up()):
                with pytest.raises(CatalogUnavailableError, match=NO_LEADER + "for 7 s"):
                    await ask
            assert cluster.loop.time() == pytest.approx(began)
            peers[2] = 1
            cluster.deaf = set()
            service.reach.poll()
            assert isinstance(await service.submit(DECLARE), Ok)

        run(scenario)

    def test_leader_that_is_found_in_time_has_the_whole_time(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            cluster.holding = True
            began = cluster.loop.time()
            waiting = asyncio.ensure_future(cluster.services[1].submit(DECLARE))
            await asyncio.sleep(4)
            cluster.elect(2)
            said = r"no quorum: node 2, .* has not answered this node within 10 s"
            with pytest.raises(CatalogUnavailableError, match=said):
                await waiting
            assert cluster.loop.time() - began == pytest.approx(10)

        run(scenario)

    def test_leader_that_is_lost_meanwhile_is_waited_for_as_long_as_is_allowed(
        self, run: Run
    ) -> None:
        async def scenario(cluster: Any) -> None:
            cluster.elect(2)
            cluster.holding = True
            service = cluster.services[1]
            service.reach.limits.leaderless_ms = 2000
            began = cluster.loop.time()
            waiting = asyncio.ensure_future(service.submit(DECLARE))
            await asyncio.sleep(1)
            cluster.elect(0)
            with pytest.raises(CatalogUnavailableError, match=NO_LEADER + "for 2 s"):
                await waiting
            assert cluster.loop.time() - began == pytest.approx(3)

        run(scenario)

    def test_who_says_how_long_waits_so_long_and_so_does_everybody_without_the_limit(
        self, run: Run
    ) -> None:
        async def scenario(cluster: Any) -> None:
            service = cluster.services[1]
            began = cluster.loop.time()
            with pytest.raises(CatalogUnavailableError, match=NO_LEADER + "for 8 s"):
                await service.submit(DECLARE, seconds=8)
            service.reach.limits.leaderless_ms = 0
            with pytest.raises(CatalogUnavailableError, match=NO_LEADER + "for 18 s"):
                await service.submit(DECLARE)
            assert cluster.loop.time() - began == pytest.approx(18)

        run(scenario)

    def test_silent_leader_is_named(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            cluster.elect(1)
            cluster.holding = True
            with pytest.raises(CatalogUnavailableError, match=r"no quorum: node 1, .* 2 s"):
                await cluster.services[2].submit(DECLARE, seconds=2)
            with pytest.raises(CatalogUnavailableError, match=r"no quorum: this node, .* 3 s"):
                await cluster.services[1].barrier(3)

        run(scenario)

    def test_abandoned_change_may_still_be_made(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            cluster.elect(1)
            cluster.holding = True
            with pytest.raises(CatalogUnavailableError, match="may still be made"):
                await cluster.services[2].submit(DECLARE)
            cluster.holding = False
            cluster.commit()
            assert cluster.services[2].catalog.queue("/", "q") is not None

        run(scenario)

    def test_stopping_ends_the_wait(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            task = asyncio.ensure_future(cluster.services[2].submit(DECLARE))
            await cluster.settle()
            await cluster.services[2].stop()
            for waiting in (task, cluster.services[2].submit(DECLARE)):
                with pytest.raises(CatalogUnavailableError, match="stopping"):
                    await waiting

        run(scenario)

    def test_cancelled_caller_leaves_nothing_behind(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            task = asyncio.ensure_future(cluster.services[2].submit(DECLARE))
            await cluster.settle()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert cluster.services[2]._pending == {}

        run(scenario)


def test_unknown_queue_is_told_through_the_whole_way(run: Run) -> None:
    async def scenario(cluster: Any) -> None:
        cluster.elect(1)
        result = await cluster.services[3].submit(commands.DeleteQueue("/", "none"))
        assert result == NotFound("queue 'none' in vhost '/'")

    run(scenario)
