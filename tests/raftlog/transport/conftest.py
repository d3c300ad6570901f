"""Transports over loopback, and a recorder of what they report."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from headrace_raftlog.model.message import Message
from headrace_raftlog.transport.identity import StreamIdentity
from headrace_raftlog.transport.security import Security
from headrace_raftlog.transport.transport import Transport

DEADLINE_S = 30.0


FORMED = {1: 11, 2: 22, 3: 33}


def identity_of(
    node: int,
    boot: int = 1,
    cluster: str = "test",
    disk: int = 0,
    formed: dict[int, int] | None = None,
) -> StreamIdentity:
    """Return a node of a cluster that three nodes founded."""
    return StreamIdentity(
        cluster, node, boot, disk or FORMED[node], FORMED if formed is None else formed
    )


class Recorder:
    """Keeps everything reported; `until` waits for a condition on it."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.payloads: list[tuple[int, bytes]] = []
        self.peers: list[tuple[int, bool, int]] = []
        self.met: list[StreamIdentity] = []
        self.strangers: list[StreamIdentity] = []
        self.failures: list[BaseException] = []
        self._changed = asyncio.Event()

    def on_messages(self, messages: list[Message]) -> None:
        self.messages += messages
        self._changed.set()

    def on_met(self, peer: StreamIdentity) -> None:
        self.met.append(peer)
        self._changed.set()

    def on_stranger(self, stranger: StreamIdentity) -> str:
        self.strangers.append(stranger)
        self._changed.set()
        return f"node {stranger.node} may come later"

    def on_payload(self, peer: int, payload: bytes) -> None:
        self.payloads.append((peer, payload))
        self._changed.set()

    def on_peer(self, peer: int, up: bool, boot: int) -> None:
        self.peers.append((peer, up, boot))
        self._changed.set()

    def on_failure(self, error: BaseException) -> None:
        self.failures.append(error)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                assert not self.failures
                self._changed.clear()
                await self._changed.wait()


class LoopbackNode:
    """A transport that is ticked by itself."""

    def __init__(
        self,
        node: int,
        addresses: dict[int, str],
        cluster: str = "test",
        boot: int = 1,
        silence_s_max: float = 10.0,
        identity: StreamIdentity | None = None,
        security: Security | None = None,
    ) -> None:
        self.node = node
        self.events = Recorder()
        self._addresses = addresses
        self.transport = Transport(
            identity or identity_of(node, boot, cluster),
            addresses,
            self.events,
            0.1,
            silence_s_max,
            security,
        )
        self._ticker: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.transport.start(self._addresses[self.node])
        self._ticker = asyncio.create_task(self._tick())

    async def stop(self) -> None:
        self.stop_ticking()
        await self.transport.stop()

    def stop_ticking(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            self.transport.tick()


@pytest.fixture(name="identity_of")
def _identity_of() -> Callable[..., StreamIdentity]:
    return identity_of


@pytest.fixture(name="recorder_type")
def _recorder_type() -> type[Recorder]:
    return Recorder


@pytest.fixture(name="node_type")
def _node_type() -> type[LoopbackNode]:
    return LoopbackNode


@pytest.fixture
def addresses() -> dict[int, str]:
    """Three addresses on loopback that were free a moment ago."""
    sockets = [socket.socket() for _ in range(3)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    found = {i + 1: f"127.0.0.1:{each.getsockname()[1]}" for i, each in enumerate(sockets)}
    for each in sockets:
        each.close()
    return found
