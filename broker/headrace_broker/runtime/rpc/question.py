"""Questions about rows, which every node answers with its own."""

from __future__ import annotations

from headrace_broker.model.limits import FLOW_ROWS_MAX
from headrace_broker.runtime.rpc.listing import Listing
from headrace_broker.runtime.rpc.protocol import Question


class List(Listing, frozen=True, tag="list"):
    """Request the node's connections or channels."""

    channels: bool = False  # channels with their consumers are wanted


class Close(Question[int], frozen=True, tag="close"):
    """Close the connections with this name or id; the answer is how many there were."""

    name: str
    reason: str  # for the client


class Flow(Listing, frozen=True, tag="flow"):
    """Request stopped publishers, and debts by account."""

    parts: tuple[str, ...]  # kinds of rows that are wanted: tags of `model.flow_status.FlowRow`
    name: str = ""  # of connections whose name, id or own name is this or begins so; "" for all
    group: int = 0  # only what concerns this queue, 0 for all
    moving: bool = False  # only queues that move, or defer confirms
    # only connections that something stops, in any order, and queues that defer confirms or are
    # among `groups`
    stopped: bool = False
    groups: tuple[int, ...] = ()  # see `stopped`
    rows_max: int = FLOW_ROWS_MAX  # most rows of each kind


class Leads(Listing, frozen=True, tag="leads"):
    """Request the queues that the node leads, and the replicas that could take over.

    A node of release 0.2.0 knows neither `targets` nor `busy`, and answers with all.
    """

    # only queues that one of these nodes could take over, and that stay here by nobody's choice;
    # none for all queues
    targets: tuple[int, ...] = ()
    busy: bool | None = None  # only queues with traffic, or only those without


class Replicas(Listing, frozen=True, tag="replicas"):
    """Request the state of a queue's replicas, as its leader knows it."""

    group: int


class Load(Listing, frozen=True, tag="load"):
    """Request the number of queues that the node leads, and of its clients."""


class Transfer(Question[bool], frozen=True, tag="transfer"):
    """Begin to hand the leadership of a queue over to a node; the answer is whether it did."""

    group: int
    node: int
    # somebody chose that node; it is told as well, and is to keep the queue for a while
    by_hand: bool = False


class Stats(Listing, frozen=True, tag="stats"):
    """Request the figures of a node, and of the queues that it leads."""

    node: bool = False  # the node itself is wanted
    # queues that are wanted, None for all that have moved within an hour
    groups: tuple[int, ...] | None = ()
    age_ms: int = 0  # how far back samples go, 0 for none
    step_ms: int = 0  # least time between samples
    vhosts: bool = False  # all vhosts in which something has moved within an hour are wanted
    # exchanges that are wanted, by vhost and name; None for all, as vhosts
    exchanges: tuple[tuple[str, str], ...] | None = ()
    current: tuple[int, ...] = ()  # queues of which content and members are wanted as they are now


class LeaseGroups(Listing, frozen=True, tag="lease_groups"):
    """Request the groups that lease messages of the queues that the node leads."""


class Archives(Listing, frozen=True, tag="archives"):
    """Request the archives of the queues that the node leads, and their groups."""
