"""Statistics of nodes and of the queues that they lead, current and over time."""

from __future__ import annotations

import msgspec

from headrace_broker.model.status import (
    DamageStatus,
    MessageCounters,
    ObjectTotals,
    QueueCounts,
    ReplicaStatus,
)

# Messages that become available later, and dead letters that are kept. It comes last everywhere,
# for nodes of older releases do not tell it.
LATER = "messages_later"
QUEUE_MOVES = ("publish", "deliver_get", "ack")
QUEUE_FIGURES = ("messages_ready", "messages_unacknowledged", *QUEUE_MOVES, LATER)
NODE_FIGURES = (
    *("messages_ready", "messages_unacknowledged", "publish", "confirm", "deliver_get"),
    *("redeliver", "ack"),
    *("connection_created", "connection_closed", "channel_created", "channel_closed"),
    *("queue_declared", "queue_created", "queue_deleted"),
    *("mem_used", "fd_used", "sockets_used", "proc_used", "disk_free"),
    LATER,
)
NODE_OWN_FIGURES = NODE_FIGURES[7:-1]  # the others are those of its queues and clients

CLIENT_FIGURES = (
    *("publish", "confirm", "return_unroutable", "drop_unroutable"),
    *("deliver", "deliver_no_ack", "get", "get_no_ack", "get_empty", "redeliver", "ack"),
)
BYTE_FIGURES = ("recv_oct", "recv_cnt", "send_oct", "send_cnt")
CONNECTION_FIGURES = (*BYTE_FIGURES, *CLIENT_FIGURES)
LENGTH_FIGURES = ("messages_ready", "messages_unacknowledged")
VHOST_FIGURES = (*LENGTH_FIGURES, *CONNECTION_FIGURES, LATER)
EXCHANGE_FIGURES = ("publish_in", "publish_out")

Samples = list[tuple[int, ...]]  # Unix ms, then the figures; the newest first


class QueueStats(msgspec.Struct, frozen=True, tag="queue"):
    """A queue that a node leads."""

    group: int
    last: Samples = []  # its figures (QUEUE_FIGURES) at the last two samples
    samples: Samples = []  # over the time that was asked for
    leader: str = ""  # name of the node, as the next two where they are wanted
    counts: QueueCounts | None = None  # what is in it now; older nodes do not tell
    replicas: tuple[ReplicaStatus, ...] = ()  # members of its log; none if kept in memory


class VhostStats(msgspec.Struct, frozen=True, tag="vhost"):
    """A vhost: content of its queues that a node leads, and traffic of that node's clients."""

    name: str
    last: Samples = []  # its figures (VHOST_FIGURES) at the last two samples
    samples: Samples = []  # over the time that was asked for


class ExchangeStats(msgspec.Struct, frozen=True, tag="exchange"):
    """An exchange: what a node's clients have published to it."""

    vhost: str
    name: str
    last: Samples = []  # its figures (EXCHANGE_FIGURES) at the last two samples
    samples: Samples = []  # over the time that was asked for


class Listener(msgspec.Struct, frozen=True):
    """Address of a listener."""

    protocol: str
    host: str
    port: int
    tls: bool = False


class NodeStats(msgspec.Struct, frozen=True, tag="node"):
    """A node."""

    id: int  # as in the configuration
    name: str
    version: str
    started_ms: int  # Unix time of its start
    os_pid: int
    processors: int
    totals: ObjectTotals
    counters: MessageCounters
    listeners: tuple[Listener, ...]
    last: Samples  # its figures (NODE_FIGURES) at the last two samples
    samples: Samples = []  # over the time that was asked for
    messages_ready: int = 0  # in the queues that it leads, now
    messages_unacknowledged: int = 0  # likewise
    fd_total: int = 0
    sockets_total: int = 0  # connections that it takes
    proc_total: int = 0  # tasks that it may have, 0 for no bound
    run_queue: int = 0  # threads of its machine that run or could run
    lag_ms: int = 0  # by how much the loop was late at its last samples
    gc_num: int = 0
    context_switches: int = 0
    data_dir: str = ""
    logins: dict[str, tuple[int, int]] = {}  # by protocol: succeeded and failed ones
    messages_later: int = 0  # likewise, as LATER; older nodes do not tell
    quarantined: tuple[DamageStatus, ...] = ()  # damaged replicas; older nodes do not tell
    messages_dlx: int = 0  # of `messages_later`, the dead letters; older nodes do not tell


StatsRow = QueueStats | NodeStats | VhostStats | ExchangeStats
