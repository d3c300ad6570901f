"""The pump: drives all groups of a node, one turn of the event loop at a time.

Whatever arrives in one turn (messages, proposals, ticks, finished writes) marks its groups dirty.
The next turn collects one Ready of each dirty group, in the order in which they became dirty, so
that everything leaves in one append to the shared log and one frame per peer. Of many groups, as
when a node goes or comes, it takes some: beats leave and messages arrive between turns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import final

from mypy_extensions import i64

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.errors import LostEntryError
from headrace_raftlog.model.group import BUSY, CATALOG_GROUP, LEADER, NOT_LEADER, CoreOptions
from headrace_raftlog.model.limits import ELECTIONS_PER_TICK, SNAPSHOT_EVERY_BYTES, TURN_GROUPS_MAX
from headrace_raftlog.model.membership import NOBODY, Membership, member_id, member_node
from headrace_raftlog.model.message import JOIN, Message
from headrace_raftlog.model.ready import Ready
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.node.commit_meter import CommitMeter
from headrace_raftlog.node.group_events import members_changed, role_changed, transfer_started
from headrace_raftlog.node.group_opening import core_of, open_view
from headrace_raftlog.node.handler import GroupHandler
from headrace_raftlog.node.held_messages import HeldMessages
from headrace_raftlog.node.host_port import HostPort
from headrace_raftlog.node.hosted_group import HostedGroup, Writing
from headrace_raftlog.node.reconciler import Joiner, Reconciler
from headrace_raftlog.node.snapshots import SnapshotTaker
from headrace_raftlog.node.suspensions import Suspensions
from headrace_raftlog.storage.group.lost_entries import lost_indexes
from headrace_raftlog.storage.log.shared_log import SharedLog


@final
class Host:
    """All groups of one node. Everything is called on the event loop; nothing blocks.

    An exception out of a core, the log or a handler is a bug or a lost disk: the host stops at
    once, so that it neither acknowledges nor sends anything more, and reports it.
    """

    def __init__(
        self,
        member: i64,
        boot: i64,
        options: CoreOptions,
        log: SharedLog,
        port: HostPort,
        snapshot_every_bytes: i64 = SNAPSHOT_EVERY_BYTES,
    ) -> None:
        self.disk_full = False  # whether proposals are refused because the log cannot grow
        self.stopped = False  # whether the host does nothing any more
        # whether the disk hangs: no group takes part in elections, or takes entries
        self.disk_stalled = False
        self.messages_sent: i64 = 0  # Raft messages posted since the start, dropped ones included
        self.member = member  # this node's member id in groups that it founds or joins
        self.boot = boot  # boot count of the data directory
        self._options = options
        self._log = log
        self._port = port
        self._groups: dict[int, HostedGroup] = {}
        self._removed: set[int] = set()
        self._held = HeldMessages()
        self._nodes_up: set[int] = set()  # shared with all cores
        self._dirty: list[HostedGroup] = []
        self._awake: list[HostedGroup] = []
        self._on_read: Callable[[int], None] = self._entries_read
        self._scheduled = False
        self.commits = CommitMeter()  # counts and times what is committed
        # takes the snapshots of groups
        self.snapshots = SnapshotTaker(log, self.find, snapshot_every_bytes)
        # has groups stand still in which damage is found
        self.suspensions = Suspensions(
            log, port.nodes_up, self._post_all, self._finish, port.suspended, self._schedule
        )
        self._reconciler = Reconciler(self._mark, port.fail_together)
        self._joiner = Joiner(member_node(member), port.post, port.nodes_up)

    def create_group(
        self,
        group: i64,
        voters: tuple[int, ...],
        learners: tuple[int, ...],
        handler: GroupHandler,
        campaign: bool,
    ) -> None:
        """Start a group on this node, with what the log holds of it.

        Raises KeyError: the group was removed; ids are never used again; ValueError: the group is
        there already.
        """
        if group in self._groups:
            raise ValueError(f"group {group} exists on this node")
        founders = Membership(voters, learners)
        view = open_view(self._log, group, self.member, founders, self._port.random)
        core = core_of(view, self._options, self.boot, self.disk_stalled, self._nodes_up)
        hosted = self._groups[group] = HostedGroup(group, core, view, handler)
        view.on_read = self._on_read
        held = self._held.take(group)
        kept = self._log.is_kept(group)
        if kept or lost_indexes(view):
            hosted.suspended = True
            if not kept:
                self._port.suspended(hosted)
            return
        self.snapshots.restore(hosted)
        if not all(hosted.step(message) for message in held):
            self.suspensions.contradicted(hosted)
            return
        if campaign:
            hosted.core.campaign()
        self._joiner.look_at(hosted)
        self._mark(hosted)

    def resume(self, hosted: HostedGroup) -> None:
        """Resume a suspended group from what its log holds now: nothing of it is missing."""
        if hosted.removed or self.stopped:
            return
        try:
            assert hosted.suspended, "a group is resumed once"
            view, stalled = hosted.view, self.disk_stalled
            applied: i64 = hosted.core.applied_index
            hosted.core = core_of(view, self._options, self.boot, stalled, self._nodes_up, applied)
            if not hosted.restored or view.snapshot_index > applied:
                self.snapshots.restore(hosted)
            hosted.durable_number = 0
            hosted.digests = ()
            hosted.suspended = False
            self._joiner.look_at(hosted)
            self._mark(hosted)
            self.suspensions.over(hosted)
        except LostEntryError as error:
            self.suspensions.note(hosted, error.index)  # it stands still for longer
        except Exception as error:  # noqa: BLE001  (outermost: reports it and stops)
            self.fail(error)

    def remove_group(self, group: i64) -> None:
        """Stop a group and forget its log for good; nothing happens if it is not there."""
        self._drop(group)
        self._removed.add(group)
        self._held.take(group)
        self._log.remove_group(group)
        self._schedule()

    def leave_group(self, group: i64) -> None:
        """Stop a group and forget its log; should it come back, it does as a new member."""
        self._drop(group)
        if not self._log.known(group) and group not in self._log.quarantined:
            return
        if self._log.known(group):
            view = self._log.group(group)
            if view.last_index() == 0 and view.snapshot_index == 0 and view.membership == NOBODY:
                return  # it has left before
        self._log.begin(group, member_id(member_node(self.member), self._port.random()), NOBODY)
        self._log.flush()

    def _drop(self, group: i64) -> None:
        hosted = self._groups.pop(group, None)
        if hosted is not None:
            hosted.removed = True
            if hosted.reads is not None:
                hosted.reads.close()
            self.suspensions.gone(hosted)

    def find(self, group: i64) -> HostedGroup | None:
        """Return a group, None where it is not on this node."""
        return self._groups.get(group)

    def groups(self) -> list[HostedGroup]:
        """Return all groups of this node."""
        return list(self._groups.values())

    def nodes_up(self) -> Collection[int]:
        """Return the ids of the other nodes that are up."""
        return self._port.nodes_up()

    def propose(self, group: i64, data: bytes, urgent: bool) -> int:
        """Append one entry; return its index, QUEUED, NOT_LEADER or BUSY."""
        hosted = self._groups.get(group)
        if hosted is None or self.stopped or hosted.suspended:
            return NOT_LEADER
        if hosted.core.role == LEADER and (self.disk_full or self._log.backlogged):
            return BUSY
        index: i64 = hosted.core.propose([data], urgent)
        if index > 0 and not self.commits.timing:
            self.commits.begin(hosted, index)
        self._mark(hosted)
        return index

    def propose_checkpoint(self, hosted: HostedGroup) -> int:
        """Append a no-op at which members compare their states; see `RaftCore`."""
        index = hosted.core.propose_checkpoint()
        self._mark(hosted)
        return index

    def transfer(self, hosted: HostedGroup, target: i64) -> bool:
        """Begin to hand the leadership over to a member; False where that cannot be."""
        if begun := not hosted.suspended and hosted.core.transfer(target):
            transfer_started(hosted, target, self._port.labels)
        self._mark(hosted)
        return begun

    def resign(self, hosted: HostedGroup) -> None:
        """Stop leading a group that no other member takes over."""
        hosted.core.resign()
        self._mark(hosted)

    def set_disk_stalled(self, stalled: bool) -> None:
        """Keep all groups out of elections while the disk hangs."""
        self.disk_stalled = stalled
        for hosted in self._groups.values():
            hosted.handing_over = False
            hosted.core.withhold(stalled)
            if hosted.core.has_ready():
                self._mark(hosted)

    def read_index(self, hosted: HostedGroup, context: i64) -> bool:
        """Begin a read, to be answered through the group's `reads`; False when it is refused."""
        if self.stopped or hosted.suspended:
            return False
        asked = hosted.core.read_index(context)
        self._mark(hosted)
        return asked

    def placed(self, hosted: HostedGroup) -> None:
        """Note that a group should be on other nodes now, or others of them vote."""
        self._reconciler.look_at(hosted)
        self._joiner.look_at(hosted)

    def missing(self, hosted: HostedGroup, snapshot: Snapshot) -> list[int]:
        """Return the live entries of a fetched snapshot that this node does not have yet."""
        return self._log.missing(hosted.group, snapshot.live, hosted.core.commit_index)

    def add_incoming(self, hosted: HostedGroup, entries: list[Entry]) -> None:
        """Keep live entries of a snapshot that is being fetched."""
        self._log.add_incoming(hosted.group, entries)
        self._log.flush()

    @property
    def is_backlogged(self) -> bool:
        """True if the disk is far behind."""
        return self.disk_full or self._log.backlogged

    def install(self, hosted: HostedGroup, snapshot: Snapshot) -> bool:
        """Put a fetched snapshot of which nothing is missing in the place of the log's beginning.

        Returns:
            False, and nothing happens, where this member has as much already.
        """
        core = hosted.core
        index: i64 = snapshot.index
        keeps = hosted.view.term_at(index) == snapshot.term
        if hosted.suspended or not core.restore(index, snapshot.term, snapshot.membership):
            return False
        try:
            self._log.install_snapshot(hosted.group, snapshot, keeps)
            hosted.handler.restore(snapshot.state)
            hosted.digests = ()
            self.snapshots.saved(hosted, snapshot)
            self.commits.installed += 1
            self._mark(hosted)
        except Exception as error:  # noqa: BLE001  (outermost: reports it and stops)
            self.fail(error)
        return True

    def receive(self, messages: list[Message]) -> None:
        """Step the messages of one frame.

        While the disk hangs or is far behind, messages with entries are dropped, as a network
        might: what waits for the disk stays bounded however many groups there are. Their leaders
        find out by their heartbeats, and send them again.
        """
        if self.stopped:
            return
        try:
            backlogged = self.disk_stalled or self._log.backlogged
            for message in messages:
                hosted = self._groups.get(message.group)
                if hosted is not None and hosted.suspended:
                    continue
                if message.kind == JOIN:
                    if hosted is not None:
                        self._reconciler.joins(hosted, message.source, message.index)
                elif hosted is not None:
                    if backlogged and message.entries:
                        continue
                    if not hosted.step(message):
                        self.suspensions.contradicted(hosted)
                    self._mark(hosted)
                elif message.group not in self._removed:
                    self._held.hold(message)
        except Exception as error:  # noqa: BLE001  (outermost: reports it and stops)
            self.fail(error)

    def durable(self, tokens: list[object]) -> None:
        """Release what waited for writes that are durable now, oldest first."""
        if self.stopped:
            return
        try:
            touched: list[HostedGroup] = []
            for token in tokens:
                assert isinstance(token, Writing)
                hosted = token.hosted
                hosted.unsettled -= 1
                if hosted.writing is token:
                    hosted.writing = None
                if token.is_void():
                    continue
                self._post_all(hosted, token.messages)
                hosted.durable_number = token.number
                if not hosted.touched:
                    hosted.touched = True
                    touched.append(hosted)
            for hosted in touched:
                hosted.touched = False
                hosted.core.persisted(hosted.durable_number)
                self._mark(hosted)
            self._port.flush()
        except Exception as error:  # noqa: BLE001  (outermost: reports it and stops)
            self.fail(error)

    def tick(self) -> None:
        """Advance the timers of all groups that are not silent by one tick.

        Silent groups cost nothing. Those of a group that was not served since the last tick stand:
        with 10,000 groups awake there may be more to do for a tick than can be done until the next.
        """
        if self.stopped:
            return
        try:
            awake: list[HostedGroup] = []
            for hosted in self._awake:
                core = hosted.core
                if hosted.removed or core.quiesced or hosted.suspended:
                    hosted.awake = False
                    if not hosted.removed and not hosted.suspended:
                        hosted.view.forget_dead(hosted.group == CATALOG_GROUP)
                        hosted.handler.quiesced()
                    continue
                awake.append(hosted)
                if hosted.overdue:
                    continue
                if hosted.tick():
                    self._joiner.look_at(hosted)
                if core.has_ready():
                    self._mark(hosted)
                hosted.overdue = hosted.dirty
            self._awake = awake
            self._joiner.tick()
            self._reconciler.tick()
            self.snapshots.tick()
            self.commits.tick()
            self._log.flush()
            self._port.flush()
        except Exception as error:  # noqa: BLE001  (outermost: reports it and stops)
            self.fail(error)

    def peer_changed(self, peer: i64, up: bool) -> None:
        """Tell groups that a node that leads them, or is a member of them, went down or came up."""
        if self.stopped:
            return
        try:
            if up:
                self._nodes_up.add(peer)
            else:
                self._nodes_up.discard(peer)
                self._held.drop_from(peer)
            groups = self._groups.values()
            led_there: i64 = 0 if up else sum([hosted.is_led_by(peer) for hosted in groups])
            spread: i64 = led_there // ELECTIONS_PER_TICK
            for hosted in groups:
                if not hosted.suspended and hosted.peer_changed(peer, up, spread):
                    self._mark(hosted)
        except Exception as error:  # noqa: BLE001  (outermost: reports it and stops)
            self.fail(error)

    def pump(self) -> None:
        """Do one turn of work for dirty groups."""
        self._scheduled = False
        if self.stopped:
            return
        try:
            self._turn()
        except Exception as error:  # noqa: BLE001  (outermost: reports it and stops)
            self.fail(error)

    def _turn(self) -> None:
        self.suspensions.begin_all()
        batch = self._dirty[:TURN_GROUPS_MAX]
        self._dirty = self._dirty[TURN_GROUPS_MAX:]
        if self._dirty:
            self._schedule()
        appliers: list[tuple[HostedGroup, list[Entry]]] = []
        for hosted in batch:
            hosted.dirty = hosted.overdue = False
            if hosted.removed or hosted.suspended or not hosted.core.has_ready():
                continue
            try:
                ready = hosted.core.ready()
            except LostEntryError as error:
                self.suspensions.note(hosted, error.index)
                self.suspensions.begin_all()
                continue
            self._post_all(hosted, ready.messages)
            if ready.must_sync or ready.messages_after_persist:
                self._write(hosted, ready)
            if ready.membership is not None or ready.offer is not None:
                self._take_news(hosted, ready)
            if hosted.reads is not None:
                hosted.reads.answered(ready.read_states, ready.reads_lost)
            if ready.committed:
                appliers.append((hosted, ready.committed))
        self._log.flush()
        self._port.flush()
        for hosted, committed in appliers:
            if not hosted.removed:
                size: i64 = hosted.apply(committed)
                self.commits.applied(hosted, len(committed), committed[-1].index)
                self.snapshots.applied(hosted, size)
        if self.snapshots.is_outrun:
            self.snapshots.tick()
            self._log.flush()
        for hosted in batch:
            if not hosted.removed:
                self._finish(hosted)

    def _write(self, hosted: HostedGroup, ready: Ready) -> None:
        """Hand the writes of a Ready to the log, or let what only waits for earlier ones wait."""
        waiting = hosted.writing
        if waiting is not None and not ready.must_sync:
            waiting.add(ready.number, ready.messages_after_persist)
            return
        token = Writing(hosted, ready.number, ready.messages_after_persist)
        hosted.writing = token
        hosted.unsettled += 1
        self._log.append(hosted.group, ready.hard_state, ready.entries, ready.must_sync, token)

    def _take_news(self, hosted: HostedGroup, ready: Ready) -> None:
        if ready.membership is not None:
            members_changed(hosted, ready.membership, self._port.labels)
            self._reconciler.look_at(hosted)
            self._joiner.look_at(hosted)
        if ready.offer is not None:
            self._port.offered(hosted, ready.offer)

    def _finish(self, hosted: HostedGroup) -> None:
        before: i64 = hosted.told_leader
        if hosted.is_role_news():
            role_changed(hosted, self._port.labels)
        if hosted.tell_leadership():
            self._reconciler.look_at(hosted)
            self.commits.led_anew(hosted, hosted.told_leader != before)
            if hosted.told_leader != before:
                self._port.leader_changed(hosted.group, member_node(hosted.told_leader))
        if not hosted.removed and not hosted.suspended and hosted.core.has_ready():
            self._mark(hosted)

    def _post_all(self, hosted: HostedGroup, messages: list[Message]) -> None:
        post = self._port.post
        self.messages_sent += len(messages)
        for message in messages:
            if not post(message):
                hosted.core.report_unreachable(message.target)

    def _entries_read(self, group: int) -> None:
        hosted = self._groups.get(group)
        if hosted is not None and not self.stopped:
            hosted.core.entries_read()
            self._mark(hosted)

    def _mark(self, hosted: HostedGroup) -> None:
        """Serve a group in the next turn, and tick it until its core falls silent again."""
        if hosted.suspended:
            return
        if not hosted.awake:
            hosted.awake = True
            self._awake.append(hosted)
        if not hosted.dirty:
            hosted.dirty = True
            self._dirty.append(hosted)
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled and not self.stopped:
            self._scheduled = True
            self._port.call_soon(self.pump)

    def fail(self, error: BaseException) -> None:
        """Stop at once, and report why."""
        if not self.stopped:
            self.stopped = True
            for hosted in self._groups.values():
                if hosted.reads is not None:
                    hosted.reads.close()
            self._port.failed(error)
