"""Flow control as values: stopped publishers, limits, causes; alarms; settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headrace_client.message_value import read_value
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
    """An account that has brought a queue its load.

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
        saturated: it defers confirms until it has drained.
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
    """The most stopped connections, and the queues that stop them.

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
        """Identity of the connection or queue that changed."""
        if self.connection is not None:
            return ("connection", self.connection.id)
        assert self.queue is not None, "a change is of a connection or of a queue"
        return ("queue", self.queue.vhost, self.queue.name)

    @property
    def mark(self) -> tuple[str, ...]:
        """Fields that make it another state; figures do not."""
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
        """Identity of the resource."""
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


def read_alarm(alarm: pb.Alarm) -> Alarm:
    """Return an alarm; of a kind or stage that this version does not know, its number."""
    return read_value(
        Alarm,
        alarm,
        kind=_KINDS.get(alarm.kind, str(alarm.kind)),
        stage=_STAGES.get(alarm.stage, str(alarm.stage)),
    )


def read_limit(limit: pb.Limit) -> Limit:
    """Return a limit."""
    value, otherwise = _read_number(limit.value), _read_number(limit.otherwise)
    return read_value(Limit, limit, value=value, otherwise=otherwise)


def _read_number(value: pb.LimitValue) -> int | float:
    return value.fraction if value.WhichOneof("kind") == "fraction" else value.number
