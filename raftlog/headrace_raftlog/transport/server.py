"""The incoming streams of all peers."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Final, NoReturn

import grpc

from headrace_raftlog.model.limits import REFUSALS_TOLD_MAX
from headrace_raftlog.transport.codec import FrameError
from headrace_raftlog.transport.events import TransportEvents
from headrace_raftlog.transport.identity import StrangerError, StreamIdentity, StreamRefusedError
from headrace_raftlog.transport.pb.transport_pb2 import Frame, StreamClosed
from headrace_raftlog.transport.pb.transport_pb2_grpc import RaftTransportServicer
from headrace_raftlog.transport.peer_session import IncomingStream, PeerSession
from headrace_raftlog.transport.security import NoSecurity, Security

LOG: Final = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Frame, StreamClosed]


class StreamServicer(RaftTransportServicer):
    """Accepts streams of known peers of the same cluster and passes their frames on.

    Attributes:
        identity: who this node is, for streams from now on.
        barred: nodes and disks that were removed from the cluster.
    """

    def __init__(
        self,
        identity: StreamIdentity,
        sessions: Mapping[int, PeerSession],
        events: TransportEvents,
        security: Security | None = None,
    ) -> None:
        self._security = security or NoSecurity()
        self.identity = identity
        self.barred: Collection[tuple[int, int]] = ()
        self._sessions = sessions
        self._events = events
        self._told: set[str] = set()

    async def Stream(  # noqa: N802  (the generated base names it)
        self, request_iterator: AsyncIterator[Frame], context: Context
    ) -> StreamClosed:
        """Serve one incoming stream until it ends or a newer one replaces it."""
        metadata = tuple(context.invocation_metadata() or ())
        try:
            peer = self._check(metadata, context)
        except StreamRefusedError as refusal:
            self._complain(context.peer(), refusal)
            await _refuse(context, grpc.StatusCode.FAILED_PRECONDITION, str(refusal))
        session = self._sessions[peer.node]
        stream = session.accept(peer)
        try:
            await context.send_initial_metadata(self.identity.metadata(peer.node))
            async for frame in request_iterator:
                if not stream.open:
                    await _refuse(context, grpc.StatusCode.ABORTED, "the session is over")
                self._take(session, stream, frame)
        except FrameError as error:
            LOG.error("node %d sent a malformed frame: %s", peer.node, error)
            session.ended(stream)
            await _refuse(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except grpc.aio.AbortError:
            raise
        except grpc.aio.BaseError as error:  # the peer broke the call off while we answered
            LOG.info("the stream from node %d ended: %s", peer.node, error)
        finally:
            session.ended(stream)
        return StreamClosed()

    def _check(
        self, metadata: tuple[tuple[str, str | bytes], ...], context: Context
    ) -> StreamIdentity:
        """Return who calls.

        Raises:
            StreamRefusedError: it is not a peer with a disk that belongs here.
        """
        try:
            peer = self.identity.check(metadata, self._sessions)
            self._security.check(context, peer)
        except StrangerError as error:
            peer = error.stranger
            self._security.check(context, peer)
            if (peer.node, peer.disk) not in self.barred:
                reason = self._events.on_stranger(peer)
                raise StrangerError(reason or str(error), peer) from None
        if (peer.node, peer.disk) in self.barred:
            text = (
                f"node {peer.node} was removed from cluster {self.identity.cluster!r} with the "
                "data that it has. To have it join again, as a new member, empty its data "
                "directory and start it"
            )
            raise StrangerError(text, peer)
        return peer

    def _complain(self, caller: str, refusal: StreamRefusedError) -> None:
        """Log a refusal; of those who may well call for ever, the first."""
        text = str(refusal)
        if isinstance(refusal, StrangerError):
            if text in self._told:
                return
            if len(self._told) >= REFUSALS_TOLD_MAX:
                self._told.clear()
            self._told.add(text)
        LOG.warning("refused a stream from %s: %s", caller, text)

    def _take(self, session: PeerSession, stream: IncomingStream, frame: Frame) -> None:
        """Pass a frame on; what goes wrong in its receivers stops the node."""
        try:
            session.received(stream, frame)
        except FrameError:
            raise
        except Exception as error:
            self._events.on_failure(error)  # gRPC would only log it
            raise


async def _refuse(context: Context, code: grpc.StatusCode, text: str) -> NoReturn:
    await context.abort(code, text)
    raise AssertionError("abort raises")
