"""A publish stream without its call: the window, and what its client is told with it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headrace_broker.flow.activity import Activity
from headrace_broker.gateways.grpc.messaging.publish_stream import PublishStream
from headrace_broker.gateways.publishing.shell import Shell
from headrace_broker.model.flow import LIMIT_DISK, LIMIT_WATERMARK
from headrace_broker.model.message import Publish
from headrace_broker.model.reply_code import NOT_IMPLEMENTED
from headrace_broker.runtime.contract.port import ConnectionInfo, PendingConfirm


class Timer(Shell):
    """Keeps the timer that was set last."""

    def __init__(self) -> None:
        self.later: tuple[float, Callable[[], None]] | None = None

    def wake(self) -> None:
        pass

    def write(self, data: bytes) -> None:
        raise AssertionError("a stream writes no bytes")

    def set_reading(self, reading: bool) -> None:
        pass

    def set_timer(self, seconds: float) -> None:
        raise AssertionError("a stream has no heartbeat")

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.later = (seconds, callback)

    def backlog(self) -> int:
        return 0

    def start(self, operation: Coroutine[Any, Any, None]) -> None:
        operation.close()

    def disconnect(self) -> None:
        raise AssertionError("nothing is wrong")

    def abort(self) -> None:
        raise AssertionError("nothing is wrong")

    def fire(self) -> None:
        """Call back whoever waits."""
        assert self.later is not None
        self.later[1]()


@pytest.fixture
def shell() -> Timer:
    return Timer()


@pytest.fixture
def stream(broker: Any, shell: Timer) -> PublishStream:
    info = ConnectionInfo("n1/1/1", "client", "127.0.0.1:1", 0)
    info.vhost, info.user = "/", "guest"
    info.flow = Activity(0, broker.ledger.stops)
    made = PublishStream(broker, shell, info, True)
    made.begin()
    return made


def defer(broker: Any, stream: PublishStream) -> PendingConfirm:
    """Defer the confirm of one publish, and return its pending confirm."""
    queue = broker.add_queue("q").definition
    pending_confirm = stream.confirms.issue(1, 1)
    stream.on_deferred(stream.links.open(queue).client, [pending_confirm])
    return pending_confirm


def test_deferred_confirms_are_told_with_an_open_window(
    broker: Any, stream: PublishStream, shell: Timer
) -> None:
    defer(broker, stream)
    assert not stream.told.is_on
    shell.fire()
    assert (stream.told.limit, stream.told.group) == (LIMIT_WATERMARK, 1)
    assert stream.told.reason == "the limit 'watermark' of queue 'q' holds the stream back"
    assert stream.window.messages > 0


def test_deferred_confirms_do_not_open_the_window_during_an_alarm(
    broker: Any, stream: PublishStream, shell: Timer
) -> None:
    defer(broker, stream)
    broker.block("low")
    shell.fire()
    stream.end_batch()
    assert (stream.told.limit, stream.told.reason) == (LIMIT_DISK, "low")
    assert stream.window.messages == 0
    broker.block("")
    assert not stream.told.is_on
    assert stream.window.messages > 0


def test_a_stream_that_is_over_hears_of_no_alarm(broker: Any, stream: PublishStream) -> None:
    stream.close()
    broker.block("low")
    assert not stream.told.is_on


def publish(sequence: int, immediate: bool = False, name: bytes = b"q") -> Publish:
    route = b"\x00" + bytes([len(name)]) + name
    return Publish(sequence, route, False, immediate, b"\x00\x00", b"x")


def test_a_watermark_is_told_no_more_once_what_was_held_has_gone(
    broker: Any, stream: PublishStream, shell: Timer
) -> None:
    pending_confirm = defer(broker, stream)
    shell.fire()
    queue = broker.queues["q"]
    queue.gate.set_room(False)
    stream.accept([publish(2)])
    stream.on_completed(stream.links.open(queue.definition).client, [pending_confirm], 1)
    assert stream.told.limit == LIMIT_WATERMARK
    queue.gate.set_room(True)
    queue.gate.serve(1 << 20)
    stream.flush()
    assert len(queue.ready) == 1
    assert not stream.told.is_on


def test_a_watermark_is_told_again_after_an_alarm(
    broker: Any, stream: PublishStream, shell: Timer
) -> None:
    defer(broker, stream)
    shell.fire()
    broker.block("low")
    broker.block("")
    assert not stream.told.is_on
    shell.fire()
    assert stream.told.limit == LIMIT_WATERMARK


def test_what_cannot_be_handed_out_is_refused(broker: Any, stream: PublishStream) -> None:
    queue = broker.add_queue("q")
    stream.accept([publish(1, immediate=True), publish(2, immediate=True)])
    [refusal] = stream.publisher.refusals
    assert refusal[:3] == (1, 2, NOT_IMPLEMENTED)
    stream.accept([publish(3)])
    stream.end_batch()
    assert len(queue.ready) == 1
    assert not stream.crashed


def test_an_alarm_that_is_over_is_not_told_as_what_holds_the_stream(
    broker: Any, stream: PublishStream, shell: Timer
) -> None:
    broker.add_queue("q")
    broker.block("low")
    stream.accept([publish(1, name=b"unknown")])  # looked up once the alarm is over
    stream.accept([publish(2)])
    broker.block("")
    stream.output.flush()
    assert (stream.is_busy, stream.flow.limit) == (True, LIMIT_DISK)
    shell.fire()
    assert "holds the stream back" not in stream.told.reason
