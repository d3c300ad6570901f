"""One replica of a queue: commands into its log, committed ones through the machine."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from sys import intern
from typing import Any, Final, final

from mypy_extensions import i64
from typing_extensions import override

from headrace_broker.core.queue.command.command import (
    CONFIGURE,
    FORGET,
    LEASE,
    SETTLE,
    SETTLE_LEASES,
    STAMP_BYTES,
    TICK,
    encode_node_down,
    passes_publishes,
    stamp_command,
    stamp_of,
)
from headrace_broker.core.queue.command.decoder import decode_command
from headrace_broker.core.queue.command.large_command import LargeCommand
from headrace_broker.core.queue.command.leader_command import (
    Forget,
    encode_configure,
    encode_forget,
    encode_tick,
)
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION, QueueMachine
from headrace_broker.core.queue.messages.effect import (
    Acquired,
    DeadLettered,
    DeadLetterKept,
    Deliver,
    Detached,
    Effect,
    EntryDead,
    Got,
    GroupAnswer,
    Rejected,
    TimedOut,
    Unused,
)
from headrace_broker.core.queue.messages.settings import DEAD_LETTER_AT_MOST_ONCE
from headrace_broker.core.queue.state.lease_effect import LeaseGone
from headrace_broker.flow.rate_history import Moves
from headrace_broker.model.build_info import VERSION
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import DIGEST_BATCHES_MAX, TURNED_AWAY_MAX
from headrace_broker.model.session import session_node
from headrace_broker.runtime.contract.clock import Clock
from headrace_broker.runtime.contract.dead_letter import DeadLetter, cut_dead_letter
from headrace_broker.runtime.contract.host_watcher import HostWatcher
from headrace_broker.runtime.contract.known_command import as_known, may_be_carried_out
from headrace_broker.runtime.contract.lane_port import HostEnd, SessionTransport
from headrace_broker.runtime.contract.queue_log import BUSY, TAKEN, QueueLog
from headrace_broker.runtime.contract.trace_port import TRACING
from headrace_broker.runtime.replica.dead_letter_queue import DeadLetterQueue, DeadRun
from headrace_broker.runtime.replica.feed import Feed
from headrace_broker.runtime.replica.feeds import FEED_ENDING, Feeds
from headrace_broker.runtime.replica.filtering import Filtering, FilterTurns
from headrace_broker.runtime.replica.leadership import Leadership
from headrace_broker.runtime.replica.machine_version import check_version
from headrace_broker.runtime.replica.queue_time import QueueTime
from headrace_raftlog.model.entry import Entry

NO_ARGUMENTS: Final[dict[str, Any]] = {}  # one for all queues that are led elsewhere
NO_FEEDS: Final = Feeds()  # likewise


@final
class QueueHost(HostEnd):
    """A replica of one queue on this node."""

    def __init__(
        self,
        queue: Queue,
        node: int,
        log: QueueLog,
        reach: SessionTransport,
        watcher: HostWatcher,
        clock: Clock | None = None,
        filter_turns: FilterTurns | None = None,
    ) -> None:
        self.queue = queue  # its definition
        self.machine = QueueMachine()  # deterministic: equal on all replicas
        self.leading = False  # it leads and has applied all committed before its term
        self.lead: Leadership | None = None  # while that is so
        self.serving = False  # it leads and is being told what holds now: it takes commands
        self.arguments: dict[str, Any] = NO_ARGUMENTS  # effective, as of the last look
        self.used_ms: i64 = 0  # when the queue was used last, monotonic, by this leader
        self.moves = Moves()  # messages that came and went while this replica led
        self._node = node
        self.log = log  # where its commands stand
        self._reach = reach
        self._watcher = watcher
        self._recent = watcher.recent()
        self._look: i64 = 0  # that of `_recent` at the last change here
        self._clock = Clock() if clock is None else clock
        self._feeds = NO_FEEDS
        self._dying: DeadLetterQueue | None = None
        self._filter_turns = filter_turns
        self._filtering: Filtering | None = None
        # sessions of other nodes that were refused here, which are told who leads next
        self._turned_away: dict[int, None] | None = None
        self._configured = b""  # the newest CONFIGURE in the log
        self.time = QueueTime(self._clock)  # of the queue, where this replica leads

    @property
    def dying(self) -> DeadLetterQueue:
        """Messages that died while this replica led, and become dead letters."""
        if self._dying is None:
            self._dying = DeadLetterQueue(self.queue, self.log, self._watcher)
        return self._dying

    @property
    def filtering(self) -> Filtering:
        """Its consumers that want some messages only."""
        if self._filtering is None:  # few queues have any
            self._filtering = Filtering(self.log, self.propose, self._filter_turns)
        return self._filtering

    # From gateways

    @override
    def command(self, session: int, data: bytes) -> None:
        """Stamp and propose a command; a refusal goes back at once."""
        if self._takes(session, data) and (lead := self.lead) is not None:
            known = as_known(session, data, self.machine.version)
            if not lead.rounds.keeps(session, known, self.machine.saturated):
                self._propose_for(session, known)

    @override
    def caused(self, session: int, data: bytes, causes: list[int]) -> None:
        if self.serving and self.lead is not None:
            self.lead.causes.note(session, data, causes)
        self.command(session, data)

    @override
    def large(self, session: int, command: LargeCommand, causes: list[int]) -> None:
        head = command.head
        if self._takes(session, head) and (lead := self.lead) is not None:
            lead.causes.note(session, head, causes)
            lead.rounds.precede(head)
            outcome = self._append(command.stamped(self.time.stamp()), head)
            if outcome != TAKEN:
                self._refuse(session, outcome == BUSY)

    def _takes(self, session: int, head: bytes) -> bool:
        """Return whether a command may be proposed here, and tell the session where it may not."""
        if self.serving and may_be_carried_out(head, self.machine.version):
            return True
        self._refuse(session, self.serving)
        return False

    def _propose_for(self, session: int, data: bytes) -> None:
        outcome = self.propose(data)
        if outcome != TAKEN:
            self._refuse(session, outcome == BUSY)

    def _refuse(self, session: int, busy: bool) -> None:
        """Name the leader; one that takes nothing now calls when it serves, or another leads."""
        leader = self.log.leader()
        if leader == self._node:
            leader = 0
            waiting = self._turned_away = self._turned_away or {}
            if session_node(session) != self._node and len(waiting) < TURNED_AWAY_MAX:
                waiting[session] = None
        self._point([session], leader, busy)

    def propose(self, data: bytes) -> i64:
        """Append a command with this moment's time stamp."""
        return self._append(stamp_command(self.time.stamp(), data), data)

    def _append(self, stamped: bytes, head: bytes) -> i64:
        """Append entry data; `head` is the command in it, or its first bytes."""
        outcome = self.log.propose(stamped, passes_publishes(head))
        if outcome == TAKEN and self.lead is not None:
            self.lead.rounds.proposed(head)
            self.lead.meter.proposed(stamped)
        return outcome

    @override
    def resync(
        self,
        session: int,
        consumer: i64,
        number: i64,
        window: i64,
        attached: bool,
        filter_table: bytes,
    ) -> bool:
        """Resend the consumer's deliveries from `number` on, then continue with new ones."""
        end = self._reach.session(session)
        if end is None:
            return True
        if not self.serving:
            self._refuse(session, False)
            return True
        if attached and not self.machine.is_attached(session, consumer):
            end.detached(consumer)
            return True
        feed = Feed(consumer, window, self.log, self.machine)
        self._feeds.put(session, feed)
        if filter_table:
            self.filtering.open(self.machine, self._feeds, session, consumer, filter_table)
        feed.repeat(self.machine.unsettled_from(session, consumer, number), end)
        return True

    @override
    def ask_deferred(self, session: int) -> bool:
        """Say what the machine defers of a session's publishes."""
        if not self.serving:
            self._refuse(session, False)
        elif (end := self._reach.session(session)) is not None:
            last, rows = self.machine.deferred_of(session)
            end.still_deferred(last, rows)
        return True

    @override
    def window(self, session: int, consumer: i64, byte_count: i64) -> bool:
        """Let a feed send more."""
        feed = self._feeds.get(session, consumer)
        end = self._reach.session(session)
        if feed is not None and end is not None:
            feed.open(byte_count, end)
        return True

    # From the log

    def apply(self, entries: list[Entry]) -> None:
        """Apply committed entries of the Raft group in order."""
        for entry in entries:
            self.apply_one(entry.index, entry.data)

    def apply_one(self, index: int, data: bytes) -> None:
        """Apply one committed command and, when leading, carry out its effects.

        Raises MachineVersionError: this code does not have that machine; nothing changed.
        """
        kind: i64 = data[STAMP_BYTES] if len(data) > STAMP_BYTES else 0
        if kind == CONFIGURE and len(data) > STAMP_BYTES + 2:
            check_version(self.queue, data[STAMP_BYTES + 2])
        counts = self.serving and kind in (SETTLE, SETTLE_LEASES)
        before: i64 = self.machine.held_count if counts else 0
        leased: i64 = self.machine.leased_count
        newest = self.machine.last_id
        effects = self.machine.apply(index, data)
        self._look = self._recent.note(self.queue.group, self._look)
        new = self.machine.last_id - newest
        if (lead := self.lead) is not None:
            lead.meter.applied(data, self.machine.busy_count())
        if self.serving:
            self.moves.arrived += new
            if kind == LEASE:
                self.moves.delivered += max(self.machine.leased_count - leased, 0)
        if counts:
            self.moves.settled += max(before - self.machine.held_count, 0)
        for effect in effects:
            if isinstance(effect, EntryDead):
                self.log.forget(effect.index)
            elif isinstance(effect, Rejected):
                self._watcher.command_rejected(self.queue, effect.reason)
            elif self.serving and lead is not None:
                self._perform(lead, effect, data, new)
        if kind in FEED_ENDING and not self._feeds.is_empty:
            self._feeds.drop_ended(decode_command(data), self.machine)
        if self.serving and lead is not None:
            lead.telling.applied(self.machine, lead.meter, self.moves.delivered)
            lead.causes.applied(data)
            if kind == TICK:
                self._ticked(lead, data)
            elif kind == FORGET:
                self._forgotten(data)
            lead.ticking.arm(self.machine.due_ms())
            if self._filtering is not None:
                self._filtering.applied(data)
            lead.rounds.applied(kind)

    def quiesced(self) -> None:
        """Share what the machine needs, where that has nothing, with other queues."""
        self.machine.share()

    def snapshot(self) -> tuple[bytes, array[int]]:
        """Return the machine's state, and the positions of the entries that hold its messages."""
        return self.machine.snapshot(), self.machine.live_entries()

    def held(self) -> array[int]:
        """Return the positions of dead entries with a reader on this node."""
        return self.log.held()

    def digest(self) -> tuple[str, bytes]:
        """Return a digest of the machine's state, and of which version that is.

        Of a deep queue it covers the messages near its head: the others come there too.
        """
        digest = self.machine.digest(DIGEST_BATCHES_MAX)
        version = f"{VERSION} queue {MACHINE_VERSION} at {self.machine.version}"
        return intern(version), digest

    def restore(self, state: bytes) -> None:
        """Take over a state that `snapshot` gave, here or on another node; never while serving.

        Raises SnapshotError, MachineVersionError: this code cannot; nothing changed.
        """
        assert not self.serving, "a leader has nothing to learn"
        machine = QueueMachine.restore(state)
        check_version(self.queue, machine.version)
        self.log.replaced()
        self.machine = machine
        self._look = self._recent.note(self.queue.group, self._look)

    def leadership(self, leader: int, _term: int, serving: bool) -> None:
        """Start or stop serving; feeds of an earlier leadership are void.

        The settings come first: no other command of this leadership is before them in the log.
        """
        self._look = self._recent.note(self.queue.group, self._look)
        lead, self.lead = self.lead, None
        self.leading, self.serving = serving, False
        self.machine.count_into(None)
        if lead is not None:
            lead.end()
        if self._filtering is not None:
            self._filtering.reset()
        self.arguments = NO_ARGUMENTS
        if serving:
            parts = (self.queue, self.log, self._reach, self._watcher)
            self.lead = Leadership(*parts, self._clock, self.time, self._propose_for)
            self.time.begin(self.machine.now_ms)
            self._configured = encode_configure(self.machine.version, self.machine.settings)
            if self.configure():
                return
        self._dismiss(0 if leader == self._node else leader)
        if leader != self._node:
            self._call_back(leader)
        self._watcher.queue_leader_changed(self.queue, 0 if leader == self._node else leader)

    def configure(self) -> bool:
        """Tell the machine of a queue led here what is new; False when the log is full."""
        lead = self.lead
        if lead is None:
            return True
        wanted = self._watcher.configuration(self.queue)
        self.arguments = wanted.arguments
        version = max(wanted.version, self.machine.version)
        data = encode_configure(version, wanted.settings)
        if data != self._configured and version > 1:  # the first version knows no settings
            if self.propose(data) != TAKEN:
                return False
            self._configured = data
        if not self.serving:
            self._serve(lead)
        return True

    def _serve(self, lead: Leadership) -> None:
        self.serving = True
        if self._feeds is NO_FEEDS:
            self._feeds = Feeds()
        self._look = self._recent.note(self.queue.group, self._look)
        self.machine.count_into(self._watcher.tally())
        self.use()
        self._call_back(self._node)
        lead.ticking.arm(self.machine.due_ms())
        self._watcher.queue_leader_changed(self.queue, self._node)

    # Time

    def use(self) -> None:
        """Note a use of the queue: it does not expire for a while."""
        self.used_ms = self._clock.monotonic_ms()

    def tick(self, now_ms: i64) -> None:
        """Propose the TICK that is due; called at this time of the node when it was asked for."""
        if self.serving and (lead := self.lead) is not None:
            sends_dead_letters = self.machine.settings.dead_letter == DEAD_LETTER_AT_MOST_ONCE
            unread = sends_dead_letters and self.dying.unread_count > 0
            if lead.ticking.is_time(self.machine.due_ms(), now_ms, sends_dead_letters, unread):
                lead.ticking.proposed(self.propose(encode_tick()) == TAKEN, now_ms)

    def _ticked(self, lead: Leadership, data: bytes) -> None:
        """Continue at once if a tick, whose work is bounded, has left due work."""
        lead.ticking.applied()
        if 0 < self.machine.due_ms() <= stamp_of(data):
            self.tick(self._clock.queue_ms())

    # Dead letters

    def kept(self, limit: int) -> list[tuple[Acquired, int]]:
        """Return the oldest dead letters that the machine keeps, at most `limit`, with reasons."""
        return self.machine.kept_dead(limit)

    def dead_letters(
        self, messages: list[Acquired], reason: i64, done: Callable[[], None]
    ) -> list[DeadLetter] | None:
        """Return kept messages with bodies, None until `done`: see `entry_at_hand`."""
        entry = self.log.entry_at_hand(messages[0].entry_index, done)
        if entry is None:
            return None
        return [cut_dead_letter(entry, message, reason) for message in messages]

    def forget(self, ids: list[int]) -> bool:
        """Remove dead letters that have arrived; False when the machine cannot now."""
        return self.serving and self.propose(encode_forget(ids)) == TAKEN

    def _forgotten(self, data: bytes) -> None:
        command = decode_command(data)
        if isinstance(command, Forget):
            self._watcher.dead_letters_forgotten(self.queue, command.ids)

    def node_down(self, node: int, boot_kept: int) -> bool:
        """Replicate that a node is gone (0) or back; False when the log takes nothing now.

        Sessions' commands under way may bring what the machine does not know yet, as a consumer of
        a process that has ended: nobody would end it later. So it is told of the node after them.
        """
        lead = self.lead
        if not self.serving or lead is None:
            return True
        lead.rounds.release()
        if lead.rounds.under_way == 0 and not self.machine.has_sessions_of(node, boot_kept):
            return True
        return self.propose(encode_node_down(node, boot_kept)) != BUSY

    def _call_back(self, leader: int) -> None:
        """Answer other nodes' sessions that were refused; this node's are notified otherwise."""
        waiting, self._turned_away = self._turned_away, None
        self._point(list(waiting or ()), leader)

    def _dismiss(self, leader: int) -> None:
        """Send those served from here to the next leader: their nodes need not know of it."""
        served = self._feeds.drop_all()
        self._point([each for each in served if session_node(each) != self._node], leader)

    def _point(self, sessions: list[int], leader: int, busy: bool = False) -> None:
        """Announce the leader to sessions."""
        for session in sessions:
            end = self._reach.session(session)
            if end is not None:
                end.refused(leader, busy, False)

    # Effects

    def _perform(self, lead: Leadership, effect: Effect, data: bytes, new: i64) -> None:
        if isinstance(effect, Deliver):
            self._deliver(effect)
        elif isinstance(effect, Got):
            self._got(lead, effect)
        elif isinstance(effect, Detached):
            self._feeds.drop(effect.session, effect.consumer)
            # Its node seemed dead. One that is back already has to be told, and any other asks.
            end = self._reach.session(effect.session)
            if end is not None:
                end.detached(effect.consumer)
        elif isinstance(effect, TimedOut):
            self._feeds.drop(effect.session, effect.consumer)
            lead.telling.tell(effect, data, new)
        elif not lead.telling.tell(effect, data, new):
            self._care(lead, effect, data)

    def _care(self, lead: Leadership, effect: Effect, data: bytes) -> None:
        """Do what an effect asks of this node, and of no session."""
        if isinstance(effect, DeadLettered):
            causes = lead.causes.of(data, effect.reason, len(effect.messages))
            self.dying.accept(DeadRun(effect.messages, effect.reason, causes, self.arguments))
        elif isinstance(effect, DeadLetterKept):
            causes = lead.causes.of(data, effect.reason, len(effect.messages))
            ids = [int(each.message_id) for each in effect.messages]
            self._watcher.dead_letters_kept(self.queue, ids, causes)
        elif isinstance(effect, GroupAnswer):
            self._watcher.group_answered(self.queue, effect)
        elif isinstance(effect, LeaseGone):
            self._watcher.lease_gone(self.queue, effect)
        elif isinstance(effect, Unused):
            self.use()
            self._watcher.queue_unused(self.queue)

    def _deliver(self, effect: Deliver) -> None:
        self.moves.delivered += len(effect.messages)
        if TRACING.tracer is not None:
            TRACING.tracer.taken(self.queue, effect.messages, self.log)
        feed = self._feeds.get(effect.session, effect.consumer)
        end = self._reach.session(effect.session)
        if feed is not None and end is not None:
            feed.deliver(effect.first, effect.messages, end)

    def _got(self, lead: Leadership, effect: Got) -> None:
        self.use()
        if self._reach.session(effect.session) is None:
            return
        if effect.message is not None:
            self.moves.delivered += 1
            if TRACING.tracer is not None:
                TRACING.tracer.taken(self.queue, [effect.message], self.log)
        lead.gets.answer(effect)
