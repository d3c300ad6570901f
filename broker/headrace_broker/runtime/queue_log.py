"""Where a queue's commands go: a Raft group, or for unreplicated queues this process's memory."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr
from typing_extensions import override

from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.model.group import NOT_LEADER, QUEUED

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace_raftlog.node.node import RaftNode

log = logging.getLogger(__name__)

TAKEN: Final = 1
NOT_LEADING: Final = 2
BUSY: Final = 3


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueLog:
    """An ordered log of commands that come back through `apply` of the queue's host."""

    @abstractmethod
    def propose(self, data: bytes, urgent: bool) -> i64:
        """Append one stamped command; return TAKEN, NOT_LEADING or BUSY.

        What is urgent passes what is not and waits for room.
        """

    @abstractmethod
    def entry_data(self, index: i64) -> bytes:
        """Return a committed command.

        Raises:
            KeyError: the entry was forgotten.
            CorruptLogError: what is stored of it is damaged; the node is being stopped.
            OSError: its file cannot be read; the node is being stopped.
        """

    @abstractmethod
    def forget(self, index: i64) -> None:
        """The entry holds no message of the queue any more and is not read again."""

    @abstractmethod
    def leader(self) -> int:
        """Return the node id of the leader, 0 while unknown."""


@final
class RaftQueueLog(QueueLog):
    """The replicated log of a durable queue.

    Args:
        node: the node's replicated logs.
        group: the queue's group.
        unreadable: stops the node, whose log has lost what it must have; when it starts again it
            sets the damaged replicas aside and has them rebuilt.
    """

    def __init__(
        self, node: RaftNode, group: int, unreadable: Callable[[BaseException], None]
    ) -> None:
        self._node = node
        self._group = group
        self._unreadable = unreadable

    @override
    def propose(self, data: bytes, urgent: bool) -> i64:
        try:
            index = self._node.propose(self._group, data, urgent)
        except ValueError:  # another node allows larger messages than the log here takes
            log.exception("group %d: a command was refused", self._group)
            return BUSY
        if index >= QUEUED:
            return TAKEN
        return NOT_LEADING if index == NOT_LEADER else BUSY

    @override
    def entry_data(self, index: i64) -> bytes:
        try:
            return self._node.entry_data(self._group, index)
        except (CorruptLogError, OSError) as error:
            self._unreadable(error)
            raise

    @override
    def forget(self, index: i64) -> None:
        self._node.entry_dead(self._group, index)

    @override
    def leader(self) -> int:
        return self._node.leader(self._group)


@final
class MemoryQueueLog(QueueLog):
    """The log of an unreplicated queue: commands apply in the next loop turn, in memory."""

    def __init__(self, node: int, loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
        self._loop = loop
        self._entries: dict[int, bytes] = {}
        self._waiting: deque[int] = deque()
        self._next: i64 = 1
        self.apply: Callable[[int, bytes], None] | None = None

    @override
    def propose(self, data: bytes, urgent: bool) -> i64:
        index = self._next
        self._next += 1
        self._entries[index] = data
        if not self._waiting:
            self._loop.call_soon(self._run)
        self._waiting.append(index)
        return TAKEN

    def _run(self) -> None:
        apply = self.apply
        assert apply is not None, "a host sets apply before the first command"
        for _ in range(len(self._waiting)):
            index = self._waiting.popleft()
            apply(index, self._entries[index])
        if self._waiting:
            self._loop.call_soon(self._run)

    @override
    def entry_data(self, index: i64) -> bytes:
        return self._entries[index]

    @override
    def forget(self, index: i64) -> None:
        self._entries.pop(index, None)

    @override
    def leader(self) -> int:
        return self._node
