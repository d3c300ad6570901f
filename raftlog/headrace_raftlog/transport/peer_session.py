"""State of a peer, from both streams of a node pair."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from headrace_protos.raftlog.v1.transport_pb2 import Frame
from headrace_raftlog.log_event import CLUSTER, PEER_DOWN, PEER_UP, log_event
from headrace_raftlog.model.errors import CloneError, ForgottenError
from headrace_raftlog.model.limits import (
    CLONE_HEARD_S,
    INBOX_HELD_BYTES_MAX,
    MESSAGE_OVERHEAD_BYTES,
    NODE_ID_MAX,
)
from headrace_raftlog.model.mark import Mark
from headrace_raftlog.model.message import QUESTIONS, Message
from headrace_raftlog.model.pieces import Parted, Pieces
from headrace_raftlog.transport.codec import FrameError, read_messages
from headrace_raftlog.transport.events import TransportEvents
from headrace_raftlog.transport.identity import StreamIdentity, StreamRefusedError
from headrace_raftlog.transport.large_frame import Bodies
from headrace_raftlog.transport.outbox import Outbox
from headrace_raftlog.transport.peer_link import PeerLink
from headrace_raftlog.transport.peer_memory import PeerMemory, clone_refused
from headrace_raftlog.transport.security import Security

LOG: Final = logging.getLogger("headrace.cluster")


def _ignore_mark(node: int, mark: Mark) -> None:
    """Take no notice of what a peer remembers."""


class IncomingStream:
    """One accepted stream."""

    def __init__(self, session: PeerSession, remote: StreamIdentity) -> None:
        self.session = session  # whose stream it is
        self.remote = remote  # who has opened it
        self.synced = 0  # number of the newest batch of its log that it said to be synced
        self.promised = False  # whether any message was delivered that promises something
        self.open = True  # turns False when it is replaced or given up
        self.on_closed: Callable[[], None] = lambda: None  # called then

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
        outbox: Outbox | None = None,
    ) -> None:
        self._memory = memory if memory is not None else PeerMemory(identity.node)
        self._told = told
        self.peer = peer  # node id
        # host:port at which it is said to be; it may have said something else since
        self.address = address
        self.up = False  # whether the peer is up
        self.boot = 0  # boot count of the session, or of the last one; 0 before the first
        self.generation = -1  # of the peer's members, as it said last; -1 before it did
        self.frames_received = 0  # frames received since the start, beats included
        self.messages_received = 0  # Raft messages among them
        # the outgoing stream
        self.link = PeerLink(peer, address, identity, self, outbox or Outbox(), security)
        self._node = identity.node
        self._events = events
        self._clock = clock
        self._incoming: IncomingStream | None = None
        self._heard_at = 0.0
        self._rival = 0  # process that called while another one of the peer was heard
        self._rival_at = 0.0  # when it called first
        # One item per frame.
        self._held: deque[tuple[list[Message], list[bytes | Parted]]] = deque()
        self._held_bytes = 0

    @property
    def running(self) -> StreamIdentity | None:
        """The process of the peer to which one of the streams stands, None for none."""
        if self._incoming is not None:
            return self._incoming.remote
        return self.link.remote if self.link.connected else None

    def judge(self, remote: StreamIdentity) -> None:
        """Compare a calling or answering peer with the memory of its disk.

        Raises StreamRefusedError: it has forgotten what it promised, or is a second process.
        """
        self._memory.judge(remote, self.running)
        self._check_rival(remote)

    def _check_rival(self, remote: StreamIdentity) -> None:
        """Refuse a process while another one with the same disk is heard.

        A process that has died is not heard for long, even if nothing tells of its end. One that
        is heard on and on was copied.

        Raises CloneRefusedError: the other one was heard for CLONE_HEARD_S since;
        StreamRefusedError: not yet for so long.
        """
        running = self._incoming.remote if self._incoming is not None else None
        if running is None or running.disk != remote.disk:
            return
        if not remote.process or running.process in (0, remote.process):
            return
        if self._rival != remote.process:
            self._rival = remote.process
            self._rival_at = self._clock()
        if self._heard_at - self._rival_at > CLONE_HEARD_S:
            raise clone_refused(remote, running)
        raise StreamRefusedError(
            f"another process of node {remote.node} is still heard, at {running.address!r} (boot "
            f"{running.boot}); this one, at {remote.address!r}, is taken in once that has gone"
        )

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
        """Call the peer at another address from now on; an existing session continues.

        A peer that calls knows better where it is, and is called there.
        """
        self.address = self.link.address = address
        if not self.up:
            self.link.reset()
            if self._incoming is not None:
                self._follow(self._incoming.remote.address)

    def _follow(self, address: str) -> None:
        """Call the peer at its announced address, if it does not answer at the known one."""
        if address and address != self.link.address and not self.link.connected:
            LOG.info("address of node %d: now %r, was %s", self.peer, address, self.link.address)
            self.link.address = address
            self.link.reset()

    def heard(self, stream: IncomingStream) -> None:
        """Note that bytes arrived: a frame may take a slow link longer than any silence lasts."""
        if stream.open:
            self._heard_at = self._clock()

    def received(self, stream: IncomingStream, frame: Frame, bodies: Bodies | None = None) -> None:
        """Handle a frame.

        Args:
            stream: that it came by.
            frame: what was received.
            bodies: what was taken out of it, None for nothing.

        Raises FrameError: the peer sent what no correct peer sends; the caller ends the stream.
        """
        if not stream.open:
            return
        self._heard_at = self._clock()
        self.frames_received += 1
        synced = frame.synced
        if synced > stream.synced:
            stream.synced = synced
            self._memory.heard(stream.remote, synced)
        entries = bodies.entries if bodies is not None else None
        messages = read_messages(frame, self.peer, self._node, entries)
        payloads: list[bytes | Parted] = list(frame.application)
        if bodies is not None:
            payloads = bodies.application
        self.messages_received += len(messages)
        for each in frame.marks:
            if not 1 <= each.node <= NODE_ID_MAX:
                raise FrameError(f"a mark of node {each.node}")
            self._told(each.node, Mark(each.disk, each.boot, each.process, each.batch))
        if self.up:
            self._deliver(messages, payloads)
        elif messages or payloads:
            size = frame.ByteSize() + (bodies.byte_count if bodies is not None else 0)
            self._hold(messages, payloads, size + MESSAGE_OVERHEAD_BYTES)

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

    def send(self, payload: bytes | Pieces) -> bool:
        """Queue a payload; False when the peer is down or its lane full."""
        return self.up and self.link.send(payload)

    def check_liveness(self, silence_s_max: float, excused_s: float) -> None:
        """Give the session up when nothing was heard for `silence_s_max` seconds.

        Args:
            silence_s_max: seconds of silence after which a peer is down.
            excused_s: seconds during which this process itself stood still and heard nobody.
        """
        self._heard_at += excused_s
        self._rival_at += excused_s
        if self._incoming is not None and self._clock() - self._heard_at > silence_s_max:
            LOG.info("nothing heard from node %d for %.1f s", self.peer, silence_s_max)
            self._give_up()

    def close(self) -> None:
        """Give the session up for good."""
        self._give_up()

    def _met(self, remote: StreamIdentity) -> None:
        if former := self._memory.met(remote):
            LOG.warning(
                "node %d came back on another disk (%x, it was %x): what it had on the former one "
                "was lost or set aside, and it gets its replicas from the other nodes as a new "
                "member",
                *(self.peer, remote.disk, former),
            )
        self.link.announce(self._memory.everything())
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
        log_event(CLUSTER, PEER_UP, peer=self.peer, boot=self.boot)
        self._events.on_peer(self.peer, True, self.boot)
        while self.up and self._held:
            self._deliver(*self._held.popleft())
        self._held_bytes = 0

    def _deliver(self, messages: list[Message], payloads: list[bytes | Parted]) -> None:
        if messages:
            incoming = self._incoming
            if incoming is not None and not incoming.promised:
                incoming.promised = self._promises(incoming, messages)
            self._events.on_messages(messages)
        for payload in payloads:
            if not self.up:
                return  # who took the one before gave the session up
            if isinstance(payload, Parted):
                self._events.on_parted(self.peer, payload)
            else:
                self._events.on_payload(self.peer, payload)

    def _promises(self, incoming: IncomingStream, messages: list[Message]) -> bool:
        """Return whether any of a stream's first messages promises something; remember who did."""
        if all(message.kind in QUESTIONS for message in messages):
            return False
        self._memory.promised(incoming.remote, incoming.synced)
        return True

    def _hold(self, messages: list[Message], payloads: list[bytes | Parted], size: int) -> None:
        """Keep a frame of a peer that sees the session earlier than we do.

        Raft messages wait too: whoever was heard must be reported down when it is lost, or a
        group that it told to be silent would stay so.
        """
        if self._held and self._held_bytes + size > INBOX_HELD_BYTES_MAX:
            LOG.warning("node %d exceeded the inbox limit before its session was up", self.peer)
            self._give_up()
            return
        self._held.append((messages, payloads))
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
            log_event(CLUSTER, PEER_DOWN, peer=self.peer, boot=self.boot)
            self.link.reset()
            self._events.on_peer(self.peer, False, self.boot)
