"""Flow control status of a node: accounts, connections, queues, the node itself.

Shares are parts of the last 1, 10 and 60 s, from 0 to 1; rates are per second, over the same times.
"""

from __future__ import annotations

from typing import Any

import msgspec

NEVER: tuple[float, float, float] = (0.0, 0.0, 0.0)


class ActivityStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """Limits that stop a connection or channel, now or lately."""

    limit: str = ""  # the name of the LIMIT that stops it now, "" for none
    group: int = 0  # the queue behind that, 0 for none
    since_ms: int = 0  # for how long it has been stopped, or has been going
    shares: tuple[float, float, float] = NEVER  # of the time that it was stopped
    by_limit: dict[str, tuple[float, float, float, int]] = {}  # the same by limit, and its queue


class BalanceStatus(msgspec.Struct, frozen=True):
    """Debt of an account at a queue."""

    group: int  # of the queue
    messages: int = 0  # handed over and not done
    byte_count: int = 0  # the same
    message_rate: float = 0.0  # messages per second that were handed over in about the last 10 s
    byte_rate: float = 0.0  # the same in bytes
    exchanges: tuple[tuple[str, float], ...] = ()  # and messages per second, the most first


class AccountStatus(msgspec.Struct, frozen=True, tag="account"):
    """An account that owes something, or did lately; see `flow.account.Account`."""

    account: str
    kind: str
    name: str
    node: str  # that its work came in through
    user: str
    vhost: str
    messages: int = 0
    byte_count: int = 0
    in_debt: bool = False
    weight: int = 1
    balances: tuple[BalanceStatus, ...] = ()  # the deepest ones
    user_provided_name: str = ""  # what its client calls itself, "" for nothing


class ConnectionFlow(msgspec.Struct, frozen=True, tag="connection"):
    """A client connection."""

    id: str
    name: str
    client_name: str  # what it calls itself, "" for nothing
    node: str
    user: str
    vhost: str
    state: str  # as model.flow names them
    flow: ActivityStatus = ActivityStatus()
    buffered_messages: int = 0  # publishes that were read and wait in it
    buffered_bytes: int = 0  # the same
    owed_messages: int = 0  # its account's debt
    owed_bytes: int = 0  # the same


class GateFlow(msgspec.Struct, frozen=True, tag="gate"):
    """Pending publishes of one node at a queue."""

    node: str
    group: int
    byte_count: int = 0  # handed over and not applied
    bytes_max: int = 0  # that may be
    waiting: int = 0  # channels that wait at the gate
    open: bool = True
    outflow: int = 0  # messages a second that the leader lets in from there, 0 for any


class FairnessStatus(msgspec.Struct, frozen=True):
    """Messages in a queue that share a fairness key."""

    key: str  # for people, "" without one; values beyond FAIRNESS_VALUES_MAX share some
    messages: int
    byte_count: int


class QueueFlow(msgspec.Struct, frozen=True, tag="queue"):
    """A queue, as its leader's node knows it."""

    vhost: str
    name: str
    group: int
    node: str  # its leader
    kind: str = "quorum"  # as in model.definition
    ready: int = 0  # messages that wait
    ready_bytes: int = 0
    unsettled: int = 0  # messages at consumers
    unsettled_bytes: int = 0
    consumers: int = 0  # attached
    busy: int = 0  # consumers among these that hold all that they may
    arrived: tuple[float, float, float] = NEVER  # messages per second that came
    delivered: tuple[float, float, float] = NEVER  # that went to consumers
    settled: tuple[float, float, float] = NEVER  # that left for good because consumers said so
    saturated: bool = False  # it defers confirms
    deferred: int = 0  # messages whose confirms it defers
    behind: bool = False  # confirms wait until as many messages have left, or did within a second
    high_messages: int = 0  # its watermark, 0 for none
    low_messages: int = 0
    high_bytes: int = 0  # the same in bytes
    low_bytes: int = 0
    held_messages: int = 0  # what counts against the watermarks
    held_bytes: int = 0  # the same in bytes
    fairness: tuple[FairnessStatus, ...] = ()  # who waits in it by key, the most first

    @property
    def byte_count(self) -> int:
        """Bytes of the bodies in it."""
        return self.ready_bytes + self.unsettled_bytes


class AlarmStatus(msgspec.Struct, frozen=True):
    """An alarm that is on."""

    node: str  # whose
    kind: str  # the name of its LIMIT
    reason: str  # with figures


class NodeFlow(msgspec.Struct, frozen=True, tag="node"):
    """A node."""

    name: str
    alarms: tuple[AlarmStatus, ...] = ()  # that it knows of, its own and others'
    limits: dict[str, int] = {}  # the figures in force by name, scaled as they hold now
    figures: dict[str, int] = {}  # of its intake: what is held, and what may be


class BroughtStatus(msgspec.Struct, frozen=True, tag="brought"):
    """Messages that an account has brought to a queue since its node's start, as it knows."""

    account: str  # "" for accounts that are not told apart
    kind: str
    name: str  # of the connection or activity
    node: str  # that it came in through
    user: str
    group: int
    user_provided_name: str = ""  # what the account's client calls itself, "" for nothing
    gone: bool = False  # the client has closed its connection
    slices: tuple[tuple[int, int, int], ...] = ()  # ms since, messages, bytes; latest first
    messages: int = 0  # owed there now
    byte_count: int = 0  # the same
    message_rate: float = 0.0  # messages per second that were handed over in about the last 10 s
    byte_rate: float = 0.0  # the same in bytes


FlowRow = AccountStatus | ConnectionFlow | GateFlow | QueueFlow | NodeFlow | BroughtStatus


class LeaderlessStatus(msgspec.Struct, frozen=True):
    """A queue without a leader that the asked node can reach."""

    vhost: str
    name: str  # "" when the asker may not know
    since_ms: int | None  # for how long, None where no client here has used it since
    refused_after_ms: int  # then its publishes are refused; 0 for never
    replicas: int
    down: tuple[str, ...]  # nodes among those of its replicas that are not heard

    @property
    def lacks_majority(self) -> bool:
        """True if too few of its replicas are heard to elect a leader."""
        return 2 * (self.replicas - len(self.down)) <= self.replicas


class CauseStatus(msgspec.Struct, frozen=True):
    """An account and what it has brought to a queue."""

    account: str
    kind: str
    name: str  # of the connection or activity; "" when the asker may not know
    node: str
    user: str
    vhost: str  # of the queue
    queue: str
    messages: int  # owed there
    byte_count: int  # the same
    message_rate: float
    byte_rate: float
    # its part, 0 to 1, of what `Explanation.shares_of` names: of the bytes that are owed there and
    # those that came in the last 10 s, or of what stands in the queue
    share: float
    user_provided_name: str = ""  # what its client calls itself, "" for nothing
    gone: bool = False  # its client has closed the connection
    queued_messages: int = 0  # that it brought of those in the queue; 0 for shares of the load
    queued_bytes: int = 0  # the same in bytes
    last_ms: int = 0  # since it brought something there, likewise


class Explanation(msgspec.Struct, frozen=True):
    """Explanation of a slow connection or queue, with its causes."""

    kind: str  # "connection" or "queue"
    name: str
    node: str  # where the connection is, or that leads the queue
    user: str  # of the connection, "" for a queue
    vhost: str
    state: str  # "running", "flow", "blocking" or "blocked"
    limit: str  # the binding limit by name, "" for none
    queue: str  # that which is behind the limit, "" for none
    leader: str  # the node that leads it, or whose limit it is; "" for none
    since_ms: int  # for how long it has been stopped; 0 while it is not
    shares: tuple[float, float, float]  # of the time that it was stopped
    by_limit: dict[str, tuple[float, float, float]]  # the same by limit
    causes: tuple[CauseStatus, ...]  # who is behind it, the heaviest first
    held: tuple[ConnectionFlow, ...]  # connections that a queue stops, the longest first
    sentence: str  # all that for people
    hint: str  # what to do next, "" for nothing
    details: dict[str, Any] = {}  # the facts about the queue and the account
    missing: tuple[str, ...] = ()  # nodes that did not answer
    shares_of: str = "load"  # what the causes' shares are parts of: "load" or "backlog"
