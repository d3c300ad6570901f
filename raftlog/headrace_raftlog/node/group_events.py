"""Log lines about a group's role and members, from what its core shows after a turn.

The host calls it where a turn ends: the core itself is deterministic and logs nothing. What
concerns the catalog's group is written at info, what concerns other groups at debug.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace_raftlog.log_event import (
    DEBUG,
    ELECTION_LOST,
    ELECTION_STARTED,
    INFO,
    LEADER_ELECTED,
    LEADER_FOLLOWED,
    LEADER_LOST,
    LEADER_STEPPED_DOWN,
    MEMBERS_CHANGED,
    PRE_VOTE_STARTED,
    RAFT,
    TRANSFER_STARTED,
    Event,
    log_event,
)
from headrace_raftlog.model.group import CANDIDATE, CATALOG_GROUP, LEADER, PRE_CANDIDATE
from headrace_raftlog.model.membership import Membership, member_node
from headrace_raftlog.node.hosted_group import HostedGroup

Labels = Callable[[int], Mapping[str, str]]


def no_labels(_group: int) -> Mapping[str, str]:
    """Return no names of a group, where the application gives none."""
    return {}


def role_changed(hosted: HostedGroup, labels: Labels) -> None:
    """Log a change of role or leader since the last call; note the current one."""
    core = hosted.core
    role, former, led = core.role, hosted.logged_leader, hosted.logged_role == LEADER
    stood = hosted.logged_role in (PRE_CANDIDATE, CANDIDATE)
    hosted.logged_role, hosted.logged_leader = role, core.leader
    led_term = hosted.led_term
    if role == LEADER:
        hosted.led_term = core.term
    level = _level(hosted)
    if not RAFT.isEnabledFor(level):
        return
    leader = member_node(core.leader)
    more: dict[str, object] = {**_place(hosted, labels)}
    if led and role != LEADER:
        after: dict[str, object] = {"leader": leader} if leader else {}
        after |= {"led_term": led_term, "reason": _reason(hosted)}
        log_event(RAFT, LEADER_STEPPED_DOWN, level, **after, **more)
    if role == LEADER:
        log_event(RAFT, LEADER_ELECTED, level, leader=leader, **more)
    elif role in (PRE_CANDIDATE, CANDIDATE):
        event: Event = PRE_VOTE_STARTED if role == PRE_CANDIDATE else ELECTION_STARTED
        log_event(RAFT, event, level, **more)
    elif leader:
        log_event(RAFT, LEADER_FOLLOWED, level, leader=leader, **more)
    elif stood:
        log_event(RAFT, ELECTION_LOST, level, **more)
    elif former and not led:
        log_event(RAFT, LEADER_LOST, level, former=member_node(former), **more)
    if role != LEADER:
        hosted.successor_named = 0


def members_changed(hosted: HostedGroup, after: Membership, labels: Labels) -> None:
    """Log a change of the nodes of a group led here, once it is not joint any more."""
    if after.is_joint:
        return
    before, hosted.logged_members = hosted.logged_members, after
    if hosted.core.role != LEADER or not RAFT.isEnabledFor(INFO):
        return
    was, now = set(before.everyone()), set(after.everyone())
    if was == now and before.voters == after.voters:
        return
    log_event(
        RAFT,
        MEMBERS_CHANGED,
        members=_nodes(now),
        added=_nodes(now - was),
        removed=_nodes(was - now),
        voters=_nodes(set(after.voters)),
        **_place(hosted, labels),
    )


def transfer_started(hosted: HostedGroup, target: int, labels: Labels) -> None:
    """Log the beginning of a transfer of the leadership."""
    hosted.successor_named = target
    if RAFT.isEnabledFor(_level(hosted)):
        more = _place(hosted, labels)
        log_event(RAFT, TRANSFER_STARTED, _level(hosted), target=member_node(target), **more)


def _level(hosted: HostedGroup) -> int:
    return INFO if hosted.group == CATALOG_GROUP else DEBUG


def _place(hosted: HostedGroup, labels: Labels) -> dict[str, object]:
    core = hosted.core
    node = member_node(core.member)
    return {"group": hosted.group, "term": core.term, "node": node, **labels(hosted.group)}


def _nodes(members: set[int]) -> list[int]:
    return sorted({int(member_node(member)) for member in members})


def _reason(hosted: HostedGroup) -> str:
    """Return why a leader leads no more, as its core shows it."""
    core = hosted.core
    if hosted.successor_named and hosted.successor_named in (core.vote, core.leader):
        return f"it handed over to node {member_node(hosted.successor_named)}"
    if hosted.suspended:
        return "entries of its log are damaged here"
    if core.member not in core.membership.voters:
        return "it is a voter of the group no more"
    if hosted.handing_over:
        return "its disk does not answer"
    if core.term > hosted.led_term and core.vote != core.member:
        return f"term {core.term} was begun by another node"
    return "it heard no majority of the voters for an election timeout"
