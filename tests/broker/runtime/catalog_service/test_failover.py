"""Changes get through lost leaders and links, and are made once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.command import encode_request
from headrace_broker.catalog.request import Request
from headrace_broker.catalog.result import Exists, Ok
from headrace_broker.model.limits import CATALOG_COMMAND_BYTES_MAX, CATALOG_REQUEST_WINDOW
from headrace_broker.runtime.cluster.catalog_service import CatalogUnavailableError

DECLARE = commands.DeclareQueue("/", "q", "quorum", replicas=3)


Run = Callable[[Callable[[Any], Awaitable[None]]], None]


class TestFailover:
    def test_change_that_was_lost_with_the_leader_is_made_by_the_next(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            for asking in (1, 2, 3):
                cluster.elect(1)
                cluster.holding = True
                command = commands.DeclareQueue("/", f"q{asking}", "classic")
                task = asyncio.ensure_future(cluster.services[asking].submit(command))
                await cluster.settle()
                assert len(cluster.log) == cluster.committed + 1
                cluster.holding = False
                cluster.elect(2, lose_uncommitted=True)
                assert isinstance(await task, Ok)

        run(scenario)

    def test_change_that_the_next_leader_has_already_is_made_once(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            cluster.elect(1)
            cluster.holding = True
            task = asyncio.ensure_future(cluster.services[3].submit(DECLARE))
            await cluster.settle()
            cluster.elect(2)
            await cluster.settle()
            assert len(cluster.log) == cluster.committed + 2
            cluster.holding = False
            cluster.commit()
            result = await task
            assert isinstance(result, Ok)
            assert [queue.group for queue in cluster.services[1].catalog.queues()] == [1]

        run(scenario)

    def test_repeated_change_does_not_undo_what_came_between(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            cluster.elect(1)
            await cluster.services[3].submit(DECLARE)
            resent = cluster.log[-1]
            await cluster.services[2].submit(commands.DeleteQueue("/", "q"))
            cluster.services[1].handle_forward(3, resent)
            await cluster.settle()
            assert cluster.log[-1] == resent
            assert cluster.services[1].catalog.queues() == []

        run(scenario)

    def test_leader_that_returns_proposes_again(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            cluster.elect(1)
            cluster.holding = True
            task = asyncio.ensure_future(cluster.services[1].submit(DECLARE))
            await cluster.settle()
            cluster.elect(2, lose_uncommitted=True)
            cluster.elect(1)
            cluster.holding = False
            assert isinstance(await task, Ok)

        run(scenario)

    def test_slow_leader_does_not_propose_its_own_change_twice(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            cluster.elect(1)
            cluster.holding = True
            with pytest.raises(CatalogUnavailableError):
                await cluster.services[1].submit(DECLARE)
            assert len(cluster.log) == cluster.begun + 1

        run(scenario)

    def test_without_a_leader_it_waits_for_one(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            tasks = [asyncio.ensure_future(s.submit(DECLARE)) for s in cluster.services.values()]
            await asyncio.sleep(4)  # less than `leaderless-ms`
            assert not any(task.done() for task in tasks)
            cluster.elect(2)
            kinds = sorted(type(result).__name__ for result in await asyncio.gather(*tasks))
            assert kinds == ["Exists", "Exists", "Ok"]

        run(scenario)

    def test_lost_or_refused_proposals_are_tried_again(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
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
        async def scenario(cluster: Any) -> None:
            # So many later numbers of node 2 are applied first that its first one is too old.
            cluster.leader = 0
            task = asyncio.ensure_future(cluster.services[2].submit(DECLARE))
            await cluster.settle()
            barrier = commands.Barrier()
            for number in range(2, CATALOG_REQUEST_WINDOW + 3):
                cluster.log.append(encode_request(Request(2, 1, number), barrier))
            cluster.commit()
            cluster.services[2]._next_number = CATALOG_REQUEST_WINDOW + 3
            cluster.elect(1)
            assert isinstance(await task, Ok)
            assert len(cluster.services[1].catalog.queues()) == 1

        run(scenario)


class TestForward:
    @pytest.mark.parametrize(
        "payload",
        [
            b"",
            b"\xff" * 40,
            encode_request(Request(3, 1, 1), DECLARE),
            encode_request(Request(2, 1, 1), DECLARE) + bytes(CATALOG_COMMAND_BYTES_MAX),
        ],
    )
    def test_what_is_no_request_of_that_peer_is_dropped(self, run: Run, payload: bytes) -> None:
        async def scenario(cluster: Any) -> None:
            cluster.elect(1)
            cluster.services[1].handle_forward(2, payload)
            assert cluster.services[1].dropped_count == 1
            assert len(cluster.log) == cluster.begun

        run(scenario)

    def test_node_that_does_not_lead_drops_it(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            cluster.elect(1)
            cluster.services[2].handle_forward(3, encode_request(Request(3, 1, 1), DECLARE))
            assert cluster.services[2].dropped_count == 1
            assert len(cluster.log) == cluster.begun

        run(scenario)
