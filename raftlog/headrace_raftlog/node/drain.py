"""Handing all groups over that a node leads, before it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from headrace_raftlog.model.group import LEADER
from headrace_raftlog.model.limits import DRAIN_TRANSFERS_MAX
from headrace_raftlog.node.host import Host


async def drain(
    host: Host, tick_s: float, seconds: float, avoid: Callable[[], Collection[int]] = tuple
) -> list[int]:
    """Hand over what can be handed over, a bounded number of groups at a time, to no avoided node.

    Returns:
        Ids of the groups that this node still leads, ascending.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while loop.time() < deadline and not host.stopped:
        nodes_up = frozenset(host.nodes_up()).difference(avoid())
        under_way = 0
        for hosted in host.groups():
            core = hosted.core
            if core.role != LEADER:
                continue
            target = hosted.successor(nodes_up)
            if not target:
                continue
            under_way += 1
            if not core.transferee and not core.is_changing:
                host.transfer(hosted, target)
            if under_way >= DRAIN_TRANSFERS_MAX:
                break
        if not under_way:
            break
        await asyncio.sleep(tick_s)
    return sorted(hosted.group for hosted in host.groups() if hosted.core.role == LEADER)
