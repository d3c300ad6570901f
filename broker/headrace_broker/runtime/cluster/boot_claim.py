"""A boot count that no other process of a node has had or will have, as the catalog decides.

Whatever is de-duplicated by who said it (publishes and settles of sessions, changes of the catalog)
carries the boot count of its node. The data directory counts starts, but it can be lost, or be an
old copy, and knows of no clone; the catalog remembers the newest boot of each node for ever. So a
process takes part only once it owns its boot: once the catalog has applied a request of that boot,
under a random number, before which it had met no request of that boot or of a later one. Otherwise
the process goes on as a boot beyond all that the catalog has met, and claims that.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, final

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.request import REQUEST_BITS, Request
from headrace_broker.catalog.result import Ok, Result

log: Final = logging.getLogger("headrace.cluster")


class Booted(Protocol):
    """Counter of this node's starts."""

    boot: int

    async def raise_boot(self, boot: int) -> None:
        """Count this start of the node as a later one.

        Raises OSError: the data directory cannot be written; the node cannot go on.
        """


@final
class BootClaim:
    """Claim of this process's boot number, made when it is first awaited."""

    def __init__(
        self,
        raft: Booted,
        node: int,
        seen_boot: Callable[[int], int],
        ask: Callable[[int, bytes], Awaitable[Result]],
    ) -> None:
        # random number of the claim; the process's other requests follow it
        self.number = secrets.randbits(REQUEST_BITS) + 1
        # the request by which the catalog, as applied here, met this node's newest boot; to be set
        # by who applies it, before it is answered
        self.first_of_boot: Request | None = None
        self._raft = raft  # counts the starts
        self._node = node  # this node's id
        # returns the newest boot of a node that the catalog has met, -1 for none
        self._seen_boot = seen_boot
        self._ask = ask  # sends a command to the catalog under a number, and returns the answer
        self._task: asyncio.Task[None] | None = None

    async def wait(self) -> None:
        """Return once this process owns its boot count.

        Raises CatalogUnavailableError: the node is stopping; OSError: a later count could not be
        written; the node cannot go on.
        """
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._claim(), name="boot claim")
        await asyncio.shield(self._task)

    async def stop(self) -> None:
        """Wait until a claim is over, which is no longer answered."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _claim(self) -> None:
        barrier = commands.encode_command(commands.Barrier())
        while True:
            request = Request(self._node, self._raft.boot, self.number)
            result = await self._ask(self.number, barrier)
            if isinstance(result, Ok) and self.first_of_boot == request:
                return
            # An answer that came with a snapshot says as little as a refusal: that the boot may be
            # another process's.
            seen = self._seen_boot(self._node)
            boot = max(seen, self._raft.boot) + 1
            log.warning(
                "by its data directory this start of node %d is boot %d, but the cluster has met "
                "starts of it up to boot %d (the directory was lost, or is a copy): it goes on as "
                "boot %d",
                *(self._node, self._raft.boot, seen, boot),
            )
            await self._raft.raise_boot(boot)
