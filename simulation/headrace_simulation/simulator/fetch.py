"""Fetch of a snapshot by a simulated host: state in chunks, then the missing bodies.

Every step may be lost or come after a crash; the source may take a newer snapshot in between.
"""

from __future__ import annotations

from array import array
from typing import Final, Protocol, final

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.membership import NOBODY, Membership, member_node
from headrace_raftlog.model.snapshot import Snapshot, SnapshotOffer
from headrace_simulation.simulator.invariants import Checker
from headrace_simulation.simulator.port import MemberPort, NodePort

CHUNK_BYTES: Final = 16  # of state in one reply: several make a snapshot
BODIES: Final = 2  # in one reply
PATIENCE_TICKS: Final = 6  # until a request is repeated
TRIES: Final = 3  # of one request, then the fetch is given up


@final
class FetchRequest:
    """Asks the leader's node for a part of a snapshot."""

    def __init__(
        self, group: int, member: int, number: int, index: int, offset: int, bodies: list[int]
    ) -> None:
        self.group = group
        self.member = member
        self.number = number
        self.index = index
        self.offset = offset
        self.bodies = bodies

    def __repr__(self) -> str:
        return f"fetch {self.number} of {self.member}: {self.index} at {self.offset} {self.bodies}"


@final
class FetchReply:
    """A part of a snapshot, or that it is not to be had (`index` 0)."""

    def __init__(self, request: FetchRequest) -> None:
        self.request = request
        self.index = 0
        self.term = 0
        self.membership: Membership = NOBODY
        self.live: array[int] = array("Q")
        self.offset = 0
        self.data = b""
        self.size = 0
        self.entries: list[Entry] = []

    def __repr__(self) -> str:
        return f"reply {self.index} of {self.size}B {self.entries} to {self.request!r}"


def serve(node: NodePort, request: FetchRequest) -> FetchReply:
    """Answer a request with what this node has."""
    reply = FetchReply(request)
    store = node.store
    if store.member(request.group) == 0 or request.group not in node.replicas:
        return reply
    snapshot = store.read_snapshot(request.group)
    if snapshot is None or snapshot.index < request.index:
        return reply
    if request.bodies:
        for index in request.bodies:
            try:
                reply.entries.append(store.entry(request.group, index))
            except KeyError:  # settled meanwhile, and gone with a newer snapshot
                return reply
        reply.index = request.index
        return reply
    reply.index = snapshot.index
    reply.term = snapshot.term
    reply.membership = snapshot.membership
    reply.live = snapshot.live
    reply.size = len(snapshot.state)
    reply.offset = request.offset if snapshot.index == request.index else 0
    reply.data = snapshot.state[reply.offset : reply.offset + CHUNK_BYTES]
    return reply


class FetchingMember(MemberPort, Protocol):
    """A member that fetches a snapshot; see `Replica`."""

    checker: Checker
    fetch: Fetch | None

    def install(self, snapshot: Snapshot) -> None:
        """See `Replica`."""


@final
class Fetch:
    """One attempt of a follower to get what its leader offered."""

    def __init__(self, replica: FetchingMember, offer: SnapshotOffer) -> None:
        node = replica.node
        node.fetches += 1
        self.replica = replica
        self.number = node.fetches
        self.source = member_node(offer.leader)
        self.index = offer.index
        self.term = 0
        self.membership: Membership = NOBODY
        self.live: array[int] = array("Q")
        self.state = b""
        self.complete = False
        self.asked: list[int] = []
        self.bodies = 0
        self.waited = 0
        self.tries = 0
        replica.coverage.note("fetches")
        self._ask()

    def tick(self) -> None:
        """Repeat a request that is not answered, a few times."""
        self.waited += 1
        if self.waited < PATIENCE_TICKS:
            return
        if self.tries >= TRIES:
            self._give_up()
        else:
            self._ask()

    def receive(self, reply: FetchReply) -> None:
        """Take a part and ask for the next, or install."""
        request = reply.request
        if request.number != self.number or request.bodies != self.asked:
            return
        if reply.index == 0:
            self._give_up()
            return
        self.tries = 0
        if request.bodies:
            self.replica.coverage.note("bodies fetched")
            self.bodies += len(reply.entries)
            self.replica.store.add_incoming(self.replica.group, reply.entries)
            self.replica.store.flush()
        elif not self.complete:
            self._take_state(reply)
        self._go_on()

    def _take_state(self, reply: FetchReply) -> None:
        if reply.offset == 0 and (reply.index != self.index or self.term == 0):
            if self.term:
                self.replica.coverage.note("fetches begun anew")
            self.index = reply.index
            self.term = reply.term
            self.membership = reply.membership
            self.live = reply.live
            self.state = reply.data
        elif reply.index == self.index and reply.offset == len(self.state):
            self.state += reply.data
        self.complete = len(self.state) == reply.size

    def _go_on(self) -> None:
        replica = self.replica
        if self.complete:
            missing = replica.store.missing(
                replica.group, self.live, min(replica.core.commit_index, replica.log.last_index())
            )
            if not missing or replica.node.faults.bodies_not_fetched:
                replica.fetch = None
                replica.install(
                    Snapshot(self.index, self.term, self.membership, self.state, self.live)
                )
                return
            self.asked = missing[:BODIES]
        self._ask()

    def _ask(self) -> None:
        self.waited = 0
        self.tries += 1
        replica = self.replica
        node = replica.node
        replica.checker.traffic.fetched(replica, self.index, len(self.state) + self.bodies)
        node.network.send(
            node.number,
            self.source,
            FetchRequest(
                replica.group, replica.member, self.number, self.index, len(self.state), self.asked
            ),
        )

    def _give_up(self) -> None:
        self.replica.coverage.note("fetches given up")
        self.replica.fetch = None
