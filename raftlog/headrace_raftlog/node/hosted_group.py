"""One group as the host keeps it."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Final, final

from mypy_extensions import i64

from headrace_raftlog.core.raft import RaftCore
from headrace_raftlog.model.entry import CHECKPOINT, ENTRY_NOOP, ENTRY_NORMAL, Entry
from headrace_raftlog.model.errors import ContradictedError
from headrace_raftlog.model.group import CATALOG_GROUP, FOLLOWER, LEADER
from headrace_raftlog.model.limits import DIGESTS_KEPT, ENTRY_COST_BYTES, WRITING_MESSAGES_MAX
from headrace_raftlog.model.membership import Membership, member_node
from headrace_raftlog.model.message import TIMEOUT_NOW, Message
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.model.state_digest import StateDigest
from headrace_raftlog.node.handler import GroupHandler
from headrace_raftlog.node.reads import GroupReads
from headrace_raftlog.storage.group.compaction import without_dead
from headrace_raftlog.storage.group.group_log import StoredGroup
from headrace_raftlog.storage.group.snapshot_record import StoredSnapshot

_LEADERLESS_LOOK_TICKS: Final = 64  # between two looks whether a member without leader must join


@final
class HostedGroup:
    """A group's core, its log and its application."""

    def __init__(
        self, group: i64, core: RaftCore, view: StoredGroup, handler: GroupHandler
    ) -> None:
        self.group = group  # incarnation id
        self.core = core
        self.view = view  # its part of the shared log
        self.handler = handler  # the application
        self.dirty = False  # whether it waits for the next turn of the pump
        self.overdue = False  # whether it has waited since the last tick
        self.awake = False  # whether its core is ticked
        self.removed = False  # whether it is gone; everything still under way for it is dropped
        # whether it stands still, as if this node were down: entries that its member may have
        # acknowledged are damaged here, and are put back first
        self.suspended = False
        # whether the application was given the state that its log begins with
        self.restored = False
        # the snapshot on disk that was found damaged, until another one took its place; None for
        # none
        self.snapshot_lost: StoredSnapshot | None = None
        # what its leader has in the place of a committed entry, "" for nothing
        self.contradiction = ""
        self.unsettled: i64 = 0  # writes of its core that are not known to be durable yet
        self.durable_number: i64 = 0  # newest Ready known to be durable
        self.touched = False  # whether `durable_number` is news to the core
        self.leaderless_ticks: i64 = 0  # ticks since a leader was known
        self.saved_index: i64 = 0  # position of the last snapshot, taken or installed
        self.unsaved_bytes: i64 = 0  # bytes applied since the last snapshot
        self.saved_bytes: i64 = 0  # size of the last snapshot
        self.digests: tuple[StateDigest, ...] = ()  # at the newest checkpoints
        # up to here the log is applied anew, and checkpoints in it are passed over
        self.replayed_index: i64 = view.hard_state.commit
        self.digest_s = 0.0  # seconds that the newest digest took
        # node ids that the application wants it on; None while it has not said
        self.desired: tuple[int, ...] | None = None
        self.revision: i64 = 0  # of these, as the application counts
        # which of these vote, None for as many as may
        self.voting: tuple[int, ...] | None = None
        # by node id, members that asked this leader to be admitted; None for none
        self.joins: dict[int, int] | None = None
        self.reads: GroupReads | None = None  # reads under way, None before the first
        # what waits for the newest write under way, None while nothing does
        self.writing: Writing | None = None
        self.handing_over = False  # whether a transfer was begun since the disk stopped to answer
        self.logged_role: i64 = FOLLOWER  # as the log was told last
        self.logged_leader: i64 = 0
        self.logged_members: Membership = core.membership
        self.led_term: i64 = 0  # term in which this member led last
        # member id to which the leadership is being handed over, 0 for none
        self.successor_named: i64 = 0
        self.told_leader: i64 = 0  # member id of the leader that the application knows of
        self.counted_term: i64 = core.term  # up to here terms are counted as elections
        self._term: i64 = 0
        self._serving = False

    def place(self, nodes: tuple[int, ...], voting: tuple[int, ...] | None, revision: i64) -> None:
        """Take note of where the application wants it; see `RaftNode.set_members`."""
        if revision != self.revision:
            self.joins = None  # by members of nodes that may not know it yet
        voters = self.core.membership.voters
        self.desired = voters if nodes == voters else nodes  # mostly one object less
        self.voting = voting
        self.revision = revision

    def step(self, message: Message) -> bool:
        """Give the core a message; False where it shows that promises were forgotten somewhere."""
        try:
            self.core.step(message)
        except ContradictedError as error:
            self.contradiction = str(error)
            return False
        return True

    def tick(self) -> bool:
        """Advance its timers by one tick.

        Returns:
            Whether to look again if it must join: it has no leader for some ticks.
        """
        core = self.core
        core.tick()
        if core.leader != 0:
            self.leaderless_ticks = 0
            return False
        self.leaderless_ticks += 1
        return self.leaderless_ticks % _LEADERLESS_LOOK_TICKS == 0

    def peer_changed(self, peer: i64, up: bool, spread: i64) -> bool:
        """Tell the core that a node went or came; return whether it may have work.

        Args:
            peer: id of the node.
            up: whether it came.
            spread: ticks over which silent groups of a lost node begin their elections.
        """
        core = self.core
        if core.role == LEADER:
            members = self.members_on(peer)
            for member in members:
                if up:
                    core.peer_up(member)
                else:
                    core.peer_down(member)
            return len(members) > 0 and (not core.quiesced or core.has_ready())
        if self.is_led_by(peer):
            if up:
                core.wake()
            else:
                core.lose_leader(0 if self.group == CATALOG_GROUP else spread)
            return True
        if up and core.leader == 0 and self.members_on(peer):
            core.wake()  # it may vote, or know who leads
        return False

    def is_led_by(self, node: i64) -> bool:
        """Return whether a member on a node leads it, as far as this member knows."""
        return member_node(self.core.leader) == node

    def stand_still(self, nodes_up: Collection[int]) -> list[Message]:
        """Suspend a group that runs; its core, which may have failed in its midst, is used no more.

        Returns:
            What is to be said to the other members: a leader has the voter that lacks least take
            over at once, or where there is none wakes all of them.
        """
        core = self.core
        target: i64 = self.successor(nodes_up) if core.role == LEADER else 0
        term: i64 = core.term
        core.outbox = []
        core.resign()
        core.lose_leader()
        self.suspended = True
        self.writing = None
        if self.reads is not None:
            self.reads.close()
        if target != 0:
            core.outbox.append(Message(TIMEOUT_NOW, self.group, core.member, target, term))
        return core.outbox

    def needed(self, snapshot: Snapshot) -> Snapshot:
        """Return a fetched snapshot without the entries that are dead here.

        What the member's own snapshot does not name is dead for ever, and is not in its log; a
        leader of an older release names entries that it holds for a backup.
        """
        live = without_dead(self.view, snapshot.live)
        if live is snapshot.live:
            return snapshot
        return Snapshot(snapshot.index, snapshot.term, snapshot.membership, snapshot.state, live)

    def members_on(self, node: i64) -> list[int]:
        """Return the member ids of a node, older ones included."""
        return [m for m in self.core.membership.everyone() if member_node(m) == node]

    def successor(self, nodes_up: Collection[int]) -> int:
        """Return the voter that lacks least of the log, 0 if there is none on a node that is up."""
        core = self.core
        best = 0
        best_match: i64 = -1
        for member in core.membership.voters:
            progress = core.progress(member)
            if progress is None or member_node(member) not in nodes_up:
                continue
            if progress.match > best_match:
                best, best_match = member, progress.match
        return best

    def apply(self, committed: list[Entry]) -> i64:
        """Hand committed entries to the application, note them as applied; return their bytes."""
        normal = [entry for entry in committed if entry.kind == ENTRY_NORMAL]
        if len(normal) < len(committed) and any(self._is_checkpoint(each) for each in committed):
            self._apply_to_checkpoints(committed)
        elif normal:
            self.handler.apply(normal)
        size: i64 = 0
        for entry in committed:
            size += ENTRY_COST_BYTES + i64(len(entry.data))
        self.unsaved_bytes += size
        if not self.removed:
            self.core.applied(committed[-1].index)
            if self.reads is not None:
                self.reads.applied(self.core.applied_index)
        return size

    def _is_checkpoint(self, entry: Entry) -> bool:
        is_new = entry.index > self.replayed_index
        return is_new and entry.kind == ENTRY_NOOP and entry.data == CHECKPOINT

    def _apply_to_checkpoints(self, committed: list[Entry]) -> None:
        """Hand committed entries to the application, and take its digest at each checkpoint."""
        normal: list[Entry] = []
        for entry in committed:
            if entry.kind == ENTRY_NORMAL:
                normal.append(entry)
            elif self._is_checkpoint(entry):
                if normal:
                    self.handler.apply(normal)
                    normal = []
                if self.removed:
                    return
                self._take_digest(entry.index)
        if normal:
            self.handler.apply(normal)

    def _take_digest(self, index: i64) -> None:
        began_s = time.monotonic()
        version, digest = self.handler.digest()
        self.digest_s = time.monotonic() - began_s
        newest = StateDigest(self.core.member, index, version, digest)
        self.digests = (*self.digests[-DIGESTS_KEPT + 1 :], newest)

    def digest_at(self, index: int) -> StateDigest | None:
        """Return the digest at a checkpoint, None where it is not there or not kept."""
        return next((each for each in self.digests if each.index == index), None)

    def is_role_news(self) -> bool:
        """Return whether role or leader changed since logged; note a transfer that failed."""
        core = self.core
        if core.role != self.logged_role or core.leader != self.logged_leader:
            return True
        if self.successor_named != 0 and core.transferee == 0:
            self.successor_named = 0
        return False

    def tell_leadership(self) -> bool:
        """Tell the application about a change; return whether there was one."""
        core = self.core
        leader: i64 = core.leader
        term: i64 = core.term
        serving = core.role == LEADER and core.ready_to_serve
        if leader == self.told_leader and term == self._term and serving == self._serving:
            return False
        self.told_leader = leader
        self._term = term
        self._serving = serving
        self.handler.leadership(member_node(leader), term, serving)
        return True


@final
class Writing:
    """The token of Readies in the shared log: what may leave once they are durable."""

    def __init__(self, hosted: HostedGroup, number: i64, messages: list[Message]) -> None:
        self.hosted = hosted
        self.core = hosted.core
        self.number = number
        self.messages = messages

    def is_void(self) -> bool:
        """Return whether the result is void: the group was removed, or suspended since."""
        hosted = self.hosted
        return hosted.removed or hosted.suspended or hosted.core is not self.core

    def add(self, number: i64, messages: list[Message]) -> None:
        """Add messages of a later Ready that writes nothing, to leave with this one.

        Beyond WRITING_MESSAGES_MAX they are dropped, as a network might; who sent what they
        answer repeats it.
        """
        self.number = number
        room: i64 = WRITING_MESSAGES_MAX - len(self.messages)
        if room > 0:
            self.messages.extend(messages[:room])
