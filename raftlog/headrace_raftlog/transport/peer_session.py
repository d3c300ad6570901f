"""Whether a peer is up: both streams of a node pair taken together."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from headrace_raftlog.model.errors import CloneError, ForgottenError
from headrace_raftlog.model.limits import (
    INBOX_HELD_BYTES_MAX,
    MESSAGE_OVERHEAD_BYTES,
    NODE_ID_MAX,
)
from headrace_raftlog.model.mark import Mark
from headrace_raftlog.model.message import Message
from headrace_raftlog.transport.codec import FrameError, read_messages
from headrace_raftlog.transport.events import TransportEvents
from headrace_raftlog.transport.identity import StreamIdentity
from headrace_raftlog.transport.outbox import Outbox
from headrace_raftlog.transport.pb.transport_pb2 import Frame
from headrace_raftlog.transport.peer_link import PeerLink
from headrace_raftlog.transport.peer_memory import PeerMemory
from headrace_raftlog.transport.security import Security

LOG: Final = logging.getLogger(__name__)


def _ignore_mark(node: int, mark: Mark) -> None:
    """Take no notice of what a peer remembers."""


class IncomingStream:
    """One accepted stream.

    Attributes:
        session: whose stream it is.
        remote: who has opened it.
        synced: number of the newest batch of its log that it said to be synced.
        open: turns False when it is replaced or given up.
        on_closed: called then.
    """

    def __init__(self, session: PeerSession, remote: StreamIdentity) -> None:
        self.session = session
        self.remote = remote
        self.synced = 0
        self.open = True
        self.on_closed: Callable[[], None] = lambda: None

    def close(self) -> None:
        """Take nothing more of it."""
        self.open = False
        self.on_closed()


class PeerSession:
    """A session with a peer: from the moment both streams stand until either breaks.

    The peer is up while the outgoing stream is connected, an incoming stream is there, both name
    the same process, both ends belong to the cluster, and something was heard within the liveness
    timeout. When it goes down both streams are given up, so that nothing of an old session arrives
    in a new one.

    Attributes:
        peer: node id.
        address: host:port at which it is said to be; it may have said something else since.
        up: whether the peer is up.
        boot: boot count of the session, or of the last one; 0 before the first.
        generation: of the peer's members, as it said last; -1 before it did.
        link: the outgoing stream.
        frames_received: frames received since the start, beats included.
        messages_received: Raft messages among them.
    """

    def __init__(
        self,
        peer: int,
        address: str,
        identity: StreamIdentity,
        events: TransportEvents,
        clock: Callable[[], float],
        security: Security | None = None,
        memory: PeerMemory | None = None,
        told: Callable[[int, Mark], None] = _ignore_mark,
    ) -> None:
        self._memory = memory if memory is not None else PeerMemory(identity.node)
        self._told = told
        self.peer = peer
        self.address = address
        self.up = False
        self.boot = 0
        self.generation = -1
        self.frames_received = 0
        self.messages_received = 0
        self.link = PeerLink(peer, address, identity, self, Outbox(), security)
        self._node = identity.node
        self._events = events
        self._clock = clock
        self._incoming: IncomingStream | None = None
        self._heard_at = 0.0
        self._held: deque[tuple[list[Message], list[bytes]]] = deque()  # one item per frame
        self._held_bytes = 0

    @property
    def running(self) -> StreamIdentity | None:
        """The process of the peer to which one of the streams stands, None for none."""
        if self._incoming is not None:
            return self._incoming.remote
        return self.link.remote if self.link.connected else None

    def judge(self, remote: StreamIdentity) -> None:
        """Compare who calls or answers with what is remembered of the peer's disk.

        Raises:
            StreamRefusedError: it has forgotten what it promised, or is a second process.
        """
        self._memory.judge(remote, self.running)

    def accept(self, remote: StreamIdentity) -> IncomingStream:
        """Take a new incoming stream in place of any older one."""
        self._give_up()
        stream = IncomingStream(self, remote)
        self._incoming = stream
        self._heard_at = self._clock()
        ours = self.link.remote
        if self.link.connected and ours is not None and not ours.is_same_process(remote):
            if ours.disk == remote.disk and remote.boot < ours.boot:
                self._give_up()  # a stream of the peer's earlier process
                return stream
            self.link.reset()  # ours still leads to the earlier process
        self._follow(remote.address)
        self._met(remote)
        self._evaluate()
        return stream

    def move(self, address: str) -> None:
        """Call the peer at another address from now on; a session that stands goes on."""
        self.address = self.link.address = address
        if not self.up:
            self.link.reset()

    def _follow(self, address: str) -> None:
        """Call the peer where it says that it is, when nobody answers where it was."""
        if address and address != self.link.address and not self.link.connected:
            LOG.info("node %d is at %r now, not at %s", self.peer, address, self.link.address)
            self.link.address = address
            self.link.reset()

    def heard(self, stream: IncomingStream) -> None:
        """Note that octets arrived: a frame may take a slow link longer than any silence lasts."""
        if stream.open:
            self._heard_at = self._clock()

    def received(self, stream: IncomingStream, frame: Frame) -> None:
        """Handle a frame.

        Raises:
            FrameError: the peer sent what no correct peer sends; the caller ends the stream.
        """
        if not stream.open:
            return
        self._heard_at = self._clock()
        self.frames_received += 1
        if frame.synced > stream.synced:
            stream.synced = frame.synced
            self._memory.heard(stream.remote, frame.synced)
        messages = read_messages(frame, self.peer, self._node)
        self.messages_received += len(messages)
        for each in frame.marks:
            if not 1 <= each.node <= NODE_ID_MAX:
                raise FrameError(f"a mark of node {each.node}")
            self._told(each.node, Mark(each.disk, each.boot, each.process, each.batch))
        if self.up:
            self._deliver(messages, list(frame.application))
        elif frame.messages or frame.application:
            self._hold(messages, frame)

    def ended(self, stream: IncomingStream) -> None:
        """Note that an incoming stream is over."""
        if stream is self._incoming:
            self._give_up()

    def link_connected(self) -> None:
        """Note that the peer accepted our stream."""
        ours = self.link.remote
        assert ours is not None, "connected to somebody"
        incoming = self._incoming
        if incoming is not None and not incoming.remote.is_same_process(ours):
            if ours.disk == incoming.remote.disk and ours.boot < incoming.remote.boot:
                self.link.reset()  # it still leads to the peer's earlier process
                return
            self._give_up()  # a stream of the earlier process
        self._met(ours)
        self._evaluate()

    def link_lost(self) -> None:
        """Note that our stream broke."""
        if self.up:
            self._give_up()

    def removed(self) -> None:
        """Pass it on."""
        self._events.on_removed()

    def outdated(self, reason: ForgottenError | CloneError) -> None:
        """Pass it on."""
        self._events.on_outdated(reason)

    def post(self, message: Message) -> bool:
        """Queue a Raft message; False when it is dropped (peer down, or its lane full)."""
        return self.up and self.link.post(message)

    def send(self, payload: bytes) -> bool:
        """Queue a payload; False when the peer is down or its lane full."""
        return self.up and self.link.send(payload)

    def check_liveness(self, silence_s_max: float, excused_s: float) -> None:
        """Give the session up when nothing was heard for `silence_s_max` seconds.

        Args:
            silence_s_max: seconds of silence after which a peer is down.
            excused_s: seconds during which this process itself stood still and heard nobody.
        """
        self._heard_at += excused_s
        if self._incoming is not None and self._clock() - self._heard_at > silence_s_max:
            LOG.warning("node %d is silent for %.1f s", self.peer, silence_s_max)
            self._give_up()

    def close(self) -> None:
        """Give the session up for good."""
        self._give_up()

    def _met(self, remote: StreamIdentity) -> None:
        self._memory.met(remote)
        self.link.tell(self._memory.everything())
        if remote.formed:
            self.generation = remote.generation
        self._events.on_met(remote)

    def _evaluate(self) -> None:
        incoming = self._incoming
        if self.up or incoming is None or not self.link.connected:
            return
        ours = self.link.remote
        if not self.link.identity.formed or not incoming.remote.formed:
            return
        if ours is None or not ours.formed:
            return  # it has joined meanwhile, and its next answer will say so
        self.up = True
        self.boot = incoming.remote.boot
        LOG.info("node %d (boot %d) is up", self.peer, self.boot)
        self._events.on_peer(self.peer, True, self.boot)
        while self.up and self._held:
            self._deliver(*self._held.popleft())
        self._held_bytes = 0

    def _deliver(self, messages: list[Message], payloads: list[bytes]) -> None:
        if messages:
            self._events.on_messages(messages)
        for payload in payloads:
            if not self.up:
                return  # who took the one before gave the session up
            self._events.on_payload(self.peer, payload)

    def _hold(self, messages: list[Message], frame: Frame) -> None:
        """Keep a frame of a peer that sees the session earlier than we do.

        Raft messages wait too: whoever was heard must be reported down when it is lost, or a
        group that it told to be silent would stay so.
        """
        size = frame.ByteSize() + MESSAGE_OVERHEAD_BYTES
        if self._held_bytes + size > INBOX_HELD_BYTES_MAX:
            LOG.warning("node %d sends too much before it is up", self.peer)
            self._give_up()
            return
        self._held.append((messages, list(frame.application)))
        self._held_bytes += size

    def _give_up(self) -> None:
        """End the incoming stream; when the peer was up, also the outgoing, and report it."""
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            incoming.close()
        self._held.clear()
        self._held_bytes = 0
        if self.up:
            self.up = False
            LOG.warning("node %d (boot %d) is down", self.peer, self.boot)
            self.link.reset()
            self._events.on_peer(self.peer, False, self.boot)
