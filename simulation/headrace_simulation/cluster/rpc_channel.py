"""Stand-in of `grpc.aio`'s channel, over connections of the simulated network."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, Final, final

import grpc
from grpc import StatusCode

from headrace_simulation.cluster.loop import VirtualLoop
from headrace_simulation.cluster.process import Process
from headrace_simulation.cluster.rpc import Messages, Pairs

CONNECT_S: Final = 20.0  # gRPC's patience with an attempt to connect
KEEPALIVE_S: Final = 10.0  # without a byte, after which calls fail; a ping goes at a third of it
BUFFERED_MAX: Final = 8  # messages of a stream that wait for the caller
EOF: Final[Any] = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs leave it out
NO_METADATA: Final = grpc.aio.Metadata()


class VirtualCall:
    """A call: what both kinds have in common."""

    def __init__(self, channel: VirtualChannel, deserializer: Callable[[bytes], Any]) -> None:
        self._channel = channel
        self._deserializer = deserializer
        self.number = 0
        loop = asyncio.get_running_loop()
        self._head: asyncio.Future[Pairs] = loop.create_future()
        self._messages: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._status: tuple[StatusCode, str, Pairs] | None = None
        self._cancelled = False
        self._deadline: asyncio.TimerHandle | None = None

    def limit(self, timeout: float | None) -> None:
        """Let the call fail after a time."""
        if timeout is not None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(
                timeout, self._channel.fail, self, StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"
            )

    def take(self, message: tuple[Any, ...]) -> None:
        """Take what came for this call."""
        kind = message[0]
        if kind == "head" and not self._head.done():
            self._head.set_result(message[2])
        elif kind == "message":
            self._messages.append(message[2])
            self._news.set()
        elif kind == "end":
            self.end(StatusCode[message[2]], message[3], message[4])

    @property
    def is_full(self) -> bool:
        """True if much waits to be read."""
        return len(self._messages) >= BUFFERED_MAX

    def end(self, code: StatusCode, details: str, trailing: Pairs = ()) -> None:
        """Note how the call ended."""
        if self._status is not None:
            return
        self._status = (code, details, trailing)
        if self._deadline is not None:
            self._deadline.cancel()
        if not self._head.done():
            self._head.set_result(())
        self._news.set()

    def cancel(self) -> bool:
        """See `grpc.aio.Call`."""
        if self._status is not None:
            return False
        self._cancelled = True
        self._channel.give_up(self)
        self.end(StatusCode.CANCELLED, "Locally cancelled by application!")
        return True

    def done(self) -> bool:
        """See `grpc.aio.Call`."""
        return self._status is not None

    def cancelled(self) -> bool:
        """See `grpc.aio.Call`."""
        return self._cancelled

    async def initial_metadata(self) -> Any:
        """See `grpc.aio.Call`."""
        return grpc.aio.Metadata(*await asyncio.shield(self._head))

    async def code(self) -> StatusCode:
        """See `grpc.aio.Call`."""
        while self._status is None:
            self._news.clear()
            await self._news.wait()
        return self._status[0]

    async def _next(self) -> Any:
        """Return the next message, EOF after the last one of a call that ended well."""
        while not self._messages:
            if self._status is not None:
                self._raise(self._status)
                return EOF
            self._news.clear()
            try:
                await self._news.wait()
            except asyncio.CancelledError:
                self.cancel()
                raise
        body = self._messages.popleft()
        self._channel.read_on(self)
        return self._deserializer(body)

    def _raise(self, status: tuple[StatusCode, str, Pairs]) -> None:
        code, details, trailing = status
        if self._cancelled:
            raise asyncio.CancelledError
        if code is not StatusCode.OK:
            raise grpc.aio.AioRpcError(
                code, NO_METADATA, grpc.aio.Metadata(*trailing), details, details
            )


@final
class UnaryCall(VirtualCall):
    """A call with one answer."""

    def __await__(self) -> Generator[Any, None, Any]:
        return self._answer().__await__()

    async def _answer(self) -> Any:
        answer = await self._next()
        if await self.code() is not StatusCode.OK:
            await self._next()  # raises
        return answer


@final
class StreamCall(VirtualCall):
    """A call with a stream of answers."""

    async def read(self) -> Any:
        """See `grpc.aio.UnaryStreamCall`."""
        return await self._next()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._all()

    async def _all(self) -> AsyncIterator[Any]:
        while (message := await self._next()) is not EOF:
            yield message


@final
class VirtualChannel:
    """A gRPC channel of a simulated process: one connection, made when it is needed."""

    def __init__(self, process: Process, target: str) -> None:
        self._process = process
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._loop: VirtualLoop = asyncio.get_running_loop()  # type: ignore[assignment]
        self._calls: dict[int, VirtualCall] = {}
        self._next = 0
        self._connection: Messages | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._keepalive: asyncio.TimerHandle | None = None
        self._waiting: list[tuple[Any, ...]] = []
        self._closed = False

    async def __aenter__(self) -> VirtualChannel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close(None)

    def unary_unary(
        self, method: str, request_serializer: Any, response_deserializer: Any, **_: Any
    ) -> Any:
        """See `grpc.aio.Channel`."""

        def call(request: Any, *, timeout: float | None = None, metadata: Any = ()) -> UnaryCall:
            made = UnaryCall(self, response_deserializer)
            self._begin(made, method, request_serializer(request), metadata, timeout)
            return made

        return call

    def unary_stream(
        self, method: str, request_serializer: Any, response_deserializer: Any, **_: Any
    ) -> Any:
        """See `grpc.aio.Channel`."""

        def call(request: Any, *, timeout: float | None = None, metadata: Any = ()) -> StreamCall:
            made = StreamCall(self, response_deserializer)
            self._begin(made, method, request_serializer(request), metadata, timeout)
            return made

        return call

    def stream_stream(
        self, method: str, request_serializer: Any, response_deserializer: Any, **_: Any
    ) -> Any:
        """See `grpc.aio.Channel`; frames of simulated nodes travel over TCP."""
        del request_serializer, response_deserializer

        def call(**_: Any) -> Any:
            raise grpc.aio.UsageError(f"{method} is not simulated")

        return call

    def _begin(
        self, call: VirtualCall, method: str, body: bytes, metadata: Any, timeout: float | None
    ) -> None:
        if self._closed:
            raise grpc.aio.UsageError("Channel is closed.")
        self._next += 1
        call.number = self._next
        self._calls[call.number] = call
        call.limit(timeout)
        pairs = tuple(tuple(pair) for pair in metadata or ())
        self._send("call", call.number, method, pairs, body)

    def _send(self, *message: Any) -> None:
        if self._connection is not None:
            self._connection.send(*message)
            return
        self._waiting.append(message)
        if self._connecting is None:
            self._connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                _, connection = await self._loop.create_connection(Messages, self._host, self._port)
        except OSError as error:
            self._waiting.clear()
            self._fail_all(f"failed to connect to all addresses; last error: {error}")
            return
        finally:
            self._connecting = None
        connection.on_message = self._take
        connection.on_lost = lambda: self._lost(connection)
        self._connection = connection
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            connection.send(*message)
        self._watch()

    def _watch(self) -> None:
        connection = self._connection
        self._keepalive = None
        if connection is None:
            return
        if self._calls and self._loop.time() - connection.heard_at >= KEEPALIVE_S:
            connection.close()
            self._lost(connection)
            return
        if self._calls:
            connection.send("ping")
        self._keepalive = self._loop.call_later(KEEPALIVE_S / 3, self._watch)

    def _take(self, message: tuple[Any, ...]) -> None:
        if message[0] == "pong":
            return
        call = self._calls.get(message[1])
        if call is None:
            return
        call.take(message)
        if call.done():
            del self._calls[call.number]
        elif call.is_full and self._connection is not None:
            assert self._connection.transport is not None
            self._connection.transport.pause_reading()

    def read_on(self, call: VirtualCall) -> None:
        """Take more from the connection: a call has read."""
        del call
        if self._connection is not None and self._connection.transport is not None:
            self._connection.transport.resume_reading()

    def give_up(self, call: VirtualCall) -> None:
        """Cancel a call at the server."""
        if self._calls.pop(call.number, None) is not None and self._connection is not None:
            self._connection.send("cancel", call.number)
            self.read_on(call)

    def fail(self, call: VirtualCall, code: StatusCode, details: str) -> None:
        """End a call that takes too long."""
        self.give_up(call)
        call.end(code, details)

    def _lost(self, connection: Messages) -> None:
        if self._connection is connection:
            self._connection = None
            self._fail_all("Socket closed")

    def _fail_all(self, details: str) -> None:
        calls, self._calls = self._calls, {}
        for call in calls.values():
            call.end(StatusCode.UNAVAILABLE, details)

    async def close(self, grace: float | None = None) -> None:
        """See `grpc.aio.Channel`; calls under way are cancelled."""
        del grace
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._keepalive is not None:
            self._keepalive.cancel()
        for call in list(self._calls.values()):
            call.cancel()
        if self._connection is not None:
            self._connection.close()
