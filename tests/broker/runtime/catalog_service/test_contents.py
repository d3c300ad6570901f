"""Catalog service: its members, its first content, and the listeners of its changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.event import Event, QueueAdded, UserChanged
from headrace_broker.catalog.result import Ok
from headrace_broker.model.definition import Node, User
from headrace_broker.runtime.cluster.catalog_service import CatalogService, CatalogUnavailableError

NODES = [Node(number, f"n{number}", f"h:{number}") for number in (1, 2, 3)]
GUEST = User("guest", b"salt", b"hash", loopback_only=True)
DECLARE = commands.DeclareQueue("/", "q", "quorum", replicas=3)


Run = Callable[[Callable[[Any], Awaitable[None]]], None]


class TestListeners:
    def test_hear_of_a_change_before_its_result_is_known(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
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
        async def scenario(cluster: Any) -> None:
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
    def test_start_joins_group_0_and_the_first_voter_campaigns(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            for node, service in cluster.services.items():
                service.start()
                assert cluster.rafts[node].created == (0, (1, 2, 3), (), node == 1)

        run(scenario)


class TestFirstContents:
    """On real time, for the password is hashed in a thread; every wait ends by an event."""

    def test_serving_leader_of_an_empty_catalog_fills_it(self, make_cluster: Any) -> None:
        async def main() -> None:
            cluster = make_cluster()
            cluster.elect(2)
            await asyncio.gather(*(s.wait_ready(30) for s in cluster.services.values()))
            for service in cluster.services.values():
                assert service.catalog.nodes() == NODES
                user = service.catalog.user("guest")
                assert user is not None
                assert user.loopback_only
                assert user.tags == ("administrator",)
                assert user.password_hash == b"guest"
                assert service.catalog.vhost("/") is not None
                assert service.catalog.exchange("/", "amq.topic") is not None
            assert len(cluster.digests()) == 1
            for service in cluster.services.values():
                await service.stop()

        asyncio.run(main())

    def test_two_leaders_that_try_fill_it_once(self, make_cluster: Any) -> None:
        async def main() -> None:
            cluster = make_cluster()
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
        async def scenario(cluster: Any) -> None:
            cluster.elect(1)
            await cluster.services[1].wait_ready(5)
            assert await cluster.services[1].submit(commands.DeleteUser("guest")) == Ok(GUEST)
            cluster.elect(2)
            await cluster.services[2].barrier()
            assert cluster.services[2].catalog.user("guest") is None

        run(scenario)

    def test_known_cluster_takes_no_nodes_from_a_configuration(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            cluster.elect(1)
            cluster.announce()
            await cluster.services[1].submit(commands.ForgetNode(3))
            moved = [*NODES[:2], Node(3, "n3", "elsewhere:1")]
            cluster.services[1] = CatalogService(
                cluster.rafts[1], 1, moved, lambda peer, payload: False
            )
            cluster.rafts[1].applied = 0
            cluster.deliver()
            cluster.elect(1)
            await cluster.settle()
            found = [service.catalog.nodes() for service in cluster.services.values()]
            places = [[(node.id, node.address) for node in nodes] for nodes in found]
            assert places == [[(node.id, node.address) for node in NODES[:2]]] * 3

        run(scenario)

    def test_without_them_nobody_is_ready(self, run: Run) -> None:
        async def scenario(cluster: Any) -> None:
            empty = cluster.service(2)
            with pytest.raises(CatalogUnavailableError, match="no quorum"):
                await empty.wait_ready(7)

        run(scenario)
