"""A queue as a deterministic machine: committed entries in, effects out.

It reads no clock, takes no random number and iterates no set, so that every replica that applies
the same entries has the same state and computes the same effects. `apply` is total: whatever the
octets, it answers.
"""

from __future__ import annotations

import hashlib
from array import array
from typing import final

from mypy_extensions import i64

from headrace_broker.core.command import (
    Attach,
    Cancel,
    Close,
    Control,
    Enqueue,
    Get,
    Malformed,
    NodeDown,
    Purge,
    Settle,
)
from headrace_broker.core.command_decoder import decode_command
from headrace_broker.core.effect import (
    LANE_CONTROL,
    LANE_PUBLISH,
    STATUS_ALREADY,
    STATUS_EXCLUSIVE_IN_USE,
    STATUS_OK,
    Acquired,
    Controlled,
    Effect,
    Enqueued,
    EntryDead,
    Gap,
    Got,
    Rejected,
    Unused,
)
from headrace_broker.core.queue_state import QueueState
from headrace_broker.core.session import (
    ATTACHED,
    CANCELLED,
    DETACHED,
    GET_CONSUMER,
    Consumer,
    ConsumerInfo,
    Session,
)
from headrace_broker.core.snapshot import read_snapshot, write_snapshot
from headrace_broker.model.session import session_boot, session_node


@final
class QueueMachine:
    """One queue."""

    def __init__(self) -> None:
        self._state = QueueState()

    @property
    def ready_count(self) -> i64:
        """Number of messages available."""
        return self._state.ready.count

    @property
    def ready_octets(self) -> i64:
        """Octets of the bodies of available messages."""
        return self._state.ready.octets

    @property
    def unsettled_count(self) -> i64:
        """Number of messages acquired and not settled."""
        return self._state.unsettled_count

    @property
    def unsettled_octets(self) -> i64:
        """Octets of the bodies of messages acquired and not settled."""
        return self._state.unsettled_octets

    @property
    def consumer_count(self) -> i64:
        """Number of attached consumers."""
        return self._state.attached_count

    def has_session(self, session: i64) -> bool:
        """Whether the session is known."""
        return session in self._state.sessions

    def has_sessions_of(self, node: i64, boot_keep: i64) -> bool:
        """Whether NODE_DOWN with these values would change anything."""
        for session in self._state.sessions.values():
            if session_node(session.number) != node:
                continue
            if boot_keep > 0:
                if session_boot(session.number) != boot_keep:
                    return True
                continue
            for consumer in session.consumers.values():
                if consumer.state == ATTACHED or len(consumer.unsettled) > 0:
                    return True
        return False

    def is_attached(self, session: i64, consumer: i64) -> bool:
        """Whether that consumer gets deliveries (else it has to attach first)."""
        found = self._consumer(session, consumer)
        return found is not None and found.state == ATTACHED

    def holds_out(self, entry_index: i64) -> bool:
        """Return whether a message of that log entry was acquired and is not settled."""
        return entry_index in self._state.ready.touched

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

    def live_entries(self) -> array[int]:
        """Return the log positions, ascending, of the entries that hold messages of the queue.

        These are the entries for which `EntryDead` was not told yet.
        """
        return array("Q", self._state.ready.live_entries())

    def snapshot(self) -> bytes:
        """Return the whole state, without bodies: those stand in `live_entries`."""
        return write_snapshot(self._state)

    @staticmethod
    def restore(snapshot: bytes) -> QueueMachine:
        """Return a machine that goes on as the one that gave `snapshot`.

        Raises:
            SnapshotError: `snapshot` is malformed or of an unknown version.
        """
        machine = QueueMachine()
        machine._state = read_snapshot(snapshot)
        return machine

    def digest(self) -> bytes:
        """Return 16 octets that are equal for equal states."""
        return hashlib.blake2b(self.snapshot(), digest_size=16).digest()

    def apply(self, index: i64, data: bytes) -> list[Effect]:
        """Apply the committed entry `index` (ascending from call to call) and return what follows.

        Args:
            index: its log position.
            data: u64 time in ms and a command, see `core.command`.

        Returns:
            The effects in order. An entry that makes no sense gives Rejected and changes nothing.
        """
        effects: list[Effect] = []
        state = self._state
        users = state.attached_count + state.detached_count
        command = decode_command(data)
        kept = False
        if isinstance(command, Enqueue):
            kept = self._enqueue(index, command, effects)
        elif isinstance(command, Control):
            self._control(command, effects)
        elif isinstance(command, Close):
            self._close(command.session, effects)
        elif isinstance(command, NodeDown):
            self._node_down(command, effects)
        elif isinstance(command, Malformed):
            effects.append(Rejected(command.reason))
        state.dispatch(effects)
        if users > 0 and state.attached_count + state.detached_count == 0:
            effects.append(Unused())
        if not kept:
            effects.append(EntryDead(index))
        return effects

    def _consumer(self, session: i64, number: i64) -> Consumer | None:
        found = self._state.sessions.get(session)
        return None if found is None else found.consumers.get(number)

    def _enqueue(self, index: i64, command: Enqueue, effects: list[Effect]) -> bool:
        """Append what is new in a batch; return whether anything is."""
        known = self._state.sessions.get(command.session)
        done: i64 = 0 if known is None else known.publish_seq
        last = command.seq + command.sizes.count - 1
        if command.seq > done + 1:
            effects.append(Gap(command.session, LANE_PUBLISH, done + 1))
            return False
        if last <= done:
            effects.append(Enqueued(command.session, done))
            return False
        self._state.open_session(command.session).publish_seq = last
        self._state.ready.append(index, done + 1 - command.seq, command.sizes)
        effects.append(Enqueued(command.session, last))
        return True

    def _control(self, command: Control, effects: list[Effect]) -> None:
        known = self._state.sessions.get(command.session)
        done: i64 = 0 if known is None else known.control_seq
        if command.seq > done + 1:
            effects.append(Gap(command.session, LANE_CONTROL, done + 1))
            return
        if known is not None and command.seq <= done:
            self._repeat(known, command, effects)
            return
        session = self._state.open_session(command.session)
        session.control_seq = command.seq
        if isinstance(command, Settle):
            self._settle(session, command, effects)
        elif isinstance(command, Attach):
            self._attach(session, command, effects)
        elif isinstance(command, Cancel):
            self._cancel(session, command.consumer, effects)
        elif isinstance(command, Get):
            self._get(session, effects)
        elif isinstance(command, Purge):
            self._answer(session, STATUS_OK, self._state.ready.purge(effects), effects)

    def _repeat(self, session: Session, command: Control, effects: list[Effect]) -> None:
        """Answer a control command that was applied before, without doing it again."""
        answer = session.answer(command.seq)
        if not isinstance(command, Get):
            effects.append(Controlled(session.number, command.seq, answer.status, answer.count))
            return
        getter = session.consumers.get(GET_CONSUMER)
        message = None if getter is None else getter.unsettled.get(answer.delivery)
        delivery: i64 = 0 if message is None else answer.delivery
        effects.append(Got(session.number, command.seq, message, delivery, self._state.ready.count))

    def _answer(self, session: Session, status: i64, count: i64, effects: list[Effect]) -> None:
        """Answer a control command and remember the answer when it says more than "ok"."""
        if status != STATUS_OK or count != 0:
            session.keep_answer(status, count, 0)
        effects.append(Controlled(session.number, session.control_seq, status, count))

    def _settle(self, session: Session, command: Settle, effects: list[Effect]) -> None:
        settled: i64 = 0
        for item in command.items:
            consumer = session.consumers.get(item.consumer)
            if consumer is not None:
                settled += self._state.settle(consumer, item, effects)
                self._state.drop_if_done(session, consumer)
        effects.append(Controlled(session.number, session.control_seq, STATUS_OK, settled))

    def _attach(self, session: Session, command: Attach, effects: list[Effect]) -> None:
        state = self._state
        consumer = session.consumers.get(command.consumer)
        if consumer is not None and consumer.state != DETACHED:
            self._answer(session, STATUS_ALREADY, 0, effects)
            return
        if state.exclusive or (command.exclusive and state.attached_count > 0):
            self._answer(session, STATUS_EXCLUSIVE_IN_USE, 0, effects)
            return
        if consumer is None:
            consumer = Consumer(session.number, command.consumer)
            session.consumers[command.consumer] = consumer
        consumer.tag = command.tag
        consumer.prefetch = command.prefetch
        consumer.exclusive = command.exclusive
        state.attach(consumer)
        self._answer(session, STATUS_OK, 0, effects)

    def _cancel(self, session: Session, number: i64, effects: list[Effect]) -> None:
        consumer = session.consumers.get(number)
        left: i64 = 0
        if consumer is not None and number != GET_CONSUMER:
            left = len(consumer.unsettled)
            self._state.retire(consumer, CANCELLED)
            self._state.drop_if_done(session, consumer)
        self._answer(session, STATUS_OK, left, effects)

    def _get(self, session: Session, effects: list[Effect]) -> None:
        state = self._state
        if state.ready.count == 0:
            effects.append(Got(session.number, session.control_seq, None, 0, 0))
            return
        getter = session.consumers.get(GET_CONSUMER)
        if getter is None:
            getter = Consumer(session.number, GET_CONSUMER)
            session.consumers[GET_CONSUMER] = getter
        delivery = state.get(getter)
        session.keep_answer(STATUS_OK, 0, delivery)
        message = getter.unsettled[delivery]
        left = state.ready.count
        effects.append(Got(session.number, session.control_seq, message, delivery, left))

    def _close(self, number: i64, effects: list[Effect]) -> None:
        session = self._state.sessions.get(number)
        released: i64 = 0 if session is None else self._state.forget_session(session, True)
        effects.append(Controlled(number, 0, STATUS_OK, released))

    def _node_down(self, command: NodeDown, effects: list[Effect]) -> None:
        for session in list(self._state.sessions.values()):
            if session_node(session.number) != command.node:
                continue
            if command.boot_keep == 0:
                self._state.suspect_session(session, effects)
            elif session_boot(session.number) != command.boot_keep:
                self._state.forget_session(session, False)
