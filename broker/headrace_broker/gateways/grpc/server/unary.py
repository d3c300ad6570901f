"""Calls with one request and one answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc

from headrace_broker.catalog.access import Caller
from headrace_broker.gateways.grpc.call import Admission
from headrace_broker.gateways.grpc.errors import CallError, Context
from headrace_broker.gateways.grpc.page import Sized
from headrace_broker.model.limits import CATALOG_COMMAND_OCTETS_MAX

Q = TypeVar("Q", bound=Sized)
A = TypeVar("A")


async def serve(
    admission: Admission,
    context: Context,
    work: Callable[[Caller, Q], Awaitable[A]],
    request: Q,
) -> A:
    """Let a call in, and answer it.

    Args:
        admission: lets calls in.
        context: of the call.
        work: takes the caller and the request; its CallError or AmqpError becomes the status.
        request: of the call.
    """
    async with admission.call(context) as client:
        octets = request.ByteSize()
        if octets > CATALOG_COMMAND_OCTETS_MAX:
            text = f"the request has {octets} octets, at most {CATALOG_COMMAND_OCTETS_MAX}"
            raise CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, "REQUEST_TOO_LARGE", text)
        return await work(Caller(client.user, client.tags), request)
    raise AssertionError("a call that is refused has ended")
