"""Calls that are ended when the permission that they need is taken away, also while they wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any

import grpc

from headrace_broker.catalog.permission_watch import PermissionWatch, PermissionWatches
from headrace_broker.gateways.grpc.server.authentication import Caller
from headrace_broker.gateways.grpc.server.errors import CallError, from_amqp
from headrace_broker.model.reply_code import CONNECTION_FORCED, AmqpError


class WhileAllowed:
    """Lets the current task run while its caller has the right.

    As `asyncio.timeout` it cancels the task and makes an error of that, so what is within ends in
    order: streams give back what is not settled.

    Args:
        caller: who calls.
        vhost: where, or `standing.ANYWHERE`.
        judge: asks again for what is needed; raises AmqpError where that is refused.
    """

    def __init__(
        self, standings: PermissionWatches, caller: Caller, vhost: str, judge: Callable[[], None]
    ) -> None:
        self._standings = standings  # of the node
        self._standing = PermissionWatch(caller.user, vhost, judge, self._end, caller.epoch)
        self._error: AmqpError | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0

    def __enter__(self) -> None:
        """Check the caller's permissions from now on.

        Raises:
            CallError: UNAUTHENTICATED or PERMISSION_DENIED, as it is taken away already.
        """
        task = asyncio.current_task()
        assert task is not None, "a call has a task"
        self._task, self._cancelling = task, task.cancelling()
        try:
            self._standings.enter(self._standing)
        except AmqpError as error:
            raise _ended(error) from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop checking the caller's permissions.

        Raises:
            CallError: this has ended what was within, or that has found out by itself what is to be
                judged: it says why.
        """
        self._standings.leave(self._standing)
        if self._error is None:
            found = None
            if isinstance(error, AmqpError | CallError):
                found = self._standings.problem(self._standing)
            if found is not None:
                raise _ended(found) from error
            return
        assert self._task is not None, "it was entered"
        others = self._task.uncancel() > self._cancelling
        if not others and isinstance(error, asyncio.CancelledError):
            raise _ended(self._error) from error

    def _end(self, error: AmqpError) -> None:
        self._error = error
        assert self._task is not None, "it was entered"
        self._task.cancel()


def _ended(error: AmqpError) -> CallError:
    if error.code == CONNECTION_FORCED:  # the user, and with that the log-in, is what is gone
        return CallError(grpc.StatusCode.UNAUTHENTICATED, "NOT_AUTHORIZED", error.text)
    return from_amqp(error)
