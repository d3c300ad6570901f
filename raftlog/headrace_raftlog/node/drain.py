"""Handing all groups over that a node leads, before it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from headrace_raftlog.model.group import LEADER
from headrace_raftlog.model.limits import DRAIN_TRANSFERS_MAX
from headrace_raftlog.model.membership import member_node
from headrace_raftlog.node.host import Host
from headrace_raftlog.node.hosted_group import HostedGroup


def successor(hosted: HostedGroup, nodes_up: frozenset[int]) -> int:
    """Return the voter that lacks least of the log, 0 if there is none on a node that is up."""
    core = hosted.core
    best = 0
    best_match = -1
    for member in core.membership.voters:
        progress = core.progress(member)
        if progress is None or member_node(member) not in nodes_up:
            continue
        if progress.match > best_match:
            best, best_match = member, progress.match
    return best


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
            target = successor(hosted, nodes_up)
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
