"""What every call goes through: is the node ready, who calls, and what goes wrong as a status."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

import grpc

from headrace_broker.gateways.grpc.authentication import Caller, authenticate
from headrace_broker.gateways.grpc.errors import RETRY_MS, CallError, Context, abort, from_amqp
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.runtime.port import Broker
from headrace_broker.runtime.tls import ServerTls


class Admission:
    """Lets calls in.

    Args:
        broker: knows the users.
        not_ready_reason: returns why calls cannot be served here now, "" when they can.
        tls: reads client certificates; None where there is no listener for TLS.
    """

    def __init__(
        self,
        broker: Broker,
        not_ready_reason: Callable[[], str],
        tls: ServerTls | None = None,
    ) -> None:
        self._broker = broker
        self._tls = tls
        self._not_ready_reason = not_ready_reason

    @contextlib.asynccontextmanager
    async def call(self, context: Context) -> AsyncIterator[Caller]:
        """Serve a call within: errors of its body become its status.

            async with admission.call(context) as caller: ...

        Args:
            context: of the call.
        """
        try:
            reason = self._not_ready_reason()
            if reason:
                raise CallError(grpc.StatusCode.UNAVAILABLE, "NOT_READY", reason, retry_ms=RETRY_MS)
            yield await authenticate(self._broker, context, self._tls)
        except CallError as error:
            await abort(context, error)
        except AmqpError as error:
            await abort(context, from_amqp(error))
