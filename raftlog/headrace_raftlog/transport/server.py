"""The incoming streams of all peers."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from typing import Final, NoReturn

import grpc

from headrace_raftlog.transport.codec import FrameError
from headrace_raftlog.transport.events import TransportEvents
from headrace_raftlog.transport.identity import StreamIdentity, StreamRefusedError
from headrace_raftlog.transport.pb.transport_pb2 import Frame, StreamClosed
from headrace_raftlog.transport.pb.transport_pb2_grpc import RaftTransportServicer
from headrace_raftlog.transport.peer_session import IncomingStream, PeerSession

LOG: Final = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Frame, StreamClosed]


class StreamServicer(RaftTransportServicer):
    """Accepts streams of known peers of the same cluster and passes their frames on.

    Attributes:
        identity: who this node is, for streams from now on.
    """

    def __init__(
        self,
        identity: StreamIdentity,
        sessions: Mapping[int, PeerSession],
        events: TransportEvents,
    ) -> None:
        self.identity = identity
        self._sessions = sessions
        self._events = events

    async def Stream(  # noqa: N802  (the generated base names it)
        self, request_iterator: AsyncIterator[Frame], context: Context
    ) -> StreamClosed:
        """Serve one incoming stream until it ends or a newer one replaces it."""
        metadata = tuple(context.invocation_metadata() or ())
        try:
            peer = self.identity.check(metadata, self._sessions)
        except StreamRefusedError as refusal:
            LOG.warning("refused a stream from %s: %s", context.peer(), refusal)
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
