"""Keeps changes out of the catalog's log that a node of the cluster would not know."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.message_bound import place_problem
from headrace_broker.catalog.version import (
    is_silent,
    older_nodes,
    stamped,
    target_problem,
    upgrade_problem,
)
from headrace_broker.catalog.view import CatalogView

# Nodes that have just joined, or founded the cluster, are about to say what they are.
ANNOUNCEMENT_SECONDS_MAX: Final = 3.0

log = logging.getLogger("headrace.catalog")


class VersionGate:
    """Judges commands by what the nodes have announced."""

    def __init__(self, view: CatalogView, node: int) -> None:
        self._view = view
        self._node = node  # this node's id
        self._changed = asyncio.Event()
        self._told = ""

    def changed(self) -> None:
        """Check again: the catalog has news of its nodes."""
        self._changed.set()

    async def wait(self, command: commands.AnyCommand, seconds: float) -> str:
        """Return why a command must not be proposed, "" when it may.

        Where only nodes are in the way that have said nothing of themselves, they are waited for.

        Args:
            command: the change.
            seconds: not longer than this, and than ANNOUNCEMENT_SECONDS_MAX.
        """
        try:
            async with asyncio.timeout(min(seconds, ANNOUNCEMENT_SECONDS_MAX)):
                while True:
                    self._changed.clear()
                    older = older_nodes(self._view, self._node, command)
                    if not older or not all(is_silent(node) for node in older):
                        break
                    await self._changed.wait()
        except TimeoutError:
            pass  # they are named
        return self.problem(command)

    def problem(self, command: commands.AnyCommand) -> str:
        """Return why a command must not be proposed now, "" when it may."""
        problem = upgrade_problem(self._view, self._node, command)
        if not problem and isinstance(command, commands.SetMembers):
            queue = self._view.queue(command.vhost, command.name)
            if queue is not None and queue.group == command.group:
                problem = target_problem(self._view, queue, command.add) or place_problem(
                    self._view, queue, command.add
                )
        return problem

    def stamped(self, command: commands.AnyCommand) -> commands.AnyCommand:
        """Return a command as of the newest version of it that all nodes know."""
        return stamped(self._view, self._node, command)

    def passes(self, data: bytes) -> bool:
        """Return whether an entry may be appended to the log; log why not, once for each reason.

        Args:
            data: envelope and command, from here or from another node, perhaps an older one.
        """
        try:
            problem = self.problem(commands.decode_command(data))
        except commands.CommandError as error:
            problem = str(error)
        if problem and problem != self._told:
            log.warning("catalog change held back: %s", problem)
        self._told = problem
        return not problem
