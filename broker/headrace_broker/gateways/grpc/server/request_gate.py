"""Requests are read once their call is let in, and parsed once they are known to be small enough.

gRPC reads the request of a call with a single one whole, up to the largest message, before its
handler is called. The handler of a stream is called at once and reads by itself, and on the wire
both are the same. So a call with a single request is served as a stream of one: until it has logged
in, no more of it is taken than GRPC_LOOKAHEAD_BYTES.

Health and reflection answer to anybody. Their requests are read a few at a time, and within a time.
Who comes when there are too many has the one read no more that has taken the longest of those from
the address with the most: a probe sends its request at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc

from headrace_broker.gateways.grpc.server.authentication import parse_peer
from headrace_broker.gateways.grpc.server.call import ADMITTED, Admission
from headrace_broker.gateways.grpc.server.errors import CallError, Context, abort
from headrace_broker.gateways.grpc.server.request_parser import Parse, RequestParser
from headrace_broker.gateways.grpc.server.request_room import NO_REQUEST, RequestRoom
from headrace_broker.model.limits import (
    CALL_RETRY_SECONDS,
    GRPC_OPEN_READ_SECONDS,
    GRPC_OPEN_READS_MAX,
    GRPC_OPEN_READS_PER_ADDRESS,
    GRPC_OPEN_REQUEST_BYTES_MAX,
)
from headrace_broker.runtime.calls.fair_places import FairPlaces
from headrace_broker.runtime.calls.gate import CallGate, TooManyCallsError, Turns
from headrace_broker.runtime.security.login_limit import site

if TYPE_CHECKING:
    _Interceptor = grpc.aio.ServerInterceptor[Any, Any]
else:
    _Interceptor = grpc.aio.ServerInterceptor  # generic for type checkers only


class _Unary(NamedTuple):
    """A method whose calls have a single request."""

    serve: Callable[[Any, Context], Any]
    parse: Parse


class RequestGate(_Interceptor):
    """Lets calls in before their requests are read, each when the turn of its connection comes."""

    def __init__(
        self,
        admission: Admission,
        open_services: frozenset[str],
        turns: CallGate,
        room: RequestRoom,
    ) -> None:
        self._admission = admission  # lets calls in
        self._open_services = open_services  # full names of those that need no log-in
        self._turns = turns  # says when calls may begin and go on
        self._room = room  # for requests that are read, and served
        self._reads = OpenReads()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return a handler that lets the call in first, and then does what the found one does.

        gRPC hands it bytes: a stream that needs a log-in parses them by itself.
        """
        found = await continuation(handler_call_details)
        if found is None:
            return None
        name = handler_call_details.method.removeprefix("/")
        is_open = name.split("/", 1)[0] in self._open_services
        if found.request_streaming:
            handle = self._open_stream(found, name) if is_open else self._stream(found, name)
            make = grpc.stream_stream_rpc_method_handler
            return make(handle, None, found.response_serializer)
        if found.response_streaming:
            make, serve = grpc.stream_stream_rpc_method_handler, found.unary_stream
        else:
            make, serve = grpc.stream_unary_rpc_method_handler, found.unary_unary
        if is_open:
            handle = self._open(serve, _open_parser(found))
        else:
            served = _Unary(serve, RequestParser(found.request_deserializer))
            handle = self._admitted(served, name, found.response_streaming)
        return make(handle, None, found.response_serializer)

    def _admitted(self, method: _Unary, name: str, streams: bool) -> Callable[..., Any]:
        async def handle(requests: AsyncIterator[bytes], context: Context) -> Any:
            async with self._begun(context, name) as turns:
                return await turns.paced(self._serve(method, requests, context, streams))
            raise AssertionError("a call that is refused has ended")

        return handle

    async def _serve(
        self, method: _Unary, requests: AsyncIterator[bytes], context: Context, streams: bool
    ) -> Any:
        """Read the request, and answer it.

        A stream of answers may last for ever, and has its request read before. Its service counts
        it before it waits for anything, and so bounds what these requests take. Its initial
        metadata go before its first answer: with one that the client does not take, gRPC could
        send no status either.
        """
        async with self._admission.call(context) as caller:
            ADMITTED.set(caller)
            address, _ = parse_peer(context.peer())
            async with self._room.read(address, requests, method.parse) as request:
                if not streams:
                    return await _served(method.serve, request, context)
            await context.send_initial_metadata(())
            return await _served(method.serve, request, context)
        raise AssertionError("a call that is refused has ended")

    def _stream(self, found: Any, name: str) -> Callable[..., Any]:
        async def handle(requests: AsyncIterator[bytes], context: Context) -> None:
            async with self._begun(context, name):
                await found.stream_stream(requests, context)

        return handle

    @contextlib.asynccontextmanager
    async def _begun(self, context: Context, name: str) -> AsyncIterator[Turns]:
        """Wait for a call's turn; it ends with RESOURCE_EXHAUSTED where too many wait."""
        try:
            async with self._turns.begin(context.peer(), f"gRPC {name}") as turns:
                yield turns
        except TooManyCallsError as error:
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
            retry_ms = CALL_RETRY_SECONDS * 1000
            await abort(context, CallError(code, "TOO_MANY_CALLS", str(error), retry_ms=retry_ms))

    def _open(self, serve: Callable[[Any, Context], Any], parse: Parse) -> Callable[..., Any]:
        async def handle(requests: AsyncIterator[bytes], context: Context) -> Any:
            async with contextlib.aclosing(self._reads.read(requests, context, parse)) as bounded:
                async for request in bounded:
                    return await _served(serve, request, context)
            return await _refuse_open(context)

        return handle

    def _open_stream(self, found: Any, name: str) -> Callable[..., Any]:
        parse = _open_parser(found)

        async def serve(requests: AsyncIterator[bytes], context: Context) -> None:
            async with contextlib.aclosing(self._reads.read(requests, context, parse)) as bounded:
                await _served(found.stream_stream, bounded, context)

        async def handle(requests: AsyncIterator[bytes], context: Context) -> None:
            async with self._begun(context, name) as turns:
                await turns.paced(serve(requests, context))

        return handle


class OpenReads:
    """Reads of requests before a log-in."""

    def __init__(self) -> None:
        # of those that are being read: what ends each, the oldest first
        self.places = FairPlaces[asyncio.Timeout](GRPC_OPEN_READS_MAX, GRPC_OPEN_READS_PER_ADDRESS)

    async def read(
        self, requests: AsyncIterator[bytes], context: Context, parse: Parse
    ) -> AsyncGenerator[Any, None]:
        """Give requests as they come, until one takes too long.

        A call whose request is still on its way when too many are ends with RESOURCE_EXHAUSTED.

        Args:
            requests: of the call, as bytes.
            context: of the call.
            parse: makes requests of them, or refuses them with a CallError.
        """
        address = site(parse_peer(context.peer())[0])
        while True:
            try:
                data = await self._next(requests, address)
                if data is None:
                    return
                request = parse(data)
            except CallError as error:
                await abort(context, error)
            yield request

    async def _next(self, requests: AsyncIterator[bytes], address: str) -> bytes | None:
        """Return the next request, None where there is none, or none in time.

        Raises:
            CallError: RESOURCE_EXHAUSTED, another call has its place.
        """
        try:
            async with asyncio.timeout(GRPC_OPEN_READ_SECONDS) as until:
                loser = self.places.take(address, until)
                try:
                    if loser is not None:
                        with contextlib.suppress(RuntimeError):  # its time is over in this turn
                            loser.reschedule(asyncio.get_running_loop().time())
                    return await anext(requests)
                finally:
                    had_place = self.places.leave(address, until)
        except StopAsyncIteration:
            return None
        except TimeoutError:
            if had_place:
                return None
            text = "too many requests without a log-in are on their way, and this one took long"
            code = grpc.StatusCode.RESOURCE_EXHAUSTED
            raise CallError(code, "TOO_MANY_REQUESTS", text) from None


async def _served(serve: Callable[[Any, Context], Any], request: Any, context: Context) -> Any:
    """Return the answer, None where answers are a stream: those are written here."""
    answering = serve(request, context)
    if inspect.isasyncgen(answering):
        async with contextlib.aclosing(answering):
            async for answer in answering:
                await context.write(answer)
        return None
    return await answering


def _open_parser(found: Any) -> Parse:
    """Return what parses the requests of a method that needs no log-in."""
    return RequestParser(found.request_deserializer, GRPC_OPEN_REQUEST_BYTES_MAX)


async def _refuse_open(context: Context) -> None:
    text = f"{NO_REQUEST}, or none within {GRPC_OPEN_READ_SECONDS} s"
    await abort(context, CallError(grpc.StatusCode.INVALID_ARGUMENT, "NO_REQUEST", text))
