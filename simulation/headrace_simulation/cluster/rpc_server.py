"""Stand-in of `grpc.aio`'s server, over connections of the simulated network."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from typing import Any, final

import grpc
from grpc import StatusCode

from headrace_simulation.cluster.loop import VirtualLoop
from headrace_simulation.cluster.network import Listener
from headrace_simulation.cluster.process import Process
from headrace_simulation.cluster.rpc import Messages, Pairs


@final
class VirtualContext:
    """A call as its servicer knows it."""

    def __init__(self, number: int, metadata: Pairs, connection: Messages) -> None:
        self._number = number
        self._metadata = metadata
        self._connection = connection
        self._trailing: Pairs = ()
        self._code = StatusCode.OK
        self._details = ""
        self.has_begun = False  # whether initial metadata were sent
        self.task: asyncio.Task[None] | None = None

    def invocation_metadata(self) -> Pairs:
        """See `grpc.aio`."""
        return self._metadata

    def peer(self) -> str:
        """See `grpc.aio`."""
        assert self._connection.transport is not None
        host = self._connection.transport.get_extra_info("peername")[0]
        return f"ipv4:{host}:0"

    def auth_context(self) -> dict[str, list[bytes]]:
        """See `grpc.aio`."""
        return {}

    def set_trailing_metadata(self, trailing: Any) -> None:
        """See `grpc.aio`."""
        self._trailing = tuple(trailing)

    def set_code(self, code: StatusCode) -> None:
        """See `grpc.aio`."""
        self._code = code

    def set_details(self, details: str) -> None:
        """See `grpc.aio`."""
        self._details = details

    async def send_initial_metadata(self, metadata: Any) -> None:
        """See `grpc.aio`."""
        self.begin(tuple(tuple(pair) for pair in metadata))

    def begin(self, metadata: Pairs = ()) -> None:
        """Send initial metadata once."""
        if not self.has_begun:
            self.has_begun = True
            self._connection.send("head", self._number, metadata)

    async def write(self, body: bytes) -> None:
        """Send a message of the answer, when there is room."""
        self.begin()
        await self._connection.has_room()
        self._connection.send("message", self._number, body)

    def end(self, code: StatusCode | None = None, details: str | None = None) -> None:
        """Send the end of the answer."""
        code = code or self._code
        details = self._details if details is None else details
        self._connection.send("end", self._number, code.name, details, self._trailing)

    async def abort(self, code: StatusCode, details: str = "", trailing_metadata: Any = ()) -> None:
        """See `grpc.aio`."""
        if trailing_metadata:
            self._trailing = tuple(tuple(pair) for pair in trailing_metadata)
        self._code, self._details = code, details
        raise grpc.aio.AbortError(details)


@final
class VirtualServer:
    """A gRPC server of a simulated process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._loop: VirtualLoop = asyncio.get_running_loop()  # type: ignore[assignment]
        self._handlers: list[Any] = []
        self._listeners: list[Listener] = []
        self._connections: dict[Messages, None] = {}
        self._calls: dict[tuple[Messages, int], VirtualContext] = {}
        self._ended = asyncio.Event()

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """See `grpc.aio`."""
        self._handlers.extend(handlers)

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """They are among the generic ones."""

    def add_insecure_port(self, address: str) -> int:
        """See `grpc.aio`."""
        host, _, port = address.rpartition(":")
        try:
            listener = self._process.network.listen(self._process, self._process.host, int(port))
        except OSError as error:
            raise RuntimeError(f"Failed to bind to address {host}:{port}") from error
        self._listeners.append(listener)
        return listener.port

    async def start(self) -> None:
        """See `grpc.aio`."""
        for listener in self._listeners:
            self._loop.accept_all(listener, self._accept)

    async def stop(self, grace: float | None = None) -> None:
        """See `grpc.aio`."""
        del grace
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        for context in list(self._calls.values()):
            if context.task is not None:
                context.task.cancel()
        for connection in list(self._connections):
            connection.close()
        self._ended.set()
        await asyncio.sleep(0)

    async def wait_for_termination(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109
        """See `grpc.aio`."""
        del timeout
        await self._ended.wait()
        return True

    def _accept(self) -> Messages:
        connection = Messages()
        self._connections[connection] = None
        connection.on_message = lambda message: self._take(connection, message)
        connection.on_lost = lambda: self._lost(connection)
        return connection

    def _lost(self, connection: Messages) -> None:
        self._connections.pop(connection, None)
        for (other, _), context in list(self._calls.items()):
            if other is connection and context.task is not None:
                context.task.cancel()

    def _take(self, connection: Messages, message: tuple[Any, ...]) -> None:
        kind = message[0]
        if kind == "ping":
            connection.send("pong")
        elif kind == "cancel":
            context = self._calls.get((connection, message[1]))
            if context is not None and context.task is not None:
                context.task.cancel()
        elif kind == "call":
            _, number, method, metadata, body = message
            context = VirtualContext(number, metadata, connection)
            self._calls[connection, number] = context
            context.task = self._loop.create_task(self._serve(method, body, context))
            context.task.add_done_callback(lambda _: self._calls.pop((connection, number), None))

    def _find(self, method: str, metadata: Pairs) -> Any:
        for each in self._handlers:
            found = each.service(_Details(method, metadata))
            if found is not None:
                return found
        return None

    async def _serve(self, method: str, body: bytes, context: VirtualContext) -> None:
        handler = self._find(method, context.invocation_metadata())
        if handler is None:
            context.end(StatusCode.UNIMPLEMENTED, "Method not found!")
            return
        request = handler.request_deserializer(body)
        try:
            if handler.response_streaming:
                answers: AsyncIterator[Any] = handler.unary_stream(request, context)
                async for answer in answers:
                    await context.write(handler.response_serializer(answer))
            else:
                answer = handler.unary_unary(request, context)
                if inspect.isawaitable(answer):
                    answer = await answer
                await context.write(handler.response_serializer(answer))
            context.end()
        except grpc.aio.AbortError:
            context.end()
        except Exception as error:  # noqa: BLE001  (gRPC's rule: it goes to the caller)
            self._process.note(f"call of {method} failed: {error!r}")
            context.end(StatusCode.UNKNOWN, f"Unexpected {type(error)}: {error}")


class _Details:
    def __init__(self, method: str, metadata: Pairs) -> None:
        self.method = method
        self.invocation_metadata = metadata
