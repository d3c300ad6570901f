"""Requests of calls with a single one have a bounded room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from headrace_broker.flow.call_turns import CallClient
from headrace_broker.gateways.grpc.server import request_room
from headrace_broker.gateways.grpc.server.errors import CallError
from headrace_broker.gateways.grpc.server.request_parser import RequestParser
from headrace_broker.gateways.grpc.server.request_room import RequestRoom
from headrace_broker.model.limits import (
    CALL_STEP_US,
    GRPC_PARSED_BYTES,
    GRPC_REQUEST_BYTES_MAX,
    GRPC_REQUESTS_BYTES,
    GRPC_REQUESTS_BYTES_OF_ADDRESS,
)
from headrace_broker.runtime.calls.gate import CallGate
from headrace_protos.broker.v1.messaging_pb2 import GetRequest

LARGEST = 17 << 20
SMALL = GetRequest(queue="q")
PARSE = RequestParser(GetRequest.FromString)


class Client:
    """Sends its request when it is told to."""

    def __init__(self, room: RequestRoom, address: str) -> None:
        self.sends: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.ends = asyncio.Event()
        self.served = False
        self.reading = False
        self.task = asyncio.create_task(self._call(room, address))

    async def _requests(self) -> AsyncIterator[Any]:
        self.reading = True
        yield (await self.sends).SerializeToString()

    async def _call(self, room: RequestRoom, address: str) -> None:
        async with room.read(address, self._requests(), PARSE):
            self.served = True
            await self.ends.wait()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def gone(clients: list[Client]) -> None:
    for client in clients:
        client.task.cancel()
    await asyncio.gather(*[client.task for client in clients], return_exceptions=True)


def run(body: Any) -> None:
    async def within() -> None:
        async with asyncio.timeout(30):
            await body(RequestRoom(LARGEST))

    asyncio.run(within())


def test_requests_that_are_read_count_as_the_largest():
    async def body(room: RequestRoom) -> None:
        clients = [Client(room, f"10.0.0.{number}") for number in range(20)]
        await turns()
        assert sum(client.reading for client in clients) == GRPC_REQUESTS_BYTES // LARGEST
        assert room.byte_count <= GRPC_REQUESTS_BYTES
        await gone(clients)
        assert room.byte_count == 0
        assert room._by_address == {}

    run(body)


def test_an_address_has_a_part_of_the_room():
    async def body(room: RequestRoom) -> None:
        clients = [Client(room, "10.0.0.1") for _ in range(20)]
        other = Client(room, "10.0.0.2")
        await turns()
        reading = sum(client.reading for client in clients)
        assert reading == GRPC_REQUESTS_BYTES_OF_ADDRESS // LARGEST
        assert other.reading
        await gone([*clients, other])
        assert room.byte_count == 0

    run(body)


def test_a_request_that_is_there_counts_as_its_objects_until_its_call_ends():
    async def body(room: RequestRoom) -> None:
        clients = [Client(room, "10.0.0.1") for _ in range(20)]
        for client in clients:
            client.sends.set_result(SMALL)
        for _ in range(20):
            await turns()
        assert all(client.served for client in clients)
        assert room.byte_count == 20 * SMALL.ByteSize() * GRPC_PARSED_BYTES
        for client in clients:
            client.ends.set()
        await asyncio.gather(*[client.task for client in clients])
        assert room.byte_count == 0

    run(body)


def test_an_empty_request_is_one():
    async def body(room: RequestRoom) -> None:
        client = Client(room, "10.0.0.1")
        client.sends.set_result(GetRequest())
        client.ends.set()
        await client.task
        assert room._by_address == {}

    run(body)


def test_a_request_that_is_too_large_is_refused_and_let_go():
    async def body(room: RequestRoom) -> None:
        client = Client(room, "10.0.0.1")
        client.sends.set_result(GetRequest(queue="q" * GRPC_REQUEST_BYTES_MAX))
        with pytest.raises(CallError) as refused:
            await client.task
        assert refused.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert refused.value.reason == "REQUEST_TOO_LARGE"
        assert room.byte_count == 0

    run(body)


def test_past_the_bound_calls_are_refused(monkeypatch):
    monkeypatch.setattr(request_room, "GRPC_REQUESTS_WAITING_MAX", 2)

    async def body(room: RequestRoom) -> None:
        reading = GRPC_REQUESTS_BYTES_OF_ADDRESS // LARGEST
        clients = [Client(room, "10.0.0.1") for _ in range(reading + 2)]
        await turns()
        with pytest.raises(CallError) as refused:
            await Client(room, "10.0.0.1").task
        assert refused.value.reason == "TOO_MANY_REQUESTS"
        await gone(clients)

    run(body)


def test_a_request_that_does_not_come_has_less_time_while_others_wait(monkeypatch):
    monkeypatch.setattr(request_room, "GRPC_REQUEST_HURRY_SECONDS", 0.0)

    async def body(room: RequestRoom) -> None:
        clients = [Client(room, "10.0.0.1") for _ in range(20)]
        await turns()
        clients[-1].sends.set_result(SMALL)
        clients[-1].ends.set()
        await clients[-1].task
        with pytest.raises(CallError) as refused:
            await clients[0].task
        assert refused.value.code is grpc.StatusCode.DEADLINE_EXCEEDED
        await gone(clients)
        assert room.byte_count == 0

    run(body)


@pytest.mark.parametrize("is_let_in", [True, False])
def test_a_line_in_which_nobody_waits_any_more_hurries_nobody(monkeypatch, is_let_in) -> None:
    async def body(room: RequestRoom) -> None:
        clients = [Client(room, "10.0.0.1") for _ in range(4)]
        await turns()
        clients[0 if is_let_in else 3].task.cancel()
        await turns()
        assert clients[3].reading == is_let_in
        assert (room._waiting, room._waiting_count) == ({}, 0)
        monkeypatch.setattr(request_room, "GRPC_REQUEST_HURRY_SECONDS", 0.0)
        other = Client(room, "10.0.0.2")
        await turns()
        assert other.reading
        assert not other.task.done()
        await gone([*clients, other])
        assert room.byte_count == 0

    run(body)


class Paced(Client):
    """A client whose call takes turns with others."""

    def __init__(self, room: RequestRoom, address: str, gate: CallGate) -> None:
        self._gate = gate
        super().__init__(room, address)

    async def _call(self, room: RequestRoom, address: str) -> None:
        async with self._gate.begin(address, "call") as call:
            await call.paced(super()._call(room, address))


class Busy:
    """A gate at which no step may begin until it is told to."""

    def __init__(self) -> None:
        self.gate = CallGate()
        self._ends: list[Any] = []

    def begin(self) -> None:
        self.gate.turns._call_later = lambda seconds, callback: self._ends.append(callback)
        self.gate.turns.took(CallClient(), CALL_STEP_US + 1)

    def end(self) -> None:
        self._ends.pop()()


def test_a_request_that_has_come_may_wait_for_its_turn(monkeypatch) -> None:
    monkeypatch.setattr(request_room, "GRPC_REQUEST_HURRY_SECONDS", 0.0)

    async def body(room: RequestRoom) -> None:
        busy = Busy()
        client = Paced(room, "10.0.0.1", busy.gate)
        others = [Client(room, "10.0.0.1") for _ in range(2)]
        await turns()
        busy.begin()
        client.sends.set_result(SMALL)
        others.append(Client(room, "10.0.0.1"))
        for _ in range(5):
            await turns()
        assert [other.task.done() for other in others] == [True, True, False]
        assert not client.task.done()
        busy.end()
        await turns()
        assert client.served
        client.ends.set()
        await client.task
        await gone(others)
        assert room.byte_count == 0

    run(body)


def test_a_request_of_which_more_is_to_come_is_late_when_its_turn_comes(monkeypatch) -> None:
    monkeypatch.setattr(request_room, "GRPC_REQUEST_HURRY_SECONDS", 0.0)

    class Slow(Paced):
        async def _requests(self) -> AsyncIterator[Any]:
            self.reading = True
            await self.sends
            await asyncio.Event().wait()
            yield SMALL.SerializeToString()

    async def body(room: RequestRoom) -> None:
        busy = Busy()
        client = Slow(room, "10.0.0.1", busy.gate)
        others = [Client(room, "10.0.0.1") for _ in range(2)]
        await turns()
        busy.begin()
        client.sends.set_result(SMALL)
        others.append(Client(room, "10.0.0.1"))
        await turns()
        assert not client.task.done()
        busy.end()
        with pytest.raises(CallError) as refused:
            await client.task
        assert refused.value.reason == "REQUEST_TOO_SLOW"
        assert "within 60 s, or within 0 s while" in refused.value.text
        await gone(others)
        assert room.byte_count == 0

    run(body)


def test_a_call_that_ends_while_its_request_is_read_is_cancelled(monkeypatch) -> None:
    async def body(room: RequestRoom) -> None:
        client = Client(room, "10.0.0.1")
        await turns()
        client.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await client.task
        assert (room.byte_count, room._readings) == (0, set())

    run(body)


def test_a_call_that_ends_as_it_is_let_in_gives_its_room_back():
    async def body(room: RequestRoom) -> None:
        clients = [Client(room, "10.0.0.1") for _ in range(4)]
        await turns()
        clients[0].task.cancel()
        await asyncio.sleep(0)  # its room has gone to the last, which has not woken yet
        clients[3].task.cancel()
        await turns()
        assert room.byte_count == 2 * LARGEST
        await gone(clients)
        assert room.byte_count == 0

    run(body)
