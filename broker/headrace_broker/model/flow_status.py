"""Flow control status of a node: accounts, connections, queues, the node itself.

Shares are parts of the last 1, 10 and 60 s, from 0 to 1; rates are per second, over the same times.
"""

from __future__ import annotations

from typing import Any

import msgspec

NEVER: tuple[float, float, float] = (0.0, 0.0, 0.0)


class ActivityStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """Limits that stop a connection or channel, now or lately.

    Attributes:
        limit: the name of the LIMIT that stops it now, "" for none.
        group: the queue behind that, 0 for none.
        since_ms: for how long it has been stopped, or has been going.
        shares: of the time that it was stopped.
        by_limit: the same by limit, and the queue that was behind the latest stop.
    """

    limit: str = ""
    group: int = 0
    since_ms: int = 0
    shares: tuple[float, float, float] = NEVER
    by_limit: dict[str, tuple[float, float, float, int]] = {}


class BalanceStatus(msgspec.Struct, frozen=True):
    """Debt of an account at a queue.

    Attributes:
        group: of the queue.
        messages: handed over and not done.
        octets: the same.
        message_rate: messages per second that were handed over in about the last 10 s.
        octet_rate: the same in octets.
        exchanges: that they came through, and messages per second through each, the most first.
    """

    group: int
    messages: int = 0
    octets: int = 0
    message_rate: float = 0.0
    octet_rate: float = 0.0
    exchanges: tuple[tuple[str, float], ...] = ()


class AccountStatus(msgspec.Struct, frozen=True, tag="account"):
    """An account that owes something, or did lately; see `flow.account.Account`.

    Attributes:
        user_provided_name: what its client calls itself, "" for nothing.
        node: that its work came in through.
        tabs: the deepest ones.
    """

    account: str
    kind: str
    name: str
    node: str
    user: str
    vhost: str
    messages: int = 0
    octets: int = 0
    in_debt: bool = False
    weight: int = 1
    tabs: tuple[BalanceStatus, ...] = ()
    user_provided_name: str = ""


class ConnectionFlow(msgspec.Struct, frozen=True, tag="connection"):
    """A client connection.

    Attributes:
        client_name: what it calls itself, "" for nothing.
        state: as model.flow names them.
        held_messages: publishes that were read and wait in it.
        held_octets: the same.
        owed_messages: its account's debt.
        owed_octets: the same.
    """

    id: str
    name: str
    client_name: str
    node: str
    user: str
    vhost: str
    state: str
    flow: ActivityStatus = ActivityStatus()
    held_messages: int = 0
    held_octets: int = 0
    owed_messages: int = 0
    owed_octets: int = 0


class GateFlow(msgspec.Struct, frozen=True, tag="gate"):
    """Pending publishes of one node at a queue.

    Attributes:
        octets: handed over and not applied.
        octets_max: that may be.
        waiting: channels that wait at the gate.
        outflow: messages a second that the queue's leader lets in from there, 0 for any number.
    """

    node: str
    group: int
    octets: int = 0
    octets_max: int = 0
    waiting: int = 0
    open: bool = True
    outflow: int = 0


class FairnessStatus(msgspec.Struct, frozen=True):
    """Messages in a queue that share a fairness key.

    Attributes:
        key: for people; "" for messages without one. Values beyond FAIRNESS_VALUES_MAX share some.
    """

    key: str
    messages: int
    octets: int


class QueueFlow(msgspec.Struct, frozen=True, tag="queue"):
    """A queue, as its leader's node knows it.

    Attributes:
        node: its leader.
        kind: as in model.definition.
        ready: messages that wait.
        unsettled: messages at consumers.
        consumers: attached.
        busy: consumers among these that hold all that they may.
        arrived: messages per second that came.
        delivered: that went to consumers.
        settled: that left for good because consumers said so.
        saturated: it withholds confirms.
        withheld: messages whose confirms it withholds.
        high_messages: its watermark, 0 for none.
        high_octets: the same in octets.
        held_messages: what counts against the watermarks.
        held_octets: the same in octets.
        fairness: who waits in it by key, the most first; nothing without a key.
    """

    vhost: str
    name: str
    group: int
    node: str
    kind: str = "quorum"
    ready: int = 0
    ready_octets: int = 0
    unsettled: int = 0
    unsettled_octets: int = 0
    consumers: int = 0
    busy: int = 0
    arrived: tuple[float, float, float] = NEVER
    delivered: tuple[float, float, float] = NEVER
    settled: tuple[float, float, float] = NEVER
    saturated: bool = False
    withheld: int = 0
    high_messages: int = 0
    low_messages: int = 0
    high_octets: int = 0
    low_octets: int = 0
    held_messages: int = 0
    held_octets: int = 0
    fairness: tuple[FairnessStatus, ...] = ()

    @property
    def octets(self) -> int:
        """Octets of the bodies in it."""
        return self.ready_octets + self.unsettled_octets


class AlarmStatus(msgspec.Struct, frozen=True):
    """An alarm that is on.

    Attributes:
        node: whose.
        kind: the name of its LIMIT.
        reason: with figures.
    """

    node: str
    kind: str
    reason: str


class NodeFlow(msgspec.Struct, frozen=True, tag="node"):
    """A node.

    Attributes:
        alarms: that it knows of, its own and others'.
        limits: the figures in force by name, scaled as they hold now.
        figures: of its intake: what is held, and what may be.
    """

    name: str
    alarms: tuple[AlarmStatus, ...] = ()
    limits: dict[str, int] = {}
    figures: dict[str, int] = {}


class BroughtStatus(msgspec.Struct, frozen=True, tag="brought"):
    """Messages that an account has brought to a queue since its node's start, as that remembers it.

    Attributes:
        account: "" for accounts that are not told apart.
        name: of the connection or activity.
        node: that it came in through.
        user_provided_name: what the account's client calls itself, "" for nothing.
        gone: the client has closed its connection.
        slices: milliseconds since, messages and octets; the latest first.
        messages: owed there now.
        octets: the same.
        message_rate: messages per second that were handed over in about the last 10 s.
        octet_rate: the same in octets.
    """

    account: str
    kind: str
    name: str
    node: str
    user: str
    group: int
    user_provided_name: str = ""
    gone: bool = False
    slices: tuple[tuple[int, int, int], ...] = ()
    messages: int = 0
    octets: int = 0
    message_rate: float = 0.0
    octet_rate: float = 0.0


FlowRow = AccountStatus | ConnectionFlow | GateFlow | QueueFlow | NodeFlow | BroughtStatus


class CauseStatus(msgspec.Struct, frozen=True):
    """An account and what it has brought to a queue.

    Attributes:
        name: of the connection or activity; "" when the asker may not know.
        user_provided_name: what its client calls itself, "" for nothing.
        vhost: of the queue.
        messages: owed there.
        octets: the same.
        share: its part, 0 to 1, of what `Explanation.shares_of` names: of the octets that are owed
            there and those that came in the last 10 s, or of what stands in the queue.
        gone: its client has closed the connection.
        queued_messages: that it brought among those in the queue; 0 where shares are of the load.
        queued_octets: the same in octets.
        last_ms: since it brought something there, likewise.
    """

    account: str
    kind: str
    name: str
    node: str
    user: str
    vhost: str
    queue: str
    messages: int
    octets: int
    message_rate: float
    octet_rate: float
    share: float
    user_provided_name: str = ""
    gone: bool = False
    queued_messages: int = 0
    queued_octets: int = 0
    last_ms: int = 0


class Explanation(msgspec.Struct, frozen=True):
    """Explanation of a slow connection or queue, with its causes.

    Attributes:
        kind: "connection" or "queue".
        node: where the connection is, or that leads the queue.
        user: of the connection, "" for a queue.
        state: "running", "flow", "blocking" or "blocked".
        limit: the binding limit by name, "" for none.
        queue: that which is behind the limit, "" for none.
        leader: the node that leads it, or whose limit it is; "" for none.
        since_ms: for how long it has been stopped; 0 while it is not.
        shares: of the time that it was stopped.
        by_limit: the same by limit.
        causes: who is behind it, the heaviest first.
        held: connections that a queue stops, the longest first.
        sentence: all that for people.
        hint: what to do next, "" for nothing.
        details: the facts about the queue and the account.
        missing: nodes that did not answer.
        shares_of: what the causes' shares are parts of: "load" or "backlog".
    """

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
    shares: tuple[float, float, float]
    by_limit: dict[str, tuple[float, float, float]]
    causes: tuple[CauseStatus, ...]
    held: tuple[ConnectionFlow, ...]
    sentence: str
    hint: str
    details: dict[str, Any] = {}
    missing: tuple[str, ...] = ()
    shares_of: str = "load"
