"""What nodes say of themselves and of the queues that they lead, in figures and over time."""

from __future__ import annotations

import msgspec

from headrace_broker.model.status import MessageCounters, ObjectTotals

QUEUE_FIGURES = ("messages_ready", "messages_unacknowledged", "publish", "deliver_get", "ack")
NODE_FIGURES = (
    *("messages_ready", "messages_unacknowledged", "publish", "confirm", "deliver_get"),
    *("redeliver", "ack"),
    *("connection_created", "connection_closed", "channel_created", "channel_closed"),
    *("queue_declared", "queue_created", "queue_deleted"),
    *("mem_used", "fd_used", "sockets_used", "proc_used", "disk_free"),
)

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


class Listener(msgspec.Struct, frozen=True):
    """Where a node listens."""

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
        sockets_total: connections that it takes.
        proc_total: tasks that it may have, 0 for no bound.
        run_queue: threads of its machine that run or could run.
        lag_ms: by how much the loop was late at its last samples.
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


StatsRow = QueueStats | NodeStats
