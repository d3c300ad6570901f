"""One simulated node: several groups on one disk, the liveness of other nodes, crashes."""

from __future__ import annotations

from typing import Final, final

from headrace_raftlog.core.raft import RaftCore
from headrace_raftlog.model.group import LEADER
from headrace_raftlog.model.membership import NOBODY, member_id, member_node
from headrace_raftlog.model.message import JOIN, Message
from headrace_raftlog.storage.disk.disk_watch import DiskWatch
from headrace_simulation.simulator.catalog import Catalog, GroupRecord
from headrace_simulation.simulator.coverage import Coverage
from headrace_simulation.simulator.fetch import FetchReply, FetchRequest, serve
from headrace_simulation.simulator.host_faults import HostFaults
from headrace_simulation.simulator.invariant_error import InvariantError
from headrace_simulation.simulator.loop import Loop
from headrace_simulation.simulator.machine import KEYS
from headrace_simulation.simulator.network import Network
from headrace_simulation.simulator.parameters import TICK, Parameters
from headrace_simulation.simulator.reconcile import reconcile
from headrace_simulation.simulator.replica import CrashedError, Replica, Saved, Written
from headrace_simulation.simulator.rot import mended
from headrace_simulation.simulator.store import Store

DOWN_AFTER: Final = 4 * TICK  # units of silence after which a node counts as down
BACKLOG_MAX: Final = 200  # messages kept for a paused process; more are lost
MISROUTED: Final = 0.05  # share of messages for groups that are gone which reach another core
STALL_TICKS: Final = 15  # for which a sync is under way when the disk counts as hanging
JOIN_TICKS: Final = 3  # between two requests to be admitted
SPREADS: Final = (0, 7, 15, 100)  # ticks over which a group's elections begin, by its id
UNHEARD_ELECTIONS: Final = 4  # election timeouts without a leader after which a member asks too


@final
class Node:
    """A node with its members of groups.

    Attributes:
        number: node id.
        generation: of the node's disk, 0 for the first.
        replicas: by group, empty while the node is down.
        up: whether it runs.
        boot: counts starts.
        paused: nothing happens until `resume`.
        fetches: numbers its snapshot transfers.
        heard_at, heard_boot: failure detection per other node.
        nodes_up: the others that count as up; shared with the cores.
        disk_watch: notices that the disk hangs.
        handing_over: groups that were to be handed over since it does.
        resumed_at: when it last went on after a pause.
    """

    def __init__(
        self,
        number: int,
        loop: Loop,
        parameters: Parameters,
        coverage: Coverage,
        catalog: Catalog,
        store: Store,
        core_type: type[RaftCore],
        faults: HostFaults,
    ) -> None:
        self.number = number
        self.loop = loop
        self.parameters = parameters
        self.coverage = coverage
        self.catalog = catalog
        self.store = store
        self.core_type = core_type
        self.faults = faults
        self.network: Network
        self.peers: list[Node] = []
        self.generation = 0
        self.replicas: dict[int, Replica] = {}
        self.up = False
        self.boot = 0
        self.paused = False
        self.fetches = 0
        self.ticks = 0
        self.clock_stands_until = 0
        self.backlog: list[tuple[int, object]] = []
        self.durable_backlog: list[list[object]] = []
        self.heard_at: dict[int, int] = {}
        self.heard_boot: dict[int, int] = {}
        self.nodes_up: set[int] = set()
        self.disk_watch = DiskWatch(STALL_TICKS)
        self.handing_over: set[int] = set()
        self.resumed_at = 0
        self._disturbed_at = 0

    @property
    def tick_units(self) -> int:
        """Units of time between two ticks."""
        return self.parameters.tick_units[self.number - 1]

    @property
    def calm_since(self) -> int:
        """Since when it runs as it should; now where it does not."""
        now = self.loop.now
        if not self.up or self.paused or self.store.full or now < self.clock_stands_until:
            return now
        return max(self._disturbed_at, self.clock_stands_until)

    def start(self) -> None:
        """Recover from the disk and run."""
        assert not self.up
        self.up = True
        self._disturbed_at = self.loop.now
        self.boot += 1
        self.network.boots[self.number] = self.boot
        self.paused = False
        self.disk_watch = DiskWatch(STALL_TICKS)
        self.store.open(self._on_durable, self._on_failed)
        for peer in self.peers:
            self.heard_at[peer.number] = self.loop.now
            self.heard_boot[peer.number] = peer.boot
            self.nodes_up.add(peer.number)
        if self.loop.tracing:
            self.loop.trace(f"start    node {self.number}, boot {self.boot}")
        quarantined = self.store.quarantined()
        for record in self.catalog.records:
            if not self.up:
                return
            if record.deleted and self.number in record.forgotten:
                self.forget(record)
            elif self.number in record.hosts:
                self.host(record, record.group in quarantined)
        self.loop.after(self.tick_units, self._tick, self.boot)

    def host(self, record: GroupRecord, quarantined: bool = False) -> None:
        """Run a member of a group: the one on the disk, a founder, or one that has to join."""
        group = record.group
        store = self.store
        if group in store.removed or group in self.replicas:
            return
        if not quarantined and not mended(self, record):
            return
        if quarantined:
            self.coverage.note("quarantined")
            generation = 1 + self.loop.rng.getrandbits(31)
            store.begin(group, member_id(self.number, generation), NOBODY)
        elif store.member(group) != 0:
            record.lost.pop(store.member(group), None)  # damage elsewhere did not reach it
        else:
            own = member_id(self.number, self.generation)
            founder = record.founding.contains(own)
            store.begin(group, own, record.founding if founder else NOBODY)
        replica = Replica(self, record.checker)
        self.replicas[group] = replica
        replica.core.withhold(self.disk_watch.stalled)
        if self.loop.tracing:
            self.loop.trace(
                f"host     {group} as {replica.member}: {store.hard_state(group)!r}, "
                f"log {replica.log.first_index()}..{replica.log.last_index()}"
            )
        record.checker.started(replica)
        replica.run()

    def forget(self, record: GroupRecord) -> None:
        """Stop a group that was deleted and remove it from the disk for good."""
        record.forgotten[self.number] = True
        if not self.up:
            return
        self.drop(record.group)
        if record.group not in self.store.removed:
            self.store.remove_group(record.group)
            self.store.flush()

    def drop(self, group: int) -> None:
        """Stop a member; its written data stays."""
        replica = self.replicas.pop(group, None)
        if replica is not None:
            replica.stopped = True

    def crash(self) -> None:
        """Stop at once; the disk loses unsynced writes."""
        if not self.up:
            return
        if self.loop.tracing:
            self.loop.trace(f"crash    node {self.number}")
        self._note_crash()
        self.up = False
        for replica in self.replicas.values():
            replica.stopped = True
        self.replicas.clear()
        self.backlog.clear()
        self.durable_backlog.clear()
        self.store.power_off()

    def pause(self) -> None:
        """Stand still, like a virtual machine that is not scheduled."""
        if self.up:
            self.paused = True

    def resume(self) -> None:
        """Go on; what arrived meanwhile is handled at once."""
        if not self.paused:
            return
        self.paused = False
        self.resumed_at = self._disturbed_at = self.loop.now
        for replica in list(self.replicas.values()):
            replica.checker.traffic.disturb()
            # Whoever asks now may be heard before all that arrived meanwhile.
            if self.parameters.read and not replica.stopped:
                replica.read(self.loop.rng.randrange(KEYS))
        durable, self.durable_backlog = self.durable_backlog, []
        for tokens in durable:
            self._on_durable(tokens)
        backlog, self.backlog = self.backlog, []
        for source, content in backlog:
            self.receive(source, content)
        for replica in list(self.replicas.values()):
            if replica.dirty and not replica.stopped:
                replica.run()

    def receive(self, source: int, content: object) -> None:
        """Take what the network brings; all of it shows that its sender is alive."""
        if not self.up:
            return
        if self.paused:
            if len(self.backlog) < BACKLOG_MAX:
                self.backlog.append((source, content))
            return
        if self.loop.tracing:
            self.loop.trace(f"arrived  {content!r} at {self.number}")
        self.heard_at[source] = self.loop.now
        self._came_up(source)
        if isinstance(content, Message):
            replica = self.replicas.get(content.group)
            if replica is not None:
                replica.receive(content)
            elif self.loop.rng.random() < MISROUTED:
                self._misroute(content)
        elif isinstance(content, FetchRequest):
            self.network.send(self.number, source, serve(self, content))
        else:
            assert isinstance(content, FetchReply)
            replica = self.replicas.get(content.request.group)
            if replica is not None and content.request.member == replica.member:
                try:
                    replica.take_body(content)
                    replica.crash_point()
                except CrashedError:
                    self.crash()

    def session_lost(self, peer: int) -> None:
        """Tell the groups that messages to a node may be lost."""
        if not self.up or self.paused:
            return
        for replica in list(self.replicas.values()):
            self._report_unreachable(replica, peer)
            replica.turn()

    def burst(self, count: int) -> None:
        """Let many ticks pass at once: the clock jumps forward."""
        self._disturbed_at = self.loop.now
        for replica in list(self.replicas.values()):
            if replica.stopped or self.paused:
                continue
            replica.checker.traffic.disturb()
            for _ in range(count):
                if not replica.core.quiesced:
                    replica.core.tick()
            replica.run()

    def _tick(self, boot: int) -> None:
        if not self.up or boot != self.boot:
            return
        self.loop.after(self.tick_units, self._tick, boot)
        if self.paused or self.loop.now < self.clock_stands_until:
            return
        self.ticks += 1
        self._watch_peers()
        self._watch_disk()
        if self.store.full or self.disk_watch.stalled:
            self._disturbed_at = self.loop.now
        for group in self.store.collect():
            replica = self.replicas.get(group)
            if replica is not None:
                replica.save_wanted = True
        for record in self.catalog.records:
            if self.number in record.hosts and not record.deleted and self.up:
                self.host(record)
        for replica in list(self.replicas.values()):
            if not replica.stopped:
                self._tick_replica(replica)

    def _tick_replica(self, replica: Replica) -> None:
        core = replica.core
        was = core.transferee if core.role == LEADER else 0
        if not core.quiesced:
            core.tick()
        if was and core.role == LEADER and core.transferee == 0:
            self.coverage.note("transfers given up")
        if replica.fetch is not None:
            replica.fetch.tick()
        if self.ticks % JOIN_TICKS == 0:
            self._join(replica)
        replica.turn()
        if not replica.stopped:
            reconcile(replica, self.catalog.by_group[replica.group])

    def _join(self, replica: Replica) -> None:
        """Ask all nodes to admit this member, while it should be one and may not be.

        One that was removed while it was cut off does not know it, but hears nothing.
        """
        record = self.catalog.by_group[replica.group]
        if self.number not in record.desired and self.number not in record.observers:
            return
        core = replica.core
        if core.membership.contains(replica.member):
            silence = self.loop.now - replica.heard_at
            if core.quiesced or silence < UNHEARD_ELECTIONS * core.options.election_ticks * TICK:
                return
        for peer in self.peers:
            message = Message(JOIN, replica.group, replica.member, peer.number, 0)
            self.network.send(self.number, peer.number, message)

    def _watch_peers(self) -> None:
        """Tell the groups when a relevant node went away or came back anew."""
        now = self.loop.now
        for peer in self.peers:
            number = peer.number
            changed = False
            alive = peer.up and not peer.paused
            if alive and self.network.connected(number, self.number):
                self.heard_at[number] = now
                changed = self.heard_boot[number] != peer.boot
                self.heard_boot[number] = peer.boot
                self._came_up(number)
            if number in self.nodes_up and now - self.heard_at[number] > DOWN_AFTER:
                self.nodes_up.discard(number)
                changed = True
            if changed:
                self._tell_peer(number)

    def _watch_disk(self) -> None:
        """Give up led groups while the disk hangs, and take no part in elections."""
        watch = self.disk_watch
        if self.faults.leads_without_disk:
            watch.tick(1.0, self.store.under_way)
        elif watch.tick(1.0, self.store.under_way):
            self.coverage.note("disks that hang" if watch.stalled else "disks that answer again")
            self.handing_over.clear()
            for replica in list(self.replicas.values()):
                replica.core.withhold(watch.stalled)
                replica.turn()
        if not watch.stalled:
            return
        for replica in list(self.replicas.values()):
            core = replica.core
            if core.role != LEADER:
                continue
            if watch.stalled_s > STALL_TICKS + 2 * int(core.options.election_ticks):
                text = f"member {replica.member} leads, its disk hangs for {watch.stalled_s} ticks"
                raise InvariantError(19, text)
            if not core.transferee and not self.faults.leads_without_disk:
                self._leave(replica)

    def _leave(self, replica: Replica) -> None:
        """Hand a group over, once; then step down."""
        up = [m for m in replica.core.membership.voters if member_node(m) in self.nodes_up]
        if up and replica.group not in self.handing_over:
            self.handing_over.add(replica.group)
            if replica.transfer(self.loop.rng.choice(up)):
                return
        replica.core.resign()
        replica.turn()

    def _came_up(self, peer: int) -> None:
        """Begin a session with a node that was down, before anything that it sends is taken."""
        if peer not in self.nodes_up:
            self.nodes_up.add(peer)
            self._tell_peer(peer)

    def _tell_peer(self, peer: int) -> None:
        if not self.faults.never_wake:
            for replica in list(self.replicas.values()):
                self._peer_changed(replica, peer, peer in self.nodes_up)

    def _peer_changed(self, replica: Replica, peer: int, up: bool) -> None:
        core = replica.core
        members = [m for m in core.membership.everyone() if member_node(m) == peer]
        if core.role == LEADER:
            for member in members:
                if up:
                    core.peer_up(member)
                else:
                    core.peer_down(member)
        elif member_node(core.leader) == peer:
            if up:
                core.wake()
            else:
                core.lose_leader(SPREADS[core.group % len(SPREADS)])
        elif up and core.leader == 0 and members:
            core.wake()

    def _report_unreachable(self, replica: Replica, peer: int) -> None:
        for member in replica.core.membership.everyone():
            if member_node(member) == peer:
                replica.core.report_unreachable(member)

    def _misroute(self, message: Message) -> None:
        """Hand a message of another incarnation to a core, which must disregard it."""
        for replica in self.replicas.values():
            replica.disregard(message)

    def _on_failed(self) -> None:
        """End the process: the disk failed, and later syncs cannot be trusted."""
        self.crash()
        self.loop.after(self.loop.rng.randint(0, 20) * TICK, self._restart, self.boot)

    def _restart(self, boot: int) -> None:
        if not self.up and self.boot == boot:
            self.start()

    def _on_durable(self, tokens: list[object]) -> None:
        if not self.up:
            return
        if self.paused:
            self.durable_backlog.append(tokens)
            return
        written: list[Written] = []
        for token in tokens:
            if isinstance(token, Written):
                if not token.replica.stopped:
                    written.append(token)
            else:
                assert isinstance(token, Saved)
                token.replica.saving = False
        touched: list[Replica] = []
        for one in written:
            if one.replica not in touched:
                touched.append(one.replica)
                one.replica.checker.synced(one.replica)
        try:
            self._release(written)
        except CrashedError:
            self.crash()
        for replica in touched:
            if not replica.stopped:
                replica.run()

    def _release(self, written: list[Written]) -> None:
        """Let go what waited, and tell the cores: all at the end, or one by one."""
        if self.parameters.crash_point and written:
            written[0].replica.crash_point()
        at_once = self.loop.rng.random() < 0.5
        last: dict[int, Written] = {}
        for one in written:
            one.replica.release(one)
            if at_once:
                last[one.replica.group] = one
            else:
                one.replica.persisted(one.number)
        for one in last.values():
            one.replica.persisted(one.number)

    def _note_crash(self) -> None:
        for replica in self.replicas.values():
            core = replica.core
            if core.role == LEADER:
                self.coverage.note("leader crashes")
                if core.membership.is_joint:
                    self.coverage.note("crashes of a leader in a joint membership")
            if replica.fetch is not None:
                self.coverage.note("crashes while fetching")
            if replica.saving:
                self.coverage.note("crashes while saving")
