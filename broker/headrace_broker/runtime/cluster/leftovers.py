"""Removal of the data of queues that were deleted while this node was away.

A node that was down, or that got a snapshot of the catalog, may have missed both that a queue was
declared and that it was deleted, and still hold its replica's log.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from headrace_broker.catalog.store import CatalogStore
from headrace_broker.model.limits import LEFTOVERS_AT_ONCE
from headrace_raftlog.model.group import CATALOG_GROUP

SHOWN_MAX: Final = 8  # groups named in the log line

log = logging.getLogger("headrace.queue")


class UnclaimedGroups(Protocol):
    """The part of the replicated logs (`headrace_raftlog.node`) that is needed here."""

    def unclaimed_groups(self) -> list[int]:
        """Return the groups that the log holds data of and that do not run here, ascending."""

    def remove_group(self, group: int) -> None:
        """Forget a group for good."""


def is_deleted(catalog: CatalogStore, group: int) -> bool:
    """Return whether a group's queue was deleted, whatever this node has yet to hear.

    Ids of groups ascend and are never given twice: one that was given, and that no queue has, never
    comes again. One that is yet to be given may be that of a queue that others know already.
    """
    if group == CATALOG_GROUP or group >= catalog.next_group:
        return False
    return catalog.queue_by_group(group) is None


async def remove_leftovers(catalog: CatalogStore, raft: UnclaimedGroups) -> list[int]:
    """Remove what the log holds of deleted queues, some in each turn of the loop; return which."""
    removed: list[int] = []
    while True:
        stale = [group for group in raft.unclaimed_groups() if is_deleted(catalog, group)]
        for group in stale[:LEFTOVERS_AT_ONCE]:
            raft.remove_group(group)
        removed += stale[:LEFTOVERS_AT_ONCE]
        if len(stale) <= LEFTOVERS_AT_ONCE:
            break
        await asyncio.sleep(0)
    if removed:
        shown = ", ".join(str(group) for group in removed[:SHOWN_MAX])
        more = ", ..." if len(removed) > SHOWN_MAX else ""
        log.info(
            "removed the data of %d queues that were deleted while this node was away (groups %s)",
            len(removed),
            shown + more,
        )
    return removed
