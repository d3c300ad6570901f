"""Calls with one request and one answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from headrace_broker.catalog.access import Caller
from headrace_broker.gateways.grpc.server.call import Admission
from headrace_broker.gateways.grpc.server.errors import Context

Q = TypeVar("Q")
A = TypeVar("A")


async def serve(
    admission: Admission, context: Context, work: Callable[[Caller, Q], Awaitable[A]], request: Q
) -> A:
    """Let a call in, and answer it.

    Args:
        admission: lets calls in.
        context: of the call.
        work: takes the caller and the request; its CallError or AmqpError becomes the status.
        request: of the call.
    """
    async with admission.call(context) as client:
        return await work(Caller(client.user, client.tags), request)
    raise AssertionError("a call that is refused has ended")
