"""Requests are read once their call is let in.

gRPC reads the request of a call with a single one whole, up to the largest message, before its
handler is called. The handler of a stream is called at once and reads by itself, and on the wire
both are the same. So a call with a single request is served as a stream of one: until it has logged
in, no more of it is taken than GRPC_LOOKAHEAD_BYTES.

Health and reflection answer to anybody. Their requests are read a few at a time, and within a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf.message import DecodeError

from headrace_broker.gateways.grpc.authentication import parse_peer
from headrace_broker.gateways.grpc.call import ADMITTED, Admission
from headrace_broker.gateways.grpc.errors import CallError, Context, abort
from headrace_broker.model.limits import (
    GRPC_OPEN_READ_SECONDS,
    GRPC_OPEN_READS_MAX,
    GRPC_OPEN_READS_PER_ADDRESS,
    GRPC_REQUEST_SECONDS,
)

if TYPE_CHECKING:
    _Interceptor = grpc.aio.ServerInterceptor[Any, Any]
else:
    _Interceptor = grpc.aio.ServerInterceptor  # generic for type checkers only

_NO_REQUEST: Final = "the call has no request"


class RequestGate(_Interceptor):
    """Lets calls in before their requests are read.

    Args:
        admission: lets calls in.
        open_services: full names of those that need no log-in.
    """

    def __init__(self, admission: Admission, open_services: frozenset[str]) -> None:
        self._admission = admission
        self._open_services = open_services
        self._reads = OpenReads()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return a handler that lets the call in first, and then does what the found one does."""
        found = await continuation(handler_call_details)
        if found is None:
            return None
        is_open = handler_call_details.method.split("/", 2)[1] in self._open_services
        if found.request_streaming:
            return self._open_stream(found) if is_open else found
        if found.response_streaming:
            make, serve = grpc.stream_stream_rpc_method_handler, found.unary_stream
        else:
            make, serve = grpc.stream_unary_rpc_method_handler, found.unary_unary
        handle = self._open(serve) if is_open else self._admitted(serve)
        return make(handle, found.request_deserializer, found.response_serializer)

    def _admitted(self, serve: Callable[[Any, Context], Any]) -> Callable[..., Any]:
        async def handle(requests: AsyncIterator[Any], context: Context) -> Any:
            async with self._admission.call(context) as caller:
                ADMITTED.set(caller)
                return await _served(serve, await _first(requests), context)
            raise AssertionError("a call that is refused has ended")

        return handle

    def _open(self, serve: Callable[[Any, Context], Any]) -> Callable[..., Any]:
        async def handle(requests: AsyncIterator[Any], context: Context) -> Any:
            async with contextlib.aclosing(self._reads.read(requests, context)) as bounded:
                async for request in bounded:
                    return await _served(serve, request, context)
            return await _refuse_open(context)

        return handle

    def _open_stream(self, found: Any) -> Any:
        async def handle(requests: AsyncIterator[Any], context: Context) -> None:
            async with contextlib.aclosing(self._reads.read(requests, context)) as bounded:
                await _served(found.stream_stream, bounded, context)

        return grpc.stream_stream_rpc_method_handler(
            handle, found.request_deserializer, found.response_serializer
        )


class OpenReads:
    """Reads requests of calls that nobody has logged in for."""

    def __init__(self) -> None:
        self._count = 0
        self._by_address: dict[str, int] = {}

    async def read(
        self, requests: AsyncIterator[Any], context: Context
    ) -> AsyncGenerator[Any, None]:
        """Give requests as they come, until one takes too long.

        A call that comes when too many are being read ends with RESOURCE_EXHAUSTED.
        """
        address, _ = parse_peer(context.peer())
        while True:
            if not self._has_room(address):
                text = "too many requests without a log-in are on their way"
                code = grpc.StatusCode.RESOURCE_EXHAUSTED
                await abort(context, CallError(code, "TOO_MANY_REQUESTS", text))
            with self._reading(address):
                try:
                    async with asyncio.timeout(GRPC_OPEN_READ_SECONDS):
                        request = await anext(requests)
                except (TimeoutError, StopAsyncIteration):
                    return
                except DecodeError:
                    await abort(context, _malformed())
            yield request

    def _has_room(self, address: str) -> bool:
        if self._count >= GRPC_OPEN_READS_MAX:
            return False
        return self._by_address.get(address, 0) < GRPC_OPEN_READS_PER_ADDRESS

    @contextlib.contextmanager
    def _reading(self, address: str) -> Iterator[None]:
        self._count += 1
        self._by_address[address] = self._by_address.get(address, 0) + 1
        try:
            yield
        finally:
            self._count -= 1
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]


async def _first(requests: AsyncIterator[Any]) -> Any:
    """Return the request of a call with a single one.

    Raises:
        CallError: INVALID_ARGUMENT, there is none, or it is not what it has to be;
            DEADLINE_EXCEEDED, it does not come.
    """
    try:
        async with asyncio.timeout(GRPC_REQUEST_SECONDS):
            return await anext(requests)
    except TimeoutError:
        text = f"the request has not come within {GRPC_REQUEST_SECONDS} s"
        code = grpc.StatusCode.DEADLINE_EXCEEDED
        raise CallError(code, "REQUEST_TOO_SLOW", text) from None
    except StopAsyncIteration:
        raise CallError(grpc.StatusCode.INVALID_ARGUMENT, "NO_REQUEST", _NO_REQUEST) from None
    except DecodeError:
        raise _malformed() from None


def _malformed() -> CallError:
    text = "the request is not a message of its type"
    return CallError(grpc.StatusCode.INVALID_ARGUMENT, "MALFORMED_REQUEST", text)


async def _served(serve: Callable[[Any, Context], Any], request: Any, context: Context) -> Any:
    """Return the answer, None where answers are a stream: those are written here."""
    answering = serve(request, context)
    if inspect.isasyncgen(answering):
        async with contextlib.aclosing(answering):
            async for answer in answering:
                await context.write(answer)
        return None
    return await answering


async def _refuse_open(context: Context) -> None:
    text = f"{_NO_REQUEST}, or none within {GRPC_OPEN_READ_SECONDS} s"
    await abort(context, CallError(grpc.StatusCode.INVALID_ARGUMENT, "NO_REQUEST", text))
