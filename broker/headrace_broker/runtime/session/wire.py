"""Sessions and queues on different nodes: calls of `lane_port` as payloads between nodes.

What is large leaves in pieces, and is not copied on its way in: no turn of the loop has much to do
with it.

A payload that cannot be sent is dropped. Whoever depends on it sends again when the link is back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, final

from mypy_extensions import i64
from typing_extensions import override

from headrace_broker.codecs.batch import body_bytes, slice_batch, slices_batch
from headrace_broker.codecs.large_payload import Found, find, wrap
from headrace_broker.core.queue.command.command import STAMP_OCTETS, is_enqueue
from headrace_broker.core.queue.command.large_command import LargeCommand
from headrace_broker.model.limits import LARGE_OCTETS
from headrace_broker.model.message import DeliveryRun
from headrace_broker.model.session import session_node
from headrace_broker.runtime.contract.lane_port import HostEnd, SessionEnd, SessionTransport
from headrace_protos.cluster.v1.cluster_pb2 import (
    AskWithheld,
    ClusterPayload,
    Completed,
    Controlled,
    Detached,
    Enqueued,
    Gap,
    Got,
    QueueCommand,
    Refused,
    Resync,
    Run,
    StillWithheld,
    TimedOut,
    Window,
)
from headrace_raftlog.model.pieces import Octets, Parted, Pieces

Send = Callable[[int, bytes | Pieces], bool]

# Numbers of fields in cluster.proto.
_COMMAND: Final = 2
_COMMAND_DATA: Final = 3
_RUN: Final = 7
_RUN_BATCH: Final = 4
_GOT: Final = 8
_GOT_RUN: Final = 3


@final
class RemoteHost(HostEnd):
    """A queue's replica on another node."""

    def __init__(self, node: int, group: int, send: Send) -> None:
        self._node = node
        self._group = group
        self._send = send

    def _put(self, payload: ClusterPayload) -> bool:
        return self._send(self._node, payload.SerializeToString())

    @override
    def command(self, session: int, data: bytes) -> None:
        command = QueueCommand(group=self._group, session=session, data=data)
        self._put(ClusterPayload(command=command))

    @override
    def caused(self, session: int, data: bytes, causes: list[int]) -> None:
        command = QueueCommand(group=self._group, session=session, data=data, causes=causes)
        self._put(ClusterPayload(command=command))

    @override
    def is_far(self) -> bool:
        return True

    @override
    def large(self, session: int, command: LargeCommand, causes: list[int]) -> None:
        fields = QueueCommand(group=self._group, session=session, causes=causes)
        data = wrap(fields.SerializeToString(), _COMMAND_DATA, command.pieces())
        self._send(self._node, Pieces(wrap(b"", _COMMAND, data)))

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
        resync = Resync(
            group=self._group,
            session=session,
            consumer=consumer,
            next=number,
            window_octets=window,
            attached=attached,
            filter_table=filter_table,
        )
        return self._put(ClusterPayload(resync=resync))

    @override
    def ask_withheld(self, session: int) -> bool:
        ask = AskWithheld(group=self._group, session=session)
        return self._put(ClusterPayload(ask_withheld=ask))

    @override
    def window(self, session: int, consumer: i64, octets: i64) -> bool:
        window = Window(group=self._group, session=session, consumer=consumer, octets=octets)
        return self._put(ClusterPayload(window=window))


def part_payload(head: bytes, size: int) -> tuple[int, int]:
    """Return where a large payload is parted as it comes: before a command, with room for a stamp.

    Args:
        head: its first octets.
        size: octets of it.
    """
    command = find(head, _COMMAND, 0, size)
    if command is None or command.fields or command.stop != size:
        return 0, 0
    data = find(head, _COMMAND_DATA, command.start, size)
    if data is None or data.stop != size or data.start > len(head):
        return 0, 0
    return int(data.start), STAMP_OCTETS


def _run_pieces(session: int, run: DeliveryRun) -> list[Octets]:
    """Return what `encode_run` does, encoded, the messages uncopied."""
    fields = Run(
        session=session,
        consumer=run.consumer,
        first=run.first,
        redelivered=run.redelivered,
        counts=run.counts,
    ).SerializeToString()
    return wrap(fields, _RUN_BATCH, slices_batch(run.blob, run.base, run.positions))


def _is_large(run: DeliveryRun) -> bool:
    """Return whether a delivery is too large to be copied at once."""
    if len(run.blob) < LARGE_OCTETS:
        return False
    return body_bytes(run.blob, run.base, run.positions) >= LARGE_OCTETS


def _found_run(payload: bytes, found: Found) -> tuple[int, DeliveryRun] | None:
    """Return session and run of a message in a payload; its batch is not copied."""
    batch = find(payload, _RUN_BATCH, found.start, found.stop)
    if batch is None:
        return None
    run = Run.FromString(batch.fields)
    positions = list(range(len(run.redelivered)))
    return run.session, DeliveryRun(
        run.consumer, run.first, payload, batch.start, positions, run.redelivered, run.counts
    )


def encode_run(session: int, run: DeliveryRun) -> Run:
    """Return a run with its messages cut out of the entry they stand in."""
    return Run(
        session=session,
        consumer=run.consumer,
        first=run.first,
        batch=slice_batch(run.blob, run.base, run.positions),
        redelivered=run.redelivered,
        counts=run.counts,
    )


def decode_run(run: Run) -> DeliveryRun:
    """Return the run that `encode_run` was given, with a batch of its own."""
    positions = list(range(len(run.redelivered)))
    redelivered = run.redelivered
    return DeliveryRun(run.consumer, run.first, run.batch, 0, positions, redelivered, run.counts)


@final
class ReplyNotes:
    """Notes for remote sessions about the next answer; empty after each entry.

    Attributes:
        refused: by session.
        fenced: of publishers that published under a later epoch since, by session.
        withheld: by session.
    """

    def __init__(self) -> None:
        self.refused: dict[int, list[int]] = {}
        self.fenced: dict[int, list[int]] = {}
        self.withheld: dict[int, list[int]] = {}


@final
class RemoteSession(SessionEnd):
    """Session with its gateway on another node.

    Args:
        session: its id.
        send: carries a payload to a node.
        missed: takes the ids of sessions that did not get what was said to them.
        remarks: to the answer that comes next: they leave together or not at all.
    """

    def __init__(self, session: int, send: Send, missed: set[int], remarks: ReplyNotes) -> None:
        self._session = session
        self._node = session_node(session)
        self._send = send
        self._missed = missed
        self._remarks = remarks

    def _put(self, payload: ClusterPayload) -> None:
        if not self._send(self._node, payload.SerializeToString()):
            self._missed.add(self._session)

    def _put_pieces(self, pieces: list[Octets]) -> None:
        if not self._send(self._node, Pieces(pieces)):
            self._missed.add(self._session)

    @override
    def rejected(self, first: i64, last: i64, fenced: bool) -> None:
        rows = self._remarks.fenced if fenced else self._remarks.refused
        rows.setdefault(self._session, []).extend((int(first), int(last)))

    @override
    def withheld(self, rows: list[int]) -> None:
        self._remarks.withheld[self._session] = rows

    @override
    def completed(self, rows: list[int]) -> None:
        self._put(ClusterPayload(completed=Completed(session=self._session, rows=rows)))

    @override
    def still_withheld(self, last: i64, rows: list[int]) -> None:
        answer = StillWithheld(session=self._session, last=last, rows=rows)
        self._put(ClusterPayload(still_withheld=answer))

    @override
    def enqueued(self, first: i64, last: i64) -> None:
        refused = self._remarks.refused.pop(self._session, None)
        fenced = self._remarks.fenced.pop(self._session, None)
        withheld = self._remarks.withheld.pop(self._session, None)
        answer = Enqueued(
            session=self._session,
            seq=last,
            first=first,
            refused=refused,
            fenced=fenced,
            withheld=withheld,
        )
        self._put(ClusterPayload(enqueued=answer))

    @override
    def controlled(self, number: i64, status: i64, count: i64) -> None:
        answer = Controlled(session=self._session, seq=number, status=status, count=count)
        self._put(ClusterPayload(controlled=answer))

    @override
    def run(self, run: DeliveryRun) -> None:
        if _is_large(run):
            self._put_pieces(wrap(b"", _RUN, _run_pieces(self._session, run)))
        else:
            self._put(ClusterPayload(run=encode_run(self._session, run)))

    @override
    def got(self, number: i64, run: DeliveryRun | None, ready_left: i64) -> None:
        answer = Got(session=self._session, seq=number, ready_left=ready_left)
        if run is not None and _is_large(run):
            pieces = wrap(answer.SerializeToString(), _GOT_RUN, _run_pieces(self._session, run))
            self._put_pieces(wrap(b"", _GOT, pieces))
            return
        if run is not None:
            answer.run.CopyFrom(encode_run(self._session, run))
        self._put(ClusterPayload(got=answer))

    @override
    def gap(self, lane: i64, expected: i64) -> None:
        self._put(ClusterPayload(gap=Gap(session=self._session, lane=lane, expected=expected)))

    @override
    def refused(self, leader: int, busy: bool, unknown: bool) -> None:
        answer = Refused(session=self._session, leader=leader, busy=busy, unknown=unknown)
        self._put(ClusterPayload(refused=answer))

    @override
    def detached(self, consumer: i64) -> None:
        self._put(ClusterPayload(detached=Detached(session=self._session, consumer=consumer)))

    @override
    def timed_out(self, consumer: i64) -> None:
        self._put(ClusterPayload(timed_out=TimedOut(session=self._session, consumer=consumer)))


def _tell_enqueued(end: SessionEnd, answer: Enqueued) -> None:
    for rows, fenced in ((answer.refused, False), (answer.fenced, True)):
        for at in range(0, len(rows) - 1, 2):
            end.rejected(rows[at], rows[at + 1], fenced)
    if answer.withheld:
        end.withheld(_rows(answer.withheld))
    end.enqueued(answer.first, answer.seq)


def _rows(numbers: Iterable[int]) -> list[int]:
    """Return received numbers as rows; a number without its end is dropped."""
    rows = list(numbers)
    return rows[: len(rows) // 2 * 2]


@final
class SessionRouter(SessionTransport):
    """Finds the other end of a session: in this process, or on another node.

    Attributes:
        hosts: replicas on this node by queue group.
        sessions: sessions of this node's gateways by id.
    """

    def __init__(self, node: int, send: Send) -> None:
        self.hosts: dict[int, HostEnd] = {}
        self.sessions: dict[int, SessionEnd] = {}
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

    def receive(self, payload: ClusterPayload) -> None:
        """Run a call from another node; calls to missing sessions or queues are dropped."""
        kind = payload.WhichOneof("body")
        if kind in ("command", "resync", "window", "ask_withheld"):
            self._to_host(kind, payload)
        else:
            self._to_session(kind, payload)

    def receive_parted(self, payload: Parted) -> None:
        """Carry out a command that was parted as it came."""
        size = len(payload.head) + payload.tail.size - STAMP_OCTETS
        whole = find(payload.head, _COMMAND, 0, size)
        assert whole is not None, "it was parted where a command begins"
        data = find(payload.head, _COMMAND_DATA, whole.start, size)
        assert data is not None
        call = QueueCommand.FromString(data.fields)
        host = self.hosts.get(call.group)
        command = LargeCommand([], payload.tail)
        if host is None:
            self._unknown(call.session)
        elif is_enqueue(command.head):
            host.large(call.session, command, list(call.causes))
        else:
            host.command(call.session, b"".join(command.pieces()))

    def receive_large(self, payload: bytes) -> bool:
        """Carry out a large delivery that came whole; False for every other payload."""
        if len(payload) < LARGE_OCTETS:
            return False
        run = find(payload, _RUN, 0, len(payload))
        if run is not None:
            found = _found_run(payload, run)
            if found is None:
                return False
            end = self.sessions.get(found[0])
            if end is not None:
                end.run(found[1])
            return True
        got = find(payload, _GOT, 0, len(payload))
        return got is not None and self._receive_got(payload, got)

    def _receive_got(self, payload: bytes, got: Found) -> bool:
        run = find(payload, _GOT_RUN, got.start, got.stop)
        found = None if run is None else _found_run(payload, run)
        if run is None or found is None:
            return False
        answer = Got.FromString(run.fields)
        end = self.sessions.get(answer.session)
        if end is not None:
            end.got(answer.seq, found[1], answer.ready_left)
        return True

    def _to_host(self, kind: str, payload: ClusterPayload) -> None:
        if kind == "command":
            call = payload.command
            host = self.hosts.get(call.group)
            if host is None:
                self._unknown(call.session)
            elif call.causes:
                host.caused(call.session, call.data, list(call.causes))
            else:
                host.command(call.session, call.data)
        elif kind == "resync":
            sync = payload.resync
            host = self.hosts.get(sync.group)
            if host is None:
                self._unknown(sync.session)
            else:
                host.resync(
                    sync.session,
                    sync.consumer,
                    sync.next,
                    sync.window_octets,
                    sync.attached,
                    sync.filter_table,
                )
        elif kind == "ask_withheld":
            ask = payload.ask_withheld
            host = self.hosts.get(ask.group)
            if host is None:
                self._unknown(ask.session)
            else:
                host.ask_withheld(ask.session)
        else:
            window = payload.window
            host = self.hosts.get(window.group)
            if host is not None:
                host.window(window.session, window.consumer, window.octets)

    def _unknown(self, session: int) -> None:
        self._remote(session).refused(0, False, True)

    def _remote(self, session: int) -> RemoteSession:
        return RemoteSession(session, self._send, self._missed, self._remarks)

    def _to_session(self, kind: str | None, payload: ClusterPayload) -> None:
        if kind is None:
            return
        body = getattr(payload, kind)
        end = self.sessions.get(body.session)
        if end is None:
            return
        if kind == "run":
            end.run(decode_run(body))
        elif kind == "enqueued":
            _tell_enqueued(end, body)
        elif kind == "completed":
            end.completed(_rows(body.rows))
        elif kind == "still_withheld":
            end.still_withheld(body.last, _rows(body.rows))
        elif kind == "controlled":
            end.controlled(body.seq, body.status, body.count)
        elif kind == "got":
            run = decode_run(body.run) if body.HasField("run") else None
            end.got(body.seq, run, body.ready_left)
        elif kind == "gap":
            end.gap(body.lane, body.expected)
        elif kind == "refused":
            end.refused(body.leader, body.busy, body.unknown)
        elif kind == "detached":
            end.detached(body.consumer)
        elif kind == "timed_out":
            end.timed_out(body.consumer)
