"""A client that sends and reads frames, and a shell without a socket."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from pamqp import body, commands, frame, header, heartbeat

from headrace_broker.codecs.method import encode_method
from headrace_broker.gateways.amqp.connection.connection import Connection
from headrace_broker.gateways.amqp.messages.consumer import ConsumerLink
from headrace_broker.gateways.publishing.shell import Shell
from headrace_broker.model.limits import OUTPUT_DELIVERY_BYTES_MAX, OUTPUT_RESUME_BYTES
from headrace_broker.model.message import DeliveryRun
from headrace_broker.runtime.broker_port import Broker
from headrace_broker.runtime.contract.port import (
    ACCEPT,
    ConnectionInfo,
    PendingConfirm,
    QueueClient,
    QueueListener,
)

HEADER = b"AMQP\x00\x00\x09\x01"


class FakeShell(Shell):
    """Keeps written bytes; the socket accepts all of it at once unless `stuck`."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.written = bytearray()
        self.stuck = False
        self.buffered = 0
        self.writes = 0
        self.woken = False
        self.reading = True
        self.timer = 0.0
        self.closed = ""
        self.was_released = False
        self.operations: list[Coroutine[Any, Any, None]] = []
        self.later: tuple[float, Callable[[], None]] | None = None

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.later = (seconds, callback)

    def wake(self) -> None:
        assert not self.woken
        self.woken = True

    def write(self, data: bytes) -> None:
        self.writes += 1
        self.written += data
        if self.stuck:
            before = self.buffered
            self.buffered += len(data)
            if before <= OUTPUT_DELIVERY_BYTES_MAX < self.buffered:
                assert self.connection is not None
                self.connection.writable_changed(False)

    def drain(self) -> None:
        """The socket takes everything."""
        self.stuck = False
        high = self.buffered > OUTPUT_RESUME_BYTES
        self.buffered = 0
        if high:
            assert self.connection is not None
            self.connection.writable_changed(True)

    def set_reading(self, reading: bool) -> None:
        assert reading != self.reading
        self.reading = reading

    def set_timer(self, seconds: float) -> None:
        self.timer = seconds

    def backlog(self) -> int:
        return self.buffered

    def start(self, operation: Coroutine[Any, Any, None]) -> None:
        self.operations.append(operation)

    def released(self) -> None:
        assert not self.was_released
        self.was_released = True

    def disconnect(self) -> None:
        self.closed = self.closed or "closed"

    def abort(self) -> None:
        self.closed = "aborted"

    def step(self) -> bool:
        """Run every operation up to where it waits; True when one has ended."""
        operations, self.operations = self.operations, []
        ended = False
        for operation in operations:
            try:
                operation.send(None)
                self.operations.append(operation)
            except StopIteration:
                ended = True
        return ended


Frame = Any


class Peer:
    """A client: sends frames, reads frames, loses none."""

    def __init__(self, broker: Broker, number: int, host: str = "127.0.0.1") -> None:
        self.broker = broker
        self.shell = FakeShell()
        self.info = ConnectionInfo(f"n1/1/{number}", "client", "127.0.0.1:1", 0)
        self.connection = Connection(broker, self.shell, self.info, host)
        self.shell.connection = self.connection

    def feed(self, data: bytes) -> None:
        self.connection.receive(data)

    def turn(self) -> list[tuple[int, Frame]]:
        """Let everything run that can, and return the frames that were written since."""
        while True:
            if self.shell.step():
                continue
            soon = getattr(self.broker, "soon", [])
            if soon:
                soon.pop(0)()
                continue
            if not self.shell.woken:
                break
            self.shell.woken = False
            self.connection.flush()
        return self.frames()

    def frames(self) -> list[tuple[int, Frame]]:
        found = []
        data = bytes(self.shell.written)
        self.shell.written.clear()
        while data:
            used, channel, value = frame.unmarshal(data)
            found.append((channel, value))
            data = data[used:]
        return found

    def call(self, channel: int, *methods: Frame) -> list[tuple[int, Frame]]:
        """Send methods in one chunk and return what comes back."""
        self.feed(b"".join(encode_method(channel, method) for method in methods))
        return self.turn()

    def ask(self, channel: int, method: Frame) -> Frame:
        """Send a method and return the one frame that comes back on its channel."""
        answers = self.call(channel, method)
        assert len(answers) == 1, answers
        assert answers[0][0] == channel
        return answers[0][1]

    def start_ok(self, password: str = "guest", **capabilities: Any) -> Frame:
        properties: dict[str, Any] = {"capabilities": capabilities}
        return commands.Connection.StartOk(properties, "PLAIN", f"\0guest\0{password}", "en_US")

    def open(
        self,
        channels: int = 1,
        heartbeat_s: int = 60,
        properties: dict[str, Any] | None = None,
        **capabilities: Any,
    ) -> Peer:
        """Go through the handshake, with more client properties, and open channels from 1 on."""
        self.feed(HEADER)
        assert isinstance(self.turn()[0][1], commands.Connection.Start)
        start_ok = self.start_ok(**capabilities)
        start_ok.client_properties.update(properties or {})
        tune = self.ask(0, start_ok)
        assert isinstance(tune, commands.Connection.Tune)
        tune_ok = commands.Connection.TuneOk(2047, 131072, heartbeat_s)
        opened = self.call(0, tune_ok, commands.Connection.Open("/"))
        assert isinstance(opened[0][1], commands.Connection.OpenOk)
        for channel in range(1, channels + 1):
            assert isinstance(self.ask(channel, commands.Channel.Open()), commands.Channel.OpenOk)
        return self


def publish_frames(
    channel: int,
    exchange: str,
    routing_key: str,
    payload: bytes,
    mandatory: bool = False,
    immediate: bool = False,
    properties: commands.Basic.Properties | None = None,
    frame_max: int = 131072,
) -> bytes:
    """The frames of one basic.publish."""
    method = commands.Basic.Publish(0, exchange, routing_key, mandatory, immediate)
    head = header.ContentHeader(0, len(payload), properties or commands.Basic.Properties())
    parts = [frame.marshal(method, channel), frame.marshal(head, channel)]
    for start in range(0, len(payload), frame_max - 8):
        part = payload[start : start + frame_max - 8]
        parts.append(frame.marshal(body.ContentBody(part), channel))
    return b"".join(parts)


class Kit:
    """Names that tests import from here: fixtures are the only way in importlib mode."""

    HEADER = HEADER
    ACCEPT = ACCEPT
    Peer = Peer
    Heartbeat = heartbeat.Heartbeat
    publish = staticmethod(publish_frames)


class Listener(QueueListener):
    """Ignores all events."""

    def on_confirmed(self, client: QueueClient, pending_confirms: list[PendingConfirm]) -> None: ...

    def on_rejected(self, client: QueueClient, pending_confirms: list[PendingConfirm]) -> None: ...

    def on_timed_out(self, client: QueueClient, consumer: int) -> None: ...

    def on_delivery(self, client: QueueClient, run: DeliveryRun) -> None: ...

    def on_cancelled(self, client: QueueClient, consumer: int, reason: str) -> None: ...

    def on_writable(self, client: QueueClient) -> None: ...


@pytest.fixture(scope="session")
def any_link(new_broker: type[Any]) -> ConsumerLink:
    """A link to some queue."""
    fakes = new_broker()
    return ConsumerLink(
        fakes.open_queue(fakes.add_queue("any").definition, Listener(), fakes.republish_account)
    )


@pytest.fixture(scope="session")
def kit() -> type[Kit]:
    return Kit


@pytest.fixture
def new_peer(broker: Broker) -> Callable[[], Peer]:
    """Makes clients of one broker."""
    numbers = iter(range(1, 1000))
    return lambda: Peer(broker, next(numbers))


@pytest.fixture
def peer(new_peer: Callable[[], Peer]) -> Peer:
    """A client with channel 1 open and all capabilities."""
    more: dict[str, Any] = {"connection.blocked": True}
    return new_peer().open(consumer_cancel_notify=True, authentication_failure_close=True, **more)


@pytest.fixture
def queue(broker):
    return broker.add_queue("q")


@pytest.fixture
def fill(kit, new_peer):
    """Publishes numbered bodies in one chunk."""
    publisher = new_peer().open()

    def publish(count: int, name: str = "q", size: int = 1) -> None:
        publisher.feed(
            b"".join(kit.publish(1, "", name, b"%0*d" % (size, n)) for n in range(count))
        )

    return publish
