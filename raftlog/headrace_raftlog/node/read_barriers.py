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

        Raises KeyError: the group was removed meanwhile; ReadTimeoutError: no leader confirmed the
        read in time.
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
