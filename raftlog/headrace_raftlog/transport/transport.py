"""All streams of a node: one server, and a link and a session for each peer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

import grpc

from headrace_protos.raftlog.v1.join_proof_pb2_grpc import add_JoinProofServicer_to_server
from headrace_protos.raftlog.v1.transport_pb2_grpc import (
    add_RaftBulkServicer_to_server,
    add_RaftTransportServicer_to_server,
)
from headrace_raftlog.accepting import listening_problem
from headrace_raftlog.ending import end_tasks
from headrace_raftlog.log_event import CLUSTER, LOOP_STALLED, log_event
from headrace_raftlog.model.limits import MARKS_WRITE_S, OUTBOX_BYTES_MAX
from headrace_raftlog.model.mark import Mark
from headrace_raftlog.model.membership import member_node
from headrace_raftlog.model.message import Message
from headrace_raftlog.model.pieces import Pieces
from headrace_raftlog.transport.bulk_client import BulkClient
from headrace_raftlog.transport.bulk_server import BulkServicer
from headrace_raftlog.transport.channel_options import SERVER_OPTIONS
from headrace_raftlog.transport.events import TransportEvents
from headrace_raftlog.transport.identity import StreamIdentity
from headrace_raftlog.transport.join_proof import ChallengeServicer
from headrace_raftlog.transport.outbox import Outbox
from headrace_raftlog.transport.peer_memory import PeerMemory
from headrace_raftlog.transport.peer_session import PeerSession
from headrace_raftlog.transport.security import NoSecurity, Security
from headrace_raftlog.transport.server import StreamServicer

LOG: Final = logging.getLogger("headrace.cluster")

STALL_BEATS: Final = 3  # beats missed after which this process itself is held to have stood still


class Transport:
    """Carries Raft messages and application payloads between this node and its peers.

    To be used on one event loop. `tick` is to be called every `beat_s` seconds.
    """

    def __init__(
        self,
        identity: StreamIdentity,
        peers: Mapping[int, str],
        events: TransportEvents,
        beat_s: float,
        silence_s_max: float,
        security: Security | None = None,
        memory: PeerMemory | None = None,
        synced: Callable[[], int] | None = None,
        outbox_bytes_max: int = OUTBOX_BYTES_MAX,
        over_grpc: bool = False,  # frames use the port of gRPC, and no other one is listened on
    ) -> None:
        # what is remembered of the peers' disks
        self.memory = memory if memory is not None else PeerMemory(identity.node)
        self._synced = synced
        self._outbox_bytes_max = outbox_bytes_max
        self._over_grpc = over_grpc
        self._told_at = 0.0
        self._security = security or NoSecurity()
        self.identity = identity  # who this node is
        self._events = events
        self._beat_s = beat_s
        self._silence_s_max = silence_s_max
        self._loop = asyncio.get_running_loop()
        self._ticked_at = self._loop.time()
        self._worked_s = time.thread_time()  # processor time of the loop at the last tick
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._started = False
        self._stopping = False
        self._end: asyncio.Task[None] | None = None
        # the gRPC server, which other services may share
        self.server = grpc.aio.server(options=SERVER_OPTIONS)
        # by node id, one for each peer
        self.sessions = {
            peer: self._session(peer, peers[peer])
            for peer in sorted(peers)
            if peer != identity.node
        }
        self._servicer = StreamServicer(identity, self.sessions, events, self._security)
        # serves snapshots and entries once it is given a source
        self.bulk_servicer = BulkServicer(identity, self.sessions, self._security)
        # fetches them from peers
        self.bulk = BulkClient(identity, _Addresses(self.sessions), self._security)

    def _session(self, peer: int, address: str) -> PeerSession:
        outbox = Outbox(self._outbox_bytes_max, self._outbox_bytes_max)
        known = (self.memory, self._told, outbox)
        session = PeerSession(
            peer, address, self.identity, self._events, self._loop.time, self._security, *known
        )
        session.link.over_grpc = self._over_grpc
        if self._synced is not None:
            session.link.synced = self._synced
        return session

    async def start(
        self,
        listen: str,
        register: Sequence[Callable[[grpc.aio.Server], None]] = (),
        frames_port: int = 0,
    ) -> None:
        """Listen, and start to connect to all peers.

        Args:
            listen: host:port to listen on.
            register: called with the server before it starts, to add other services.
            frames_port: port on the same host to which peers are told to send frames; 0: any that
                is free. Not used where frames come over gRPC.

        Raises OSError: the address cannot be listened on.
        """
        add_RaftTransportServicer_to_server(self._servicer, self.server)
        add_RaftBulkServicer_to_server(self.bulk_servicer, self.server)
        add_JoinProofServicer_to_server(ChallengeServicer(self._security.proof), self.server)
        for add in register:
            add(self.server)
        try:
            self._security.add_port(self.server, listen)
        except RuntimeError as error:
            why = listening_problem(listen) or str(error)
            raise OSError(f"cannot listen on {listen} for other nodes: {why}") from error
        if not self._over_grpc:
            host = listen.rpartition(":")[0].strip("[]")
            await self._servicer.listener.start(host, frames_port)
        await self.server.start()
        self._started = True
        self._ticked_at, self._worked_s = self._loop.time(), time.thread_time()
        for session in self.sessions.values():
            self._connect(session)

    def _connect(self, session: PeerSession) -> None:
        task = asyncio.create_task(session.link.run(), name=f"link to node {session.peer}")
        task.add_done_callback(self._link_done)
        self._tasks[session.peer] = task

    async def set_peers(
        self, peers: Mapping[int, str], barred: Collection[tuple[int, int]] = ()
    ) -> None:
        """Talk to these nodes from now on, and to no others.

        A peer that is not among them is reported down before its session ends. One whose address
        is another now is called there; a session that stands is left alone until it breaks.

        Args:
            peers: host:port by node id; this node's own is passed over.
            barred: nodes and disks that are refused whatever they say.
        """
        self._servicer.barred = self.bulk_servicer.barred = frozenset(barred)
        for peer in [peer for peer in self.sessions if peer not in peers]:
            await self._drop_peer(peer)
        for peer, address in sorted(peers.items()):
            session = self.sessions.get(peer)
            if peer == self.identity.node or (session is not None and session.address == address):
                continue
            if session is None:
                session = self.sessions[peer] = self._session(peer, address)
                if self._started and not self._stopping:
                    self._connect(session)
                continue
            session.move(address)
            await self.bulk.close(peer)

    async def _drop_peer(self, peer: int) -> None:
        session = self.sessions.pop(peer)
        session.close()
        task = self._tasks.pop(peer, None)
        if task is not None:
            await end_tasks((task,))
        await self.bulk.close(peer)

    async def verify_anew(self) -> None:
        """End all streams, so that both ends show each other their certificates again."""
        self._servicer.forget_tickets()
        for session in list(self.sessions.values()):
            session.close()
            session.link.reset()
        await self.bulk.close()

    async def stop(self) -> None:
        """End all streams and the server; nothing is delivered afterwards.

        Calls share one stop, which goes on if a caller is cancelled: gRPC's server fails all who
        wait for its end as soon as one of them is.
        """
        self._stopping = True
        if self._end is None:
            self._end = asyncio.get_running_loop().create_task(self._stop(), name="raftlog ends")
        await asyncio.shield(self._end)

    async def _stop(self) -> None:
        for session in self.sessions.values():
            session.close()
        await end_tasks(self._tasks.values())
        await self.bulk.close()
        await self._servicer.listener.stop()
        await self.server.stop(None)

    def become(self, identity: StreamIdentity) -> None:
        """Take another identity from now on, because this node has joined the cluster.

        Whoever was met before gets to know by new streams.
        """
        self.identity = identity
        self._servicer.identity = identity
        self._servicer.forget_tickets()
        self.bulk_servicer.identity = identity
        self.bulk.identity = identity
        for session in self.sessions.values():
            session.link.identity = identity
            session.close()
            session.link.reset()

    def generation(self, peer: int) -> int:
        """Return the generation of a peer's members, -1 while it was not met."""
        session = self.sessions.get(peer)
        return session.generation if session is not None else -1

    def post(self, message: Message) -> bool:
        """Queue a Raft message to the node of its target; False when it is dropped."""
        session = self.sessions.get(member_node(message.target))
        return session is not None and session.post(message)

    def send(self, peer: int, payload: bytes | Pieces) -> bool:
        """Send a payload; False when it is not sent (peer down or unknown, or its lane full)."""
        session = self.sessions.get(peer)
        if session is None or not session.send(payload):
            return False
        session.link.flush()
        return True

    def flush(self) -> None:
        """Let queued Raft messages leave."""
        for session in self.sessions.values():
            session.link.flush()

    def tick(self) -> None:
        """Beat where nothing else was sent, and give up silent peers."""
        now, worked = self._loop.time(), time.thread_time()
        gap = now - self._ticked_at
        if gap > self._silence_s_max / 2:
            more = {"worked": worked - self._worked_s, "silence_seconds": self._silence_s_max}
            log_event(CLUSTER, LOOP_STALLED, seconds=gap, **more)
        self._ticked_at, self._worked_s = now, worked
        excused = gap if gap > STALL_BEATS * self._beat_s else 0.0
        for session in list(self.sessions.values()):
            session.link.beat()
            session.check_liveness(self._silence_s_max, excused)
        if now - self._told_at >= MARKS_WRITE_S:
            self._told_at = now
            news = self.memory.news()
            for session in self.sessions.values():
                if session.link.connected:
                    session.link.announce(news)

    def _told(self, node: int, mark: Mark) -> None:
        """Take what a peer remembers of another node's disk."""
        if node == self.identity.node:
            return  # whoever must not take part is refused, by those whom it concerns
        session = self.sessions.get(node)
        if self.memory.told(node, mark, session.running if session is not None else None):
            assert session is not None, "who runs has a session"
            LOG.warning(
                "node %d took part with older data than it had: another node remembers batch %d "
                "on its disk, under boot %d. It is refused from now on",
                *(node, mark.batch, mark.boot),
            )
            session.close()
            session.link.reset()

    def counters(self) -> dict[str, int]:
        """Return counts since the start, over all peers, beats included in the frames."""
        sessions = self.sessions.values()
        return {
            "frames_sent": sum(s.link.frames_sent for s in sessions),
            "frames_received": sum(s.frames_received for s in sessions),
            "raft_messages_sent": sum(s.link.messages_sent for s in sessions),
            "raft_messages_received": sum(s.messages_received for s in sessions),
        }

    def _link_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and not self._stopping:
            error = task.exception()
            assert error is not None, "a link runs until it is cancelled"
            self._events.on_failure(error)


class _Addresses(Mapping[int, str]):
    """Current addresses of peers."""

    def __init__(self, sessions: Mapping[int, PeerSession]) -> None:
        self._sessions = sessions

    def __getitem__(self, peer: int) -> str:
        return self._sessions[peer].link.address

    def __iter__(self) -> Iterator[int]:
        return iter(self._sessions)

    def __len__(self) -> int:
        return len(self._sessions)
