"""Calls with one request and one answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Protocol, TypeVar

from mypy_extensions import Arg

from headrace_broker.catalog.access import Caller
from headrace_broker.gateways.grpc.server.call import Admission
from headrace_broker.gateways.grpc.server.errors import Context


class Admitting(Protocol):
    """A service that lets calls in."""

    admission: Admission


S = TypeVar("S", bound=Admitting)
P = TypeVar("P")
Q = TypeVar("Q")
A = TypeVar("A")


def unary(
    work: Callable[[S, Caller, Q], Awaitable[A]],
) -> Callable[[S, Arg(Q, "request"), Arg(Context, "context")], Coroutine[Any, Any, A]]:
    """Make a gRPC method, which lets a call in first, of one that answers it.

    Args:
        work: takes the caller and the request; its CallError or AmqpError becomes the status.
    """

    @wraps(work)
    async def call(service: S, request: Q, context: Context) -> A:
        async with service.admission.call(context) as caller:
            return await work(service, caller.who, request)
        raise AssertionError("a call that is refused has ended")

    return call


def unary_of(
    part: type[P], work: Callable[[P, Caller, Q], Awaitable[A]]
) -> Callable[[Any, Arg(Q, "request"), Arg(Context, "context")], Coroutine[Any, Any, A]]:
    """Return a gRPC method for which a part of the service does the work.

    Args:
        part: the class of that part, which `parts` of the service has.
        work: as in `unary`, a method of that class.
    """

    @wraps(work)
    async def answer(service: Any, who: Caller, request: Q) -> A:
        return await work(service.parts[part], who, request)

    return unary(answer)
