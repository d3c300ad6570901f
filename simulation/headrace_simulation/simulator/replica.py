"""One simulated member: a host that owes the core what a real node owes it, and can crash."""

from __future__ import annotations

from array import array
from typing import Final, final

from headrace_raftlog.model.entry import ENTRY_CONFIG, Entry, HardState
from headrace_raftlog.model.group import BUSY, LEADER, NOT_LEADER, GroupConfig
from headrace_raftlog.model.membership import member_node
from headrace_raftlog.model.message import APPEND, APPEND_REPLY, HEARTBEAT, JOIN, SNAPSHOT, Message
from headrace_raftlog.model.ready import Ready
from headrace_raftlog.model.snapshot import Snapshot
from headrace_simulation.simulator.fetch import Fetch, FetchReply
from headrace_simulation.simulator.invariant_error import InvariantError
from headrace_simulation.simulator.invariants import Checker
from headrace_simulation.simulator.linearizability import READ, Operation
from headrace_simulation.simulator.machine import Machine
from headrace_simulation.simulator.port import NodePort

LOSS_NOTICED: Final = 0.2  # probability that a lost message is reported to the core


class CrashedError(Exception):
    """The process stopped in the middle of its work."""


@final
class Written:
    """The token of one Ready: what may leave once it is durable.

    Attributes:
        number: of the Ready.
        messages: what leaves then.
        claims: for each message, the term of the entry that it acknowledges, or 0.
    """

    def __init__(self, replica: Replica, number: int) -> None:
        self.replica = replica
        self.number = number
        self.messages: list[Message] = []
        self.claims: list[int] = []


@final
class Saved:
    """The token of a snapshot of a member's own."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica


@final
class Replica:
    """A member of a group with its core, its log and its state machine, for one life.

    Attributes:
        member: own member id.
        stopped: the node went down, or the group was removed from it.
        dirty: waits for a later turn of the node's loop.
        config_changed: a membership came into the log, or left it, since the checker looked.
        began_at: when this life began.
        heard_at: when a leader was last heard.
        save_wanted: the disk asks for a snapshot, which would free a file.
        joins: members that asked to be admitted, by node.
        offered: commands taken here and not applied yet.
        answered: reads answered.
    """

    def __init__(self, node: NodePort, checker: Checker) -> None:
        group = checker.group
        store = node.store
        self.node = node
        self.checker = checker
        self.coverage = checker.coverage
        self.group = group
        self.store = store
        self.log = store.log(group)
        self.member = store.member(group)
        self.machine = Machine()
        snapshot = store.read_snapshot(group)
        if snapshot is not None:
            self.machine.restore(snapshot.state, snapshot.live)
        membership = store.membership(group)
        self.stopped = False
        self.dirty = False
        self.config_changed = True
        self.saving = False
        self.save_wanted = False
        self.joins: dict[int, int] = {}
        self.fetch: Fetch | None = None
        self.began_at = node.loop.now
        self.heard_at = node.loop.now
        self.contexts = node.boot << 20
        self.offered: dict[bytes, Operation | None] = {}
        self.reads: dict[int, Operation] = {}
        self.confirmed: list[tuple[int, Operation]] = []
        self.answered = 0
        self.core = node.core_type(
            GroupConfig(
                group, self.member, membership.voters, membership.learners, membership.outgoing
            ),
            node.parameters.core_options(),
            self.log,
            store.hard_state(group),
            self.machine.applied,
            node.loop.rng.getrandbits(31),
        )
        self.core.watch_nodes(node.nodes_up)

    @property
    def is_leader(self) -> bool:
        """True if this member takes itself for the leader."""
        return self.core.role == LEADER

    def receive(self, message: Message) -> None:
        """Take a message for this group."""
        if message.kind == JOIN:
            self.joins[member_node(message.source)] = message.source
            return
        if message.target != self.member:
            self.disregard(message)  # it was meant for the member whose place this one took
            return
        if message.kind in (APPEND, HEARTBEAT, SNAPSHOT):
            self.heard_at = self.node.loop.now
        self.core.step(message)
        self.turn()

    def disregard(self, message: Message) -> None:
        """Hand a message for another incarnation to the core, which must not take it."""
        core = self.core
        before = (core.term, core.vote, core.role, core.leader, core.last_index)
        core.step(message)
        after = (core.term, core.vote, core.role, core.leader, core.last_index)
        self.coverage.note("messages misrouted")
        if before != after:
            raise InvariantError(14, f"{message!r} was taken by {self.member} of {self.group}")

    def propose(self, payloads: list[bytes], urgent: bool, writes: list[Operation | None]) -> int:
        """Offer commands to this member; return what the core answers."""
        if self.stopped:
            return NOT_LEADER
        if self.store.full and self.is_leader:
            return BUSY
        index = self.core.propose(payloads, urgent)
        if index >= 0:
            for payload, write in zip(payloads, writes, strict=True):
                self.offered[payload] = write
            if index == 0:
                self.coverage.note("queued proposals")
        self.turn()
        return index

    def read(self, key: int) -> None:
        """Begin to read a register."""
        self.contexts += 1
        self.checker.traffic.asked()
        operation = Operation(READ, key, 0, self.checker.now())
        if self.core.read_index(self.contexts):
            self.reads[self.contexts] = operation
        self.turn()

    def transfer(self, target: int) -> bool:
        """Let this member hand its leadership to `target`, if it can."""
        begun = self.core.transfer(target)
        if begun:
            self.coverage.note("transfers")
            self.checker.stability.transferred(self)
        self.turn()
        return begun

    def propose_membership(self, voters: tuple[int, ...], learners: tuple[int, ...]) -> int:
        """Let this member change who belongs to the group."""
        index: int = self.core.propose_membership(voters, learners)
        if index > 0:
            self.checker.note_proposed(index, self)
        self.turn()
        return index

    def campaign(self) -> None:
        """Let this member stand for election."""
        self.checker.stability.disturb(self.node.loop.now)
        self.core.campaign()
        self.turn()

    def turn(self) -> None:
        """Handle what the core has ready, now or with what else arrives soon."""
        if self.stopped:
            return
        node = self.node
        if (
            not self.dirty
            and node.parameters.late_turn
            and node.loop.rng.random() < node.parameters.late_turn
        ):
            self.dirty = True
            node.loop.after(node.loop.rng.randint(0, 3), self._late_turn, None)
        if self.dirty:
            if self.is_leader:
                self.checker.observe(self)  # what it decides now, it decides as things are now
            return
        self.run()

    def run(self) -> None:
        """Handle everything the core has ready, as a node's loop does."""
        self.dirty = False
        core = self.core
        try:
            while core.has_ready():
                self._handle(core.ready())
            self.store.flush()
            self.checker.observe(self)
        except CrashedError:
            self.checker.observe(self)
            self.node.crash()

    def release(self, written: Written) -> None:
        """Send what waited for a write that is durable now."""
        for message, claim in zip(written.messages, written.claims, strict=True):
            self._send(message, claim)
            self.crash_point()

    def persisted(self, number: int) -> None:
        """Tell the core that its Readies up to `number` are durable."""
        self.core.persisted(number)
        if self.is_leader:
            self.checker.observe(self)

    def take_body(self, reply: FetchReply) -> None:
        """Go on with the fetch under way."""
        if self.fetch is not None:
            self.fetch.receive(reply)

    def install(self, snapshot: Snapshot) -> None:
        """Put a fetched snapshot into the log and the state machine, in one turn."""
        core = self.core
        keep = self.log.term_at(snapshot.index) == snapshot.term
        last = self.log.last_index()
        if not core.restore(snapshot.index, snapshot.term, snapshot.membership):
            self.coverage.note("snapshots refused")
            return
        self.coverage.note("snapshots installed")
        if keep and last > snapshot.index:
            self.coverage.note("snapshots installed before a suffix")
        elif last >= snapshot.index:
            self.coverage.note("snapshots installed over a suffix")
        self.store.install_snapshot(self.group, snapshot, keep)
        self.machine.restore(snapshot.state, snapshot.live)
        self.config_changed = True
        self.checker.installed(self, snapshot)
        self._answer_reads()
        self.run()

    def crash_point(self) -> None:
        """Crash here, sometimes."""
        node = self.node
        chance = node.parameters.crash_point
        if chance and node.loop.rng.random() < chance:
            raise CrashedError

    def _late_turn(self, _: None) -> None:
        if self.dirty and not self.stopped and not self.node.paused:
            self.run()

    def _handle(self, ready: Ready) -> None:
        if ready.membership is not None:
            self.coverage.note("memberships taken")
        self._write(ready)
        self.crash_point()
        for message in ready.messages:
            self._send(message, self._claim(message))
        self.crash_point()
        if not self.node.faults.ack_before_sync:
            self.store.flush()
        self._apply(ready.committed)
        self._take_reads(ready)
        if ready.offer is not None and self.fetch is None:
            self.fetch = Fetch(self, ready.offer)

    def _write(self, ready: Ready) -> None:
        after = ready.messages_after_persist
        hard_state = ready.hard_state
        if not (ready.must_sync or hard_state or ready.entries or after):
            return
        faults = self.node.faults
        if hard_state is not None and faults.vote_not_persisted:
            hard_state = HardState(hard_state.term, 0, hard_state.commit)
        if hard_state is not None and faults.commit_ahead:
            commit = self.core.commit_index
            hard_state = HardState(hard_state.term, hard_state.vote, commit)
        for entry in ready.entries:
            if entry.kind == ENTRY_CONFIG:
                self.config_changed = True
        if ready.entries and ready.entries[0].index <= self.log.last_index():
            self._note_truncation(ready.entries[0].index)
        token: Written | None = None
        if ready.must_sync or after:
            token = Written(self, ready.number)
        self.store.append(self.group, hard_state, ready.entries, ready.must_sync, token)
        if faults.ack_before_sync:
            for message in after:
                self._send(message, self._claim(message))
            self.core.persisted(ready.number)
        elif token is not None:
            token.messages = after
            token.claims = [self._claim(message) for message in after]

    def _note_truncation(self, first: int) -> None:
        self.coverage.note("truncations")
        for entry in self.log.config_entries():
            if entry.index >= first:
                self.config_changed = True
                self.coverage.note("memberships rolled back")

    def _claim(self, message: Message) -> int:
        """Return the term of the entry whose durability `message` asserts, 0 for none."""
        if message.kind != APPEND_REPLY or message.reject:
            return 0
        return max(0, self.log.term_at(message.index))

    def _send(self, message: Message, claim: int) -> None:
        self.checker.sent(self, message, claim)
        self.checker.traffic.sent(self, message)
        node = self.node
        arrives = node.network.send(node.number, member_node(message.target), message)
        if not arrives and node.loop.rng.random() < LOSS_NOTICED:
            self.core.report_unreachable(message.target)

    def _apply(self, entries: list[Entry]) -> None:
        if not entries:
            return
        for entry in entries:
            for dead in self.machine.apply(entry):
                self.store.entry_dead(self.group, dead)
            self.checker.applied(self, entry)
            if entry.data in self.offered:
                write = self.offered.pop(entry.data)
                if write is not None:
                    write.end = self.checker.now()
                self.checker.acknowledged(entry)
        self.core.applied(entries[-1].index)
        self._answer_reads()
        self._maybe_save()

    def _take_reads(self, ready: Ready) -> None:
        for context in ready.reads_lost:
            self.coverage.note("reads lost")
            self.reads.pop(context, None)
        for context, index in ready.read_states:
            operation = self.reads.pop(context, None)
            if operation is not None:
                self.confirmed.append((index, operation))
        if ready.read_states:
            self._answer_reads()

    def _answer_reads(self) -> None:
        waiting: list[tuple[int, Operation]] = []
        for index, operation in self.confirmed:
            if index > self.machine.applied:
                waiting.append((index, operation))
                continue
            operation.value = self.machine.registers[operation.key]
            operation.end = self.checker.now()
            self.checker.operations.append(operation)
            self.answered += 1
            self.coverage.note("reads of leaders" if self.is_leader else "reads of followers")
        self.confirmed = waiting

    def _maybe_save(self) -> None:
        """Take a snapshot when enough was applied since the last; a polite host waits a while."""
        parameters = self.node.parameters
        every = parameters.snapshot_every
        applied = self.machine.applied
        behind = applied - self.log.first_index() + 1
        if self.saving or behind < 1 or every == 0 or (behind < every and not self.save_wanted):
            return
        core = self.core
        waits = parameters.polite and behind < 4 * every and self.is_leader
        if waits and core.retain_index() < applied:
            return
        membership = core.membership_at(applied)
        if self.node.faults.snapshot_of_newest_membership:
            membership = core.membership
        snapshot = Snapshot(
            applied,
            self.log.term_at(applied),
            membership,
            self.machine.state(),
            array("Q", self.machine.live),
        )
        self.saving = True
        self.save_wanted = False
        self.coverage.note("snapshots saved")
        self.store.save_snapshot(self.group, snapshot, Saved(self))
