"""A node of the replicated log: many groups, one shared log, one stream per peer.

The public face of this package; everything is used from one event loop.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Final

import grpc

from headrace_raftlog.ending import end_tasks
from headrace_raftlog.model.errors import (
    CloneError,
    CorruptLogError,
    DamageFoundError,
    DirectoryGoneError,
    ForgottenError,
)
from headrace_raftlog.model.group import CATALOG_GROUP
from headrace_raftlog.model.limits import DRAIN_S, PAYLOAD_BYTES_MAX, READ_BARRIER_S
from headrace_raftlog.model.membership import member_node
from headrace_raftlog.model.pieces import Parted, Pieces
from headrace_raftlog.model.snapshot import SnapshotOffer
from headrace_raftlog.node import events as node_events
from headrace_raftlog.node.bulk_source import HostedSource
from headrace_raftlog.node.damage_scanner import DamageScanner
from headrace_raftlog.node.directory import Directory
from headrace_raftlog.node.disk_supervisor import DiskSupervisor
from headrace_raftlog.node.drain import drain
from headrace_raftlog.node.entry_repair import EntryRepair
from headrace_raftlog.node.events import NodeEvents, UnknownPeer
from headrace_raftlog.node.formation import Formation, random_generation, stream_identity
from headrace_raftlog.node.group_events import Labels, no_labels
from headrace_raftlog.node.handler import GroupHandler
from headrace_raftlog.node.health import NodeHealth
from headrace_raftlog.node.host import Host
from headrace_raftlog.node.host_port import HostPort
from headrace_raftlog.node.hosted_group import HostedGroup
from headrace_raftlog.node.membership import checked_nodes, never_together
from headrace_raftlog.node.options import NodeOptions
from headrace_raftlog.node.queries import GroupQueries
from headrace_raftlog.node.read_barriers import ReadBarriers
from headrace_raftlog.node.snapshot_fetch import SnapshotFetcher
from headrace_raftlog.node.standing import NodeStanding
from headrace_raftlog.node.startup import open_directory
from headrace_raftlog.node.state_comparison import StateComparison
from headrace_raftlog.storage.writing.identity import Identity
from headrace_raftlog.transport.identity import StreamIdentity
from headrace_raftlog.transport.large_frame import Part, part_nothing
from headrace_raftlog.transport.security import security_of
from headrace_raftlog.transport.transport import Transport

__all__ = ["GroupHandler", "NodeOptions", "RaftNode"]

LOG: Final = logging.getLogger("headrace.raft")


# The log's writer thread needs the interpreter before and after each sync; a busy event loop gives
# it up only at the end of a switch interval. Measured beside a loop that never rests, write and
# sync take 5.5 to 8 ms at the default of 5 ms. At 0.1 ms the threads take the interpreter from
# each other so often that commits become a tenth slower and throughput falls by a third.
SWITCH_INTERVAL_S: Final = 1e-3
GC_THRESHOLDS: Final = (20_000, 3)  # by default half the time of creating groups is lost


class RaftNode(GroupQueries, NodeStanding):
    """Hosts groups, and carries the application's payloads between nodes."""

    def __init__(self, options: NodeOptions) -> None:
        self.options = options  # as given
        # boot count of the data directory, from 1; 0 before `start`. `raise_boot` changes it.
        self.boot = 0
        # called with the gRPC server before it starts, to add services to it
        self.servicers: list[Callable[[grpc.aio.Server], None]] = []
        # called with the sender and a payload, only while the sender is up
        self.on_payload: Callable[[int, bytes], None] = node_events.ignore_payload
        # returns where a large payload is parted as it comes, 0 for nowhere, and the room before
        # its second part, given its first bytes and its size
        self.part: Part = part_nothing
        # called instead of `on_payload` with a payload that was parted
        self.on_parted: Callable[[int, Parted], None] = node_events.ignore_parted
        # called with a peer, whether it is up, and its boot count. After a down report whatever was
        # sent and not answered may be lost in both directions.
        self.on_peer: Callable[[int, bool, int], None] = node_events.ignore_peer
        # called with a node that calls and is no peer of this one, each time anew; returns why it
        # is refused, for that node's log. It may be made a peer (`set_peers`).
        self.on_stranger: Callable[[UnknownPeer], str] = node_events.ignore_stranger
        # called, each time anew, when a member of the cluster calls to which this node belonged on
        # another disk, while it belongs to one founded later; with what to do
        self.on_rival: Callable[[str], None] = node_events.ignore_rival
        # called whenever a peer says that this node was removed from the cluster
        self.on_removed: Callable[[], None] = node_events.ignore_removed
        # called once when this node cannot go on: its disk failed, or a core or a handler raised.
        # It has then stopped taking part; the process should end.
        self.on_fatal: Callable[[BaseException], None] = node_events.ignore_fatal
        # called with a group whose state here differs from that of a majority of its members, and
        # that stands still; it is to be left and created anew. None: the node restarts for it.
        self.on_diverged: Callable[[int], None] | None = None
        # returns what the application calls a group, for the log: `queue`, `vhost`
        self.labels: Labels = no_labels
        # returns whether two different nodes fail together, by id: one votes, unless both are to
        self.fail_together: Callable[[int, int], bool] = never_together
        self._entry_bytes_max = options.log.entry_bytes_max
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._peers_lock = asyncio.Lock()
        self._damaged: dict[int, str] = {}
        self._loop: asyncio.AbstractEventLoop
        self._directory: Directory
        self._health: NodeHealth
        self._disk: DiskSupervisor
        self._fetcher: SnapshotFetcher
        self._damage_scanner: DamageScanner
        self._repair: EntryRepair
        self._comparison: StateComparison
        self._barriers: ReadBarriers

    @property
    def server(self) -> grpc.aio.Server:
        """The gRPC server between nodes, once started."""
        return self._transport.server

    async def start(self) -> None:
        """Recover the log, then listen and connect.

        Groups found in the log do nothing until `create_group` starts them, which must wait for
        `wait_formed`.

        Raises:
            CorruptLogError: stored data is damaged, and nobody is known to have it; it stays.
            IdentityError: the data directory is another node's.
            LogLockedError: another process uses the data directory. After `ForgottenError` or
                `CloneError` was reported to `on_fatal`, a node may be made and started again in
                this process; after the former its data are set aside then.
            ValueError: the cluster's name is too long or empty.
            OSError: a file cannot be used, or the address cannot be listened on.
        """
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        gc.set_threshold(*GC_THRESHOLDS)
        options = self.options
        self._loop = asyncio.get_running_loop()
        self._directory = await open_directory(options)
        self._log = self._directory.log
        identity = self._directory.identity
        looks = math.ceil(options.found_listen_s * 1000 / options.tick_ms)
        place = (options.data_dir, tuple(options.peers))
        self._formation = Formation(identity, *place, self._become, looks)
        self.boot = identity.boot
        self._damaged = dict(self._log.quarantined)
        try:
            await self._start_network()
        except BaseException:
            await asyncio.to_thread(self._directory.close)
            raise
        for name, work in (("raftlog ticker", self._tick()), ("raftlog forms", self._form())):
            task = self._loop.create_task(work, name=name)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def set_peers(
        self, peers: Mapping[int, str], barred: Collection[tuple[int, int]] = ()
    ) -> None:
        """Talk to these nodes from now on, in place of those known so far.

        To be called once started. Groups are not changed by it: see `set_members`.

        Args:
            peers: host:port by node id; this node's own is passed over.
            barred: nodes and disks (`UnknownPeer.disk`) that are refused whatever they say.
        """
        async with self._peers_lock:
            if not self._stopping:
                await self._transport.set_peers(peers, barred)

    async def stop(self) -> None:
        """Stop taking part, write appended entries, release the data directory."""
        self._stopping = True
        self._host.stopped = True
        await end_tasks(self._tasks)
        await self._fetcher.stop()
        await self._repair.stop()
        await self._damage_scanner.stop()
        await self._comparison.stop()
        await self._transport.stop()
        await self._directory.close_soon()

    def create_group(
        self,
        group: int,
        voters: tuple[int, ...],
        learners: tuple[int, ...],
        handler: GroupHandler,
        campaign: bool = False,
    ) -> None:
        """Start a group on this node, once it is formed.

        What the log holds of the group is restored and applied anew, and the founders given are
        disregarded. Where it holds nothing, this node founds the group if its `member` is among
        the founders; otherwise it asks the group's leader to be admitted, and is empty until then.
        The same where what it holds is damaged: it comes back as a new member.

        Args:
            group: incarnation id, 0 to 2**63 - 1, never used before for another group.
            voters: member ids (`member_of`) that counted for quorums when the group was founded;
                the same on every node.
            learners: member ids that only received entries then.
            handler: the application.
            campaign: start an election at once rather than after a timeout; for one voter.

        Raises KeyError: the group was removed from this node; ValueError: the group is there
        already.
        """
        assert self.is_formed, "wait_formed comes before create_group"
        self._host.create_group(group, voters, learners, handler, campaign)

    def remove_group(self, group: int) -> None:
        """Stop a group on this node and forget its log for good; its id is refused from now on."""
        self._host.remove_group(group)
        self._damaged.pop(group, None)

    def leave_group(self, group: int) -> None:
        """Stop a group on this node, which is to have it no more, and forget its log.

        To be called once its members have left (`is_settled`, `members`). Unlike one that was
        removed it may be created again, and joins then as a new member. What the log does not
        know is left alone.
        """
        self._host.leave_group(group)
        self._damaged.pop(group, None)

    def propose(self, group: int, data: bytes, urgent: bool = False) -> int:
        """Append an entry to a group led by this node.

        It is applied here and elsewhere once it is committed; it may also get lost, when another
        member takes over first. Proposals of one turn of the event loop travel together.

        Args:
            group: incarnation id.
            data: the entry.
            urgent: whether it may pass those that are not, while they wait.

        Returns:
            Its index; QUEUED (taken, but it waits because much is not committed yet); NOT_LEADER
            (this node does not lead the group, or does not have it); or BUSY (too much waits, the
            leadership is being handed over, or the disk is full or far behind).

        Raises ValueError: `data` is longer than an entry may be.
        """
        if len(data) > self._entry_bytes_max:
            raise ValueError(f"entry of {len(data)} bytes, the maximum is {self._entry_bytes_max}")
        return self._host.propose(group, data, urgent)

    def set_members(
        self,
        group: int,
        nodes: tuple[int, ...],
        voting: tuple[int, ...] | None = None,
        revision: int = 0,
    ) -> None:
        """Say on which nodes a group should be; to be said on each of them, in any order.

        The leader brings it about in steps: new nodes join the group when they create it, receive
        it as learners and vote once they have it; members on other nodes leave when all of those
        are there. Nothing is begun for which too few of the voters-to-be answer.

        Args:
            group: incarnation id.
            nodes: node ids, 1 to GROUP_MEMBERS_MAX.
            voting: which of them vote, VOTERS_MAX at most; None for as many as may, those that do
                already and then the first. A voter that has to learn leaves, and is admitted anew.
            revision: counts up with each change of `nodes`. A leader admits no member of a node
                that knows an earlier one only, and may have to leave first.

        Raises KeyError: the group is not on this node; ValueError: as `checked_nodes`.
        """
        hosted = self._hosted(group)
        hosted.place(*checked_nodes(nodes, voting), revision)
        self._host.placed(hosted)

    def transfer(self, group: int, node: int) -> bool:
        """Begin to hand the leadership of a group over; proposals are BUSY meanwhile.

        It is one attempt and ends within an election timeout: `leader` says how.

        Returns:
            False, and nothing happens, unless this node leads the group, `node` has another
            voter of it, and neither a transfer nor a change of members is under way.
        """
        hosted = self._host.find(group)
        if hosted is None or self._host.stopped:
            return False
        voters = [m for m in hosted.core.membership.voters if member_node(m) == node]
        return len(voters) == 1 and self._host.transfer(hosted, voters[0])

    async def drain(
        self, seconds: float = DRAIN_S, avoid: Callable[[], Collection[int]] = tuple
    ) -> list[int]:
        """Hand over all groups that this node leads, as far as other nodes can take them.

        Args:
            seconds: after which it ends in any case.
            avoid: returns the ids of nodes that should lead nothing either.

        Returns:
            Ids of the groups that this node still leads, ascending.
        """
        return await drain(self._host, self.options.tick_ms / 1000, seconds, avoid)

    async def read_barrier(self, group: int, seconds: float = READ_BARRIER_S) -> None:
        """Wait until this node has applied everything that was committed before the call.

        What is read from the group's state machine then, in the same turn of the event loop, is
        linearizable: on whatever member, and whoever has been taking itself for the leader.

        Raises KeyError: the group is not on this node; ReadTimeoutError: no leader confirmed it
        within `seconds`.
        """
        await self._barriers.wait(self._hosted(group), seconds)

    def entry_dead(self, group: int, index: int) -> None:
        """Note that an applied entry will not be read again.

        It only tells the log earlier what the next snapshot of the group would tell it too.
        """
        self._log.entry_dead(group, index)

    def set_cache_bytes(self, count: int) -> None:
        """Keep so many bytes of log entries in memory from now on, besides those not durable."""
        self._log.cache.resize(count)

    def send(self, peer: int, payload: bytes | Pieces) -> bool:
        """Send a payload to the application on another node.

        Payloads arrive in order, each once at most. All arrive unless the peer is reported down.

        Returns:
            False when it was not sent: the peer is down, unknown, or its outbox is full.

        Raises ValueError: `payload` is longer than a payload may be.
        """
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise ValueError(f"payload of {len(payload)} bytes, the maximum is {PAYLOAD_BYTES_MAX}")
        return self._transport.send(peer, payload)

    async def _start_network(self) -> None:
        options = self.options
        tick_s = options.tick_ms / 1000
        silence_s_max = tick_s * int(options.core.election_ticks)
        events = NodeEvents(self)
        events.formation = self._formation
        events.outdated = self._outdated
        self._health = NodeHealth()
        self._transport = Transport(
            self._stream_identity(self._formation.identity),
            options.peers,
            events,
            tick_s,
            silence_s_max,
            security_of(options.certificate, options.name_of, options.join_secrets),
            self._directory.memory,
            self._log.synced,
            options.outbox_bytes_max,
            options.over_grpc,
        )
        port = HostPort(
            self._transport.post,
            self._transport.flush,
            self._loop.call_soon,
            self._failed,
            self._leader_changed,
            self._offered,
            self._nodes_up,
            random_generation,
            lambda hosted: self._repair.suspended(hosted),
            lambda group: self.labels(group),
            lambda node, other: self.fail_together(node, other),
        )
        self._host = Host(
            self.member, self.boot, options.core, self._log, port, options.snapshot_every_bytes
        )
        self._disk = DiskSupervisor(self._log, self._host, self._loop, options, self._health)
        self._fetcher = SnapshotFetcher(self._host, self._transport.bulk, tick_s)
        self._damage_scanner = DamageScanner(self._host, self._log)
        bulk = self._transport.bulk
        self._repair = EntryRepair(self._host, self._log, bulk, self._damage_scanner, tick_s)
        self._host.suspensions.labels = port.labels
        self._host.suspensions.on_diverged = self._begin_anew
        times = (self._loop.time, options.digest_round_s)
        self._comparison = StateComparison(self._host, bulk, *times, port.labels)
        self._barriers = ReadBarriers(self._host, lambda: self.boot, tick_s, silence_s_max)
        self._transport.bulk_servicer.source = HostedSource(self._host, self._log)
        events.host = self._host
        events.fetcher = self._fetcher
        events.comparison = self._comparison
        at = options.listen or options.peers[options.node]
        await self._transport.start(at, [self._health.add_to, *self.servicers], options.frames_port)

    async def _form(self) -> None:
        try:
            while not self.is_formed:
                sessions = self._transport.sessions.values()
                await self._formation.advance([s.peer for s in sessions if s.link.connected])
                await asyncio.sleep(self.options.tick_ms / 1000)
        except Exception as error:  # noqa: BLE001  (outermost: reports it and stops)
            self._host.fail(error)

    def _become(self, identity: Identity) -> None:
        self._directory.become(identity)
        self.boot = identity.boot
        self._host.boot = identity.boot
        self._host.member = identity.member
        self._transport.become(self._stream_identity(identity))

    def _stream_identity(self, identity: Identity) -> StreamIdentity:
        options = self.options
        place = (options.name, options.peers[options.node])
        return stream_identity(identity, *place, self._directory.process, self._directory.starts)

    async def _tick(self) -> None:
        try:
            while True:
                await asyncio.sleep(self.options.tick_ms / 1000)
                self._transport.tick()
                self._host.tick()
                self._disk.tick()
                self._damage_scanner.tick()
                self._comparison.tick()
                self._directory.save_soon(self._host.fail)
                self._directory.look_soon(self._host.fail)
        except Exception as error:  # noqa: BLE001  (outermost: reports it and stops)
            self._host.fail(error)

    def _leader_changed(self, group: int, leader: int) -> None:
        if group == CATALOG_GROUP:
            self._health.set_serving(leader != 0)
        hosted = self._host.find(group)
        if hosted is not None:
            self._fetcher.leader_changed(hosted)

    def _offered(self, hosted: HostedGroup, offer: SnapshotOffer) -> None:
        if member_node(offer.leader) in self._transport.sessions:
            self._fetcher.offered(hosted, offer)

    def _nodes_up(self) -> list[int]:
        return [s.peer for s in self._transport.sessions.values() if s.up]

    def _outdated(self, reason: ForgottenError | CloneError) -> None:
        """Stop taking part; the outdated log is set aside at the next start."""
        if not self._stopping:
            self._host.fail(reason)

    def _failed(self, error: BaseException) -> None:
        """Leave the cluster, so that nothing is acknowledged any more, and report."""
        if self._stopping:
            return
        if isinstance(error, ForgottenError):
            try:
                self._directory.condemn(error)
            except OSError as failure:
                LOG.critical("data of node %d could not be set aside", self.options.node)
                error = failure
        if isinstance(error, CorruptLogError):
            error = DamageFoundError(str(error))
        if isinstance(error, DamageFoundError):
            LOG.error("node %d must restart: %s", self.options.node, error)
        elif isinstance(error, ForgottenError | CloneError):
            LOG.error("node %d stopped, its data must not be used: %s", self.options.node, error)
        elif isinstance(error, DirectoryGoneError):
            LOG.error("%s", error)
        else:
            LOG.critical("node %d stopped after a failure", self.options.node, exc_info=error)
        self._health.set_serving(False)
        leaving = self._loop.create_task(self._transport.stop(), name="raftlog leaves")
        self._tasks.add(leaving)
        leaving.add_done_callback(self._tasks.discard)
        self.on_fatal(error)
