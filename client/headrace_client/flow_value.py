"""Flow control as values: stopped publishers, limits, causes; alarms; settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headrace_protos.broker.v1 import flow_pb2 as pb

RUNNING: Final = "running"

CLEAR: Final = "clear"
RELIEF: Final = "relief"
BLOCKED: Final = "blocked"
_STAGES: Final = {pb.ALARM_CLEAR: CLEAR, pb.ALARM_RELIEF: RELIEF, pb.ALARM_BLOCKED: BLOCKED}
_KINDS: Final = {pb.MEMORY: "memory", pb.DISK: "disk"}


@dataclass(frozen=True, slots=True)
class Windows:
    """Parts or rates of the last 1, 10 and 60 s."""

    last_1s: float = 0.0
    last_10s: float = 0.0
    last_60s: float = 0.0


@dataclass(frozen=True, slots=True)
class Cause:
    """Origin of a queue's load.

    Attributes:
        kind: "connection", "stream", "expiry", "dead-letters", ...
        account: "" where one may not know.
        name: of the connection or activity; likewise.
        vhost: of the queue.
        messages_owed: handed to the queue and not done.
        share: of the queue's load, 0 to 1.
    """

    kind: str
    account: str
    name: str
    node: str
    user: str
    vhost: str
    queue: str
    messages_owed: int
    octets_owed: int
    message_rate: float
    octet_rate: float
    share: float


@dataclass(frozen=True, slots=True)
class StoppedConnection:
    """A connection, or stream, of a client.

    Attributes:
        client_name: what it calls itself.
        state: "running", "flow", "blocking" or "blocked".
        limit: the binding limit, "" for none.
        queue: that is behind it, "" for none.
        since_ms: for how long it has been stopped, 0 while it is not.
        stopped: parts of the time, 0 to 1.
        messages_held: that were read and wait.
        messages_owed: handed to queues and not done.
    """

    id: str
    name: str
    client_name: str
    node: str
    user: str
    vhost: str
    state: str
    limit: str
    queue: str
    since_ms: int
    stopped: Windows
    messages_held: int
    octets_held: int
    messages_owed: int
    octets_owed: int


@dataclass(frozen=True, slots=True)
class StoppingQueue:
    """A queue.

    Attributes:
        node: its leader.
        saturated: it withholds confirms until it has drained.
        consumers_busy: that hold all that they may.
        arrived: messages per second.
        connections_stopped: that wait for this queue; of `Flow.watch` only.
    """

    vhost: str
    name: str
    node: str
    saturated: bool
    messages_withheld: int
    messages_ready: int
    octets_ready: int
    messages_unacknowledged: int
    octets_unacknowledged: int
    consumers: int
    consumers_busy: int
    arrived: Windows
    delivered: Windows
    settled: Windows
    connections_stopped: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation of a slow connection or queue, with its causes.

    Attributes:
        sentence: all that for people.
        hint: what to do next, "" for nothing.
        kind: "connection" or "queue".
        leader: the node that leads the queue, or whose limit it is.
        stopped_by_limit: parts of the time by limit.
        causes: the heaviest first.
        held: connections that a queue stops, the longest first.
        missing_nodes: that did not answer.
    """

    sentence: str
    hint: str
    kind: str
    name: str
    node: str
    user: str
    vhost: str
    state: str
    limit: str
    queue: str
    leader: str
    since_ms: int
    stopped: Windows
    stopped_by_limit: Mapping[str, Windows]
    causes: tuple[Cause, ...]
    held: tuple[StoppedConnection, ...]
    missing_nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Top:
    """Most stopped publishers, and the limits that stop them.

    Attributes:
        missing_nodes: that did not answer.
        left_out: connections that were not looked at, at least.
    """

    connections: tuple[StoppedConnection, ...]
    queues: tuple[StoppingQueue, ...]
    missing_nodes: tuple[str, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class FlowChange:
    """A new state of a connection or a queue.

    Attributes:
        connection: None for a queue.
        queue: None for a connection.
        state: "running" for what is stopped no more, or gone.
        limit: the binding limit, "" for none.
        text: an alarm's reason, "" for none.
        causes: who has loaded the queue behind it, the heaviest first.
    """

    connection: StoppedConnection | None
    queue: StoppingQueue | None
    state: str
    limit: str
    text: str
    causes: tuple[Cause, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """Key of the changed state."""
        if self.connection is not None:
            return ("connection", self.connection.id)
        assert self.queue is not None, "a change is of a connection or of a queue"
        return ("queue", self.queue.vhost, self.queue.name)

    @property
    def mark(self) -> tuple[str, ...]:
        """Identity of the state without its figures: another mark is another state."""
        return (self.state, self.limit, self.causes[0].account if self.causes else "")


@dataclass(frozen=True, slots=True)
class Alarm:
    """Alarm state of a resource of a node.

    Attributes:
        kind: "memory" or "disk".
        stage: CLEAR, RELIEF (the node helps itself) or BLOCKED (publishers are, in the whole
            cluster).
        since_ms: Unix time at which the node that tells it saw the stage.
        used_octets: memory; 0 for disk.
        total_octets: of memory that it may use; 0 for disk.
        free_octets: disk; 0 for memory.
        mark_octets: used memory, or free disk, at which publishers are blocked.
        reason: for people, with the figures of the moment; "" when it is clear.
    """

    node: str
    kind: str
    stage: str
    since_ms: int = 0
    used_octets: int = 0
    total_octets: int = 0
    free_octets: int = 0
    mark_octets: int = 0
    reason: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        """Key of the resource."""
        return (self.node, self.kind)


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of flow control.

    Attributes:
        value: in force: a whole number, or a fraction of the memory limit.
        otherwise: in force when the cluster does not set it.
        rule: what values are allowed.
        source: "default", "configuration" or "cluster".
    """

    name: str
    value: int | float
    otherwise: int | float
    unit: str
    description: str
    rule: str
    source: str


def read_windows(windows: pb.Windows) -> Windows:
    """Return figures."""
    return Windows(windows.last_1s, windows.last_10s, windows.last_60s)


def read_cause(cause: pb.Cause) -> Cause:
    """Return a cause."""
    return Cause(*(getattr(cause, name) for name in Cause.__slots__))


def read_connection(row: pb.StoppedConnection) -> StoppedConnection:
    """Return a connection."""
    found = {name: getattr(row, name) for name in StoppedConnection.__slots__}
    found["stopped"] = read_windows(row.stopped)
    return StoppedConnection(**found)


def read_queue(row: pb.StoppingQueue) -> StoppingQueue:
    """Return a queue."""
    found = {name: getattr(row, name) for name in StoppingQueue.__slots__}
    for name in ("arrived", "delivered", "settled"):
        found[name] = read_windows(found[name])
    return StoppingQueue(**found)


def read_explanation(answer: pb.WhyResponse) -> Explanation:
    """Return why something is slow."""
    found = {name: getattr(answer, name) for name in Explanation.__slots__}
    by_limit = answer.stopped_by_limit
    found["stopped"] = read_windows(answer.stopped)
    found["stopped_by_limit"] = {name: read_windows(by_limit[name]) for name in by_limit}
    found["causes"] = tuple(map(read_cause, answer.causes))
    found["held"] = tuple(map(read_connection, answer.held))
    found["missing_nodes"] = tuple(answer.missing_nodes)
    return Explanation(**found)


def read_change(change: pb.FlowChange) -> FlowChange:
    """Return a change."""
    kind = change.WhichOneof("subject")
    return FlowChange(
        connection=read_connection(change.connection) if kind == "connection" else None,
        queue=read_queue(change.queue) if kind == "queue" else None,
        state=change.state,
        limit=change.limit,
        text=change.text,
        causes=tuple(map(read_cause, change.causes)),
    )


def read_alarm(alarm: pb.Alarm) -> Alarm:
    """Return an alarm; of a kind or stage that this version does not know, its number."""
    return Alarm(
        node=alarm.node,
        kind=_KINDS.get(alarm.kind, str(alarm.kind)),
        stage=_STAGES.get(alarm.stage, str(alarm.stage)),
        since_ms=alarm.since_ms,
        used_octets=alarm.used_octets,
        total_octets=alarm.total_octets,
        free_octets=alarm.free_octets,
        mark_octets=alarm.mark_octets,
        reason=alarm.reason,
    )


def read_limit(limit: pb.Limit) -> Limit:
    """Return a limit."""
    return Limit(
        name=limit.name,
        value=_read_value(limit.value),
        otherwise=_read_value(limit.otherwise),
        unit=limit.unit,
        description=limit.description,
        rule=limit.rule,
        source=limit.source,
    )


def _read_value(value: pb.LimitValue) -> int | float:
    return value.fraction if value.WhichOneof("kind") == "fraction" else value.number
