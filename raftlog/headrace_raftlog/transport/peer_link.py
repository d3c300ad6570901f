"""The outgoing stream to one peer: kept open, reopened when it breaks, one writer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

import grpc

from headrace_protos.raftlog.v1.transport_pb2 import Frame, OpenRequest, StreamPlace
from headrace_protos.raftlog.v1.transport_pb2_grpc import RaftTransportStub
from headrace_raftlog.model.errors import CloneError, ForgottenError
from headrace_raftlog.model.limits import (
    ENTRY_BYTES_PLAIN,
    FRAME_GATHER_TURNS,
    HANDSHAKE_S_MAX,
    LAZY_FLUSH_S,
    RECONNECT_DELAY_S_MAX,
    RECONNECT_DELAY_S_MIN,
)
from headrace_raftlog.model.mark import Mark
from headrace_raftlog.model.message import HEARTBEAT, HEARTBEAT_REPLY, Message
from headrace_raftlog.model.pieces import Pieces
from headrace_raftlog.transport.frame_call import call_frames
from headrace_raftlog.transport.frame_connection import FrameConnection, open_frames
from headrace_raftlog.transport.identity import (
    CLONE_KEY,
    FORGOTTEN_KEY,
    REMOVED_KEY,
    OutdatedError,
    RemovedError,
    StreamIdentity,
    StreamRefusedError,
)
from headrace_raftlog.transport.join_proof import Proof, check_signed
from headrace_raftlog.transport.outbox import Outbox
from headrace_raftlog.transport.security import NoSecurity, Security

if TYPE_CHECKING:
    from headrace_protos.raftlog.v1.transport_pb2_grpc import RaftTransportAsyncStub

LOG: Final = logging.getLogger("headrace.cluster")


class LinkOwner(Protocol):
    """Receiver of a link's reports."""

    def link_connected(self) -> None:
        """Note that the peer accepted a new stream; `remote` of the link says who it is."""

    def link_lost(self) -> None:
        """Note that the stream broke and everything that waited was dropped."""

    def judge(self, remote: StreamIdentity) -> None:
        """Compare the answering node with the memory of its disk.

        Raises StreamRefusedError: it has forgotten what it promised, or is a second process.
        """

    def removed(self) -> None:
        """Note that the peer says that this node was removed from the cluster."""

    def outdated(self, reason: ForgottenError | CloneError) -> None:
        """Note that the peer says that this process must not take part with its data."""


def _none_synced() -> int:
    return 0


class PeerLink:
    """Sends frames to one peer over a connection for which it has a ticket of that peer.

    What is posted or sent between two turns of the writer leaves as one frame. Heartbeats and
    their answers may wait a moment for something to travel with: on a busy group they bring
    commit indexes, and frames of their own would cost more than they bring.

    When the stream breaks, everything that waited is dropped and the owner is told; nothing of
    an old stream is ever carried over to a new one.
    """

    def __init__(
        self,
        peer: int,
        address: str,
        identity: StreamIdentity,
        owner: LinkOwner,
        outbox: Outbox,
        security: Security | None = None,
    ) -> None:
        self._security = security or NoSecurity()
        self.peer = peer  # node id of the peer
        self.connected = False  # whether the peer has accepted the current stream
        # who the peer said it is on the current or last stream, None before the first
        self.remote: StreamIdentity | None = None
        self.identity = identity  # who this node is, for the next stream
        self.frames_sent = 0  # frames written since the start, beats included
        self.messages_sent = 0  # Raft messages among them
        self.address = address  # host:port of the peer, for the next stream
        # whether frames leave over gRPC also where the peer has a port for them
        self.over_grpc = False
        self._owner = owner
        self._outbox = outbox
        self._work = asyncio.Event()
        self._stream_task: asyncio.Task[None] | None = None
        self._connection: FrameConnection | None = None  # that frames are written to
        self._frames_at_beat = 0
        self._beat_due = False
        self._control_passed = False  # the last frame was of control, written before data
        self._large_next = False  # fragments found no room behind the last quick frame
        self.refusal = ""  # why the peer refused the last stream, "" when it did not
        self._complaint = ""
        self._is_outgrown = False
        self._opened = False
        self._urgent = False
        self._lazy_timer: asyncio.TimerHandle | None = None
        # returns the number of the newest batch that is synced in this node's log
        self.synced: Callable[[], int] = _none_synced
        self._told_synced = 0  # on the connection that is open
        self._news: dict[tuple[int, int], Mark] = {}

    def announce(self, news: Iterable[tuple[int, Mark]]) -> None:
        """Send the memory of other nodes' disks with the next frame, by node id."""
        for node, mark in news:
            if node != self.peer:
                self._news[node, mark.disk] = mark

    def post(self, message: Message) -> bool:
        """Queue a Raft message; False when it is dropped.

        It is where the peer is not connected or does not take entries that long, and where the
        outbox is full.
        """
        entries = message.entries
        if len(entries) == 1 and self._is_too_long(len(entries[0].data)):
            return False
        if not self.connected or not self._outbox.post(message):
            return False
        if message.kind not in (HEARTBEAT, HEARTBEAT_REPLY) or message.context:
            self._urgent = True
        return True

    def send(self, payload: bytes | Pieces) -> bool:
        """Queue a payload; False when it was not taken, for reasons as those of `post`."""
        if self._is_too_long(len(payload)):
            return False
        if not self.connected or not self._outbox.send(payload):
            return False
        self._urgent = True
        return True

    def _is_too_long(self, size: int) -> bool:
        """Return whether the peer, of an earlier release, would end the stream for so much."""
        remote = self.remote
        if size <= ENTRY_BYTES_PLAIN or remote is None or size <= remote.entry_bytes_max:
            return False
        if self._is_outgrown:
            return True
        self._is_outgrown = True
        text = (
            f"node {self.peer} takes entries of up to {remote.entry_bytes_max} bytes, and one of "
            f"{size} is kept from it: what needs that stands still there until it is upgraded"
        )
        LOG.error("%s", text)
        return True

    def flush(self) -> None:
        """Wake the writer when something waits, a moment later when nothing of it is urgent."""
        if self._urgent:
            self._urgent = False
            self._work.set()
        elif self._lazy_timer is None and not self._outbox.is_empty():
            self._flush_later()

    def _flush_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._lazy_timer = loop.call_later(LAZY_FLUSH_S, self._flush_lazy, self.frames_sent)

    def _flush_lazy(self, frames_sent: int) -> None:
        self._lazy_timer = None
        if self._outbox.is_empty():
            return
        if self.frames_sent == frames_sent:
            self._work.set()
        else:  # what was waited for has left meanwhile; this came later
            self._flush_later()

    def beat(self) -> None:
        """Send a frame, empty if nothing waits, when none has left since the call before.

        It leaves at once where it can: the writer gathers for turns of the loop, each of which
        may be long on a busy node, and the peer counts the silence.
        """
        frames_sent = self.frames_sent
        if self.connected and frames_sent == self._frames_at_beat:
            self._beat_due = True
            if self._connection is not None and self._connection.is_writable:
                self._write_next(self._connection)
            else:
                self._work.set()
        self._frames_at_beat = frames_sent

    def reset(self) -> None:
        """Give the current stream up, drop what waits, and open a new one after the delay."""
        self._lose()
        if self._stream_task is not None:
            self._stream_task.cancel()

    async def run(self) -> None:
        """Keep a stream open until cancelled.

        Raises Exception: a bug; a peer that is away or refuses is not an error here.
        """
        delay = RECONNECT_DELAY_S_MIN
        while True:
            self._opened = False
            self._stream_task = asyncio.create_task(self._stream())
            try:
                await asyncio.wait((self._stream_task,))
            finally:
                self._stream_task.cancel()
                self._lose()
            if not self._stream_task.cancelled():
                self._complain(self._stream_task.exception())
            if self._opened:
                delay = RECONNECT_DELAY_S_MIN
            await asyncio.sleep(delay)
            delay = min(delay * 2, RECONNECT_DELAY_S_MAX)

    def _lose(self) -> None:
        if self.connected:
            self.connected = False
            self._outbox.clear()
            LOG.info("stream to node %d lost", self.peer)
            self._owner.link_lost()

    def _complain(self, error: BaseException | None) -> None:
        """Log why a stream ended, once per reason; raise bugs.

        What the other end said is quoted: it must not write lines of this log.
        """
        self.refusal = str(error) if isinstance(error, StreamRefusedError) else ""
        if isinstance(error, StreamRefusedError):
            text = f"node {self.peer} at {self.address}: stream refused: {str(error)!r}"
            level = logging.WARNING
            if isinstance(error, RemovedError):
                self._owner.removed()
            elif isinstance(error, OutdatedError):
                level = logging.INFO  # who is told says more of it
                self._owner.outdated(error.reason)
        elif isinstance(error, TimeoutError):
            text = f"node {self.peer} at {self.address} does not answer"
            level = logging.INFO
        elif isinstance(error, OSError):  # it answers, but at the port for frames nobody does
            text = f"node {self.peer} at {self.address}: {str(error)!r}"
            level = logging.WARNING
        elif isinstance(error, (grpc.RpcError, grpc.aio.BaseError, asyncio.InvalidStateError)):
            text = f"node {self.peer} at {self.address}: {str(error)!r}"
            level = logging.INFO
        elif error is not None:
            raise error
        else:
            return
        if text != self._complaint:
            self._complaint = text
            LOG.log(level, "%s", text)

    async def _stream(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        async with asyncio.timeout(HANDSHAKE_S_MAX):
            remote, place = await self._ask()
        opened = call_frames if self.over_grpc or not place.port else open_frames
        connection = await opened(self.address, place, self._security, self.peer, task.cancel)
        try:
            self.remote = remote
            self._is_outgrown = False
            self.connected = True
            self._opened = True
            self._complaint = self.refusal = ""
            LOG.info("stream to node %d (boot %d) opened", self.peer, remote.boot)
            self._owner.link_connected()
            self._connection = connection
            await self._write_frames(connection)
        finally:
            self._connection = None
            connection.abort()

    async def _ask(self) -> tuple[StreamIdentity, StreamPlace]:
        """Return who the peer is, and where it wants the stream to be opened."""
        async with self._security.open(self.address, self.peer) as channel:
            stub: RaftTransportAsyncStub = RaftTransportStub(channel)
            proof = Proof()
            try:
                said, proof = await self._security.proof.prove(
                    channel, self.identity.metadata(self.peer)
                )
                request = OpenRequest(frames_call=True)
                call = stub.Open(request, metadata=grpc.aio.Metadata(*said))
                place = await call
            except grpc.aio.AioRpcError as error:
                if error.code() == grpc.StatusCode.FAILED_PRECONDITION:
                    raise self._refused(error, proof) from None
                raise asyncio.InvalidStateError(f"{error.code().name}: {error.details()}") from None
            heard = tuple(await call.initial_metadata())
            check_signed(proof, heard)
            remote = self.identity.check(heard, (self.peer,))
            self._owner.judge(remote)
            if self.over_grpc and not place.frames_call:
                raise StreamRefusedError(
                    "it is of an earlier release, which takes no frames over gRPC: upgrade it, or "
                    'set cluster.transport = "frames" on this node until then'
                )
            return remote, StreamPlace(port=place.port, ticket=proof.entry(place.ticket))

    def _refused(self, error: grpc.aio.AioRpcError, proof: Proof) -> StreamRefusedError:
        """Return what a peer's refusal says: its text, and whether it means this very disk."""
        text = str(error.details())
        told: tuple[Any, ...] = tuple(error.trailing_metadata())  # pairs, whatever its type says
        if not proof.is_signed(told):
            return StreamRefusedError(text)
        if (REMOVED_KEY, str(self.identity.disk)) in told:
            return RemovedError(text, self.identity.disk)
        if (FORGOTTEN_KEY, str(self.identity.disk)) in told:
            return OutdatedError(ForgottenError(text))
        if (CLONE_KEY, str(self.identity.process)) in told:
            return OutdatedError(CloneError(text))
        return StreamRefusedError(text)

    def _add_news(self, frame: Frame) -> None:
        news, self._news = self._news, {}
        for (node, disk), mark in news.items():
            frame.marks.add(
                node=node, disk=disk, boot=mark.boot, process=mark.process, batch=mark.batch
            )

    async def _write_frames(self, connection: FrameConnection) -> None:
        """Write frames until this task is cancelled, as it is when the connection breaks.

        A frame costs both ends more than what is in it, and a busy loop's next turns bring more
        for it.
        """
        work = self._work
        connection.on_room = work.set
        self._told_synced = 0
        self._beat_due = True  # a first frame at once: the peer counts what it heard
        work.set()
        while True:
            await work.wait()
            work.clear()
            for _ in range(FRAME_GATHER_TURNS):
                await asyncio.sleep(0)
            work.clear()  # what came meanwhile is in this frame
            while connection.is_writable and self._write_next(connection):
                if self._outbox.is_done():
                    break
                if connection.has_large:
                    await asyncio.sleep(0)  # others have their turn before the next fragments

    def _write_next(self, connection: FrameConnection) -> bool:
        """Write a quick frame and fragments of a large one; False when neither may leave now.

        Messages without entries pass all that waits, for elections hang on them, and leave also
        where data has to wait: once, and then not before some data has left. So neither starves the
        other on a link that is slower than heartbeats come; nor do quick frames, on such a link,
        the fragments.
        """
        outbox = self._outbox
        window = connection.window
        outbox.piece_bytes = window.piece_bytes
        wrote_large = False
        if self._large_next and window.is_open:
            self._large_next = False
            wrote_large = outbox.has_large_work() and self._write_large(connection)
        with_data = window.is_open
        with_control = outbox.has_control() and (
            with_data or (window.is_open_to_control and not self._has_passed_data())
        )
        wrote = False
        if self._beat_due or with_control or (with_data and outbox.has_quick_data()):
            self._beat_due = False
            if with_data or with_control:
                self._control_passed = not with_data
            frame = outbox.next_frame(with_control, with_data)
            synced = self.synced()  # of all that the frame acknowledges, and perhaps more
            if synced > self._told_synced:
                frame.synced = self._told_synced = synced
            if self._news:
                self._add_news(frame)
            connection.put(frame)
            self.frames_sent += 1
            self.messages_sent += len(frame.messages)
            wrote = True
        if outbox.has_large_work():
            if window.is_open:
                wrote_large = self._write_large(connection) or wrote_large
            elif wrote and not wrote_large:
                self._large_next = True
        if wrote_large:
            self._control_passed = False
        return wrote or wrote_large

    def _has_passed_data(self) -> bool:
        """Return whether data waits that control has passed already."""
        outbox = self._outbox
        return self._control_passed and (outbox.has_quick_data() or outbox.has_large_work())

    def _write_large(self, connection: FrameConnection) -> bool:
        """Write the next fragments of the large lane; False where nothing waits in it."""
        if not connection.has_large:
            frame = self._outbox.next_large_frame()
            if frame is None:
                return False
            self.frames_sent += 1
            self.messages_sent += len(frame.messages)
            connection.begin_large(frame.pieces())
        if connection.has_large:
            connection.put_fragments()
        if not connection.has_large:
            self._outbox.large_frame_sent()
        return True
