"""Statistics of nodes and of the queues that they lead, current and over time."""

from __future__ import annotations

import msgspec

from headrace_broker.model.status import MessageCounters, ObjectTotals

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
OCTET_FIGURES = ("recv_oct", "recv_cnt", "send_oct", "send_cnt")
CONNECTION_FIGURES = (*OCTET_FIGURES, *CLIENT_FIGURES)
LENGTH_FIGURES = ("messages_ready", "messages_unacknowledged")
VHOST_FIGURES = (*LENGTH_FIGURES, *CONNECTION_FIGURES, LATER)
EXCHANGE_FIGURES = ("publish_in", "publish_out")

Samples = list[tuple[int, ...]]  # Unix ms, then the figures; the newest first


class QueueStats(msgspec.Struct, frozen=True, tag="queue"):
    """A queue that a node leads.

    Attributes:
        last: its figures (QUEUE_FIGURES) at the last two samples.
        samples: over the time that was asked for.
    """

    group: int
    last: Samples = []
    samples: Samples = []


class VhostStats(msgspec.Struct, frozen=True, tag="vhost"):
    """A vhost: content of its queues that a node leads, and traffic of that node's clients.

    Attributes:
        last: its figures (VHOST_FIGURES) at the last two samples.
        samples: over the time that was asked for.
    """

    name: str
    last: Samples = []
    samples: Samples = []


class ExchangeStats(msgspec.Struct, frozen=True, tag="exchange"):
    """An exchange: what a node's clients have published to it.

    Attributes:
        last: its figures (EXCHANGE_FIGURES) at the last two samples.
        samples: over the time that was asked for.
    """

    vhost: str
    name: str
    last: Samples = []
    samples: Samples = []


class Listener(msgspec.Struct, frozen=True):
    """Address of a listener."""

    protocol: str
    host: str
    port: int
    tls: bool = False


class NodeStats(msgspec.Struct, frozen=True, tag="node"):
    """A node.

    Attributes:
        id: as in the configuration.
        started_ms: Unix time of its start.
        last: its figures (NODE_FIGURES) at the last two samples.
        samples: over the time that was asked for.
        messages_ready: in the queues that it leads, now.
        messages_unacknowledged: likewise.
        messages_later: likewise those that become available later, and dead letters that are kept.
        sockets_total: connections that it takes.
        proc_total: tasks that it may have, 0 for no bound.
        run_queue: threads of its machine that run or could run.
        lag_ms: by how much the loop was late at its last samples.
        logins: by protocol, those that succeeded and those that failed.
    """

    id: int
    name: str
    version: str
    started_ms: int
    os_pid: int
    processors: int
    totals: ObjectTotals
    counters: MessageCounters
    listeners: tuple[Listener, ...]
    last: Samples
    samples: Samples = []
    messages_ready: int = 0
    messages_unacknowledged: int = 0
    fd_total: int = 0
    sockets_total: int = 0
    proc_total: int = 0
    run_queue: int = 0
    lag_ms: int = 0
    gc_num: int = 0
    context_switches: int = 0
    data_dir: str = ""
    logins: dict[str, tuple[int, int]] = {}
    messages_later: int = 0  # older nodes do not tell


StatsRow = QueueStats | NodeStats | VhostStats | ExchangeStats
