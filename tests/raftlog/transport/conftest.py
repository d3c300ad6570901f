"""Transports over loopback, and a recorder of what they report."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import grpc
import pytest
from e2e.harness.ports import free_addresses

from headrace_protos.raftlog.v1.transport_pb2 import Frame, OpenRequest, StreamPlace
from headrace_protos.raftlog.v1.transport_pb2_grpc import RaftTransportStub
from headrace_raftlog.model.errors import CloneError, ForgottenError
from headrace_raftlog.model.limits import FRAME_GATHER_TURNS
from headrace_raftlog.model.message import Message
from headrace_raftlog.model.pieces import Parted
from headrace_raftlog.transport.frame_call import call_frames
from headrace_raftlog.transport.frame_connection import FrameConnection, open_frames
from headrace_raftlog.transport.identity import StreamIdentity
from headrace_raftlog.transport.security import NoSecurity, Security
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


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what no event tells."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class Recorder:
    """Keeps everything reported; `until` waits for a condition on it."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.payloads: list[tuple[int, bytes]] = []
        self.parted: list[tuple[int, Parted]] = []
        self.cut = 0  # where large payloads are parted
        self.room = 0
        self.peers: list[tuple[int, bool, int]] = []
        self.met: list[StreamIdentity] = []
        self.removals = 0
        self.rivals: list[tuple[StreamIdentity, str]] = []
        self.strangers: list[StreamIdentity] = []
        self.reasons: list[ForgottenError | CloneError] = []
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

    def on_rival(self, peer: StreamIdentity, text: str) -> None:
        self.rivals.append((peer, text))
        self._changed.set()

    def on_removed(self) -> None:
        self.removals += 1
        self._changed.set()

    def on_outdated(self, reason: ForgottenError | CloneError) -> None:
        self.reasons.append(reason)
        self._changed.set()

    def on_payload(self, peer: int, payload: bytes) -> None:
        self.payloads.append((peer, payload))
        self._changed.set()

    def part(self, head: bytes, size: int) -> tuple[int, int]:
        return self.cut, self.room

    def on_parted(self, peer: int, payload: Parted) -> None:
        self.parted.append((peer, payload))
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


class Caller:
    """Speaks as a node, with frames of any kind.

    Attributes:
        over_grpc: whether its streams are calls.

    Args:
        identity: as who.
        address: host:port of whom it calls.
        target: node id of whom it calls.
        security: what it shows.
    """

    over_grpc = False

    def __init__(
        self, identity: StreamIdentity, address: str, target: int, security: Security | None = None
    ) -> None:
        self._identity = identity
        self._address = address
        self._target = target
        self._security = security or NoSecurity()
        self._over = asyncio.Event()
        self.connection: FrameConnection | None = None

    async def ask(self, channel: grpc.aio.Channel | None = None) -> StreamPlace:
        """Return where the stream is to be opened; raises AioRpcError."""
        metadata = grpc.aio.Metadata(*self._identity.metadata(self._target))
        request = OpenRequest(frames_call=self.over_grpc)
        async with channel or self._security.open(self._address, self._target) as used:
            return await RaftTransportStub(used).Open(request, metadata=metadata, timeout=20)

    async def enter(self, place: StreamPlace | None = None) -> None:
        """Open the stream."""
        place = place or await self.ask()
        opened = call_frames if self.over_grpc else open_frames
        self.connection = await opened(
            self._address, place, self._security, self._target, self._over.set
        )

    async def refused(self, place: StreamPlace | None = None) -> None:
        """Try to open the stream in vain."""
        with pytest.raises(OSError, match="it was closed there"):
            await self.enter(place)

    async def write(self, frame: Frame) -> None:
        """Send a frame."""
        assert self.connection is not None
        await self.connection.write(frame)

    async def ended(self) -> None:
        """Wait until the other end has closed the stream."""
        async with asyncio.timeout(DEADLINE_S):
            await self._over.wait()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()


class LoopbackNode:
    """A transport that is ticked by itself.

    Attributes:
        over_grpc: whether its frames travel over gRPC, unless it is said for one of them.
    """

    over_grpc = False

    def __init__(
        self,
        node: int,
        addresses: dict[int, str],
        cluster: str = "test",
        boot: int = 1,
        silence_s_max: float = 10.0,
        identity: StreamIdentity | None = None,
        security: Security | None = None,
        listen: str = "",
        frames_port: int = 0,
        over_grpc: bool | None = None,
    ) -> None:
        self.node = node
        self._listen = listen or addresses[node]
        self._frames_port = frames_port
        self.events = Recorder()
        self.transport = Transport(
            identity or identity_of(node, boot, cluster),
            addresses,
            self.events,
            0.1,
            silence_s_max,
            security,
            over_grpc=self.over_grpc if over_grpc is None else over_grpc,
        )
        self._ticker: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.transport.start(self._listen, frames_port=self._frames_port)
        self._ticker = asyncio.create_task(self._tick())

    async def stop(self) -> None:
        self.stop_ticking()
        await self.transport.stop()

    async def up(self, peer: int, times: int = 1) -> None:
        """Wait until a peer in its first boot has come up so many times."""
        await self.events.until(lambda: self.events.peers.count((peer, True, 1)) >= times)

    def stop_ticking(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None

    async def fall_silent(self) -> None:
        """Stop ticking, and let what a tick has begun leave."""
        self.stop_ticking()
        for _ in range(2 * (FRAME_GATHER_TURNS + 2)):
            await asyncio.sleep(0)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            self.transport.tick()


@pytest.fixture(params=[False, True], ids=["frames", "grpc"])
def over_grpc(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Both ways of frames in turn; that of all nodes and callers of a test."""
    monkeypatch.setattr(LoopbackNode, "over_grpc", request.param)
    monkeypatch.setattr(Caller, "over_grpc", request.param)
    return bool(request.param)


@pytest.fixture(name="identity_of")
def _identity_of() -> Callable[..., StreamIdentity]:
    return identity_of


@pytest.fixture(name="until")
def _until() -> Callable[..., Awaitable[None]]:
    return until


@pytest.fixture(name="recorder_type")
def _recorder_type() -> type[Recorder]:
    return Recorder


@pytest.fixture(name="caller_type")
def _caller_type() -> type[Caller]:
    return Caller


@pytest.fixture(name="node_type")
def _node_type() -> type[LoopbackNode]:
    return LoopbackNode


@pytest.fixture
def addresses() -> dict[int, str]:
    """Three addresses on loopback."""
    return free_addresses(3)
