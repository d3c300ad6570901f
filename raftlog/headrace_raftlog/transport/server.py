"""The incoming streams of all peers: authentication, and arriving frames."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Final, NamedTuple, NoReturn

import grpc
from google.protobuf.message import DecodeError

from headrace_protos.raftlog.v1.transport_pb2 import Frame, FrameBytes, OpenRequest, StreamPlace
from headrace_protos.raftlog.v1.transport_pb2_grpc import RaftTransportServicer
from headrace_raftlog.model.limits import (
    FRAME_PIECE_BYTES_MIN,
    STREAM_TICKET_BYTES,
    STREAM_TICKET_S_MAX,
)
from headrace_raftlog.transport.codec import FrameError
from headrace_raftlog.transport.events import TransportEvents
from headrace_raftlog.transport.frame_call import CallTransport
from headrace_raftlog.transport.frame_listener import CERTIFICATE_INFO, FrameListener
from headrace_raftlog.transport.identity import (
    CLONE_KEY,
    FORGOTTEN_KEY,
    REMOVED_KEY,
    ApartError,
    CloneRefusedError,
    ForgottenDiskError,
    RemovedError,
    StrangerError,
    StreamIdentity,
    StreamRefusedError,
    WithdrawnTicketError,
    apart_text,
)
from headrace_raftlog.transport.join_proof import Proof, UnprovenError
from headrace_raftlog.transport.large_frame import Bodies, take_bodies
from headrace_raftlog.transport.peer_session import IncomingStream, PeerSession
from headrace_raftlog.transport.refusals import Refusals
from headrace_raftlog.transport.security import NoSecurity, Security, caller_certificate

LOG: Final = logging.getLogger("headrace.cluster")

Context = grpc.aio.ServicerContext[OpenRequest, StreamPlace]
FramesContext = grpc.aio.ServicerContext[FrameBytes, FrameBytes]


class _NoPortError(StreamRefusedError):
    """The caller is of a release that opens streams at a port alone, and there is none."""


_MAY_LAST: Final = (
    ApartError,
    StrangerError,
    RemovedError,
    ForgottenDiskError,
    CloneRefusedError,
    UnprovenError,
    _NoPortError,
)


class _Ticket(NamedTuple):
    """Peers that may open a stream, and until when by the loop's clock."""

    peer: StreamIdentity
    until: float


class StreamServicer(RaftTransportServicer):
    """Accepts streams of known peers of the same cluster and passes their frames on."""

    def __init__(
        self,
        identity: StreamIdentity,
        sessions: Mapping[int, PeerSession],
        events: TransportEvents,
        security: Security | None = None,
    ) -> None:
        self._security = security or NoSecurity()
        self.identity = identity  # who this node is, for streams from now on
        # nodes and disks that were removed from the cluster
        self.barred: Collection[tuple[int, int]] = ()
        self.listener = FrameListener(self, self._security)  # of the connections that carry frames
        self._sessions = sessions
        self._events = events
        self._told = Refusals()
        self._tickets: dict[bytes, _Ticket] = {}
        self._withdrawn: dict[bytes, int] = {}  # the last one of each node, and whose it was

    async def Open(  # noqa: N802  (the generated base names it)
        self, request: OpenRequest, context: Context
    ) -> StreamPlace:
        """Judge who calls, and say where its stream is to be opened."""
        metadata = tuple(context.invocation_metadata() or ())
        proof = Proof()
        try:
            proof = self._security.proof.check(metadata)
            peer = self._check(metadata, context)
            if not self.listener.port and not request.frames_call:
                raise _NoPortError(
                    f"node {self.identity.node} takes frames over gRPC alone (cluster.transport = "
                    f'"grpc"), which node {peer.node} of an earlier release cannot send: upgrade '
                    'that one, or set cluster.transport = "frames" on this one until then'
                )
        except StreamRefusedError as refusal:
            self._complain(context.peer(), refusal)
            await _refuse(context, str(refusal), proof.signed(_whom(refusal)))
        # Issued first: it is forgotten where this node becomes another meanwhile.
        ticket = self._issue(peer, proof)
        await context.send_initial_metadata(proof.signed(self.identity.metadata(peer.node)))
        return StreamPlace(port=self.listener.port, ticket=ticket, frames_call=True)

    # The stubs know only of generators, not of a servicer that writes.
    async def Frames(  # type: ignore[override]  # noqa: N802  (the generated base names it)
        self, request_iterator: AsyncIterator[FrameBytes], context: FramesContext
    ) -> None:
        """Take the frames of who shows a ticket, as from a connection of TCP."""
        # By itself: an end while the first answer is under way would send it a second time.
        await context.send_initial_metadata(())
        caller = self.listener.expect(context.peer())
        info = {CERTIFICATE_INFO: caller_certificate(context)}
        await CallTransport(caller, context.write, info).carry(request_iterator)

    def forget_tickets(self) -> None:
        """Void all tickets: streams that are not open yet need a new one."""
        for ticket in list(self._tickets):
            self._withdraw(ticket)

    def enter(self, ticket: bytes, shown: bytes) -> IncomingStream | None:
        """See `StreamGate`."""
        found = self._tickets.get(ticket)
        if found is None and (node := self._withdrawn.pop(ticket, 0)):
            raise WithdrawnTicketError(
                f"node {node} came with a ticket that was withdrawn meanwhile (the identity or the "
                "certificates of this node have changed, or that one has called again); it asks "
                "for another one"
            )
        if found is None or found.until < asyncio.get_running_loop().time():
            return None
        self._security.check_caller(found.peer, shown)
        del self._tickets[ticket]
        session = self._sessions.get(found.peer.node)
        if session is None or (found.peer.node, found.peer.disk) in self.barred:
            return None
        try:
            session.judge(found.peer)  # another process may have come since the ticket was issued
        except StreamRefusedError:
            return None
        try:
            return session.accept(found.peer)
        except Exception as error:
            self._events.on_failure(error)  # the loop would only log it
            raise

    def failed(self, error: BaseException) -> None:
        """See `StreamGate`."""
        self._events.on_failure(error)

    def part(self, head: bytes, size: int) -> tuple[int, int]:
        """See `StreamGate`."""
        return self._events.part(head, size)

    def receive(self, stream: IncomingStream, body: bytes | Bodies) -> None:
        """See `StreamGate`; an error in the receivers stops the node."""
        bodies, data = None, b""
        if isinstance(body, Bodies):
            bodies = body
        else:
            data = body
            bodies = take_bodies(data) if len(data) > FRAME_PIECE_BYTES_MIN else None
        try:
            frame = Frame.FromString(data if bodies is None else bodies.skeleton)
        except DecodeError as error:
            raise FrameError(str(error)) from error
        try:
            stream.session.received(stream, frame, bodies)
        except FrameError:
            raise
        except Exception as error:
            self._events.on_failure(error)  # the loop would only log it
            raise

    def _issue(self, peer: StreamIdentity, proof: Proof) -> bytes:
        """Return a ticket; a node's newest is the only one of it that counts.

        With a join secret the ticket itself opens nothing, only what its owner makes of it.
        """
        for ticket, other in list(self._tickets.items()):
            if other.peer.node == peer.node:
                self._withdraw(ticket)
        ticket = secrets.token_bytes(STREAM_TICKET_BYTES)
        until = asyncio.get_running_loop().time() + STREAM_TICKET_S_MAX
        self._tickets[proof.entry(ticket)] = _Ticket(peer, until)
        return ticket

    def _withdraw(self, ticket: bytes) -> None:
        """Withdraw a ticket, and know it when it is shown; one of each node is known."""
        node = self._tickets.pop(ticket).peer.node
        known = {each: whose for each, whose in self._withdrawn.items() if whose != node}
        self._withdrawn = {**known, ticket: node}

    def _check(
        self, metadata: tuple[tuple[str, str | bytes], ...], context: Context
    ) -> StreamIdentity:
        """Return who calls.

        Raises StreamRefusedError: it is not a peer with a disk that belongs here.
        """
        try:
            peer = self.identity.check(metadata, self._sessions)
            self._security.check(context, peer)
        except StrangerError as error:
            peer = error.stranger
            self._security.check(context, peer)
            if (peer.node, peer.disk) not in self.barred:
                self._part(peer)
                reason = self._events.on_stranger(peer)
                raise StrangerError(reason or str(error), peer) from None
        except ApartError as error:
            peer = error.other
            self._security.check(context, peer)
            if (peer.node, peer.disk) not in self.barred:
                self._part(peer)
        if (peer.node, peer.disk) in self.barred:
            text = (
                f"node {peer.node} was removed from cluster {self.identity.cluster!r} with the "
                "data that it has. To have it join again, as a new member, empty its data "
                "directory and start it"
            )
            raise RemovedError(text, peer.disk)
        self._sessions[peer.node].judge(peer)
        return peer

    def _part(self, peer: StreamIdentity) -> None:
        """Refuse a node whose cluster was founded apart from this node's.

        Raises ApartError: it was.
        """
        if self.identity.is_apart(peer):
            text = apart_text(self.identity, peer)
            if self.identity.yields_to(peer):
                self._events.on_rival(peer, text)
            raise ApartError(text, peer) from None

    def _complain(self, caller: str, refusal: StreamRefusedError) -> None:
        """Log a refusal; of callers that may try for ever, the first."""
        text = str(refusal)
        may_last = isinstance(refusal, _MAY_LAST)
        if not may_last or self._told.is_new(text):
            LOG.warning("refused a stream from %s: %s", caller, text, extra={"unproven": ""})


def _whom(refusal: StreamRefusedError) -> list[tuple[str, str]]:
    """Return the metadata that say what of the caller a refusal concerns."""
    if isinstance(refusal, RemovedError):
        return [(REMOVED_KEY, str(refusal.disk))]
    if isinstance(refusal, ForgottenDiskError):
        return [(FORGOTTEN_KEY, str(refusal.disk))]
    if isinstance(refusal, CloneRefusedError):
        return [(CLONE_KEY, str(refusal.process))]
    return []


async def _refuse(context: Context, text: str, metadata: Sequence[tuple[str, str]]) -> NoReturn:
    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, text, tuple(metadata))
    raise AssertionError("abort raises")
