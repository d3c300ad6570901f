"""Spans of messages: routed, committed, waiting in a queue, at a consumer, settled.

All of them are children of the context that the publisher put into the message's headers, so they
stand beside each other in its trace whichever nodes they come from. The headers stay as they are.
A span is made when it is over; until then little more than its context is kept, within a bound.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from mypy_extensions import i64
from typing_extensions import override

from headrace_broker.codecs.batch import message_body_bytes, message_properties
from headrace_broker.core.queue.command.command import (
    ACCEPT,
    ENQUEUE_BATCH_OFFSET,
    MODIFY_FAILED,
    REJECT,
    RELEASE,
)
from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import TRACE_PENDING_MAX
from headrace_broker.model.message import DeliveryRun, Publish
from headrace_broker.runtime.contract.queue_log import QueueLog
from headrace_broker.runtime.contract.trace_port import Tracer
from headrace_broker.runtime.tracing.context import ContextReader, TraceContext
from headrace_raftlog.model.errors import CorruptLogError

ROUTE: Final = "route"
COMMIT: Final = "commit"
QUEUED: Final = "queue"
DELIVER: Final = "deliver"
SETTLE: Final = "settle"
KINDS: Final = (ROUTE, COMMIT, QUEUED, DELIVER, SETTLE)

MS_NS: Final = 1_000_000
OPERATIONS: Final = {
    ACCEPT: "accept",
    RELEASE: "release",
    REJECT: "reject",
    MODIFY_FAILED: "modify_failed",
}
ABANDONED: Final = "abandoned"  # the session ended first

Value = str | int | bool


class SpanSink(Protocol):
    """Destination of spans."""

    def emit(
        self,
        kind: str,  # of KINDS
        context: TraceContext,
        start_ns: int,  # Unix time
        end_ns: int,
        attributes: dict[str, Value],
    ) -> None:
        """Take a span that is over; never blocks."""


class _Open(NamedTuple):
    """A span that is not over."""

    number: int  # by which its end is told
    context: TraceContext
    start_ns: int
    attributes: dict[str, Value]


class _Taken:
    """A delivered message, whose context stands in an entry of the log."""

    def __init__(
        self, tracer: SpanTracer, queue: Queue, message: Acquired, log: QueueLog, now_ns: int
    ) -> None:
        self.queue = queue
        self.message = message
        self.now_ns = now_ns
        self.waits = False  # the entry is being read, and the span counts as pending
        self._tracer = tracer
        self._log = log

    def poll(self) -> bool:
        """End the span where the entry is at hand; False while it is being read."""
        entry: bytes | None = None
        try:
            entry = self._log.entry_at_hand(self.message.entry_index, self.read)
        except (KeyError, CorruptLogError, OSError):  # who delivers the message says so
            self._tracer.waited(self, None)
            return True
        if entry is not None:
            self._tracer.waited(self, entry)
        return entry is not None

    def read(self) -> None:
        """Read the entry again."""
        self.poll()


class SpanTracer(Tracer):
    """Maker of spans."""

    def __init__(
        self,
        sink: SpanSink,
        reader: ContextReader,
        clock_ns: Callable[[], int] = time.time_ns,
        pending_max: int = TRACE_PENDING_MAX,
    ) -> None:
        self.counts = dict.fromkeys(KINDS, 0)  # spans that were made, by kind
        self.dropped = 0  # spans for which there was no room
        self.pending = 0  # spans that are open
        self._sink = sink  # takes them
        self._reader = reader  # says which messages are traced
        self._clock_ns = clock_ns  # Unix time
        self._pending_max = pending_max  # spans that may be open; others are left out
        self._commits: dict[int, deque[_Open]] = {}  # by session, ascending
        self._deliveries: dict[int, dict[int, dict[int, _Open]]] = {}  # session, consumer, number
        self._settles: dict[int, deque[_Open]] = {}  # by session, ascending

    # Publishing

    @override
    def now_ns(self) -> int:
        return self._clock_ns()

    @override
    def routed(
        self, publishes: list[Publish], vhost: str, queues: tuple[Queue, ...], began_ns: int
    ) -> None:
        for publish in publishes:
            context = self._reader.read(publish.properties)
            if context is None:
                continue
            exchange, key = _route_of(publish.route)
            attributes: dict[str, Value] = {
                "messaging.destination.name": exchange,
                "messaging.operation.type": "send",
                "messaging.message.body.size": len(publish.body),
                "headrace.routing_key": key,
                "headrace.vhost": vhost,
                "headrace.queue_count": len(queues),
            }
            self._emit(ROUTE, context, began_ns, attributes)

    @override
    def handed(self, session: int, first: i64, publishes: list[Publish], queue: Queue) -> None:
        for offset, publish in enumerate(publishes):
            context = self._reader.read(publish.properties)
            if context is not None and self._has_room():
                attributes = _about(queue, "send", len(publish.body))
                span = _Open(int(first) + offset, context, self._clock_ns(), attributes)
                self._commits.setdefault(session, deque()).append(span)

    @override
    def applied(self, session: int, last: i64) -> None:
        self._end_up_to(COMMIT, self._commits, session, int(last))

    # Consuming

    @override
    def taken(self, queue: Queue, messages: list[Acquired], log: QueueLog) -> None:
        now_ns = self._clock_ns()
        for message in messages:
            taken = _Taken(self, queue, message, log, now_ns)
            if not taken.poll():
                if self._has_room():
                    taken.waits = True
                else:
                    log.give_up(taken.read)

    def waited(self, taken: _Taken, entry: bytes | None) -> None:
        """End the span of a message that waited in its queue; None where its entry is gone."""
        if taken.waits:
            self.pending -= 1
        if entry is None:
            self.dropped += 1
            return
        message = taken.message
        properties = message_properties(entry, ENQUEUE_BATCH_OFFSET, int(message.position))
        context = self._reader.read(properties)
        if context is None:
            return
        attributes = _about(taken.queue, "receive", int(message.byte_count))
        attributes["headrace.acquired_count"] = int(message.acquired_count)
        arrived_ns = int(message.arrived_ms) * MS_NS
        self._emit(QUEUED, context, arrived_ns or taken.now_ns, attributes, taken.now_ns)

    @override
    def delivered(self, session: int, run: DeliveryRun, queue: Queue) -> None:
        for offset, position in enumerate(run.positions):
            properties = message_properties(run.blob, run.base, position)
            context = self._reader.read(properties)
            if context is None or not self._has_room():
                continue
            size = int(message_body_bytes(run.blob, run.base, position))
            attributes = _about(queue, "receive", size)
            attributes["headrace.redelivered"] = bool(run.redelivered[offset])
            number = int(run.first) + offset
            span = _Open(number, context, self._clock_ns(), attributes)
            consumers = self._deliveries.setdefault(session, {})
            consumers.setdefault(int(run.consumer), {})[number] = span

    @override
    def settled(
        self, session: int, consumer: int, operation: int, first: int, last: int, command: i64
    ) -> None:
        spans = self._deliveries.get(session, {}).get(consumer)
        if not spans:
            return
        if last - first >= len(spans):
            numbers = [number for number in spans if first <= number <= last]
        else:
            numbers = [number for number in range(first, last + 1) if number in spans]
        now_ns = self._clock_ns()
        for number in numbers:
            span = spans.pop(number)
            outcome = OPERATIONS.get(operation, str(operation))
            attributes = span.attributes | {"headrace.outcome": outcome}
            self._end(DELIVER, span, now_ns, attributes)
            self.pending += 1
            attributes = attributes | {"messaging.operation.type": "settle"}
            settle = _Open(int(command), span.context, now_ns, attributes)
            self._settles.setdefault(session, deque()).append(settle)

    @override
    def answered(self, session: int, command: i64) -> None:
        self._end_up_to(SETTLE, self._settles, session, int(command))

    @override
    def closed(self, session: int) -> None:
        deliveries = self._deliveries.pop(session, {})
        self._abandon(COMMIT, self._commits.pop(session, ()))
        self._abandon(SETTLE, self._settles.pop(session, ()))
        for spans in deliveries.values():
            self._abandon(DELIVER, spans.values())

    # Inner

    def _has_room(self) -> bool:
        if self.pending >= self._pending_max:
            self.dropped += 1
            return False
        self.pending += 1
        return True

    def _end_up_to(
        self, kind: str, opened: dict[int, deque[_Open]], session: int, last: int
    ) -> None:
        spans = opened.get(session)
        if spans is None:
            return
        now_ns = self._clock_ns()
        while spans and spans[0].number <= last:
            span = spans.popleft()
            self._end(kind, span, now_ns, span.attributes)
        if not spans:
            del opened[session]

    def _abandon(self, kind: str, spans: Iterable[_Open]) -> None:
        now_ns = self._clock_ns()
        for span in spans:
            self._end(kind, span, now_ns, span.attributes | {"headrace.outcome": ABANDONED})

    def _end(self, kind: str, span: _Open, now_ns: int, attributes: dict[str, Value]) -> None:
        self.pending -= 1
        self._emit(kind, span.context, span.start_ns, attributes, now_ns)

    def _emit(
        self,
        kind: str,
        context: TraceContext,
        start_ns: int,
        attributes: dict[str, Value],
        end_ns: int = 0,
    ) -> None:
        end_ns = max(end_ns or self._clock_ns(), start_ns)  # clocks of nodes differ
        self.counts[kind] += 1
        self._sink.emit(kind, context, start_ns, end_ns, attributes)


def _about(queue: Queue, operation: str, byte_count: int) -> dict[str, Value]:
    return {
        "messaging.destination.name": queue.name,
        "messaging.operation.type": operation,
        "messaging.message.body.size": byte_count,
        "headrace.vhost": queue.vhost,
    }


def _route_of(route: bytes) -> tuple[str, str]:
    """Return exchange and routing key for people."""
    stop = 1 + route[0]
    return route[1:stop].decode(errors="replace"), route[stop + 1 :].decode(errors="replace")
