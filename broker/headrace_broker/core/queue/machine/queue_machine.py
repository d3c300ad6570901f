"""A queue as a deterministic machine: committed entries in, effects out.

It reads no clock, takes no random number and iterates no set, so that every replica that applies
the same entries has the same state and computes the same effects. `apply` is total: whatever the
bytes, it answers.
"""

from __future__ import annotations

import hashlib
from array import array
from itertools import islice
from typing import Final, final

from mypy_extensions import i64

from headrace_broker.core.queue.command.archive_command import ArchiveCommand
from headrace_broker.core.queue.command.command import (
    CONFIGURE,
    NUMBER_MAX,
    STAMP_BYTES,
    Close,
    Command,
    Control,
    Enqueue,
    Malformed,
    NodeDown,
    stamp_of,
)
from headrace_broker.core.queue.command.decoder import decode_command
from headrace_broker.core.queue.command.leader_command import Acquire, Configure, Forget, Tick
from headrace_broker.core.queue.command.lease_command import LeaseCommand
from headrace_broker.core.queue.machine import blank_states
from headrace_broker.core.queue.machine.archiving import (
    apply_archive_command,
    drop_rows,
    rows_due_ms,
)
from headrace_broker.core.queue.machine.arrival import enqueue
from headrace_broker.core.queue.machine.controlling import control
from headrace_broker.core.queue.machine.lease_ending import end_due
from headrace_broker.core.queue.machine.leasing import apply_command, look
from headrace_broker.core.queue.machine.leaving import (
    drop_excess,
    end_delays,
    end_overdue,
    expire,
    forget_dead,
    forget_session,
    has_sessions_of,
    is_over,
    suspect_session,
)
from headrace_broker.core.queue.machine.serving import acquire, dispatch
from headrace_broker.core.queue.machine.versions import knows
from headrace_broker.core.queue.messages.effect import (
    STATUS_OK,
    Acquired,
    Controlled,
    Effect,
    EntryDead,
    Rejected,
    Unused,
)
from headrace_broker.core.queue.messages.publisher import Publisher
from headrace_broker.core.queue.messages.settings import QueueSettings
from headrace_broker.core.queue.snapshot.frozen import FrozenQueue, freeze
from headrace_broker.core.queue.snapshot.restoring import read_snapshot
from headrace_broker.core.queue.snapshot.snapshot import (
    ALL_BATCHES,
    live_indexes,
    write_snapshot,
    write_state,
)
from headrace_broker.core.queue.state.archive_effect import ArchiveInfo
from headrace_broker.core.queue.state.archive_row import ArchiveRow
from headrace_broker.core.queue.state.consumer import ATTACHED, DETACHED, Consumer, ConsumerInfo
from headrace_broker.core.queue.state.fair_lanes import FairValue
from headrace_broker.core.queue.state.lease_effect import GroupInfo
from headrace_broker.core.queue.state.queue_state import QueueState
from headrace_broker.core.queue.state.tally import Tally
from headrace_broker.model.session import session_boot, session_node

MACHINE_VERSION: Final = 5  # the newest that this code knows


@final
class QueueMachine:
    """One queue."""

    def __init__(self) -> None:
        self._state = blank_states.NEW_STATE
        # whether it has nothing and shares `_state` with others; its own are then these numbers
        self._blank = True
        self._now_ms: i64 = 0
        self._next_id: i64 = 1
        self._arrivals: i64 = 0
        self._tally: Tally | None = None

    @property
    def ready_count(self) -> i64:
        """Number of messages available."""
        return self._state.ready.count

    @property
    def ready_bytes(self) -> i64:
        """Bytes of the bodies of available messages."""
        return self._state.ready.byte_count

    @property
    def unsettled_count(self) -> i64:
        """Number of messages acquired and not settled."""
        return self._state.unsettled_count

    @property
    def unsettled_bytes(self) -> i64:
        """Bytes of the bodies of messages acquired and not settled."""
        return self._state.unsettled_bytes

    @property
    def consumer_count(self) -> i64:
        """Number of attached consumers."""
        return self._state.attached_count

    @property
    def version(self) -> i64:
        """Which machine version the commands are carried out by, up to MACHINE_VERSION."""
        return self._state.version

    @property
    def now_ms(self) -> i64:
        """The latest time stamp of any command, Unix time in ms."""
        return self._now_ms if self._blank else self._state.now_ms

    @property
    def settings(self) -> QueueSettings:
        """Return the settings of the last CONFIGURE; not to be changed."""
        return self._state.settings

    @property
    def delayed_count(self) -> i64:
        """Number of messages that become available later."""
        return self._state.delayed.count

    @property
    def dead_count(self) -> i64:
        """Number of messages kept until they have arrived at the dead-letter exchange."""
        return len(self._state.dead)

    @property
    def saturated(self) -> bool:
        """True while confirms of new publishes are deferred: see `Watermark`."""
        return self._state.watermark.saturated

    @property
    def deferred_count(self) -> i64:
        """Number of messages whose confirms are deferred."""
        return self._state.watermark.count

    @property
    def held_count(self) -> i64:
        """Number of messages that count against the watermarks."""
        return self._state.held_count

    @property
    def held_bytes(self) -> i64:
        """Bytes of their bodies."""
        return self._state.held_bytes

    def count_into(self, tally: Tally | None) -> None:
        """Count messages that leave from now on, while this replica leads; None to stop."""
        self._tally = tally
        if not self._blank:
            self._state.tally = tally

    def deferred_of(self, session: i64) -> tuple[i64, list[int]]:
        """Return the last publish of a session that the queue knows, and which are deferred.

        Of a session that is not known nothing is, whatever its publishes are.
        """
        found = self._state.sessions.get(session)
        return (NUMBER_MAX, []) if found is None else (found.publish_seq, found.deferred_from(1))

    @property
    def last_id(self) -> i64:
        """Return the highest message id that was ever given, 0 for none."""
        return (self._next_id if self._blank else self._state.ready.next_id) - 1

    def due_ms(self) -> i64:
        """Return when a TICK will be due (Unix time in ms), 0 for never."""
        state = self._state
        leases = state.leases
        if is_over(state) or state.ready.purged or leases.leaving:
            return 1  # at once
        soonest = state.ready.expires_ms
        overdue = state.overdue_ms
        if overdue > 0 and (soonest == 0 or overdue < soonest):
            soonest = overdue
        if leases.due_ms > 0 and (soonest == 0 or leases.due_ms < soonest):
            soonest = leases.due_ms
        if state.archived.count > 0:
            due = rows_due_ms(state)
            if due > 0 and (soonest == 0 or due < soonest):
                soonest = due
        if state.delayed.messages:
            due = state.delayed.due_ms()
            if soonest == 0 or due < soonest:
                soonest = due
        return soonest

    def oldest_ms(self) -> i64:
        """Return when the oldest available message arrived (Unix time in ms), 0 for none."""
        return self._state.ready.oldest_ms()

    def available_from(self, after_id: i64, limit: i64) -> list[Acquired]:
        """Return up to `limit` available messages with ids above `after_id`, by their ids."""
        return self._state.ready.browse(after_id, limit)

    def fairness(self, limit: i64) -> list[FairValue]:
        """Return what waits of the values that take turns, most first; empty where none do."""
        return self._state.fairness(limit)

    def filtered_credit(self, session: i64, consumer: i64) -> i64:
        """Return how many messages a filtered consumer may get now, 0 for one that is not there."""
        found = self._consumer(session, consumer)
        if found is None or not found.filtered or not self._state.is_served(found):
            return 0
        return found.credit()

    def watch_returned(self, on: bool) -> None:
        """Begin or cease to note what becomes available otherwise than by its arrival."""
        ready = self._unshared().ready
        ready.watched = on
        ready.returned = []

    def take_returned(self) -> list[Acquired]:
        """Return the notes since the last call; they are not part of the queue's state."""
        ready = self._unshared().ready
        noted = ready.returned
        ready.returned = []
        return noted

    def kept_dead(self, limit: i64) -> list[tuple[Acquired, int]]:
        """Return up to `limit` dead messages that are kept, and why they died; oldest first."""
        oldest = islice(self._state.dead.values(), int(limit))
        return [(dead.message, int(dead.reason)) for dead in oldest]

    def has_sessions_of(self, node: i64, boot_keep: i64) -> bool:
        """True if NODE_DOWN with these values would change anything."""
        return has_sessions_of(self._state, node, boot_keep)

    def busy_count(self) -> i64:
        """Return how many consumers have all that they may have; filtered ones do not count."""
        state = self._state
        if state.settings.single_active:  # others are given nothing, and have no work
            active = state.active
            is_busy = active is not None and not active.filtered and active.credit() == 0
            return 1 if is_busy else 0
        return state.attached_count - state.filtered_count - state.rotation.waiting

    def is_attached(self, session: i64, consumer: i64) -> bool:
        """True if that consumer gets deliveries (else it has to attach first)."""
        found = self._consumer(session, consumer)
        return found is not None and found.state == ATTACHED

    def holds_out(self, entry_index: i64) -> bool:
        """Return whether a message of that log entry was acquired and is not settled."""
        return entry_index in self._state.ready.entries.counts

    def unsettled_from(
        self, session: i64, consumer: i64, delivery: i64
    ) -> list[tuple[int, Acquired]]:
        """Return what a consumer has unsettled from delivery number `delivery` on, ascending."""
        found = self._consumer(session, consumer)
        if found is None:
            return []
        return [item for item in found.unsettled.items() if item[0] >= delivery]

    def consumers(self) -> list[ConsumerInfo]:
        """List the attached and detached consumers."""
        return [
            ConsumerInfo(consumer)
            for session in self._state.sessions.values()
            for consumer in session.consumers.values()
            if consumer.state == ATTACHED or consumer.state == DETACHED
        ]

    def lease_groups(self) -> list[GroupInfo]:
        """List the groups that lease messages."""
        return [group.info() for group in self._state.leases.groups.values()]

    @property
    def leased_count(self) -> i64:
        """Number of messages that groups hold; they count as unsettled."""
        return self._state.leases.count

    def leased(self, name: bytes, epoch: i64, number: i64) -> tuple[i64, list[Acquired]]:
        """Return a group's lease: LEASE_OK and its messages in ready order, not to be changed.

        Else LEASE_FENCED, LEASE_UNKNOWN_GROUP, LEASE_OUT_OF_ORDER, LEASE_GONE or LEASE_SETTLED, and
        none.
        """
        return look(self._state, name, epoch, number)

    @property
    def archived_count(self) -> i64:
        """Number of settled messages that are kept."""
        return self._state.archived.count

    @property
    def archived_bytes(self) -> i64:
        """Bytes of their bodies."""
        return self._state.archived.byte_count

    def archive(self) -> ArchiveInfo:
        """Return the archived messages and their readers."""
        return self._state.archived.info()

    def archived(self, start: i64, limit: i64) -> list[ArchiveRow]:
        """Return up to `limit` rows of the archive from an index on, not to be changed.

        There are none before `ArchiveInfo.first` and from `following` on.
        """
        return self._state.archived.rows_from(start, limit)

    def live_entries(self) -> array[int]:
        """Return the log positions, ascending, of the entries that hold messages of the queue.

        These, with those that have rows in its archive, are the entries for which `EntryDead` was
        not told yet.
        """
        return live_indexes(self._state)

    def freeze(self) -> FrozenQueue:
        """Return the messages as they are now; later commands do not change the result."""
        return freeze(self._whole())

    def publisher(self, name: bytes) -> Publisher | None:
        """Return what the queue remembers of a publisher, not to be changed; None for nothing."""
        return self._state.publishers.known.get(name)

    def snapshot(self) -> bytes:
        """Return the whole state, without bodies: those stand in `live_entries`."""
        return write_snapshot(self._whole())

    @staticmethod
    def restore(snapshot: bytes) -> QueueMachine:
        """Return a machine that goes on as that of `snapshot`; SnapshotError if malformed."""
        machine = QueueMachine()
        machine._state = read_snapshot(snapshot)
        machine._blank = False
        return machine

    def digest(self, batches_max: i64 = ALL_BATCHES) -> bytes:
        """Return 16 bytes that are equal for equal states; see `write_state`."""
        state = write_state(self._whole(), batches_max)
        return hashlib.blake2b(state, digest_size=16).digest()

    def apply(self, index: i64, data: bytes) -> list[Effect]:
        """Apply the committed entry `index` (ascending from call to call); return effects in order.

        It is a u64 time in ms and a command; one that makes no sense gives Rejected and changes
        nothing.
        """
        was_blank = self._blank
        if was_blank and len(data) > STAMP_BYTES and data[STAMP_BYTES] == CONFIGURE:
            other = blank_states.configured(self._state.version, data[STAMP_BYTES:])
            if other is not None:
                self._state = other
                self._now_ms = max(self._now_ms, stamp_of(data))
                return [EntryDead(index)]
        effects: list[Effect] = []
        state = self._unshared()
        users = state.attached_count + state.detached_count
        command = decode_command(data)
        kept = False
        if isinstance(command, Malformed):
            effects.append(Rejected(command.reason))
        elif not knows(state.version, command):
            effects.append(Rejected("a command of a later machine version"))
        else:
            state.now_ms = max(state.now_ms, stamp_of(data))
            state.budget.renew()
            state.archived.now_ms = state.now_ms
            if not isinstance(command, Tick):
                expire(state, True, effects)
            kept = self._carry_out(index, data, command, effects)
            dispatch(state, effects)
            drop_excess(state, effects)
            if state.ready.purged:
                state.ready.let_go_purged(state.budget, False, effects)
            state.judge_watermark(effects)
            if state.archived.count > 0:
                drop_rows(state, effects)
        if users > 0 and state.attached_count + state.detached_count == 0:
            effects.append(Unused())
        if not kept:
            effects.append(EntryDead(index))
        if was_blank and isinstance(command, Configure):
            self.share()
        return effects

    # Queues that have nothing

    def share(self) -> None:
        """Share the state with other queues, where this one has nothing, until its next command."""
        state = self._state
        if self._blank or not blank_states.may_have_nothing(state):
            return
        self._now_ms = state.now_ms
        self._next_id = state.ready.next_id
        self._arrivals = state.arrivals
        if write_snapshot(self._own()) == write_snapshot(state):
            self._state = blank_states.shared(state.version, state.settings)
            self._blank = True

    def _own(self) -> QueueState:
        """Return a new state with this queue's own numbers."""
        state = blank_states.blank(self._state.version, self._state.settings)
        state.now_ms = self._now_ms
        state.ready.next_id = self._next_id
        state.arrivals = self._arrivals
        state.tally = self._tally
        return state

    def _whole(self) -> QueueState:
        """Return the state, not to be changed."""
        return self._own() if self._blank else self._state

    def _unshared(self) -> QueueState:
        """Return the state as it is changed from now on."""
        if self._blank:
            self._state = self._own()
            self._blank = False
        return self._state

    def _carry_out(self, index: i64, data: bytes, command: Command, effects: list[Effect]) -> bool:
        """Do what a command says; return whether its entry is needed."""
        state = self._state
        if isinstance(command, Enqueue):
            return enqueue(state, index, data, command, effects)
        if isinstance(command, Control):
            control(state, command, effects)
        elif isinstance(command, Close):
            self._close(command.session, effects)
        elif isinstance(command, NodeDown):
            self._node_down(command, effects)
        elif isinstance(command, Tick):
            expire(state, False, effects)
            end_delays(state, effects)
            end_overdue(state, effects)
            end_due(state, effects)
        elif isinstance(command, LeaseCommand):
            apply_command(state, command, effects)
        elif isinstance(command, ArchiveCommand):
            apply_archive_command(state, command, effects)
        elif isinstance(command, Acquire):
            consumer = self._consumer(command.session, command.consumer)
            if consumer is not None and consumer.filtered:
                acquire(state, consumer, command.ids, effects)
        elif isinstance(command, Forget):
            forget_dead(state, command.ids, effects)
        elif isinstance(command, Configure):
            self._configure(command, effects)
        return False

    def _configure(self, command: Configure, effects: list[Effect]) -> None:
        state = self._state
        if command.version > MACHINE_VERSION:  # a host that runs with others never gets here
            effects.append(Rejected(f"machine version {command.version} is not known here"))
            return
        state.version = max(state.version, command.version)
        state.settings = command.settings
        state.archived.configure(command.settings.archive, state.now_ms)
        if state.unsettled_count > 0:
            state.overdue_ms = state.now_ms  # what the new timeout makes overdue is for a TICK
        state.renew_rotation()

    def _consumer(self, session: i64, number: i64) -> Consumer | None:
        found = self._state.sessions.get(session)
        return None if found is None else found.consumers.get(number)

    def _close(self, number: i64, effects: list[Effect]) -> None:
        session = self._state.sessions.get(number)
        released: i64 = (
            0 if session is None else forget_session(self._state, session, True, effects)
        )
        effects.append(Controlled(number, 0, STATUS_OK, released))

    def _node_down(self, command: NodeDown, effects: list[Effect]) -> None:
        for session in list(self._state.sessions.values()):
            if session_node(session.number) != command.node:
                continue
            if command.boot_keep == 0:
                suspect_session(self._state, session, effects)
            elif session_boot(session.number) != command.boot_keep:
                forget_session(self._state, session, False, effects)
