"""Formation of a cluster from new nodes, and the return of one that lost its data.

Every data directory has a random id, its disk. The disks that found a cluster are decided once, by
the node with the lowest id among the configured ones, at a moment when it is new and connected to
all others, and none of them belongs to a cluster. Everybody else takes over what a peer that
belongs to the cluster says. Whoever finds its own disk among the founding ones takes part as
generation 0; whoever does not has lost its first disk, or came later: its members get the
generation of its disk, so that nobody takes them for those whose promises are lost.

Nothing of this needs to be undone after a crash: a directory either knows the founding disks,
durably, before it takes part in anything, or it knows nothing and asks again.

A configuration that names few nodes, or this one alone, may be older than the cluster, which has
grown since. So an empty node listens before it founds, for longer than members wait between two
calls: a member that calls is the cluster. One that calls later, because it was cut off, finds a
second cluster founded; `StreamIdentity.yields_to` tells which of both that is.

Should the lowest
node be lost together with its disk between its decision and the first takeover, then nobody has
heard of the decision.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Collection
from typing import Final

from headrace_raftlog.log_event import CLUSTER, CLUSTER_FOUNDED, log_event
from headrace_raftlog.model.limits import FORMATION_LOG_S
from headrace_raftlog.model.mark import Starts
from headrace_raftlog.storage.writing.identity import Identity
from headrace_raftlog.transport.identity import StreamIdentity

LOG: Final = logging.getLogger("headrace.cluster")


def random_generation() -> int:
    """Return a generation for the members of a node that has another disk than its first."""
    return secrets.randbelow((1 << 32) - 1) + 1


def founders_of(
    identity: Identity, peers: Collection[int], met: dict[int, StreamIdentity]
) -> dict[int, int]:
    """Return the disks that founded the cluster by node id, empty while that is not known.

    Args:
        identity: this node, which does not know yet.
        peers: node ids of all configured nodes, this one included.
        met: those that are connected now, or that belong to the cluster.
    """
    for node in sorted(met):
        if met[node].formed:
            return met[node].formed
    if identity.node != min(peers) or not all(n in met for n in peers if n != identity.node):
        return {}
    if identity.rejoins or any(peer.rejoins for peer in met.values()):
        return {}  # there is a cluster, and its data are not here
    disks = {node: met[node].disk for node in peers if node != identity.node}
    return dict(sorted({**disks, identity.node: identity.disk}.items()))


def stream_identity(
    identity: Identity, name: str = "", address: str = "", process: int = 0, starts: Starts = ()
) -> StreamIdentity:
    """Return what streams say of a node with this directory, name, address and process."""
    known = (identity.cluster, identity.node, identity.boot, identity.disk, identity.formed)
    return StreamIdentity(*known, name, address, process, starts, identity.rejoins)


class Formation:
    """Waits until this node's directory is formed."""

    def __init__(
        self,
        identity: Identity,
        directory: str,
        peers: Collection[int],
        became: Callable[[Identity], None],
        looks: int = 0,
    ) -> None:
        """Begin.

        Args:
            identity: of this node's directory.
            directory: the data directory.
            peers: node ids of all configured nodes, this one included.
            became: called once the directory is formed, and whenever its identity changes.
            looks: calls of `advance` that only listen before this node founds a cluster. They
                are counted, and not seconds: a process that stood still has not listened.
        """
        self.identity = identity  # of this node's directory
        self.formed = asyncio.Event()  # set once this node belongs to the cluster
        # node ids of configured nodes that a new directory has yet to meet
        self.missing: tuple[int, ...] = ()
        self._directory = directory
        self._peers = peers
        self._became = became
        self._met: dict[int, StreamIdentity] = {}
        self._logged_at = -FORMATION_LOG_S
        # whether it waits for a node that still has its data, and founds nothing
        self.rejoins = identity.rejoins and not identity.formed
        self._looks = looks
        if identity.formed:
            self.formed.set()

    def met(self, peer: StreamIdentity) -> None:
        """Note what a peer says of itself."""
        self._met[peer.node] = peer

    def called(self, stranger: StreamIdentity) -> None:
        """Note a node that calls and is not configured; members say which disks founded."""
        if stranger.formed and not self.identity.formed:
            self._met[stranger.node] = stranger

    async def advance(self, connected: Collection[int]) -> None:
        """Form the directory if that is possible now; to be called again until it is.

        Args:
            connected: node ids of peers to which a stream is open now.

        Raises OSError: the directory cannot be written.
        """
        met = {n: p for n, p in self._met.items() if n in connected or p.formed}
        founders = founders_of(self.identity, self._peers, met)
        self._looks -= 1
        if not founders:
            self.rejoins = self.identity.rejoins or any(p.rejoins for p in met.values())
            others = [peer for peer in sorted(self._peers) if peer != self.identity.node]
            self.missing = tuple([peer for peer in others if peer not in met])
            self._tell()
            return
        self.missing = ()
        if self._looks >= 0 and not any(peer.formed for peer in met.values()):
            return  # it would found now, and listens first
        self.rejoins = False
        self.identity = await asyncio.to_thread(self.identity.form, self._directory, founders)
        if self.identity.generation:
            LOG.warning(
                "node %d joins cluster %r as a new member, %s",
                self.identity.node,
                self.identity.cluster,
                "because the disk on which it founded the cluster is not this one"
                if self.identity.node in founders
                else "because it was not there when the cluster was founded",
            )
        else:
            log_event(
                CLUSTER, CLUSTER_FOUNDED, cluster=self.identity.cluster, founders=list(founders)
            )
        self._became(self.identity)
        self.formed.set()

    async def raise_boot(self, boot: int) -> None:
        """Count this start as a later one, durably; to be called once formed.

        Raises OSError: the directory cannot be written.
        """
        self.identity = await asyncio.to_thread(self.identity.raised, self._directory, boot)
        self._became(self.identity)

    def _tell(self) -> None:
        """Log what is waited for, now and then."""
        now = time.monotonic()
        if now - self._logged_at < FORMATION_LOG_S:
            return
        self._logged_at = now
        node = self.identity.node
        if self.rejoins:
            LOG.warning(
                "node %d waits for a node of cluster %r that still has its data: its own, or "
                "those of a node that it has met, were set aside, so no new cluster is founded. "
                "If no node has them any more, stop all. On most of the nodes, those with the "
                "newest data, move what is in 'set-aside' back in place of node.json and the log, "
                "but for the file 'marks'. On every node remove 'set-aside', 'condemned' and "
                "'marks'. Then start all (docs/clustering.md, 'Most disks lost')",
                node,
                self.identity.cluster,
            )
        elif self.missing:
            LOG.warning(
                "node %d is new and waits: it has yet to meet nodes %s of cluster %r. A cluster is "
                "founded when all of its nodes run; one that is founded lets a new node in when "
                "any of its nodes runs",
                node,
                list(self.missing),
                self.identity.cluster,
            )
        else:
            LOG.info("node %d waits for node %d to found the cluster", node, min(self._peers))
