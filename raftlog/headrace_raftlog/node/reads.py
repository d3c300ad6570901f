"""Reads that see everything committed before they began, on any member."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace_raftlog.model.errors import ReadTimeoutError

if TYPE_CHECKING:
    from headrace_raftlog.node.host import Host
    from headrace_raftlog.node.hosted_group import HostedGroup

BOOT_SHIFT: Final = 38  # contexts: boot count above, a number within the boot below


class GroupReads:
    """Reads of one group that wait for the leader's answer, or until they may be answered."""

    def __init__(self) -> None:
        self._asked: dict[int, asyncio.Future[int]] = {}
        self._answered: list[tuple[int, asyncio.Future[bool]]] = []

    def ask(self, context: int) -> asyncio.Future[int]:
        """Return a future of the index to apply first, -1 when there will be none."""
        asked: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._asked[context] = asked
        return asked

    def forget(self, context: int) -> None:
        """Wait no longer."""
        self._asked.pop(context, None)

    def answered(self, states: list[tuple[int, int]], lost: list[int]) -> None:
        """Take answers as they come with a Ready."""
        for context, index in states:
            self._settle(context, index)
        for context in lost:
            self._settle(context, -1)

    def reach(self, index: int) -> asyncio.Future[bool]:
        """Return a future that is set once `index` is applied (False: the group is gone)."""
        reached: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._answered.append((index, reached))
        return reached

    def applied(self, applied_index: int) -> None:
        """Let reads go whose index is applied."""
        if not self._answered:
            return
        waiting, self._answered = self._answered, []
        for index, reached in waiting:
            if index > applied_index:
                self._answered.append((index, reached))
            elif not reached.done():
                reached.set_result(True)

    def close(self) -> None:
        """Let everybody go: the group is gone, or its node has stopped."""
        self.answered([], list(self._asked))
        for _, reached in self._answered:
            if not reached.done():
                reached.set_result(False)
        self._answered = []

    def _settle(self, context: int, index: int) -> None:
        asked = self._asked.pop(context, None)
        if asked is not None and not asked.done():
            asked.set_result(index)


class ReadBarriers:
    """Waits until a member has applied what was committed when the wait began.

    Each attempt has a context of its own: an answer to an earlier one never counts for a later.
    """

    def __init__(self, host: Host, boot: Callable[[], int], tick_s: float, retry_s: float) -> None:
        self._host = host
        self._boot = boot
        self._tick_s = tick_s
        self._retry_s = retry_s
        self._number = 0

    async def wait(self, hosted: HostedGroup, timeout_s: float) -> None:
        """Wait until a read of a group sees everything committed before the call.

        Raises:
            KeyError: the group was removed meanwhile.
            ReadTimeoutError: no leader confirmed the read in time.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while not await self._attempt(hosted):
                    if hosted.removed:
                        raise KeyError(f"group {hosted.group} was removed")
        except TimeoutError:
            raise ReadTimeoutError(hosted.group, timeout_s) from None

    async def _attempt(self, hosted: HostedGroup) -> bool:
        if hosted.reads is None:
            hosted.reads = GroupReads()
        reads = hosted.reads
        self._number += 1
        context = (self._boot() << BOOT_SHIFT) | self._number
        if hosted.removed or not self._host.read_index(hosted, context):
            await asyncio.sleep(self._tick_s)
            return False
        asked = reads.ask(context)
        try:
            async with asyncio.timeout(self._retry_s):
                index = await asked
        except TimeoutError:
            return False  # the question or its answer got lost
        finally:
            reads.forget(context)
        if index < 0:
            await asyncio.sleep(self._tick_s)
            return False
        if index <= hosted.core.applied_index:
            return True
        return await reads.reach(index)
