"""Sessions and queues on different nodes: calls of `lane_port` as payloads between nodes.

What is large leaves in pieces, and is not copied on its way in: no turn of the loop has much to do
with it.

A payload that cannot be sent is dropped. Whoever depends on it sends again when the link is back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

import msgspec
from mypy_extensions import i64
from typing_extensions import override

from headrace_broker.codecs.batch import body_bytes, slice_batch, slices_batch
from headrace_broker.codecs.large_payload import MARK_BYTES, body_start, wrap
from headrace_broker.core.queue.command.command import STAMP_BYTES, is_enqueue
from headrace_broker.core.queue.command.large_command import LargeCommand
from headrace_broker.model.limits import LARGE_BYTES
from headrace_broker.model.message import DeliveryRun
from headrace_broker.model.session import session_node
from headrace_broker.runtime.contract.lane_port import HostEnd, SessionEnd, SessionTransport
from headrace_broker.runtime.contract.payload import MALFORMED, Payload, encode
from headrace_broker.runtime.session.frame import (
    AskDeferred,
    Command,
    Completed,
    Controlled,
    Detached,
    Enqueued,
    Gap,
    Got,
    Refused,
    Resync,
    Run,
    StillDeferred,
    TimedOut,
    ToHost,
    ToSession,
    Window,
)
from headrace_raftlog.model.pieces import Bytes, Parted, Pieces

Send = Callable[[int, bytes | Pieces], bool]

_HEADS: Final = msgspec.msgpack.Decoder(Command | Run | Got)


@final
class RemoteHost(HostEnd):
    """A queue's replica on another node."""

    def __init__(self, node: int, group: int, send: Send) -> None:
        self._node = node
        self._group = group
        self._send = send

    def _put(self, payload: Payload) -> bool:
        return self._send(self._node, encode(payload))

    @override
    def command(self, session: int, data: bytes) -> None:
        self._put(Command(self._group, session, data))

    @override
    def caused(self, session: int, data: bytes, causes: list[int]) -> None:
        self._put(Command(self._group, session, data, causes))

    @override
    def is_far(self) -> bool:
        return True

    @override
    def large(self, session: int, command: LargeCommand, causes: list[int]) -> None:
        head = encode(Command(self._group, session, b"", causes))
        self._send(self._node, Pieces(wrap(head, command.pieces())))

    @override
    def resync(
        self,
        session: int,
        consumer: i64,
        number: i64,
        window: i64,
        attached: bool,
        filter_table: bytes,
    ) -> bool:
        sync = Resync(
            self._group, session, int(consumer), int(number), int(window), attached, filter_table
        )
        return self._put(sync)

    @override
    def ask_deferred(self, session: int) -> bool:
        return self._put(AskDeferred(self._group, session))

    @override
    def window(self, session: int, consumer: i64, byte_count: i64) -> bool:
        return self._put(Window(self._group, session, int(consumer), int(byte_count)))


def part_payload(head: bytes, size: int) -> tuple[int, int]:
    """Return where a large payload is parted as it comes: before a command, with room for a stamp.

    Args:
        head: its first bytes.
        size: bytes of it.
    """
    start = body_start(head)
    if start == 0 or start >= size:
        return 0, 0
    try:
        whole = isinstance(_HEADS.decode(head[MARK_BYTES:start]), Command)
    except MALFORMED:
        whole = False  # it is refused once it is all there
    return (start, STAMP_BYTES) if whole else (0, 0)


def _is_large(run: DeliveryRun) -> bool:
    """Return whether a delivery is too large to be copied at once."""
    if len(run.blob) < LARGE_BYTES:
        return False
    return body_bytes(run.blob, run.base, run.positions) >= LARGE_BYTES


def _run_head(session: int, run: DeliveryRun) -> Run:
    """Return a run without its messages."""
    return Run(session, int(run.consumer), int(run.first), run.redelivered, run.counts)


def encode_run(session: int, run: DeliveryRun) -> Run:
    """Return a run with its messages cut out of the entry they stand in."""
    batch = slice_batch(run.blob, run.base, run.positions)
    return Run(session, int(run.consumer), int(run.first), run.redelivered, run.counts, batch)


@final
class ReplyNotes:
    """Notes for remote sessions about the next answer; empty after each entry."""

    def __init__(self) -> None:
        self.refused: dict[int, list[int]] = {}  # by session
        # of publishers that published under a later epoch since, by session
        self.fenced: dict[int, list[int]] = {}
        self.deferred: dict[int, list[int]] = {}  # by session


@final
class RemoteSession(SessionEnd):
    """Session with its gateway on another node."""

    def __init__(self, session: int, send: Send, missed: set[int], remarks: ReplyNotes) -> None:
        self._session = session  # its id
        self._node = session_node(session)
        self._send = send  # carries a payload to a node
        self._missed = missed  # takes the ids of sessions that did not get what was said to them
        self._remarks = remarks  # to the answer that comes next: they leave together or not at all

    def _put(self, payload: Payload) -> None:
        if not self._send(self._node, encode(payload)):
            self._missed.add(self._session)

    def _put_large(self, head: Payload, run: DeliveryRun) -> None:
        """Send a run whose messages follow its head, uncopied."""
        pieces: list[Bytes] = slices_batch(run.blob, run.base, run.positions)
        if not self._send(self._node, Pieces(wrap(encode(head), pieces))):
            self._missed.add(self._session)

    @override
    def rejected(self, first: i64, last: i64, fenced: bool) -> None:
        rows = self._remarks.fenced if fenced else self._remarks.refused
        rows.setdefault(self._session, []).extend((int(first), int(last)))

    @override
    def deferred(self, rows: list[int]) -> None:
        self._remarks.deferred[self._session] = rows

    @override
    def completed(self, rows: list[int]) -> None:
        self._put(Completed(self._session, rows))

    @override
    def still_deferred(self, last: i64, rows: list[int]) -> None:
        self._put(StillDeferred(self._session, int(last), rows))

    @override
    def enqueued(self, first: i64, last: i64) -> None:
        refused = self._remarks.refused.pop(self._session, [])
        fenced = self._remarks.fenced.pop(self._session, [])
        deferred = self._remarks.deferred.pop(self._session, [])
        self._put(Enqueued(self._session, int(first), int(last), refused, fenced, deferred))

    @override
    def controlled(self, number: i64, status: i64, count: i64) -> None:
        self._put(Controlled(self._session, int(number), int(status), int(count)))

    @override
    def run(self, run: DeliveryRun) -> None:
        if _is_large(run):
            self._put_large(_run_head(self._session, run), run)
        else:
            self._put(encode_run(self._session, run))

    @override
    def got(self, number: i64, run: DeliveryRun | None, ready_left: i64) -> None:
        if run is None:
            self._put(Got(self._session, int(number), int(ready_left), None))
        elif _is_large(run):
            head = _run_head(self._session, run)
            self._put_large(Got(self._session, int(number), int(ready_left), head), run)
        else:
            whole = encode_run(self._session, run)
            self._put(Got(self._session, int(number), int(ready_left), whole))

    @override
    def gap(self, lane: i64, expected: i64) -> None:
        self._put(Gap(self._session, int(lane), int(expected)))

    @override
    def refused(self, leader: int, busy: bool, unknown: bool) -> None:
        self._put(Refused(self._session, leader, busy, unknown))

    @override
    def detached(self, consumer: i64) -> None:
        self._put(Detached(self._session, int(consumer)))

    @override
    def timed_out(self, consumer: i64) -> None:
        self._put(TimedOut(self._session, int(consumer)))


@final
class SessionRouter(SessionTransport):
    """Finds the other end of a session: in this process, or on another node."""

    def __init__(self, node: int, send: Send) -> None:
        self.hosts: dict[int, HostEnd] = {}  # replicas on this node by queue group
        self.sessions: dict[int, SessionEnd] = {}  # sessions of this node's gateways by id
        self._node: Final = node
        self._send = send
        self._missed: set[int] = set()  # at most the sessions with queues led here
        self._remarks = ReplyNotes()

    @override
    def host(self, target: int, group: int) -> HostEnd | None:
        if target == self._node:
            return self.hosts.get(group)
        return RemoteHost(target, group, self._send)

    @override
    def session(self, session: int) -> SessionEnd | None:
        if session_node(session) == self._node:
            return self.sessions.get(session)
        return self._remote(session)

    def mend(self) -> None:
        """Tell remote sessions that a payload to them was lost, mostly for a full outbox."""
        missed, self._missed = self._missed, set()
        for session in missed:
            self._remote(session).refused(self._node, False, False)

    def forget(self, node: int) -> None:
        """Take note that a node came or went: its sessions start over by themselves."""
        self._missed = {each for each in self._missed if session_node(each) != node}

    def receive(self, payload: Payload) -> None:
        """Run a call from another node; calls to missing sessions or queues are dropped."""
        if isinstance(payload, ToHost):
            host = self.hosts.get(payload.group)
            if host is not None:
                payload.call(host)
            elif not isinstance(payload, Window):
                self._unknown(payload.session)
        elif isinstance(payload, ToSession):
            end = self.sessions.get(payload.session)
            if end is not None:
                payload.call(end)

    def receive_parted(self, payload: Parted) -> None:
        """Carry out a command that was parted as it came."""
        call = _HEADS.decode(payload.head[MARK_BYTES:])
        assert isinstance(call, Command), "it was parted where a command begins"
        command = LargeCommand([], payload.tail)
        host = self.hosts.get(call.group)
        if host is None:
            self._unknown(call.session)
        elif is_enqueue(command.head):
            host.large(call.session, command, call.causes)
        else:
            host.command(call.session, b"".join(command.pieces()))

    def receive_large(self, payload: bytes) -> bool:
        """Carry out a large payload that came whole; False for every other one.

        Raises MALFORMED: it is none.
        """
        start = body_start(payload)
        if start == 0:
            return False
        head = _HEADS.decode(payload[MARK_BYTES:start])
        if isinstance(head, Command):
            self.receive(msgspec.structs.replace(head, data=payload[start:]))
            return True
        end = self.sessions.get(head.session)
        if end is not None:
            head.call_with(end, payload, start)
        return True

    def _unknown(self, session: int) -> None:
        self._remote(session).refused(0, False, True)

    def _remote(self, session: int) -> RemoteSession:
        return RemoteSession(session, self._send, self._missed, self._remarks)
