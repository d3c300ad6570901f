"""The administrative services of a node with a real catalog, and a client of them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from grpc_status import rpc_status

from headrace_broker.gateways.grpc.call import Admission
from headrace_broker.gateways.grpc.desk import Desk
from headrace_broker.gateways.grpc.pb.topology_pb2_grpc import TopologyStub
from headrace_broker.gateways.grpc.server import GrpcServer
from headrace_broker.gateways.grpc.topology import TopologyService
from headrace_broker.model.limits import MESSAGE_BYTES_MAX


class Users:
    """Log-ins of a fake node: right when the password is the user's name."""

    def __init__(self, node: Any) -> None:
        self._node = node

    async def authenticate(self, user: str, password: str, host: object) -> bool:
        return user == password and self._node.view.user(user) is not None

    def user_tags(self, user: str) -> tuple[str, ...]:
        found = self._node.view.user(user)
        return found.tags if found is not None else ()


class RefusalError(Exception):
    """A call was refused.

    Attributes:
        code: of the status.
        text: for people.
        reason: of its ErrorInfo.
        fields: (field, rule) of its BadRequest.
    """

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        super().__init__(f"{error.code()}: {error.details()}")
        self.code = error.code().name
        self.text = error.details() or ""
        self.reason = ""
        self.fields: list[tuple[str, str]] = []
        status = rpc_status.from_call(error)  # type: ignore[arg-type]
        for detail in status.details if status is not None else ():
            info, bad = ErrorInfo(), BadRequest()
            if detail.Unpack(info):
                self.reason = info.reason
            elif detail.Unpack(bad):
                self.fields = [(each.field, each.description) for each in bad.field_violations]


class Client:
    """Calls methods as a user.

    Attributes:
        node: what is behind them.
    """

    def __init__(self, channel: grpc.aio.Channel, node: Any) -> None:
        self.node = node
        self.channel = channel
        self.stubs: list[Any] = [TopologyStub(channel)]

    def stub(self, method: str) -> Any:
        for stub in self.stubs:
            if hasattr(stub, method):
                return getattr(stub, method)
        raise AttributeError(method)

    async def call(self, method: str, request: Any, user: str = "guest") -> Any:
        """The answer of a method; raises RefusalError."""
        try:
            return await self.stub(method)(request, metadata=login(user))
        except grpc.aio.AioRpcError as error:
            raise RefusalError(error) from None

    async def refusal(self, method: str, request: Any, user: str = "guest") -> RefusalError:
        """How a method is refused."""
        with pytest.raises(RefusalError) as caught:
            await self.call(method, request, user)
        return caught.value


def login(user: str) -> tuple[tuple[str, str], ...]:
    """Metadata of a call."""
    text = base64.b64encode(f"{user}:{user}".encode()).decode()
    return (("authorization", f"Basic {text}"),)


Scenario = Callable[[Client], Coroutine[Any, Any, None]]


@pytest.fixture
def serve(fake_node: Any) -> Callable[[Scenario], None]:
    """Runs a scenario against the services of a fake node."""

    async def run(scenario: Scenario) -> None:
        admission = Admission(Users(fake_node), fake_node.not_ready_reason)  # type: ignore[arg-type]
        desk = Desk(fake_node, fake_node)
        services = [TopologyService(desk, admission)]
        server = GrpcServer(services, fake_node.not_ready_reason, MESSAGE_BYTES_MAX)
        [port] = await server.start(("127.0.0.1:0", None))
        try:
            async with (
                asyncio.timeout(60),
                grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
            ):
                await scenario(Client(channel, fake_node))
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
