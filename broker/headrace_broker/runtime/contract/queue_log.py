"""Log of a queue's commands: a Raft group, or this process's memory for unreplicated queues."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from array import array
from collections import deque
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr
from typing_extensions import override

from headrace_broker.model.limits import (
    MEMORY_LOG_BYTES_MAX,
    MEMORY_LOG_TURN_BYTES,
    MEMORY_LOG_URGENT_BYTES,
)
from headrace_broker.runtime.contract.retention import Retention
from headrace_raftlog.model.group import NOT_LEADER, QUEUED

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace_raftlog.node.node import RaftNode

log = logging.getLogger("headrace.queue")

TAKEN: Final = 1
NOT_LEADING: Final = 2
BUSY: Final = 3

COMMAND_OVERHEAD_BYTES: Final = 128  # reckoned for a command beside its own: objects cost


@mypyc_attr(allow_interpreted_subclasses=True)
class QueueLog:
    """An ordered log of commands that come back through `apply` of the queue's host."""

    hold: Retention | None = None  # dead entries that somebody reads; None for nobody
    _pins: dict[int, int] | None = None  # how often each entry is kept
    _pinned_dead: dict[int, None] | None = None  # of these, those that died

    @abstractmethod
    def propose(self, data: bytes, urgent: bool) -> i64:
        """Append one stamped command; return TAKEN, NOT_LEADING or BUSY.

        What is urgent passes what is not and waits for room.
        """

    @abstractmethod
    def entry_at_hand(self, index: i64, done: Callable[[], None]) -> bytes | None:
        """Return a committed command where that needs no disk; else None, and begin to read it.

        There is no other way to read one: the event loop never waits for the disk here. `done` is
        called in a later turn of the loop, when it was read or could not be, which the next call
        says; once for several calls. An entry whose record is damaged is waited for likewise: the
        replica stands still from the next turn of the loop on, until that was put back.

        Raises KeyError: the entry was forgotten; OSError: the node is being stopped.
        """

    def give_up(self, done: Callable[[], None]) -> None:
        """Cancel the callback of a function that waits for an entry."""

    @abstractmethod
    def forget(self, index: i64) -> None:
        """Note that the entry holds no message of the queue any more and is not read again."""

    @abstractmethod
    def leader(self) -> int:
        """Return the node id of the leader, 0 while unknown."""

    def entry_bytes(self, index: i64) -> i64:
        """Return the size of a committed command that was not forgotten."""
        raise AssertionError("nobody measures this log")

    def applied_index(self) -> i64:
        """Return up to where the log is applied here."""
        raise AssertionError("nobody reads this log beside its queue")

    def window_bytes(self) -> i64:
        """Return how many bytes of commands may be under way before others wait for them."""
        raise AssertionError("nobody measures this log")

    async def catch_up(self, seconds: float) -> None:
        """Wait until all that was committed before is applied here; as `RaftNode.read_barrier`."""

    def release(self, indexes: array[int]) -> None:
        """Forget entries that were held, whatever is held now."""
        raise AssertionError("nobody reads this log beside its queue")

    def holds(self, index: i64) -> bool:
        """Keep a dead entry if it has a reader; return whether it has."""
        pins = self._pins
        if pins is not None and index in pins:
            dead = self._pinned_dead
            if dead is None:
                dead = self._pinned_dead = {}
            dead[index] = None
            return True
        hold = self.hold
        if hold is None or not hold.covers(index):
            return False
        hold.keep(index, self.entry_bytes(index))
        return True

    def pin(self, index: i64) -> None:
        """Keep an entry until `unpin`, should it die: it is still to be read."""
        pins = self._pins
        if pins is None:
            pins = self._pins = {}
        pins[index] = pins.get(index, 0) + 1

    def unpin(self, index: i64) -> None:
        """Release one pin of an entry."""
        pins = self._pins
        if pins is None or index not in pins:
            return  # the log was replaced
        pins[index] -= 1
        if pins[index] > 0:
            return
        del pins[index]
        dead = self._pinned_dead
        if dead is not None and index in dead:
            del dead[index]
            self.forget(index)

    def held(self) -> array[int]:
        """Return the positions, ascending, of dead entries that are held."""
        hold = self.hold
        held = array("Q") if hold is None else hold.held()
        dead = self._pinned_dead
        return array("Q", sorted([*held, *dead])) if dead else held

    def replaced(self) -> None:
        """The log begins anew with a snapshot of another replica, which holds nothing."""
        self._pins = self._pinned_dead = None
        hold = self.hold
        if hold is not None:
            hold.lose("the replica was given a snapshot by another one")


@final
class RaftQueueLog(QueueLog):
    """The replicated log of a durable queue."""

    def __init__(
        self, node: RaftNode, group: int, unreadable: Callable[[BaseException], None]
    ) -> None:
        self._node = node  # the node's replicated logs
        self._group = group  # the queue's group
        # stops the node, which cannot read its log; not for what is damaged there, which is put
        # back from the other replicas while the queue is led by one of them
        self._unreadable = unreadable

    @override
    def propose(self, data: bytes, urgent: bool) -> i64:
        try:
            index = self._node.propose(self._group, data, urgent)
        except ValueError:  # another node allows larger messages than the log here takes
            log.exception("group %d: command rejected", self._group)
            return BUSY
        if index >= QUEUED:
            return TAKEN
        return NOT_LEADING if index == NOT_LEADER else BUSY

    @override
    def entry_at_hand(self, index: i64, done: Callable[[], None]) -> bytes | None:
        try:
            return self._node.entry_at_hand(self._group, index, done)
        except OSError as error:
            self._unreadable(error)
            raise

    @override
    def give_up(self, done: Callable[[], None]) -> None:
        self._node.give_up(done)

    @override
    def forget(self, index: i64) -> None:
        if not self.holds(index):
            self._node.entry_dead(self._group, index)

    @override
    def window_bytes(self) -> i64:
        return self._node.options.core.uncommitted_bytes_max

    @override
    def entry_bytes(self, index: i64) -> i64:
        return self._node.entry_bytes(self._group, index)

    @override
    def applied_index(self) -> i64:
        return self._node.applied_index(self._group)

    @override
    def release(self, indexes: array[int]) -> None:
        for index in indexes:
            self._node.entry_dead(self._group, index)

    @override
    async def catch_up(self, seconds: float) -> None:
        await self._node.read_barrier(self._group, seconds)

    @override
    def leader(self) -> int:
        return self._node.leader(self._group)


@final
class MemoryQueueLog(QueueLog):
    """The log of an unreplicated queue: commands apply in the next loop turn, in memory.

    One turn applies MEMORY_LOG_TURN_BYTES at most. What is beyond that waits, and there what is
    urgent goes first, as in a replicated log.
    """

    def __init__(self, node: int, loop: asyncio.AbstractEventLoop) -> None:
        self._node = node
        self._loop = loop
        self._entries: dict[int, bytes] = {}
        self._next: i64 = 1
        self._coming: deque[bytes] = deque()  # applied in the next turn, in this order
        self._coming_bytes: i64 = 0
        self._urgent: deque[bytes] = deque()
        self._normal: deque[bytes] = deque()
        self._waiting_bytes: i64 = 0  # of the latter two
        self.apply: Callable[[int, bytes], None] | None = None

    @override
    def propose(self, data: bytes, urgent: bool) -> i64:
        size = len(data) + COMMAND_OVERHEAD_BYTES
        waits = self._waiting_bytes > 0
        if not waits and self._fits(size):
            self._come(data, size)
            return TAKEN
        bound = MEMORY_LOG_BYTES_MAX + (MEMORY_LOG_URGENT_BYTES if urgent else 0)
        if waits and self._waiting_bytes + size > bound:
            return BUSY
        (self._urgent if urgent else self._normal).append(data)
        self._waiting_bytes += size
        return TAKEN

    def _fits(self, size: i64) -> bool:
        """Return whether the next turn takes so much more; it always takes one command."""
        return not self._coming or self._coming_bytes + size <= MEMORY_LOG_TURN_BYTES

    def _come(self, data: bytes, size: i64) -> None:
        if not self._coming:
            self._loop.call_soon(self._run)
        self._coming.append(data)
        self._coming_bytes += size

    def _run(self) -> None:
        apply = self.apply
        assert apply is not None, "a host sets apply before the first command"
        coming, self._coming = self._coming, deque()
        self._coming_bytes = 0
        while self._waiting_bytes > 0:
            queue = self._urgent if self._urgent else self._normal
            size = len(queue[0]) + COMMAND_OVERHEAD_BYTES
            if not self._fits(size):
                break
            self._come(queue.popleft(), size)
            self._waiting_bytes -= size
        for data in coming:
            index = self._next
            self._next += 1
            self._entries[index] = data
            apply(index, data)

    @override
    def entry_at_hand(self, index: i64, done: Callable[[], None]) -> bytes | None:
        del done
        return self._entries[index]

    @override
    def entry_bytes(self, index: i64) -> i64:
        return len(self._entries[index])

    @override
    def forget(self, index: i64) -> None:
        if not self.holds(index):
            self._entries.pop(index, None)

    @override
    def window_bytes(self) -> i64:
        return MEMORY_LOG_TURN_BYTES

    @override
    def applied_index(self) -> i64:
        return self._next - 1

    @override
    def release(self, indexes: array[int]) -> None:
        for index in indexes:
            self._entries.pop(index, None)

    @override
    def leader(self) -> int:
        return self._node
