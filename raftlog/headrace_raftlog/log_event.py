"""Log lines with an event name and fields, for operators and for programs that read logs.

Use `log_event` for what happens to a node, a group or a connection. Plain calls of a logger remain
for faults that only a person reads. Handlers find the name as `event` and the fields as `fields` of
the record; what they write of it is theirs.
"""

from __future__ import annotations

import logging
from typing import Any, Final, NamedTuple

RAFT: Final = logging.getLogger("headrace.raft")
CLUSTER: Final = logging.getLogger("headrace.cluster")

DEBUG: Final = logging.DEBUG
INFO: Final = logging.INFO
WARNING: Final = logging.WARNING
ERROR: Final = logging.ERROR


class Event(NamedTuple):
    """One kind of line."""

    name: str  # stable, unique, what programs go by
    level: int  # of `logging`
    sentence: str  # for people; %-format of the fields
    fields: tuple[str, ...]  # names of what every such line carries
    optional: tuple[str, ...] = ()  # names of what some carry
    lower: int = 0  # level of the same event where it concerns a queue's group, 0 for `level`


def log_event(log: logging.Logger, event: Event, level: int = 0, /, **fields: Any) -> None:
    """Write a line.

    Callers on paths that are taken often ask `log.isEnabledFor` before they gather fields.

    Args:
        log: by area, one of the documented names.
        event: its kind.
        level: instead of the event's own, 0 for that.
        fields: numbers, texts, or lists of these; a text may come from a client.
    """
    level = level or event.level
    if log.isEnabledFor(level):
        extra = {"event": event.name, "fields": fields}
        log.log(level, event.sentence, fields, extra=extra, stacklevel=2)


_OF_GROUP: Final = ("queue", "vhost")  # where the group is a queue's


def _group_event(name: str, sentence: str, *more: str, optional: tuple[str, ...] = ()) -> Event:
    """Return an event of a member: at info where its group is the catalog, at debug otherwise."""
    fields = ("group", "term", "node", *more)
    return Event(name, INFO, sentence, fields, (*_OF_GROUP, *optional), DEBUG)


PRE_VOTE_STARTED: Final = _group_event(
    "pre_vote_started",
    "node %(node)d hears no leader of group %(group)d and asks whether it could win an election; "
    "the term is still %(term)d",
)
ELECTION_STARTED: Final = _group_event(
    "election_started", "node %(node)d stands for election in group %(group)d, term %(term)d"
)
ELECTION_LOST: Final = _group_event(
    "election_lost",
    "node %(node)d did not win the election in group %(group)d; the term is %(term)d",
)
LEADER_ELECTED: Final = _group_event(
    "leader_elected",
    "node %(leader)d was elected leader of group %(group)d in term %(term)d",
    "leader",
)
LEADER_FOLLOWED: Final = _group_event(
    "leader_followed",
    "node %(node)d follows node %(leader)d, leader of group %(group)d in term %(term)d",
    "leader",
)
LEADER_LOST: Final = _group_event(
    "leader_lost",
    "node %(node)d follows node %(former)d in group %(group)d no longer; the term is %(term)d",
    "former",
)
LEADER_STEPPED_DOWN: Final = _group_event(
    "leader_stepped_down",
    "node %(node)d, leader of group %(group)d in term %(led_term)d, stepped down: %(reason)s",
    "led_term",
    "reason",
    optional=("leader",),
)
TRANSFER_STARTED: Final = _group_event(
    "transfer_started",
    "node %(node)d hands the leadership of group %(group)d over to node %(target)d",
    "target",
)
MEMBERS_CHANGED: Final = Event(
    "members_changed",
    INFO,
    "group %(group)d is on nodes %(members)s now: added %(added)s, removed %(removed)s",
    ("group", "term", "node", "members", "added", "removed", "voters"),
    _OF_GROUP,
)
SNAPSHOT_INSTALLED: Final = Event(
    "snapshot_installed",
    INFO,
    "snapshot of group %(group)d installed from node %(source)d after %(seconds).1f s",
    ("group", "index", "source", "seconds"),
    _OF_GROUP,
    DEBUG,
)
SNAPSHOT_SLOW: Final = Event(
    "snapshot_slow",
    INFO,
    "snapshot of group %(group)d kept the event loop of this node for %(seconds).3f s",
    ("group", "index", "bytes", "seconds"),
    _OF_GROUP,
)
REPLICA_DIVERGED: Final = Event(
    "replica_diverged",
    ERROR,
    "the state of group %(group)d on node %(node)d differs from that of a majority at entry "
    "%(index)d: this replica serves no more and is rebuilt from the others as a new member; save "
    "the logs of all members and report it, for the same entries must give the same state",
    ("group", "index", "node", "member"),
    _OF_GROUP,
)
REPLICAS_DIFFER: Final = Event(
    "replicas_differ",
    ERROR,
    "the states of group %(group)d on nodes %(nodes)s differ at entry %(index)d, and no state has "
    "a majority: nothing is rebuilt; see 'Replicas that differ' in docs/clustering.md",
    ("group", "index", "nodes"),
    _OF_GROUP,
)
PEER_UP: Final = Event("peer_up", INFO, "node %(peer)d (boot %(boot)d) is up", ("peer", "boot"))
PEER_DOWN: Final = Event(
    "peer_down",
    WARNING,
    "node %(peer)d (boot %(boot)d) is down: unless it was stopped, see whether it runs and whether "
    "this node reaches it",
    ("peer", "boot"),
)
LOOP_STALLED: Final = Event(
    "loop_stalled",
    WARNING,
    "this node stood still for %(seconds).1f s and was at work for %(worked).1f s of that; nodes "
    "take another one of which they hear nothing for %(silence_seconds).1f s for down",
    ("seconds", "worked", "silence_seconds"),
)
CLUSTER_FOUNDED: Final = Event(
    "cluster_founded",
    INFO,
    "cluster %(cluster)r was founded by nodes %(founders)s",
    ("cluster", "founders"),
)
DISK_STALLED: Final = Event(
    "disk_stalled",
    WARNING,
    "the disk of %(directory)s has not finished a write for %(seconds).1f s (disk_stall_s is "
    "%(limit_seconds).1f): this node hands over the %(led)d of its %(groups)d groups that it "
    "leads, and leads none until the disk answers; look at the disk, its controller or its volume",
    ("directory", "seconds", "limit_seconds", "led", "groups"),
)
DISK_ANSWERS: Final = Event(
    "disk_answers",
    INFO,
    "the disk of %(directory)s answers again; it hung for %(seconds).1f s, of which the last "
    "%(limit_seconds).1f s went well: this node may lead its %(groups)d groups again",
    ("directory", "seconds", "limit_seconds", "groups"),
)
DISK_FULL: Final = Event(
    "disk_full",
    ERROR,
    "the disk of %(directory)s is full: proposals are refused until there is space; what was "
    "accepted stays",
    ("directory",),
)
DISK_HAS_SPACE: Final = Event(
    "disk_has_space", INFO, "the disk of %(directory)s has space again", ("directory",)
)

RAFT_EVENTS: Final = tuple(each for each in list(vars().values()) if isinstance(each, Event))
