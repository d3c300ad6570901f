"""All events of a node's log, and the loggers they go to.

One list, so that tests and documents can go through it: docs/logging.md has a row for each. Use
`log_event` for what happens to nodes, queues, connections, channels and alarms; a plain call of a
logger remains for faults that only a person reads.
"""

from __future__ import annotations

import logging
from typing import Final

from headrace_raftlog.log_event import (
    CLUSTER,
    DEBUG,
    ERROR,
    INFO,
    RAFT,
    RAFT_EVENTS,
    WARNING,
    Event,
    log_event,
)

__all__ = [
    "ALARM",
    "CATALOG",
    "CLUSTER",
    "CONNECTION",
    "DEBUG",
    "ERROR",
    "EVENTS",
    "INFO",
    "LISTENER",
    "LOGGERS",
    "RAFT",
    "WARNING",
    "Event",
    "log_event",
]

ALARM: Final = logging.getLogger("headrace.alarm")
CATALOG: Final = logging.getLogger("headrace.catalog")
CONNECTION: Final = logging.getLogger("headrace.connection")
LISTENER: Final = logging.getLogger("headrace.listener")

# Every logger of Headrace is one of these, or below one; a level may be set for each.
LOGGERS: Final = {
    "headrace.raft": "elections, members of groups, the log on disk",
    "headrace.cluster": "nodes: joining, up and down, drains, moves of leaders",
    "headrace.catalog": "what is declared and deleted",
    "headrace.queue": "queues, dead letters, leases, archives, backups",
    "headrace.connection": "clients of AMQP and gRPC: connections, channels, closed gates",
    "headrace.http": "the management API and the web page",
    "headrace.alarm": "alarms, memory, disk, clocks",
    "headrace.security": "log-ins, certificates, secrets",
    "headrace.listener": "listeners",
    "headrace.node": "the process: start, stop, and what belongs to no other area",
    "headrace.audit": "the audit log; written at every level",
}

NODE_JOINED: Final = Event(
    "node_joined",
    INFO,
    "node %(node)r (id %(id)d) belongs to the cluster, at %(address)r",
    ("node", "id", "address"),
)
NODE_REFUSED: Final = Event(
    "node_refused",
    WARNING,
    "node %(node)r (id %(id)d) is not admitted to the cluster: %(reason)s",
    ("node", "id", "reason"),
)
NODE_FORGOTTEN: Final = Event(
    "node_forgotten", INFO, "node %(node)r (id %(id)d) was removed from the cluster", ("node", "id")
)
CLUSTER_VERSION_RAISED: Final = Event(
    "cluster_version_raised",
    INFO,
    "the cluster version is %(version)d: nodes of an earlier release cannot take part any more",
    ("version",),
)
NODE_EXPELLED: Final = Event(
    "node_expelled",
    ERROR,
    "this node, %(node)s, was removed from the cluster and serves nobody any more: stop it",
    ("node",),
)
DRAIN_STARTED: Final = Event(
    "drain_started",
    INFO,
    "node %(node)r is being drained: it hands over what it leads and sends its clients away",
    ("node",),
)
DRAIN_FINISHED: Final = Event(
    "drain_finished",
    INFO,
    "node %(node)r is drained; it still leads %(led)d groups",
    ("node", "led"),
)
DRAIN_ENDED: Final = Event(
    "drain_ended", INFO, "node %(node)r is to serve clients again", ("node",)
)
REPLICAS_PLACED: Final = Event(
    "replicas_placed",
    INFO,
    "queue %(queue)r in vhost %(vhost)r is to be on nodes %(members)s; nodes %(leaving)s are to "
    "leave it",
    ("queue", "vhost", "group", "members", "leaving"),
)
ALARM_SET: Final = Event(
    "alarm_set",
    WARNING,
    "publishers are blocked in the whole cluster: %(reason)s; have consumers take messages, delete "
    "what is not needed, or give the node more",
    ("node", "resource", "reason"),
)
ALARM_CLEARED: Final = Event(
    "alarm_cleared", INFO, "alarm over: %(resource)s of node %(node)s", ("node", "resource")
)
ALARM_LOST: Final = Event(
    "alarm_lost",
    WARNING,
    "node %(node)s has not reported for %(ms)d ms: its alarms are dropped; see whether it runs",
    ("node", "ms"),
)
PUBLISHERS_RESUMED: Final = Event(
    "publishers_resumed",
    INFO,
    "no alarm is left: publishers of the whole cluster may go on",
    ("node",),
)
LISTENER_OPENED: Final = Event(
    "listener_opened",
    INFO,
    "node %(node)s serves %(protocol)s on %(address)s",
    ("node", "protocol", "address"),
)
LISTENER_CLOSED: Final = Event(
    "listener_closed",
    INFO,
    "node %(node)s lets no more clients in over %(protocol)s on %(address)s",
    ("node", "protocol", "address"),
)
NODE_STARTED: Final = Event(
    "node_started",
    INFO,
    "node %(node)s (id %(id)d, boot %(boot)d) of cluster %(cluster)r is caught up and serves",
    ("node", "id", "boot", "cluster"),
)
SHARD_ENDED: Final = Event(
    "shard_ended",
    ERROR,
    "process %(node)s ended by itself with status %(status)d; it is started again in "
    "%(pause_s).0f s",
    ("node", "status", "pause_s"),
)
SHARD_HANGS: Final = Event(
    "shard_hangs",
    ERROR,
    "process %(node)s hangs: its event loop has not run for %(silence_s).0f s; it is killed",
    ("node", "silence_s"),
)
NODE_STOPPED: Final = Event("node_stopped", INFO, "node %(node)s stopped", ("node",))
QUEUE_DECLARED: Final = Event(
    "queue_declared",
    DEBUG,
    "queue %(queue)r in vhost %(vhost)r was declared: group %(group)d on nodes %(members)s",
    ("queue", "vhost", "group", "members"),
)
QUEUE_DELETED: Final = Event(
    "queue_deleted",
    DEBUG,
    "queue %(queue)r in vhost %(vhost)r was deleted, with group %(group)d",
    ("queue", "vhost", "group"),
)
EXCHANGE_DECLARED: Final = Event(
    "exchange_declared",
    DEBUG,
    "exchange %(exchange)r in vhost %(vhost)r was declared",
    ("exchange", "vhost"),
)
EXCHANGE_DELETED: Final = Event(
    "exchange_deleted",
    DEBUG,
    "exchange %(exchange)r in vhost %(vhost)r was deleted",
    ("exchange", "vhost"),
)
VHOST_DECLARED: Final = Event("vhost_declared", DEBUG, "vhost %(vhost)r was declared", ("vhost",))
VHOST_DELETED: Final = Event("vhost_deleted", DEBUG, "vhost %(vhost)r was deleted", ("vhost",))
CONNECTION_OPENED: Final = Event(
    "connection_opened",
    DEBUG,
    "%(connection)s: opened by user %(user)r in vhost %(vhost)r",
    ("connection", "user", "vhost", "protocol"),
)
CONNECTION_CLOSED: Final = Event(
    "connection_closed",
    DEBUG,
    "%(connection)s: closed",
    ("connection", "user", "vhost", "protocol"),
)
CHANNEL_OPENED: Final = Event(
    "channel_opened", DEBUG, "%(connection)s: channel %(channel)d opened", ("connection", "channel")
)
CHANNEL_CLOSED: Final = Event(
    "channel_closed", DEBUG, "%(connection)s: channel %(channel)d closed", ("connection", "channel")
)
GATE_CLOSED: Final = Event(
    "gate_closed",
    DEBUG,
    "%(connection)s: publishes wait, a limit of flow control stops them",
    ("connection", "user", "vhost"),
)
GATE_OPENED: Final = Event("gate_opened", DEBUG, "%(connection)s: publishes go on", ("connection",))
LINES_LEFT_OUT: Final = Event(
    "lines_left_out",
    INFO,
    "%(count)d more lines like this were left out within %(seconds).0f s: %(last)s",
    ("count", "seconds", "of", "last"),
)

EVENTS: Final = (*RAFT_EVENTS, *(each for each in list(vars().values()) if isinstance(each, Event)))
