"""A broker node: the replicated logs, the catalog, the queues and the broker that gateways use."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace_broker.catalog.access_backup import backup_refusal
from headrace_broker.catalog.event import Event, QueueAdded, QueueChanged, QueueRemoved
from headrace_broker.config.configuration import Config
from headrace_broker.config.shards import process_ids
from headrace_broker.flow.account import Ledger
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.model.definition import Node, Queue
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.runtime.alarm.alarms import AlarmBoard
from headrace_broker.runtime.backup.client import BackupClient
from headrace_broker.runtime.backup.points import BackupPoints
from headrace_broker.runtime.clients.client_list import ClientList
from headrace_broker.runtime.clients.replies import Replies
from headrace_broker.runtime.cluster.catalog_service import CatalogService, CatalogUnavailableError
from headrace_broker.runtime.cluster.cluster_clock import ClusterClock
from headrace_broker.runtime.cluster.counts import CountsClient
from headrace_broker.runtime.cluster.default_user import read_default_user
from headrace_broker.runtime.cluster.leader_balance import BalanceAround, LeaderBalance
from headrace_broker.runtime.cluster.leftovers import remove_leftovers
from headrace_broker.runtime.cluster.maintenance import Maintenance
from headrace_broker.runtime.cluster.member_moves import MemberMoves
from headrace_broker.runtime.cluster.node_directory import Admission, NodeDirectory, join_problem
from headrace_broker.runtime.cluster.operations import ClusterFacts, Operations
from headrace_broker.runtime.cluster.reaper import Reaper
from headrace_broker.runtime.cluster.rehashing import Rehashing
from headrace_broker.runtime.cluster.steady_clock import SteadyClock
from headrace_broker.runtime.cluster.topology import Topology
from headrace_broker.runtime.cluster.version_raiser import VersionRaiser
from headrace_broker.runtime.contract.payload import encode
from headrace_broker.runtime.dead_letter.expiry_account import ExpiryAccounts
from headrace_broker.runtime.dead_letter.publisher import DeadLetterPublisher
from headrace_broker.runtime.dead_letter.service import DeadLetterService
from headrace_broker.runtime.explain.flow_facts import FlowFacts
from headrace_broker.runtime.explain.flow_report import FlowReport
from headrace_broker.runtime.explain.flow_sources import FlowSources
from headrace_broker.runtime.explain.leaderless_queues import LeaderlessQueues
from headrace_broker.runtime.hosting.duties import LeaderDuties
from headrace_broker.runtime.hosting.hosting import Hosting
from headrace_broker.runtime.hosting.queue_rates import QueueRates
from headrace_broker.runtime.hosting.replica_report import NodeState, ReplicaReport
from headrace_broker.runtime.inspect.browsing import BrowsingClient
from headrace_broker.runtime.intake.flow_settings import FlowSettings
from headrace_broker.runtime.intake.remote_debt import RemoteDebts
from headrace_broker.runtime.lease.group_commands import GroupCommands
from headrace_broker.runtime.lease.leasing import LeaseClient
from headrace_broker.runtime.node import parts
from headrace_broker.runtime.node.archive_part import ArchivePart
from headrace_broker.runtime.node.broker import NodeBroker
from headrace_broker.runtime.node.configuration import client_limits, raft_options
from headrace_broker.runtime.node.message_bound import Bounded, MessageBound
from headrace_broker.runtime.node.payloads import Payloads
from headrace_broker.runtime.node.resources import Resources
from headrace_broker.runtime.routing.router import Router
from headrace_broker.runtime.rpc.correlator import Rpc
from headrace_broker.runtime.rpc.leader import Leaders
from headrace_broker.runtime.session.wire import part_payload
from headrace_broker.runtime.telemetry.sources import Around
from headrace_broker.runtime.telemetry.telemetry import Telemetry
from headrace_raftlog.model.group import CATALOG_GROUP
from headrace_raftlog.model.membership import member_node
from headrace_raftlog.node.node import NodeOptions, RaftNode

if TYPE_CHECKING:
    from headrace_broker.runtime.security.cluster_tls import ClusterTls
    from headrace_broker.runtime.security.join_secret import JoinSecretFile

JOIN_REPORT_SECONDS: Final = 10.0  # between log lines of a node that waits for a quorum

log = logging.getLogger("headrace.node")


def _now_us() -> int:
    return time.monotonic_ns() // 1000


class BrokerNode:
    """Starts the parts in order and carries payloads between nodes to the part they are for.

    Attributes:
        hosting: queues on this node and sessions of its gateways.
        broker: what gateways use.
    """

    def __init__(
        self,
        config: Config,
        on_fatal: Callable[[BaseException], None],
        cluster_tls: ClusterTls | None = None,
        join_secret: JoinSecretFile | None = None,
    ) -> None:
        self.config = config  # what the node was told
        node = config.node.id
        self.flow = FlowLimits()  # limits of flow control
        self.ledger = Ledger(self.flow)  # accounts of what enters through this node
        self.raft = RaftNode(self._raft_options(cluster_tls, join_secret))  # the replicated logs
        self.raft.on_fatal, self.raft.part = on_fatal, part_payload
        nodes = [Node(member.id, member.name, member.address) for member in config.cluster.nodes]
        self.flow_settings = FlowSettings(self.flow, config.limits.flow())  # keeps these up to date
        first_user = read_default_user(config.default_user)
        self.catalog = CatalogService(  # cluster metadata
            self.raft, node, nodes, parts.forwarder(self.raft), default_user=first_user
        )
        self._make_cluster(nodes)
        self.clock = SteadyClock()  # the time by which queues go here
        self.clocks = ClusterClock(self.clock, node, self.names)  # how far the nodes' are apart
        self.alarms = AlarmBoard(  # whether publishers are blocked, and why
            node, self.names, lambda: self.raft.boot, self.raft.send, clocks=self.clocks
        )
        self.resources = Resources(config, self.raft, self.flow_settings, self.alarms)
        self.router = Router(self.catalog.catalog)
        self.catalog.binding_problem = self.router.routing.load_problem
        send, others = self.raft.send, list(self.directory.others)
        self.rpc = Rpc(node, send, parts.caller)  # asks other nodes, and answers them
        self.replies = Replies(self.rpc, send)
        around = self.clock, self.ledger, process_ids(config) - {node}
        hosting = self.hosting = Hosting(self.raft, node, others, send, *around)
        for look in (self.ledger.poll, self.hosting.queue_gates.poll, self.hosting.intake.poll):
            self.flow_settings.watch(look)
        leaders = Leaders(self.rpc, hosting.hosts, hosting.locate, self.queue_exists)
        led = self.router.led
        led.hosts, led.siblings_lead = hosting.hosts, hosting.sibling_leads.is_led
        self.counts, self.browsing = CountsClient(leaders), BrowsingClient(leaders)
        commands = GroupCommands(leaders, hosting.new_session_id)
        self.leases = LeaseClient(leaders, commands)  # asks queues for groups that lease messages
        hosting.on_group_answer = commands.answered
        self.backups = self._make_backups()  # asks nodes for points of queues
        self.topology = Topology(node, self.catalog, hosting, self.counts, self._processes_up)
        self.reaper = Reaper(self.topology, hosting.hosts)
        self.debts = RemoteDebts(  # what is owed across nodes
            (node, config.node.name), self.ledger, lambda: self.raft.boot, send
        )
        hosting.on_session = self.debts.charges.register
        hosting.on_session_over = self.debts.charges.end
        expiries = self._make_dead_letters()
        catalog, drop = self.catalog.catalog, self.reaper.drop_expired
        self.duties = LeaderDuties(hosting, catalog, self.dead_letters, drop, self.clock)
        hosting.duties = self.duties
        expiries.wake = self.duties.tick_soon
        hosting.on_unused, hosting.on_unreadable = self.reaper.drop_unused, on_fatal
        self.catalog.subscribe(self.router.on_events)
        self.catalog.subscribe(self._on_events)
        name, peers = config.node.name, self.directory.others
        self.clients = ClientList(name, lambda: self.broker.connections, peers, self.rpc)
        self.archives = ArchivePart(  # what queues keep of settled messages
            self.rpc, leaders, commands, self.names, self.catalog.catalog, config.grpc_address
        )
        self.rates = QueueRates(self.hosting.hosts, self.hosting.recent, self.ledger, _now_us)
        self.flow_report = self._make_flow_report(peers)  # why publishers are slow, who causes it
        self.operations = self._make_operations()  # moves replicas and leaderships
        self.leader_balance = self._make_balance()  # spreads leaders by itself
        self.telemetry = self._make_telemetry()  # notes how this node fares
        self.payloads = Payloads(self)  # takes what other nodes send
        self.raft.on_payload = self.raft.on_parted = self.payloads.receive

    def _make_cluster(self, seeds: list[Node]) -> None:
        """Make what follows the nodes of the cluster, and where queues live."""
        config, view = self.config, self.catalog.catalog
        self.caught_up = False  # it has applied what the catalog decided before its start
        # the nodes of the cluster
        self.directory = NodeDirectory(config.node.id, seeds, view, self.raft)
        self.directory.added = self._node_added
        self.directory.removed = self._node_removed
        self.names = self.directory.names  # of all of them by id
        # boot count by node id of the other nodes that are heard, 0 for those that are not
        self.peers_up: dict[int, int] = dict.fromkeys(self.directory.others, 0)
        self.directory.peers_up = self.peers_up
        self.catalog.reach.limits, self.catalog.reach.peers_up = self.flow, self.peers_up
        # whether this node is drained
        self.maintenance = Maintenance(config.node.id, config.node.name, view, self.raft)
        self.raft.on_removed, self.raft.on_peer = self.maintenance.expel, self._on_peer
        self.raft.fail_together = self.directory.are_one
        parts.watch_founding(
            parts.Founded(
                self.raft, self.catalog, self.maintenance, self.names, lambda: self.caught_up
            )
        )
        self.moves = MemberMoves(view, self.raft, self.catalog.submit)
        self.admission = Admission(
            partial(join_problem, self.catalog.catalog, config.cluster.admit_nodes),
            lambda: self.caught_up,
            self._admit,
            self.directory.adopt,
        )
        self.raft.on_stranger = lambda stranger: self.admission.ask(
            Node(stranger.node, stranger.name, stranger.address, disk=stranger.disk),
            stranger.formed,
        )

    def _make_operations(self) -> Operations:
        around = ClusterFacts(
            self.config.node.id,
            self.catalog.catalog,
            self.nodes_up,
            self.maintenance.avoided,
            self.directory.others,
            self.topology.submit,
            self._catalog_voters,
            self.clocks.status,
        )
        report = ReplicaReport(
            self.config.node.id,
            self.hosting.hosts,
            self.raft,
            lambda: len(self.broker.connections),
            lambda group: self.rates.moves(group),
            NodeState(lambda: self.resources.unfit(), self._nodes_unheard),
        )
        return Operations(around, self.rpc, report)

    def _make_balance(self) -> LeaderBalance:
        around = BalanceAround(
            self.config.node.id,
            self.catalog.catalog,
            lambda: self.catalog.leader,
            self.nodes_up,
            self.maintenance.avoided,
            self.names,
        )
        return parts.make_balance(around, self.operations, self.config.cluster.balance_leaders)

    def _make_telemetry(self) -> Telemetry:
        config, raft = self.config, self.raft
        facts, alarms = self.flow_report.facts, self.alarms
        sources = parts.telemetry_sources(
            config.node.name,
            self.catalog.catalog,
            self.hosting,
            facts,
            alarms,
            lambda: self.broker.connections,
        )
        around = Around(
            config.node.data_dir,
            config.grpc_address,
            self.rpc,
            self.names,
            lambda: raft.boot,
            lambda: self.caught_up and raft.leader(CATALOG_GROUP) == config.node.id,
            self.catalog.subscribe,
            self.duties,
        )
        return Telemetry(config.telemetry, sources, around)

    def _make_dead_letters(self) -> ExpiryAccounts:
        charges, session_id = self.debts.charges, self.hosting.new_session_id
        publisher = DeadLetterPublisher(self.hosting.open_dead_letter_session, charges)
        expiries = ExpiryAccounts(self.config.node.name, self.ledger, charges, session_id)
        self.dead_letters = DeadLetterService(self.router, publisher, expiries, self.alarms.blocked)
        return expiries

    def _make_backups(self) -> BackupClient:
        hosting = self.hosting
        # points of queues that are kept here for who reads them
        self.backup_points = BackupPoints(
            hosting.hosts,
            lambda: self.raft.boot,
            self.resources.short_of_disk,
            partial(backup_refusal, self.catalog.catalog),
        )
        return BackupClient(
            self.rpc, self.backup_points, hosting.locate, self.catalog.catalog.queue_by_group
        )

    def _catalog_voters(self) -> list[int]:
        return [member_node(voter) for voter in self.raft.members(CATALOG_GROUP).voters]

    def nodes_up(self) -> frozenset[int]:
        """Return the ids of the running nodes that this one hears."""
        up = [peer for peer, boot in self.peers_up.items() if boot and peer in self.names]
        return frozenset([*up, self.config.node.id])

    def _processes_up(self) -> frozenset[int]:
        return self.nodes_up() & process_ids(self.config)

    def _nodes_unheard(self) -> tuple[int, ...]:
        up = self.nodes_up()
        return tuple([peer for peer in self.peers_up if peer in self.names and peer not in up])

    @property
    def removed(self) -> bool:
        """True once this node was removed from the cluster."""
        gone = self.caught_up and self.catalog.catalog.node(self.config.node.id) is None
        return gone or self.maintenance.expelled

    def _node_added(self, node: int) -> None:
        self.peers_up.setdefault(node, 0)
        self.hosting.peer_added(node)

    def _node_removed(self, node: int) -> None:
        if node == self.config.node.id:
            if self.caught_up:
                self.maintenance.expel()
            return
        self.peers_up.pop(node, None)
        self.hosting.peer_removed(node)

    async def _admit(self, node: Node) -> str:
        try:
            await self.operations.admit(node)
        except AmqpError as error:
            return error.text
        return ""

    def _raft_options(
        self, tls: ClusterTls | None, join_secret: JoinSecretFile | None
    ) -> NodeOptions:
        for each in (tls, join_secret):
            if each is not None:
                each.on_narrowed = self._verify_anew
        return raft_options(
            self.config,
            None if tls is None else lambda: tls.certificate,
            lambda node: self.directory.name_of(node),
            lambda: None if join_secret is None else join_secret.secrets,
        )

    def _verify_anew(self) -> None:
        log.info("an authority or secret was withdrawn: nodes authenticate again")
        self._verifying = asyncio.get_running_loop().create_task(self.raft.verify_peers_anew())

    def _make_flow_report(self, others: dict[int, str]) -> FlowReport:
        facts = FlowFacts(
            self.config.node.name,
            lambda: self.broker.connections,
            self.ledger,
            self.hosting.hosts,
            self.catalog.catalog,
            self.rates,
            _now_us,
        )
        sources = FlowSources(
            self.config.node.name, self.hosting.queue_gates, self.hosting.intake, self.alarms
        )
        leaders, reachability = self.hosting.leaders, self.hosting.reachability
        limits = self.ledger.limits
        facts.leaderless = LeaderlessQueues(leaders, reachability, limits, others).find
        facts.gate, facts.figures, facts.alarms = sources.gate, sources.figures, sources.alarms
        view = self.catalog.catalog
        return FlowReport(facts, view, others, self.rpc)

    def queue_exists(self, queue: Queue) -> bool:
        """Return whether a queue, this incarnation of it, is in the catalog as applied here."""
        return self.catalog.catalog.queue_by_group(queue.group) is not None

    async def start(self) -> None:
        """Recover the log and let the other nodes reach this one.

        Raises RaftLogError: the text says what to do; OSError: the address cannot be bound.
        """
        await self.raft.start()
        self.broker = NodeBroker(
            (self.config.node.name, self.config.cluster.name),
            client_limits(self.config),
            self.catalog.catalog,
            self.router,
            self.hosting,
            self.topology,
            self.counts,
            self.reaper,
            self.replies,
            self.leases,
            self.alarms.blocked,
        )
        self.backup_points.standings = self.broker.standings
        self.clients.rates = self.broker.rates.rates
        self.broker.authenticator.renew = Rehashing(self.catalog).renew
        self._version_raiser = VersionRaiser(self.catalog, self.config.node.id)
        self.catalog.subscribe(self.broker.permissions.on_events)
        self.catalog.subscribe(self.broker.standings.on_events)  # who asks the permissions
        self.catalog.subscribe(self.broker.quotas.on_events)
        self.catalog.subscribe(self.clients.on_events)
        self.catalog.subscribe(self.flow_settings.on_events)
        self.catalog.subscribe(self.broker.client_flow.on_events)
        self.flow_settings.watch(self.broker.limits_changed)
        self.hosting.start()
        self.rates.start()
        self.resources.start()
        memory, limits = self.resources.memory, self.broker.limits
        known = (self.config, self.raft.disk, self.catalog, memory, self.flow_settings, limits)
        bounded = Bounded(*known, lambda: self.caught_up, self.broker.limits_changed)
        self.message_bound = MessageBound(bounded)
        self.message_bound.start()
        self.alarms.start()
        await self.telemetry.start()

    async def join(self) -> None:
        """Belong to the cluster (`RaftNode.wait_formed`), catch up, forget what was in memory."""
        await self.raft.wait_formed()
        self.catalog.start()
        while True:
            try:
                await self.catalog.wait_ready(JOIN_REPORT_SECONDS)
                self._own_boot()
                await self.topology.drop_node_memory()
            except (CatalogUnavailableError, AmqpError) as error:
                log.warning("waiting for the cluster: %s", error)
            else:
                self.caught_up = True
                self.hosting.departures.settle()
                self.directory.settle()
                self.catalog.announce(self.message_bound.announcement())
                await remove_leftovers(self.catalog.catalog, self.raft)
                self.leader_balance.start()
                return

    def _own_boot(self) -> None:
        """Speak to queues from now on: this start's boot count is certain to be no other's."""
        if self.broker.boot == 0:
            self.broker.boot = self.raft.boot
            self.hosting.own_boot()
            self.dead_letters.release_all()

    async def hand_over(self) -> None:
        """Transfer leaderships to other nodes, as far as they can take them, before a stop."""
        payload = encode(parts.Stopping())
        for peer in self.directory.others:
            self.raft.send(peer, payload)
        await self.maintenance.hand_over()

    async def stop(self) -> None:
        """Stop all parts; durable state stays."""
        await self.rpc.stop()
        await self.telemetry.stop()
        await self.maintenance.stop()
        await self.leader_balance.stop()
        await self._version_raiser.stop()
        await self.operations.rebalance.stop()
        await self.moves.stop()
        await self.admission.stop()
        await self.directory.stop()
        self.backup_points.stop()
        self.resources.stop()
        self.alarms.stop()
        self.duties.stop()
        self.rates.stop()
        self.debts.stop()
        self.hosting.stop()
        self.reaper.stop()
        await self.catalog.stop()
        await self.raft.stop()

    def _on_events(self, events: list[Event]) -> None:
        self.directory.on_events(events)
        gone = {event.queue.group for event in events if isinstance(event, QueueRemoved)}
        for event in events:
            if isinstance(event, QueueAdded) and event.queue.group not in gone:
                self.hosting.add_queue(event.queue)
            elif isinstance(event, QueueChanged) and event.queue.group not in gone:
                self.hosting.move_queue(event.queue)
            elif isinstance(event, QueueRemoved):
                self.hosting.remove_queue(event.queue)
        self.hosting.configure(queue.group for queue in self.duties.on_events(events))
        self.moves.on_events(events)
        self.maintenance.on_events(events)

    def _on_peer(self, peer: int, up: bool, boot: int) -> None:
        if peer in self.names:
            self.peers_up[peer] = boot if up else 0
        self.catalog.reach.poll()
        self.maintenance.stopping.discard(peer)
        self.rpc.peer_changed(peer, up, boot)
        self.debts.peer_changed(peer, up)
        self.hosting.peer_changed(peer, up, boot)
        if up:
            self.alarms.peer_up(peer)
