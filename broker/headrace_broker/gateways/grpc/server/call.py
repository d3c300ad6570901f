"""Common handling of calls: readiness, authentication, and errors as a status."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import grpc

from headrace_broker.catalog.access import Caller as User
from headrace_broker.catalog.permission_watch import ANYWHERE, needs_nothing
from headrace_broker.gateways.grpc.server.authentication import Caller, authenticate
from headrace_broker.gateways.grpc.server.errors import (
    RETRY_MS,
    CallError,
    Context,
    abort,
    from_amqp,
)
from headrace_broker.gateways.grpc.server.standing import WhileAllowed
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.runtime.broker_port import Broker
from headrace_broker.runtime.metrics.requests import GrpcMeter
from headrace_broker.runtime.security import audit
from headrace_broker.runtime.security.tls import ServerTls

if TYPE_CHECKING:
    _Interceptor = grpc.aio.ServerInterceptor[Any, Any]
else:
    _Interceptor = grpc.aio.ServerInterceptor  # generic for type checkers only


STALL_SECONDS_MAX: Final = 60.0  # a client may leave an answer unread for so long
NODE_KEY: Final = "headrace-node"  # in what ends a call well: the name of the node that served it


# How the names of methods begin that only look.
_READS: Final = ("List", "Describe", "Watch", "Get", "Read", "Why", "Top")


class Method(NamedTuple):
    """Called method."""

    service: str  # its full name
    name: str  # of the method
    streams: bool  # requests or answers are a stream


# Of the call that a task serves. Set by `Naming`: a call's context does not know it.
METHOD: Final[ContextVar[Method | None]] = ContextVar("METHOD", default=None)


# Who makes the call that a task serves, once it was let in.
ADMITTED: Final[ContextVar[Caller | None]] = ContextVar("ADMITTED", default=None)


class Naming(_Interceptor):
    """Records the method of a call; unknown ones are not named."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Record the method, and let the call continue."""
        handler = await continuation(handler_call_details)
        if handler is not None:
            _, service, name = handler_call_details.method.split("/", 2)
            streams = handler.request_streaming or handler.response_streaming
            METHOD.set(Method(service, name, streams))
        return handler


class Admission:
    """Lets calls in."""

    def __init__(
        self,
        broker: Broker,
        not_ready_reason: Callable[[], str],
        tls: ServerTls | None = None,
        meter: GrpcMeter | None = None,  # counts the calls
    ) -> None:
        self._broker = broker  # knows the users
        self._tls = tls  # reads client certificates; None where there is no listener for TLS
        # returns why calls cannot be served here now, "" when they can
        self._not_ready_reason = not_ready_reason
        self._meter = meter if meter is not None else GrpcMeter()

    @contextlib.asynccontextmanager
    async def call(self, context: Context) -> AsyncIterator[Caller]:
        """Serve a call within: errors of its body become its status.

            async with admission.call(context) as caller: ...

        Args:
            context: of the call.
        """
        admitted = ADMITTED.get()
        if admitted is not None:  # within another `call` of the same task, which does the rest
            yield admitted
            return
        with self._metered() as outcome:
            try:
                reason = self._not_ready_reason()
                if reason:
                    raise CallError(
                        grpc.StatusCode.UNAVAILABLE, "NOT_READY", reason, retry_ms=RETRY_MS
                    )
                caller = await authenticate(self._broker, context, self._tls)
                context.set_trailing_metadata(((NODE_KEY, self._broker.node_name),))
                with self._session(caller):
                    yield caller
            except CallError as error:
                await _refuse(context, error, outcome)
            except AmqpError as error:
                await _refuse(context, from_amqp(error), outcome)

    def while_allowed(
        self, caller: Caller, vhost: str, judge: Callable[[User], None]
    ) -> WhileAllowed:
        """Return what ends a call when something is taken away from its caller: see there.

        Args:
            caller: who calls.
            vhost: where, or `standing.ANYWHERE`.
            judge: asks whether the user, as of now, may go on; raises AmqpError.
        """
        broker = self._broker
        return WhileAllowed(
            broker.standings,
            caller,
            vhost,
            lambda: judge(User(caller.user, broker.user_tags(caller.user))),
        )

    def _session(self, caller: Caller) -> contextlib.AbstractContextManager[None]:
        """Return what ends a stream with its user, or with what ends the user's sessions.

        A call with one answer is over soon; what it changes may be on its way already.
        """
        method = METHOD.get()
        if method is not None and not method.streams:
            return contextlib.nullcontext()
        return WhileAllowed(self._broker.standings, caller, ANYWHERE, needs_nothing)

    @contextlib.contextmanager
    def _metered(self) -> Iterator[_Outcome]:
        """Count a call that is served within, and how it ends."""
        method = METHOD.get()
        outcome = _Outcome()
        if method is None:
            yield outcome
            return
        self._meter.started(method.service, method.name)
        began = time.monotonic()
        try:
            yield outcome
        except asyncio.CancelledError:
            outcome.code = grpc.StatusCode.CANCELLED.name
            raise
        except Exception:
            outcome.code = outcome.code or grpc.StatusCode.UNKNOWN.name
            raise
        finally:
            seconds = None if method.streams else time.monotonic() - began
            code = outcome.code or grpc.StatusCode.OK.name
            self._meter.ended(method.service, method.name, code, seconds)


class _Outcome:
    """End of a call."""

    def __init__(self) -> None:
        self.code = ""  # name of its status, "" for one that went well


async def send(context: Context, response: Any) -> None:
    """Write an answer of several to a client that reads.

    Raises:
        CallError: it does not.
    """
    try:
        async with asyncio.timeout(STALL_SECONDS_MAX):
            await context.write(response)
    except TimeoutError:
        text = f"nothing was read for {STALL_SECONDS_MAX:.0f} s"
        raise CallError(grpc.StatusCode.ABORTED, "NOT_READ", text) from None


async def _refuse(context: Context, error: CallError, outcome: _Outcome) -> None:
    """End a call with an error; refused changes and openings are recorded."""
    outcome.code = error.code.name
    method = METHOD.get()
    denied = error.code is grpc.StatusCode.PERMISSION_DENIED
    if denied and method is not None and not method.name.startswith(_READS):
        audit.record("request", f"{method.service}/{method.name}", error.text)
    await abort(context, error)
