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
    """An account that has brought a queue its load."""

    kind: str  # "connection", "stream", "expiry", "dead-letters", ...
    account: str  # "" where one may not know
    name: str  # of the connection or activity; likewise
    node: str
    user: str
    vhost: str  # of the queue
    queue: str
    messages_owed: int  # handed to the queue and not done
    octets_owed: int
    message_rate: float
    octet_rate: float
    share: float  # of the queue's load, 0 to 1


@dataclass(frozen=True, slots=True)
class StoppedConnection:
    """A connection, or stream, of a client."""

    id: str
    name: str
    client_name: str  # what it calls itself
    node: str
    user: str
    vhost: str
    state: str  # "running", "flow", "blocking" or "blocked"
    limit: str  # the binding limit, "" for none
    queue: str  # that is behind it, "" for none
    since_ms: int  # for how long it has been stopped, 0 while it is not
    stopped: Windows  # parts of the time, 0 to 1
    messages_held: int  # that were read and wait
    octets_held: int
    messages_owed: int  # handed to queues and not done
    octets_owed: int


@dataclass(frozen=True, slots=True)
class StoppingQueue:
    """A queue."""

    vhost: str
    name: str
    node: str  # its leader
    saturated: bool  # it defers confirms until it has drained
    messages_withheld: int
    messages_ready: int
    octets_ready: int
    messages_unacknowledged: int
    octets_unacknowledged: int
    consumers: int
    consumers_busy: int  # that hold all that they may
    arrived: Windows  # messages per second
    delivered: Windows
    settled: Windows
    connections_stopped: int  # that wait for this queue; of `Flow.watch` only


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation of a slow connection or queue, with its causes."""

    sentence: str  # all that for people
    hint: str  # what to do next, "" for nothing
    kind: str  # "connection" or "queue"
    name: str
    node: str
    user: str
    vhost: str
    state: str
    limit: str
    queue: str
    leader: str  # the node that leads the queue, or whose limit it is
    since_ms: int
    stopped: Windows
    stopped_by_limit: Mapping[str, Windows]  # parts of the time by limit
    causes: tuple[Cause, ...]  # the heaviest first
    held: tuple[StoppedConnection, ...]  # connections that a queue stops, the longest first
    missing_nodes: tuple[str, ...]  # that did not answer


@dataclass(frozen=True, slots=True)
class Top:
    """The most stopped connections, and the queues that stop them."""

    connections: tuple[StoppedConnection, ...]
    queues: tuple[StoppingQueue, ...]
    missing_nodes: tuple[str, ...]  # that did not answer
    left_out: int  # connections that were not looked at, at least


@dataclass(frozen=True, slots=True)
class FlowChange:
    """A new state of a connection or a queue."""

    connection: StoppedConnection | None  # None for a queue
    queue: StoppingQueue | None  # None for a connection
    state: str  # "running" for what is stopped no more, or gone
    limit: str  # the binding limit, "" for none
    text: str  # an alarm's reason, "" for none
    causes: tuple[Cause, ...]  # who has loaded the queue behind it, the heaviest first

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
    """Alarm state of a resource of a node."""

    node: str
    kind: str  # "memory" or "disk"
    # CLEAR, RELIEF (the node helps itself) or BLOCKED (publishers are, in the whole cluster)
    stage: str
    since_ms: int = 0  # Unix time at which the node that tells it saw the stage
    used_octets: int = 0  # memory; 0 for disk
    total_octets: int = 0  # of memory that it may use; 0 for disk
    free_octets: int = 0  # disk; 0 for memory
    mark_octets: int = 0  # used memory, or free disk, at which publishers are blocked
    reason: str = ""  # for people, with the figures of the moment; "" when it is clear

    @property
    def key(self) -> tuple[str, ...]:
        """Identity of the resource."""
        return (self.node, self.kind)


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of flow control."""

    name: str
    value: int | float  # in force: a whole number, or a fraction of the memory limit
    otherwise: int | float  # in force when the cluster does not set it
    unit: str
    description: str
    rule: str  # what values are allowed
    source: str  # "default", "configuration" or "cluster"


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
