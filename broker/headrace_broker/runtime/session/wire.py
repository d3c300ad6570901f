"""Sessions and queues on different nodes: calls of `lane_port` as payloads between nodes.

A payload that cannot be sent is dropped. Whoever depends on it sends again when the link is back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, final

from mypy_extensions import i64
from typing_extensions import override

from headrace_broker.codecs.batch import slice_batch
from headrace_broker.model.message import DeliveryRun
from headrace_broker.model.session import session_node
from headrace_broker.runtime.lane_port import HostEnd, Reach, SessionEnd
from headrace_broker.runtime.pb.cluster_pb2 import (
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

Send = Callable[[int, bytes], bool]


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
class Remarks:
    """What is said to remote sessions of the answer that comes next; empty after each entry.

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
    """A session whose gateway is another node.

    Args:
        session: its id.
        send: carries a payload to a node.
        missed: takes the ids of sessions that did not get what was said to them.
        remarks: to the answer that comes next: they leave together or not at all.
    """

    def __init__(self, session: int, send: Send, missed: set[int], remarks: Remarks) -> None:
        self._session = session
        self._node = session_node(session)
        self._send = send
        self._missed = missed
        self._remarks = remarks

    def _put(self, payload: ClusterPayload) -> None:
        if not self._send(self._node, payload.SerializeToString()):
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
        self._put(ClusterPayload(run=encode_run(self._session, run)))

    @override
    def got(self, number: i64, run: DeliveryRun | None, ready_left: i64) -> None:
        answer = Got(session=self._session, seq=number, ready_left=ready_left)
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
    """Return what came as rows; a number without its end is left away."""
    rows = list(numbers)
    return rows[: len(rows) // 2 * 2]


@final
class Switchboard(Reach):
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
        self._remarks = Remarks()

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
        """Tell remote sessions that something said to them was lost, for a full outbox mostly."""
        missed, self._missed = self._missed, set()
        for session in missed:
            self._remote(session).refused(self._node, False, False)

    def forget(self, node: int) -> None:
        """Take note that a node came or went: its sessions start over by themselves."""
        self._missed = {each for each in self._missed if session_node(each) != node}

    def receive(self, payload: ClusterPayload) -> None:
        """Carry out a call that came from another node; calls to what is gone are dropped."""
        kind = payload.WhichOneof("body")
        if kind in ("command", "resync", "window", "ask_withheld"):
            self._to_host(kind, payload)
        else:
            self._to_session(kind, payload)

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
