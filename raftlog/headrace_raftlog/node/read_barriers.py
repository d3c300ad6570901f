"""Reads that see everything committed before they began, on any member."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from headrace_raftlog.model.errors import ReadTimeoutError
from headrace_raftlog.node.host import Host
from headrace_raftlog.node.hosted_group import HostedGroup
from headrace_raftlog.node.reads import GroupReads

BOOT_SHIFT: Final = 38  # contexts: boot count above, a number within the boot below


class ReadBarriers:
    """Waits until a member has applied everything committed when the wait began.

    A question or its answer may get lost, so each wait asks again and again, under a context of its
    own each time. The first answer counts, whichever of its questions it is to: on a slow link all
    answers may take longer than the time until the next question.
    """

    def __init__(self, host: Host, boot: Callable[[], int], tick_s: float, retry_s: float) -> None:
        self._host = host
        self._boot = boot
        self._tick_s = tick_s
        self._retry_s = retry_s
        self._number = 0

    async def wait(self, hosted: HostedGroup, timeout_s: float) -> None:
        """Wait until a read of a group sees everything committed before the call.

        Raises KeyError: the group was removed meanwhile; ReadTimeoutError: no leader confirmed the
        read in time.
        """
        if hosted.reads is None:
            hosted.reads = GroupReads()
        asked: dict[int, asyncio.Future[int]] = {}
        try:
            async with asyncio.timeout(timeout_s):
                while not await self._attempt(hosted, hosted.reads, asked):
                    if hosted.removed:
                        raise KeyError(f"group {hosted.group} was removed")
        except TimeoutError:
            raise ReadTimeoutError(hosted.group, timeout_s) from None
        finally:
            for context in asked:
                hosted.reads.forget(context)

    async def _attempt(
        self, hosted: HostedGroup, reads: GroupReads, asked: dict[int, asyncio.Future[int]]
    ) -> bool:
        """Ask once more; return whether a question was answered and its index is applied.

        Args:
            hosted: the group.
            reads: those of the group that wait.
            asked: questions of this wait by context. The new one is added, lost ones are taken out.
        """
        self._number += 1
        context = (self._boot() << BOOT_SHIFT) | self._number
        if not hosted.removed and self._host.read_index(hosted, context):
            asked[context] = reads.ask(context)
        if asked:
            await asyncio.wait(
                asked.values(), timeout=self._retry_s, return_when=asyncio.FIRST_COMPLETED
            )
        answered = {at: answer.result() for at, answer in asked.items() if answer.done()}
        found = [index for index in answered.values() if index >= 0]
        if found:
            index = min(found)
            return index <= hosted.core.applied_index or await reads.reach(index)
        for context in answered:
            del asked[context]
        if answered or not asked:
            await asyncio.sleep(self._tick_s)
        return False
