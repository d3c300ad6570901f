"""Questions about rows, which every node answers with its own."""

from __future__ import annotations

from headrace_broker.model.limits import FLOW_ROWS_MAX
from headrace_broker.runtime.rpc.listing import Listing
from headrace_broker.runtime.rpc.protocol import Question


class List(Listing, frozen=True, tag="list"):
    """Request the node's connections or channels.

    Attributes:
        channels: channels with their consumers are wanted.
    """

    channels: bool = False


class Close(Question[int], frozen=True, tag="close"):
    """Close the connections with this name or id; the answer is how many there were.

    Attributes:
        reason: for the client.
    """

    name: str
    reason: str


class Flow(Listing, frozen=True, tag="flow"):
    """Request stopped publishers, and debts by account.

    Attributes:
        parts: kinds of rows that are wanted: tags of `model.flow_status.FlowRow`.
        name: of connections whose name, id or own name is this or begins so; "" for all.
        group: only what concerns this queue, 0 for all.
        moving: only queues that move, or defer confirms.
        stopped: only connections that something stops, in any order, and queues that defer
            confirms or are among `groups`.
        groups: see `stopped`.
        rows_max: most rows of each kind.
    """

    parts: tuple[str, ...]
    name: str = ""
    group: int = 0
    moving: bool = False
    stopped: bool = False
    groups: tuple[int, ...] = ()
    rows_max: int = FLOW_ROWS_MAX


class Leads(Listing, frozen=True, tag="leads"):
    """Request the queues that the node leads, and the replicas that could take over."""


class Replicas(Listing, frozen=True, tag="replicas"):
    """Request the state of a queue's replicas, as its leader knows it."""

    group: int


class Load(Listing, frozen=True, tag="load"):
    """Request the number of queues that the node leads, and of its clients."""


class Transfer(Question[bool], frozen=True, tag="transfer"):
    """Begin to hand the leadership of a queue over to a node; the answer is whether it did.

    Attributes:
        by_hand: somebody chose that node; it is told as well, and is to keep the queue for a while.
    """

    group: int
    node: int
    by_hand: bool = False


class Stats(Listing, frozen=True, tag="stats"):
    """Request the figures of a node, and of the queues that it leads.

    Attributes:
        node: the node itself is wanted.
        groups: queues that are wanted, None for all that have moved within an hour.
        vhosts: all vhosts in which something has moved within an hour are wanted.
        exchanges: exchanges that are wanted, by vhost and name; None for all, as vhosts.
        age_ms: how far back samples go, 0 for none.
        step_ms: least time between samples.
    """

    node: bool = False
    groups: tuple[int, ...] | None = ()
    age_ms: int = 0
    step_ms: int = 0
    vhosts: bool = False
    exchanges: tuple[tuple[str, str], ...] | None = ()


class LeaseGroups(Listing, frozen=True, tag="lease_groups"):
    """Request the groups that lease messages of the queues that the node leads."""


class Archives(Listing, frozen=True, tag="archives"):
    """Request the archives of the queues that the node leads, and their groups."""
