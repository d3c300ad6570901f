"""No connection is lost, whenever an acceptor is stopped."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest
import uvloop

from headrace_raftlog.accepting import accept, listening_problem

LOOPS = pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


@LOOPS
@pytest.mark.parametrize("turns", range(6))
def test_a_connection_is_left_to_the_next_call_when_one_is_cancelled(
    loop_factory: LoopFactory, turns: int
) -> None:
    async def body() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            listening.setblocking(False)
            first = asyncio.create_task(accept(listening))
            await asyncio.sleep(0)
            with socket.create_connection(listening.getsockname()) as client:
                for _ in range(turns):
                    await asyncio.sleep(0)
                first.cancel()
                await asyncio.wait([first])
                async with asyncio.timeout(30):
                    had = accept(listening) if first.cancelled() else first
                    connection, address = await had
                with connection:
                    assert address == client.getsockname()
                    assert connection.getblocking() is False

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(body())


@LOOPS
def test_callers_take_their_turns_with_everybody_else(loop_factory: LoopFactory) -> None:
    async def body() -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=8) as listening:
            listening.setblocking(False)
            clients = [socket.create_connection(listening.getsockname()) for _ in range(8)]
            accepted: list[socket.socket] = []
            seen: list[int] = []

            async def take_all() -> None:
                while len(accepted) < len(clients):
                    accepted.append((await accept(listening))[0])

            taking = asyncio.create_task(take_all())
            while not taking.done():
                seen.append(len(accepted))
                await asyncio.sleep(0)
            await taking
            for each in [*clients, *accepted]:
                each.close()
            assert sorted(set(seen) | {8}) == list(range(9))

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(body())


def test_a_socket_that_listens_no_more_is_an_error() -> None:
    async def body() -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        listening.setblocking(False)
        waiting = asyncio.create_task(accept(listening))
        await asyncio.sleep(0)
        listening.shutdown(socket.SHUT_RD)
        with pytest.raises(OSError, match="Invalid argument"):
            await waiting
        listening.close()

    asyncio.run(body())


def test_why_nobody_can_listen_is_said_as_the_system_does() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert listening_problem(f"127.0.0.1:{port}") == "address already in use"
    assert listening_problem("127.0.0.1:0") == ""
    assert listening_problem("192.0.2.1:0") == "cannot assign requested address"
