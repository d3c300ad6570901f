"""Spans of messages: which there are, what they say, and that nothing piles up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pamqp.encode import field_table

from headrace_broker.codecs.batch import encode_batch
from headrace_broker.core.queue.command.command import ACCEPT, ENQUEUE_BATCH_OFFSET, REJECT
from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.model.definition import Queue
from headrace_broker.model.message import DeliveryRun, Publish
from headrace_broker.runtime.contract.queue_log import QueueLog
from headrace_broker.runtime.contract.trace_port import TRACING
from headrace_broker.runtime.metrics.tracing import tracing_samples
from headrace_broker.runtime.tracing.context import ContextReader, TraceContext
from headrace_broker.runtime.tracing.tracing import SpanTracer

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
QUEUE = Queue("/", "q", "quorum", 7, (1,))
SESSION = 99
MS = 1_000_000


class Blobs(QueueLog):
    """Entries by index, of which some are on a slow disk."""

    def __init__(self, entries: dict[int, bytes]) -> None:
        self.entries = entries
        self.reading: dict[int, Callable[[], None]] | None = None

    def entry_at_hand(self, index: int, done: Callable[[], None]) -> bytes | None:
        if self.reading is not None:
            self.reading[int(index)] = done
            return None
        return self.entries[index]

    def give_up(self, done: Callable[[], None]) -> None:
        assert self.reading is not None
        self.reading = {index: each for index, each in self.reading.items() if each != done}

    def read(self) -> None:
        """Let all entries come from the disk."""
        assert self.reading is not None
        reading, self.reading = self.reading, None
        for done in reading.values():
            done()

    def propose(self, data: bytes, urgent: bool) -> int:
        raise AssertionError

    def forget(self, index: int) -> None:
        raise AssertionError

    def leader(self) -> int:
        raise AssertionError


class Sink:
    """Keeps spans."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, TraceContext, int, int, dict[str, Any]]] = []

    def emit(self, *span: Any) -> None:
        self.spans.append(span)

    def kinds(self) -> list[str]:
        return [span[0] for span in self.spans]


class World:
    """A tracer whose clock stands still until it is moved."""

    def __init__(self, ratio: float = 1.0, pending_max: int = 100) -> None:
        self.now_ns = 1_700_000_000_000 * MS
        self.sink = Sink()
        reader = ContextReader(ratio)
        self.tracer = SpanTracer(self.sink, reader, lambda: self.now_ns, pending_max)


def properties(**headers: Any) -> bytes:
    """A property block with these headers."""
    return b"\x20\x00" + field_table(headers)


def publish(block: bytes, body: bytes = b"12345") -> Publish:
    return Publish(1, b"\x02ex\x03key", False, False, block, body)


def traced(body: bytes = b"12345") -> Publish:
    return publish(properties(traceparent=PARENT, tracestate="a=1"), body)


def run_of(first: int, *publishes: Publish) -> DeliveryRun:
    blob = encode_batch(list(publishes))
    redelivered = bytes(len(publishes))
    return DeliveryRun(3, first, blob, 0, list(range(len(publishes))), redelivered)


@pytest.fixture
def world() -> World:
    return World()


# Which messages


@pytest.mark.parametrize(
    ("block", "found"),
    [
        (properties(traceparent=PARENT), TraceContext(PARENT)),
        (properties(a=1, traceparent=PARENT, tracestate="k=v"), TraceContext(PARENT, "k=v")),
        (properties(traceparent=PARENT, tracestate=5), TraceContext(PARENT)),
        (
            properties(traceparent=PARENT.replace("00-4", "cc-4") + "-x"),
            TraceContext(PARENT.replace("00-4", "cc-4") + "-x"),
        ),
        (b"\x00\x00", None),
        (properties(), None),
        (properties(a="traceparent"), None),
        (properties(traceparent=7), None),
        (properties(traceparent=""), None),
        (properties(traceparent=PARENT[:-2] + "00"), None),  # not sampled
        (properties(traceparent=PARENT[:-2] + "02"), None),
        (properties(traceparent=PARENT.replace("00-4", "ff-4")), None),
        (properties(traceparent=PARENT.replace(TRACE, "0" * 32)), None),
        (properties(traceparent=PARENT.replace("00f067aa0ba902b7", "0" * 16)), None),
        (properties(traceparent=PARENT.upper()), None),
        (properties(traceparent=PARENT)[:-3], None),
        (b"\x20\x00\xff\xff\xff\xfftraceparent", None),
    ],
)
def test_contexts_that_are_well_formed_and_sampled_count(
    block: bytes, found: TraceContext | None
) -> None:
    assert ContextReader(1.0).read(block) == found


@pytest.mark.parametrize(("ratio", "taken"), [(0.0, 0), (0.25, 64), (1.0, 256)])
def test_a_share_of_the_traces_is_taken_by_their_ids(ratio: float, taken: int) -> None:
    reader = ContextReader(ratio)
    parents = [f"00-{'a' * 18}{high:02x}{'b' * 12}-00f067aa0ba902b7-01" for high in range(256)]
    found = [each for each in parents if reader.read(properties(traceparent=each))]
    assert len(found) == taken
    assert found == parents[:taken]


# Which spans


def test_a_message_has_five_spans_from_its_route_to_its_settlement(world: World) -> None:
    tracer, message = world.tracer, traced()
    began = tracer.now_ns()
    world.now_ns += 1 * MS
    tracer.handed(SESSION, 1, [publish(b"\x00\x00"), message], QUEUE)
    tracer.routed([publish(b"\x00\x00"), message], "/", (QUEUE,), began)
    arrived_ns = world.now_ns
    world.now_ns += 2 * MS
    tracer.applied(SESSION, 1)
    tracer.applied(SESSION, 2)
    acquired = Acquired(1, 5, 1, 5, 0, 0)
    acquired.arrived_ms = arrived_ns // MS
    blob = bytes(ENQUEUE_BATCH_OFFSET) + encode_batch([publish(b"\x00\x00"), message])
    world.now_ns += 4 * MS
    tracer.taken(QUEUE, [acquired], Blobs({5: blob}))
    tracer.delivered(SESSION, run_of(11, message), QUEUE)
    world.now_ns += 8 * MS
    tracer.settled(SESSION, 3, ACCEPT, 11, 11, 1)
    world.now_ns += 16 * MS
    tracer.answered(SESSION, 1)
    assert world.sink.kinds() == ["route", "commit", "queue", "deliver", "settle"]
    assert [(end - start) // MS for _, _, start, end, _ in world.sink.spans] == [1, 2, 6, 8, 16]
    assert {span[1] for span in world.sink.spans} == {TraceContext(PARENT, "a=1")}
    names = [span[4]["messaging.destination.name"] for span in world.sink.spans]
    assert names == ["ex", "q", "q", "q", "q"]
    assert all(span[4]["messaging.message.body.size"] == 5 for span in world.sink.spans)
    assert world.sink.spans[4][4]["headrace.outcome"] == "accept"
    assert tracer.pending == tracer.dropped == 0
    assert tracer.counts == dict.fromkeys(tracer.counts, 1)


def test_ranges_end_what_is_in_them_only(world: World) -> None:
    tracer = world.tracer
    tracer.delivered(SESSION, run_of(1, *[traced()] * 6), QUEUE)
    tracer.settled(SESSION, 3, REJECT, 2, 3, 5)
    assert world.sink.kinds() == ["deliver"] * 2
    tracer.settled(SESSION, 3, ACCEPT, 4, 1 << 40, 6)
    assert world.sink.kinds() == ["deliver"] * 5
    tracer.settled(SESSION, 4, ACCEPT, 1, 1, 6)
    tracer.settled(SESSION + 1, 3, ACCEPT, 1, 1, 6)
    assert tracer.pending == 1 + 5
    tracer.answered(SESSION, 5)
    assert world.sink.kinds()[5:] == ["settle"] * 2
    assert {span[4]["headrace.outcome"] for span in world.sink.spans[5:]} == {"reject"}
    tracer.answered(SESSION, 6)
    assert tracer.pending == 1


def test_a_session_that_is_over_leaves_nothing_open(world: World) -> None:
    tracer = world.tracer
    tracer.handed(SESSION, 1, [traced()], QUEUE)
    tracer.delivered(SESSION, run_of(1, traced(), traced()), QUEUE)
    tracer.settled(SESSION, 3, ACCEPT, 1, 1, 1)
    tracer.closed(SESSION + 1)
    assert tracer.pending == 3
    tracer.closed(SESSION)
    assert tracer.pending == 0
    assert sorted(world.sink.kinds()) == ["commit", "deliver", "deliver", "settle"]
    outcomes = [span[4]["headrace.outcome"] for span in world.sink.spans]
    assert outcomes.count("abandoned") == 3
    tracer.answered(SESSION, 1)
    tracer.applied(SESSION, 1)


def test_open_spans_are_bounded(world: World) -> None:
    world = World(pending_max=3)
    tracer = world.tracer
    tracer.handed(SESSION, 1, [traced()] * 5, QUEUE)
    tracer.delivered(SESSION, run_of(1, traced()), QUEUE)
    assert (tracer.pending, tracer.dropped) == (3, 3)
    tracer.applied(SESSION, 5)
    assert tracer.pending == 0
    tracer.delivered(SESSION, run_of(2, traced()), QUEUE)
    assert tracer.pending == 1


def test_a_span_does_not_end_before_it_begins(world: World) -> None:
    message = Acquired(1, 5, 0, 5, 0, 0)
    message.arrived_ms = world.now_ns // MS + 50  # the clock of another leader was ahead
    blob = bytes(ENQUEUE_BATCH_OFFSET) + encode_batch([traced()])
    world.tracer.taken(QUEUE, [message], Blobs({5: blob}))
    [(_, _, start, end, _)] = world.sink.spans
    assert start == end


def test_a_message_on_a_slow_disk_has_its_span_once_it_was_read(world: World) -> None:
    message = Acquired(1, 5, 0, 5, 0, 0)
    message.arrived_ms = world.now_ns // MS - 30
    blob = bytes(ENQUEUE_BATCH_OFFSET) + encode_batch([traced()])
    blobs = Blobs({5: blob})
    blobs.reading = {}
    world.tracer.taken(QUEUE, [message], blobs)
    assert (world.sink.spans, world.tracer.pending) == ([], 1)
    world.now_ns += 70 * MS  # that the disk took is no time in the queue
    blobs.read()
    [(kind, _, start, end, _)] = world.sink.spans
    assert (kind, end - start, world.tracer.pending) == ("queue", 30 * MS, 0)


def test_spans_that_wait_for_the_disk_are_bounded() -> None:
    world = World(pending_max=1)
    blobs = Blobs({})
    blobs.reading = {}
    messages = [Acquired(number, number, 0, 5, 0, 0) for number in (1, 2)]
    world.tracer.taken(QUEUE, messages, blobs)
    assert (list(blobs.reading), world.tracer.pending, world.tracer.dropped) == ([1], 1, 1)
    blobs.read()  # it was settled and forgotten meanwhile
    assert (world.sink.spans, world.tracer.pending, world.tracer.dropped) == ([], 0, 2)


def test_spans_are_counted_in_the_metrics(world: World) -> None:
    assert {sample.value for sample in tracing_samples()} == {0}
    TRACING.tracer = world.tracer
    try:
        world.tracer.handed(SESSION, 1, [traced()], QUEUE)
        world.tracer.routed([traced()], "/", (QUEUE,), world.now_ns)
        found = {(each.name, *each.labels): each.value for each in tracing_samples()}
    finally:
        TRACING.tracer = None
    assert found["trace_spans_pending",] == 1
    assert found["trace_spans_total", "route"] == 1
    assert found["trace_spans_total", "commit"] == 0
