"""The asyncio end of a connection: a socket, a timer and tasks, and no decisions."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from headrace_broker.codecs.delivery_encoder import BodyFrames
from headrace_broker.gateways.amqp.connection.connection import Connection
from headrace_broker.gateways.amqp.connection.pace import Pace
from headrace_broker.gateways.amqp.connection.socket_output import SocketOutput
from headrace_broker.gateways.publishing.shell import Shell
from headrace_broker.model.limits import OUTPUT_DELIVERY_BYTES_MAX, OUTPUT_RESUME_BYTES
from headrace_broker.model.tls import TlsSession
from headrace_broker.runtime.broker_port import Broker
from headrace_broker.runtime.contract.port import ConnectionInfo
from headrace_broker.runtime.security.audit import ACTOR, Actor

PROTOCOL: Final = "amqp"


def _endpoint(address: Any) -> str:
    """Return "host:port" of a socket name; other sockets than TCP return theirs."""
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else str(address)


class AmqpProtocol(asyncio.BufferedProtocol, Shell):
    """Carries bytes and calls between an asyncio transport and a `Connection`."""

    def __init__(
        self,
        broker: Broker,
        connection_id: str,
        start: Callable[[Coroutine[Any, Any, None]], None],
        closed: Callable[[AmqpProtocol], None],
        pace: Pace,
        describe: Callable[[asyncio.BaseTransport], TlsSession] | None = None,
    ) -> None:
        self.connection: Connection | None = None
        self._info: ConnectionInfo | None = None
        self._broker = broker  # the node
        self._id = connection_id  # unique in the cluster for ever
        self._start = start  # runs an operation as a task
        self._closed = closed  # told when the socket is gone
        self._pace = pace  # what the node's sockets share
        self._offered = 0  # bytes that the read under way may bring
        self._reading = True  # the connection wants to read
        self._paused = False  # the socket has had its piece for this turn
        # tells what the TLS handshake of a transport has agreed, None in the clear
        self._describe = describe
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._later: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._output = SocketOutput(self._loop, self._writable_changed)

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket and wait for the client's header; drop one whose client has gone."""
        self._transport = self._output.transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(OUTPUT_DELIVERY_BYTES_MAX, OUTPUT_RESUME_BYTES)
        peer = transport.get_extra_info("peername")
        local = transport.get_extra_info("sockname")
        if peer is None and isinstance(local, tuple):  # a reset socket has no peer any more
            self._transport.abort()
            return
        name = f"{_endpoint(peer)} -> {_endpoint(local)}"
        info = ConnectionInfo(self._id, name, _endpoint(peer), time.time_ns() // 1_000_000)
        if self._describe is not None:
            info.tls = self._describe(transport)
        host = peer[0] if isinstance(peer, tuple) else "127.0.0.1"  # other sockets are local
        self._info = info
        self.connection = Connection(self._broker, self, info, host)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Offer as much as this connection may bring in now."""
        assert self.connection is not None
        pace = self._pace
        byte_count = int(self.connection.output.share.read_bytes(pace.piece))
        self._offered = byte_count
        return pace.view[:byte_count]

    def buffer_updated(self, nbytes: int) -> None:
        """Hand over the input; if there may be more, the others have their turn first."""
        assert self.connection is not None
        self.connection.receive(bytes(self._pace.view[:nbytes]))
        if nbytes == self._offered and self._reading and not self._paused:
            self._paused = True
            self._switch(False)
            self._pace.wait(self._read_on)

    def _read_on(self) -> None:
        self._paused = False
        if self._reading:
            self._switch(True)

    def _switch(self, reading: bool) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        """The socket's buffer is above the high-water mark."""
        self._output.pause()

    def resume_writing(self) -> None:
        """It is below the low-water mark again."""
        self._output.resume()

    def _writable_changed(self, writable: bool) -> None:
        if self.connection is not None:
            self.connection.writable_changed(writable)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection; its operations run to their end."""
        self._output.drop()
        self.set_timer(0)
        if self._later is not None:
            self._later.cancel()
        if self.connection is not None:
            self.connection.lost()
        else:
            self._closed(self)

    # Called by the connection

    def wake(self) -> None:
        """See `Shell`."""
        if self.connection is not None:
            self._loop.call_soon(self.connection.flush)

    def write(self, data: bytes) -> None:
        """See `Shell`."""
        self._output.write(data)

    def write_body(self, body: BodyFrames) -> None:
        """See `Shell`."""
        self._output.write_body(body)

    def set_reading(self, reading: bool) -> None:
        """See `Shell`."""
        self._reading = reading
        if not self._paused:
            self._switch(reading)

    def set_timer(self, seconds: float) -> None:
        """See `Shell`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds:
            self._timer = self._loop.call_later(seconds, self._fire)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        """See `Shell`."""
        if self._later is not None:
            self._later.cancel()
        self._later = self._loop.call_later(seconds, callback)

    def _fire(self) -> None:
        if self.connection is not None:
            self.connection.timer_fired()

    def backlog(self) -> int:
        """See `Shell`."""
        return self._output.backlog()

    def start(self, operation: Coroutine[Any, Any, None]) -> None:
        """See `Shell`."""
        info = self._info
        assert info is not None, "only connections start operations"
        actor = Actor(info.user, info.peer, PROTOCOL, info.id)
        context = contextvars.copy_context()
        context.run(ACTOR.set, actor)
        context.run(self._start, operation)

    def released(self) -> None:
        """See `Shell`."""
        self.connection = None  # no cycle is left: all of it is freed now
        self._closed(self)

    def disconnect(self) -> None:
        """See `Shell`."""
        self._output.close()

    def abort(self) -> None:
        """See `Shell`."""
        self._output.abort()
