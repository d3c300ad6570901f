"""Payloads between sessions and the replicas that lead their queues: calls of `lane_port`.

Each knows which call it is, and makes it at the end that it was sent to. These are on the path of
every message; MessagePack by msgspec takes a tenth of the time that protobuf took.
"""

from __future__ import annotations

import msgspec
from typing_extensions import override

from headrace_broker.model.message import DeliveryRun
from headrace_broker.runtime.contract.lane_port import HostEnd, SessionEnd
from headrace_broker.runtime.contract.payload import Payload


class ToHost(Payload):
    """To the replica of a queue on another node."""

    group: int  # of the queue
    session: int  # who calls

    def call(self, host: HostEnd) -> None:
        """Make the call at a replica."""
        raise NotImplementedError


class Command(ToHost, tag="command"):
    """`HostEnd.command`, or `caused` where there are causes."""

    data: bytes = b""  # the command; of a large one it follows the payload
    causes: list[int] = msgspec.field(default_factory=list)

    @override
    def call(self, host: HostEnd) -> None:
        if self.causes:
            host.caused(self.session, self.data, self.causes)
        else:
            host.command(self.session, self.data)


class Resync(ToHost, tag="resync"):
    """`HostEnd.resync`."""

    consumer: int
    number: int
    window: int
    attached: bool
    filter_table: bytes

    @override
    def call(self, host: HostEnd) -> None:
        where = (self.consumer, self.number, self.window)
        host.resync(self.session, *where, self.attached, self.filter_table)


class AskDeferred(ToHost, tag="ask_deferred"):
    """`HostEnd.ask_deferred`."""

    @override
    def call(self, host: HostEnd) -> None:
        host.ask_deferred(self.session)


class Window(ToHost, tag="window"):
    """`HostEnd.window`."""

    consumer: int
    byte_count: int

    @override
    def call(self, host: HostEnd) -> None:
        host.window(self.session, self.consumer, self.byte_count)


class ToSession(Payload):
    """To a session on the node of its gateway."""

    session: int

    def call(self, end: SessionEnd) -> None:
        """Make the call at the session."""
        raise NotImplementedError


class Enqueued(ToSession, tag="enqueued"):
    """`SessionEnd.enqueued`, and what was said before of the same publishes."""

    first: int
    last: int
    # first and last number of each row, and so on
    refused: list[int] = msgspec.field(default_factory=list)
    # likewise, of those whose publisher has published under a later epoch since
    fenced: list[int] = msgspec.field(default_factory=list)
    deferred: list[int] = msgspec.field(default_factory=list)  # as in `SessionEnd.deferred`

    @override
    def call(self, end: SessionEnd) -> None:
        for rows, fenced in ((self.refused, False), (self.fenced, True)):
            for at in range(0, len(rows) - 1, 2):
                end.rejected(rows[at], rows[at + 1], fenced)
        if self.deferred:
            end.deferred(_even(self.deferred))
        end.enqueued(self.first, self.last)


class Completed(ToSession, tag="completed"):
    """`SessionEnd.completed`."""

    rows: list[int]

    @override
    def call(self, end: SessionEnd) -> None:
        end.completed(_even(self.rows))


class StillDeferred(ToSession, tag="still_deferred"):
    """`SessionEnd.still_deferred`."""

    last: int
    rows: list[int]

    @override
    def call(self, end: SessionEnd) -> None:
        end.still_deferred(self.last, _even(self.rows))


class Controlled(ToSession, tag="controlled"):
    """`SessionEnd.controlled`."""

    number: int
    status: int
    count: int

    @override
    def call(self, end: SessionEnd) -> None:
        end.controlled(self.number, self.status, self.count)


class Run(ToSession, tag="run"):
    """`SessionEnd.run`."""

    consumer: int
    first: int
    redelivered: bytes
    counts: bytes
    batch: bytes = b""  # the messages; of large ones they follow the payload

    def run(self, blob: bytes, base: int) -> DeliveryRun:
        """Return the run with its messages, which are a batch at an offset of a blob."""
        positions = list(range(len(self.redelivered)))
        return DeliveryRun(
            self.consumer, self.first, blob, base, positions, self.redelivered, self.counts
        )

    @override
    def call(self, end: SessionEnd) -> None:
        self.call_with(end, self.batch, 0)

    def call_with(self, end: SessionEnd, blob: bytes, base: int) -> None:
        """Make the call with messages that stand elsewhere."""
        end.run(self.run(blob, base))


class Got(ToSession, tag="got"):
    """`SessionEnd.got`."""

    number: int
    ready_left: int
    run: Run | None  # None when the queue was empty

    @override
    def call(self, end: SessionEnd) -> None:
        run = self.run
        end.got(self.number, None if run is None else run.run(run.batch, 0), self.ready_left)

    def call_with(self, end: SessionEnd, blob: bytes, base: int) -> None:
        """Make the call with a message that stands elsewhere."""
        run = self.run
        end.got(self.number, None if run is None else run.run(blob, base), self.ready_left)


class Gap(ToSession, tag="gap"):
    """`SessionEnd.gap`."""

    lane: int
    expected: int

    @override
    def call(self, end: SessionEnd) -> None:
        end.gap(self.lane, self.expected)


class Refused(ToSession, tag="refused"):
    """`SessionEnd.refused`."""

    leader: int
    busy: bool
    unknown: bool

    @override
    def call(self, end: SessionEnd) -> None:
        end.refused(self.leader, self.busy, self.unknown)


class Detached(ToSession, tag="detached"):
    """`SessionEnd.detached`."""

    consumer: int

    @override
    def call(self, end: SessionEnd) -> None:
        end.detached(self.consumer)


class TimedOut(ToSession, tag="timed_out"):
    """`SessionEnd.timed_out`."""

    consumer: int

    @override
    def call(self, end: SessionEnd) -> None:
        end.timed_out(self.consumer)


FRAMES = (
    *(Command, Resync, AskDeferred, Window, Enqueued, Completed, StillDeferred, Controlled),
    *(Run, Got, Gap, Refused, Detached, TimedOut),
)


def _even(rows: list[int]) -> list[int]:
    """Return received numbers as rows; a number without its end is dropped."""
    return rows[: len(rows) // 2 * 2]
