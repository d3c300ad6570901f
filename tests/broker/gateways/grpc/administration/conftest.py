"""The administrative services of a node with a real catalog, and a client of them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import pytest
from tests.broker.gateways.grpc.administration.refusal import RefusalError
from tests.broker.runtime.flow_world import World

from headrace_broker.gateways.grpc.flow.advising import AdviceService
from headrace_broker.gateways.grpc.flow.flow import FlowService
from headrace_broker.gateways.grpc.server.call import Admission
from headrace_broker.gateways.grpc.server.lookup import LookupService
from headrace_broker.gateways.grpc.server.server import GrpcServer, Service
from headrace_broker.gateways.grpc.topology.topology import TopologyService
from headrace_broker.model.limits import MESSAGE_BYTES_MAX
from headrace_broker.runtime.alarm.alarm_watch import AlarmWatch
from headrace_broker.runtime.alarm.alarms import AlarmBoard
from headrace_broker.runtime.explain.flow_watch import FlowWatch
from headrace_protos.broker.v1.advice_pb2_grpc import AdviceStub
from headrace_protos.broker.v1.flow_pb2_grpc import FlowStub
from headrace_protos.broker.v1.topology_pb2_grpc import TopologyStub


class Users:
    """Log-ins of a fake node: right when the password is the user's name."""

    def __init__(self, node: Any) -> None:
        self._node = node
        self.node_name = "n1"
        self.standings = node.standings
        self.authenticator = self

    async def check(self, user: str, password: str, host: str) -> Any:
        return await self._node.authenticate(user, password, host)

    def user_tags(self, user: str) -> tuple[str, ...]:
        found = self._node.view.user(user)
        return found.tags if found is not None else ()


class Client:
    """Calls methods as a user.

    Attributes:
        node: what is behind them.
        flow: the service that is behind them.
        server: of all services.
    """

    flow: FlowService
    server: GrpcServer

    def __init__(self, channel: grpc.aio.Channel, node: Any) -> None:
        self.node = node
        self.channel = channel
        self.stubs: list[Any] = [TopologyStub(channel), FlowStub(channel), AdviceStub(channel)]

    def stub(self, method: str) -> Any:
        for stub in self.stubs:
            if hasattr(stub, method):
                return getattr(stub, method)
        raise AttributeError(method)

    def watch(self, method: str, request: Any, user: str = "guest") -> Any:
        """A stream of answers."""
        return self.stub(method)(request, metadata=login(user))

    async def call(self, method: str, request: Any, user: str = "guest") -> Any:
        """The answer of a method; raises RefusalError."""
        try:
            return await self.stub(method)(request, metadata=login(user))
        except grpc.aio.AioRpcError as error:
            raise RefusalError(error) from None

    async def refusal(self, method: str, request: Any, user: str = "guest") -> RefusalError:
        """Return the refusal of a method."""
        with pytest.raises(RefusalError) as caught:
            await self.call(method, request, user)
        return caught.value


def login(user: str) -> tuple[tuple[str, str], ...]:
    """Metadata of a call."""
    text = base64.b64encode(f"{user}:{user}".encode()).decode()
    return (("authorization", f"Basic {text}"),)


Scenario = Callable[[Client], Coroutine[Any, Any, None]]


@pytest.fixture
def world(fake_node: Any) -> World:
    """Flow control of three nodes, of which the served one is n1."""
    world = World(fake_node.catalog)
    fake_node.flow_report = world.nodes[1].report
    return world


@pytest.fixture
def board() -> AlarmBoard:
    """The alarms of a node that is alone, called n1."""
    return AlarmBoard(1, {1: "n1"}, lambda: 1, lambda peer, payload: True)


@pytest.fixture
def serve(fake_node: Any, board: AlarmBoard) -> Callable[[Scenario], None]:
    """Runs a scenario against the services of a fake node."""
    fake_node.now_ms = 1_700_000_000_000

    async def run(scenario: Scenario) -> None:
        admission = Admission(Users(fake_node), fake_node.not_ready_reason)  # type: ignore[arg-type]
        lookup = LookupService(fake_node, fake_node)
        flow_watch = FlowWatch(fake_node.flow_report, fake_node.view, 1, 10_000)
        alarm_watch = AlarmWatch(board, lambda node: f"n{node}")
        flow = FlowService(lookup, admission, flow_watch, alarm_watch)
        advice = AdviceService(lookup, admission, lambda: fake_node.now_ms)
        services: list[Service] = [TopologyService(lookup, admission), flow, advice]
        server = GrpcServer(services, fake_node.not_ready_reason, MESSAGE_BYTES_MAX, admission)
        [port] = await server.start(("127.0.0.1:0", None))
        try:
            async with (
                asyncio.timeout(60),
                grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
            ):
                client = Client(channel, fake_node)
                client.flow = flow
                client.server = server
                await scenario(client)
        finally:
            await server.stop()

    return lambda scenario: asyncio.run(run(scenario))


@pytest.fixture
def refused(serve: Callable[[Scenario], None]) -> Callable[..., RefusalError]:
    """Calls a method that must be refused, and returns how."""

    def call(method: str, request: Any, user: str = "guest") -> RefusalError:
        found: list[RefusalError] = []

        async def scenario(client: Client) -> None:
            found.append(await client.refusal(method, request, user))

        serve(scenario)
        return found[0]

    return call
