"""The cluster version of an empty cluster is raised by the catalog's leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.cluster_version import CLUSTER_VERSION
from headrace_broker.catalog.command import encode_request
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.request import Request
from headrace_broker.catalog.version import CATALOG_VERSION, LOCAL_RANDOM
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.model.definition import Node, User
from headrace_broker.runtime.cluster.catalog_service import CatalogService, CatalogUnavailableError
from headrace_broker.runtime.cluster.version_raiser import VersionRaiser

RAISE = commands.RaiseClusterVersion(CLUSTER_VERSION)


class Service:
    """A catalog of one node, which applies what is submitted at once."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.serving = True
        self.available = True
        self.submitted: list[Any] = []
        self.on_serving: Callable[[], None] = lambda: None
        self._listeners: list[Any] = []
        self._index = 0

    def subscribe(self, listener: Any) -> None:
        self._listeners.append(listener)

    def do(self, command: Any) -> Any:
        self._index += 1
        data = encode_request(Request(1, 1, self._index), command)
        result, events = self.catalog.apply(self._index, data)
        for listener in self._listeners:
            listener(events)
        return result

    async def submit(self, command: Any) -> Any:
        self.submitted.append(command)
        if not self.available:
            raise CatalogUnavailableError("no quorum")
        return self.do(command)


def founded(service: Service, catalog: int = CATALOG_VERSION) -> None:
    user = User("guest", b"s", b"h")
    service.do(commands.Bootstrap((Node(1, "n1", "h:1", disk=1),), "/", user))
    service.do(commands.AnnounceNode(1, MACHINE_VERSION, catalog_version=catalog))


def play(scenario: Callable[[Service], None]) -> Service:
    """Play a scenario in front of a raiser, and let its tasks end."""

    async def body() -> Service:
        service = Service()
        raiser = VersionRaiser(cast(CatalogService, service), 2)
        scenario(service)
        for _ in range(5):
            await asyncio.sleep(0)
        await raiser.stop()
        return service

    return asyncio.run(body())


def test_an_empty_cluster_is_raised_once() -> None:
    service = play(founded)
    assert service.submitted == [RAISE]
    assert service.catalog.cluster_version == CLUSTER_VERSION


def test_a_cluster_with_a_queue_is_left_alone() -> None:
    def scenario(service: Service) -> None:
        service.serving = False  # an older release led it until now
        founded(service)
        service.do(commands.DeclareQueue("/", "q", "quorum"))
        service.serving = True
        service.on_serving()

    assert play(scenario).submitted == []


def test_a_follower_proposes_nothing_until_it_leads() -> None:
    def follower(service: Service) -> None:
        service.serving = False
        founded(service)

    def leads(service: Service) -> None:
        follower(service)
        service.serving = True
        service.on_serving()

    assert play(follower).submitted == []
    assert play(leads).submitted == [RAISE]


def test_a_node_of_an_earlier_release_is_waited_for() -> None:
    assert play(lambda service: founded(service, LOCAL_RANDOM)).submitted == []


def test_a_proposal_that_was_not_answered_is_made_again() -> None:
    async def body() -> Service:
        service = Service()
        service.available = False
        raiser = VersionRaiser(cast(CatalogService, service), 2)
        founded(service)
        for _ in range(5):
            await asyncio.sleep(0)
        service.available = True
        service.on_serving()
        for _ in range(5):
            await asyncio.sleep(0)
        await raiser.stop()
        return service

    assert asyncio.run(body()).submitted == [RAISE, RAISE]
