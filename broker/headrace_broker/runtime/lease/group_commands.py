"""Commands of groups, which lease a queue's messages or read its archive, to wherever it is led.

They go through the queue's log. The leader that proposes one answers when it is applied; a leader
that loses its leadership meanwhile does not. Each may be repeated, so it is asked again
until it is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final, TypeVar
from weakref import WeakValueDictionary

from headrace_broker.core.queue.command.command import ARCHIVE_KINDS
from headrace_broker.core.queue.machine.versions import ARCHIVE_VERSION, LEASES_VERSION
from headrace_broker.core.queue.messages.effect import GroupAnswer
from headrace_broker.core.queue.state.archive_effect import ArchiveAnswer
from headrace_broker.core.queue.state.lease_effect import LeaseAnswer
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import LEASE_REQUESTS_MAX
from headrace_broker.model.reply_code import INTERNAL_ERROR, NOT_FOUND, AmqpError
from headrace_broker.runtime.contract.queue_log import TAKEN
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.rpc.leader import (
    NOT_NOW,
    LeaderQuestion,
    Leaders,
    LeaderUnavailableError,
    QueueGoneError,
)
from headrace_broker.runtime.rpc.protocol import COMMANDS, RpcError

_TOO_EARLY: Final = "too_early"  # a refusal: a replica runs a release without such commands

A = TypeVar("A")


class TooEarlyError(Exception):
    """Some replicas of the queue run a release without this command."""


@contextmanager
def amqp_errors() -> Iterator[None]:
    """Tell failures on the way to a queue's leader as AmqpError: INTERNAL_ERROR, NOT_FOUND."""
    try:
        yield
    except (LeaderUnavailableError, TooEarlyError) as error:
        raise AmqpError(INTERNAL_ERROR, str(error)) from error
    except QueueGoneError as error:
        raise AmqpError(NOT_FOUND, str(error)) from error


class GroupCommand(LeaderQuestion[A], frozen=True):
    """Apply a command."""

    pool: ClassVar[str] = COMMANDS
    request: int  # a session id that was never used, which is in the command as well
    data: bytes  # the command


class LeaseCommand(GroupCommand[LeaseAnswer], frozen=True, tag="lease_command"):
    """Of a group that leases messages."""


class ArchiveCommand(GroupCommand[ArchiveAnswer], frozen=True, tag="archive_command"):
    """Of a group that reads the archive."""


class GroupCommands:
    """Application of group commands, here or on other nodes."""

    def __init__(self, leaders: Leaders, new_number: Callable[[], int]) -> None:
        self._leaders = leaders  # asks them
        # returns a session id that was never used, to name a request by
        self._new_number = new_number
        self._applied: dict[int, asyncio.Future[GroupAnswer]] = {}  # by request
        self._slots: WeakValueDictionary[int, asyncio.Semaphore] = WeakValueDictionary()
        leaders.serve(LeaseCommand, self._apply)
        leaders.serve(ArchiveCommand, self._apply)

    async def ask(
        self, queue: Queue, kind: type[GroupCommand[A]], encode: Callable[[int], bytes]
    ) -> A:
        """Apply a command and return its answer.

        Args:
            queue: to whose groups it belongs.
            kind: of command.
            encode: returns the command with a request number.

        Raises:
            LeaderUnavailableError: no leader of the queue answered.
            QueueGoneError: the queue was deleted.
            TooEarlyError: likewise, before the last node is upgraded.
        """
        request = self._new_number()
        question = kind(queue.group, request, encode(request))
        slots = self._slots.get(queue.group)  # each queue its own: one may have no leader
        if slots is None:
            slots = self._slots[queue.group] = asyncio.Semaphore(LEASE_REQUESTS_MAX)
        try:
            return await self._leaders.ask(queue, question, slots)
        except RpcError as error:
            if error.failure != _TOO_EARLY:
                raise
            text = f"queue '{queue.name}': not all of its replicas run a release that knows this"
            raise TooEarlyError(text) from error

    async def _apply(self, host: QueueHost, question: GroupCommand[Any]) -> GroupAnswer:
        """Replicate a command through the leading replica, and return its answer.

        Raises RpcError: it does not.
        """
        request, data = question.request, question.data
        reads = len(data) > 0 and data[0] in ARCHIVE_KINDS
        if host.machine.version < (ARCHIVE_VERSION if reads else LEASES_VERSION):
            raise RpcError(_TOO_EARLY, "a replica runs an older release")
        answer: asyncio.Future[GroupAnswer] = asyncio.get_running_loop().create_future()
        self._applied[request] = answer
        try:
            if not reads:  # who reads the archive does not use the queue
                host.use()
            if host.propose(data) != TAKEN:
                raise RpcError(NOT_NOW, "the log takes no more now")
            return await answer
        finally:
            if self._applied.get(request) is answer:  # else it was asked again
                del self._applied[request]

    def answered(self, answer: GroupAnswer) -> None:
        """Take what a queue that is led here answers; nobody may wait for it any more."""
        future = self._applied.get(int(answer.request))
        if future is not None and not future.done():
            future.set_result(answer)
