"""A broker node: the replicated logs, the catalog, the queues and the broker that gateways use."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from headrace_broker.catalog.event import Event, QueueAdded, QueueChanged, QueueRemoved
from headrace_broker.config import Config
from headrace_broker.flow.account import Ledger
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.model.definition import Node, Queue
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.runtime.alarms import AlarmBoard
from headrace_broker.runtime.archive_part import ArchivePart
from headrace_broker.runtime.backup_client import BackupClient
from headrace_broker.runtime.backup_points import BackupPoints
from headrace_broker.runtime.broker import NodeBroker
from headrace_broker.runtime.browsing import BrowsingClient
from headrace_broker.runtime.catalog_service import CatalogService, CatalogUnavailableError
from headrace_broker.runtime.client_list import ClientList
from headrace_broker.runtime.cluster_clock import ClusterClock
from headrace_broker.runtime.counts import CountsClient
from headrace_broker.runtime.dead_letter_carrier import Carrier
from headrace_broker.runtime.dead_letter_office import DeadLetterOffice
from headrace_broker.runtime.default_user import read_default_user
from headrace_broker.runtime.duties import LeaderDuties
from headrace_broker.runtime.expiry_account import ExpiryAccounts
from headrace_broker.runtime.flow_facts import FlowFacts
from headrace_broker.runtime.flow_report import FlowReport
from headrace_broker.runtime.flow_settings import FlowSettings
from headrace_broker.runtime.flow_sources import FlowSources
from headrace_broker.runtime.hosting import Hosting
from headrace_broker.runtime.leasing import LeaseClient
from headrace_broker.runtime.leftovers import remove_leftovers
from headrace_broker.runtime.maintenance import Maintenance
from headrace_broker.runtime.member_moves import MemberMoves
from headrace_broker.runtime.node_configuration import client_limits, raft_options
from headrace_broker.runtime.node_directory import CATALOG_GROUP, Admission, NodeDirectory
from headrace_broker.runtime.node_parts import announcement, make_balance
from headrace_broker.runtime.operations import Operations, Surroundings
from headrace_broker.runtime.pb.cluster_pb2 import ClusterPayload
from headrace_broker.runtime.queue_rates import QueueRates
from headrace_broker.runtime.reaper import Reaper
from headrace_broker.runtime.rehashing import Rehashing
from headrace_broker.runtime.remote_debt import RemoteDebts
from headrace_broker.runtime.replica_report import NodeState, ReplicaReport
from headrace_broker.runtime.replies import Replies
from headrace_broker.runtime.resources import Resources
from headrace_broker.runtime.router import Router
from headrace_broker.runtime.steady_clock import SteadyClock
from headrace_broker.runtime.telemetry.telemetry import Telemetry
from headrace_broker.runtime.topology import Topology
from headrace_raftlog.model.membership import member_node
from headrace_raftlog.node.node import NodeOptions, RaftNode

if TYPE_CHECKING:
    from headrace_broker.runtime.cluster_tls import ClusterTls
    from headrace_broker.runtime.join_secret import JoinSecretFile

JOIN_REPORT_SECONDS: Final = 10.0  # between log lines of a node that waits for a quorum

log = logging.getLogger(__name__)


def _now_us() -> int:
    return time.monotonic_ns() // 1000


class BrokerNode:
    """Starts the parts in order and carries payloads between nodes to the part they are for.

    Attributes:
        config: what the node was told.
        raft: the replicated logs.
        catalog: cluster metadata.
        flow_settings: keeps the limits of flow control up to date.
        alarms: whether publishers are blocked, and why.
        clock: the time by which queues go here.
        clocks: how far those of the nodes are apart.
        resources: memory and disk of this node.
        hosting: queues on this node and sessions of its gateways.
        broker: what gateways use.
        clients: the client connections of the cluster.
        flow_report: why publishers are slow, and who causes it.
        duties: what is done for the queues that are led here.
        letters: their dead letters.
        flow: limits of flow control.
        ledger: accounts of what enters through this node.
        debts: what is owed across nodes.
        leases: asks queues for groups that lease their messages.
        archives: what queues keep of settled messages.
        backup_points: points of queues that are kept here for who reads them.
        backups: asks nodes for such.
        peers_up: boot count by node id of the other nodes that are heard, 0 for those that are not.
        directory: the nodes of the cluster.
        names: of all of them by id.
        maintenance: whether this node is drained.
        operations: moves replicas and leaderships.
        leader_balance: spreads leaders by itself.
        telemetry: notes how this node fares.
        caught_up: it has applied what the catalog decided before its start.
    """

    def __init__(
        self,
        config: Config,
        on_fatal: Callable[[BaseException], None],
        cluster_tls: ClusterTls | None = None,
        join_secret: JoinSecretFile | None = None,
    ) -> None:
        self.config = config
        node = config.node.id
        self.flow = FlowLimits()
        self.ledger = Ledger(self.flow)
        self.raft = RaftNode(self._raft_options(cluster_tls, join_secret))
        self.raft.on_fatal = on_fatal
        self.raft.on_payload = self._on_payload
        self.raft.on_peer = self._on_peer
        nodes = [Node(member.id, member.name, member.address) for member in config.cluster.nodes]
        self.flow_settings = FlowSettings(self.flow, config.limits.flow())
        first_user = read_default_user(config.default_user)
        self.catalog = CatalogService(
            self.raft, node, nodes, self._send_catalog, default_user=first_user
        )
        self._make_cluster(nodes)
        others = list(self.directory.others)
        self.peers_up: dict[int, int] = dict.fromkeys(others, 0)
        self.clock = SteadyClock()
        self.clocks = ClusterClock(self.clock, node, self.names)
        self.alarms = AlarmBoard(
            node, self.names, lambda: self.raft.boot, self.raft.send, clocks=self.clocks
        )
        self.resources = Resources(config, self.raft, self.flow_settings, self.alarms)
        self.router = Router(self.catalog.catalog)
        self.catalog.binding_problem = self.router.routing.load_problem
        self.replies = Replies(node, self.raft.send)
        send = self.raft.send
        hosting = self.hosting = Hosting(self.raft, node, others, send, self.clock, self.ledger)
        for look in (self.ledger.look, self.hosting.queue_gates.look, self.hosting.intake.look):
            self.flow_settings.watch(look)
        reach = (node, hosting.hosts, hosting.locate, send, self.queue_exists)
        self.counts = CountsClient(*reach)
        self.browsing = BrowsingClient(*reach)
        self.leases = LeaseClient(*reach, hosting.new_session_id)
        hosting.on_group_answer = self.leases.commands.answered
        self.backups = self._make_backups()
        self.topology = Topology(node, self.catalog, self.hosting, self.counts)
        self.reaper = Reaper(self.topology, self.hosting.hosts)
        place = (node, config.node.name)
        self.debts = RemoteDebts(place, self.ledger, lambda: self.raft.boot, send)
        charges = self.debts.charges
        self.hosting.on_session = charges.register
        self.hosting.on_session_over = charges.end
        expiries = self._make_letters()
        self.duties = hosting.duties = LeaderDuties(
            hosting.hosts, self.catalog.catalog, self.letters, self.reaper.drop_expired, self.clock
        )
        expiries.wake = self.duties.tick_soon
        self.hosting.on_unused = self.reaper.drop_unused
        self.hosting.on_unreadable = on_fatal
        self.catalog.subscribe(self.router.on_events)
        self.catalog.subscribe(self._on_events)
        self.clients: ClientList = ClientList(
            config.node.name, lambda: self.broker.connections, self.directory.others, send
        )
        self.archives = ArchivePart(self)
        self.rates = QueueRates(self.hosting.hosts, self.ledger, _now_us)
        self.flow_report = self._make_flow_report(self.directory.others)
        self.operations = self._make_operations()
        self.leader_balance = make_balance(self)
        self.telemetry = Telemetry(self, config.telemetry)
        self._handlers = self._payload_handlers()

    def _make_cluster(self, seeds: list[Node]) -> None:
        """Make what follows the nodes of the cluster, and where queues live."""
        config, view = self.config, self.catalog.catalog
        self.caught_up = False
        self.directory = NodeDirectory(config.node.id, seeds, view, self.raft)
        self.directory.added = self._node_added
        self.directory.removed = self._node_removed
        self.names = self.directory.names
        self.maintenance = Maintenance(config.node.id, config.node.name, view, self.raft)
        self.raft.on_removed = self.maintenance.expel
        self.moves = MemberMoves(view, self.raft, self.catalog.submit)
        self.admission = Admission(
            config.cluster.admit_nodes,
            lambda: self.caught_up,
            self._admit,
            self.directory.adopt,
        )
        self.raft.on_stranger = lambda stranger: self.admission.ask(
            Node(stranger.node, stranger.name, stranger.address, disk=stranger.disk),
            stranger.formed,
        )

    def _make_operations(self) -> Operations:
        around = Surroundings(
            self.config.node.id,
            self.catalog.catalog,
            self.nodes_up,
            self.maintenance.avoided,
            self.directory.others,
            self.catalog.submit,
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
        return Operations(around, self.clients.inquiries, report)

    def _make_letters(self) -> ExpiryAccounts:
        charges, session_id = self.debts.charges, self.hosting.new_session_id
        carrier = Carrier(self.hosting.open_letter_session, charges)
        expiries = ExpiryAccounts(self.config.node.name, self.ledger, charges, session_id)
        self.letters = DeadLetterOffice(self.router, carrier, expiries, self.alarms)
        return expiries

    def _make_backups(self) -> BackupClient:
        hosting = self.hosting
        self.backup_points = BackupPoints(
            hosting.hosts, lambda: self.raft.boot, self.resources.short_of_disk
        )
        return BackupClient(
            self.config.node.id,
            self.backup_points,
            hosting.hosts,
            hosting.locate,
            self.raft.send,
            self.catalog.catalog.queue_by_group,
        )

    def _catalog_voters(self) -> list[int]:
        return [member_node(voter) for voter in self.raft.members(CATALOG_GROUP).voters]

    def nodes_up(self) -> frozenset[int]:
        """Return the ids of the nodes that run, as far as this one hears them."""
        up = [peer for peer, boot in self.peers_up.items() if boot and peer in self.names]
        return frozenset([*up, self.config.node.id])

    def _nodes_unheard(self) -> tuple[int, ...]:
        up = self.nodes_up()
        return tuple([peer for peer in self.peers_up if peer in self.names and peer not in up])

    @property
    def removed(self) -> bool:
        """Whether this node belongs to the cluster no more."""
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
        log.info("an authority or secret no longer counts: nodes prove who they are again")
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
        facts.gate, facts.figures, facts.alarms = sources.gate, sources.figures, sources.alarms
        view = self.catalog.catalog
        return FlowReport(facts, view, others, self.clients.inquiries)

    def queue_exists(self, queue: Queue) -> bool:
        """Return whether a queue, this incarnation of it, is in the catalog as applied here."""
        return self.catalog.catalog.queue_by_group(queue.group) is not None

    async def start(self) -> None:
        """Recover the log and let the other nodes reach this one.

        Raises:
            RaftLogError: the data directory cannot be used; its text says what to do.
            OSError: the inter-node address cannot be bound.
        """
        await self.raft.start()
        names = (self.config.node.name, self.config.cluster.name)
        self.broker = NodeBroker(
            names,
            client_limits(self.config),
            self.catalog.catalog,
            self.router,
            self.hosting,
            self.topology,
            self.counts,
            self.reaper,
            self.replies,
            self.leases,
        )
        self.clients.rates = self.broker.rates.rates
        self.broker.authenticator.renew = Rehashing(self.catalog).renew
        self.catalog.subscribe(self.broker.permissions.on_events)
        self.catalog.subscribe(self.broker.quotas.on_events)
        self.catalog.subscribe(self.clients.on_events)
        self.catalog.subscribe(self.flow_settings.on_events)
        self.catalog.subscribe(self.broker.client_flow.on_events)
        self.flow_settings.watch(self.broker.limits_changed)
        self.alarms.watch(self._block)
        self._block()
        self.hosting.start()
        self.rates.start()
        self.resources.start()
        self.alarms.start()
        await self.telemetry.start()

    async def join(self) -> None:
        """Belong to the cluster, catch up with the catalog, and forget what was in memory before.

        A node with new data waits for its cluster: see `RaftNode.wait_formed`.
        """
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
                self.directory.settle()
                self.catalog.announce(announcement(self))
                await remove_leftovers(self.catalog.catalog, self.raft)
                self.leader_balance.start()
                return

    def _own_boot(self) -> None:
        """Speak to queues from now on: this start's boot count is certain to be no other's."""
        if self.broker.boot == 0:
            self.broker.boot = self.raft.boot
            self.hosting.own_boot()
            self.letters.release_all()

    async def hand_over(self) -> None:
        """Have other nodes lead what this one leads, as far as they can, because it stops."""
        payload = ClusterPayload(stopping=True).SerializeToString()
        for peer in self.directory.others:
            self.raft.send(peer, payload)
        await self.maintenance.hand_over()

    async def stop(self) -> None:
        """Stop all parts; what is durable stays."""
        await self.telemetry.stop()
        await self.maintenance.stop()
        await self.leader_balance.stop()
        await self.operations.stop()
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

    def _block(self) -> None:
        alarms = self.alarms
        self.broker.set_blocked(alarms.reason, alarms.limit, alarms.node_name)

    def _send_catalog(self, peer: int, data: bytes) -> bool:
        payload = ClusterPayload(catalog_forward=data)
        return self.raft.send(peer, payload.SerializeToString())

    def _on_payload(self, peer: int, data: bytes) -> None:
        """Pass a payload on. What goes wrong must not stop the replicated logs: it is logged."""
        try:
            self._dispatch(peer, ClusterPayload.FromString(data))
        except Exception:
            log.exception("a payload of node %d could not be handled", peer)

    def _dispatch(self, peer: int, payload: ClusterPayload) -> None:
        kind: str = payload.WhichOneof("body") or ""
        handle = self._handlers.get(kind)
        if handle is not None:
            handle(peer, getattr(payload, kind))
        elif not self.leases.receive(peer, kind, payload):
            self.hosting.switchboard.receive(payload)

    def _payload_handlers(self) -> dict[str, Callable[[int, Any], None]]:
        """Return who takes which kind of payload: called with the sender and the payload's body.

        All other kinds are about the sessions of queues.
        """
        return {
            "catalog_forward": self.catalog.handle_forward,
            "counts_request": self.counts.receive_request,
            "counts": lambda _, counts: self.counts.receive_answer(counts),
            "browse_request": self.browsing.receive_request,
            "browsed_page": lambda _, page: self.browsing.receive_answer(page),
            **self.archives.handlers(),
            "backup_question": self.backups.receive_question,
            "backup_answer": self.backups.receive_answer,
            "question": self.clients.inquiries.receive_question,
            "answer": lambda _, answer: self.clients.inquiries.receive_answer(answer),
            "debt_report": self.debts.receive_report,
            "debt_heard": self.debts.receive_heard,
            "alarm": self.alarms.receive,
            "export_question": self.telemetry.courier.receive_question,
            "export_answer": lambda _, answer: self.telemetry.courier.receive_answer(answer),
            "stopping": lambda peer, _: self.maintenance.stopping.add(peer),
            "outflows": lambda peer, outflows: self.hosting.outflow.hear(
                peer, list(outflows.rows), _now_us()
            ),
            "claims": lambda peer, claims: self.hosting.outflow.hear_claims(
                peer, list(claims.rows), _now_us()
            ),
            "reply": lambda _, reply: self.replies.receive_reply(reply),
            "reply_probe": self.replies.receive_probe,
            "reply_alive": lambda _, alive: self.replies.receive_alive(alive),
        }

    def _on_peer(self, peer: int, up: bool, boot: int) -> None:
        if peer in self.names:
            self.peers_up[peer] = boot if up else 0
        self.maintenance.stopping.discard(peer)
        log.info("node %d is %s", peer, f"up (boot {boot})" if up else "down")
        self.debts.peer_changed(peer, up)
        self.hosting.peer_changed(peer, up, boot)
        if up:
            self.alarms.peer_up(peer)
