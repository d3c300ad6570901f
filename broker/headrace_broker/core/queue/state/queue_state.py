"""Everything a queue knows, and what becomes of its messages and consumers."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.core.property_reader import PropertyReader
from headrace_broker.core.queue.messages.budget import Budget
from headrace_broker.core.queue.messages.effect import Acquired, Effect
from headrace_broker.core.queue.messages.publisher import Publishers
from headrace_broker.core.queue.messages.settings import ARCHIVE_NONE, QueueSettings
from headrace_broker.core.queue.state.consumer import ATTACHED, DETACHED, Consumer
from headrace_broker.core.queue.state.deduplication import Deduplication
from headrace_broker.core.queue.state.delayed import DelayedMessages
from headrace_broker.core.queue.state.fair_lanes import FairValue, how_much_waits
from headrace_broker.core.queue.state.lease import Leases
from headrace_broker.core.queue.state.ready_list import ReadyList
from headrace_broker.core.queue.state.rotation import Rotation
from headrace_broker.core.queue.state.session import Session
from headrace_broker.core.queue.state.tally import Tally


@final
class DeadMessage:
    """A message that is kept until it has arrived at its dead-letter exchange."""

    def __init__(self, message: Acquired, reason: i64) -> None:
        self.message = message  # what it was
        self.reason = reason  # a REASON constant


@final
class QueueState:
    """A message is available, delayed, unsettled at a consumer or group, or dead and kept."""

    def __init__(self) -> None:
        self.version: i64 = 1  # of the machine: what commands mean
        self.settings = QueueSettings()  # of the queue
        self.now_ms: i64 = 0  # the latest time stamp of any command
        self.ready = ReadyList()  # available messages, and which entries are alive
        self.delayed = DelayedMessages()  # messages that become available later
        self.dead: dict[int, DeadMessage] = {}  # by id, in the order in which they died
        self.dead_bytes: i64 = 0  # of their bodies
        self.seen = Deduplication()  # names of messages that came, for queues that tell repetitions
        self.refusing = False  # the queue was full and has not drained enough since
        self.sessions: dict[int, Session] = {}  # by id, in the order of their first command
        self.rotation = Rotation()  # the consumers that have credit, next to be served first
        self.active: Consumer | None = None  # the single active consumer of queues that have one
        self.arrivals: i64 = 0  # number of attachments there were
        self.attached_count: i64 = 0  # consumers in state ATTACHED
        self.filtered_count: i64 = 0  # those of them that are filtered
        self.detached_count: i64 = 0  # consumers in state DETACHED
        self.exclusive = False  # the only attached consumer is exclusive
        self.unsettled_count: i64 = 0  # messages acquired by consumers and groups and not settled
        self.unsettled_bytes: i64 = 0  # of their bodies
        self.overdue_ms: i64 = 0  # nothing is overdue before, 0 for never; may be too early
        self.reader = PropertyReader()  # looks through blocks; holds nothing between commands
        self.budget = Budget()  # of the command that is carried out
        self.watermark = self.ready.entries.watermark  # whose confirms are deferred
        self.archived = self.ready.entries.archived  # what is kept of messages that were settled
        self.leases = Leases()  # groups that hold messages without a consumer
        self.publishers = Publishers()  # which publishes with a number came before
        self.tally: Tally | None = None  # counts what is let go on leaders; no part of the state

    @property
    def length(self) -> i64:
        """Number of messages that wait for something; limits count them."""
        return self.ready.count + self.delayed.count + len(self.dead)

    @property
    def byte_count(self) -> i64:
        """Bytes of their bodies."""
        return self.ready.byte_count + self.delayed.byte_count + self.dead_bytes

    @property
    def held_count(self) -> i64:
        """Number of messages that have not left for good; watermarks count them."""
        return self.length + self.unsettled_count

    @property
    def held_bytes(self) -> i64:
        """Bytes of their bodies."""
        return self.byte_count + self.unsettled_bytes

    def judge_watermark(self, effects: list[Effect]) -> None:
        """End a command: see whether the queue is saturated, and tell whom that concerns."""
        mark = self.watermark
        settings = self.settings
        high = settings.high_watermark
        high_bytes = settings.high_watermark_bytes
        if mark.saturated:
            mark.saturated = (high > 0 and self.held_count > settings.low_watermark) or (
                high_bytes > 0 and self.held_bytes > settings.low_watermark_bytes
            )
        elif (high > 0 and self.held_count > high) or (
            high_bytes > 0 and self.held_bytes > high_bytes
        ):
            mark.saturated = True
        mark.end(effects)

    def fairness(self, limit: i64) -> list[FairValue]:
        """Return what waits of the values that take turns, most first; empty where none do."""
        if not self.settings.fairness_key and self.ready.fair.count == 0:
            return []
        return how_much_waits([*self.ready.lanes, *self.ready.fair.of_values()], limit)

    def open_session(self, number: i64) -> Session:
        """Return a session, new where it is not known."""
        session = self.sessions.get(number)
        if session is None:
            session = Session(number)
            self.sessions[number] = session
        return session

    # Consumers

    def attach(self, consumer: Consumer) -> None:
        """Let a consumer that was not attached have deliveries."""
        if consumer.state == DETACHED:
            self.detached_count -= 1
        consumer.state = ATTACHED
        self.arrivals += 1
        consumer.arrival = self.arrivals
        self.attached_count += 1
        if consumer.filtered:
            self.filtered_count += 1
        self.exclusive = consumer.exclusive
        self.choose_active()
        self.enter_rotation(consumer)

    def retire(self, consumer: Consumer, state: i64) -> None:
        """Give a consumer no more deliveries: make it DETACHED or CANCELLED."""
        if consumer.state == ATTACHED:
            self.attached_count -= 1
            if consumer.filtered:
                self.filtered_count -= 1
            if consumer.exclusive:
                self.exclusive = False
            self.rotation.remove(consumer)
        elif consumer.state == DETACHED:
            self.detached_count -= 1
        consumer.state = state
        if state == DETACHED:
            self.detached_count += 1
        if self.active is consumer:
            self.active = None
        if self.settings.single_active:
            self.choose_active()

    def enter_rotation(self, consumer: Consumer) -> None:
        """Give a consumer a place at the end of the rotation when it has credit and none yet."""
        if consumer.waiting or consumer.filtered or consumer.credit() == 0:
            return
        if self.is_served(consumer):
            self.rotation.add(consumer)

    def is_served(self, consumer: Consumer) -> bool:
        """Return whether the queue gives this consumer anything, filtered or not, if it may."""
        if not self.settings.single_active:
            return True
        if self.leases.count > 0:
            return False  # a group is the only consumer
        return self.active is consumer and self._first_consumer() is consumer

    def choose_active(self) -> None:
        """Choose the single active consumer.

        One with a higher priority takes over once the active one, which gets nothing more, has
        nothing unsettled.
        """
        if not self.settings.single_active:
            self.active = None
            return
        best = self._first_consumer()
        active = self.active
        if active is best:
            if active is not None:
                self.enter_rotation(active)  # who was to take over may have left
            return
        if active is not None:
            self.rotation.remove(active)
            if active.unsettled:
                return
        self.active = best
        if best is not None:
            self.enter_rotation(best)

    def _first_consumer(self) -> Consumer | None:
        """Return the attached consumer of highest priority; the active one before its equals."""
        best = self.active
        for session in self.sessions.values():
            for consumer in session.consumers.values():
                if consumer.state == ATTACHED and (
                    best is None
                    or consumer.priority > best.priority
                    or (
                        best is not self.active
                        and consumer.priority == best.priority
                        and consumer.arrival < best.arrival
                    )
                ):
                    best = consumer
        return best

    def renew_rotation(self) -> None:
        """Rebuild the rotation: the set of served consumers has changed."""
        waiting = self.rotation.in_order()
        for consumer in waiting:
            self.rotation.remove(consumer)
        self.choose_active()
        for session in self.sessions.values():
            for consumer in session.consumers.values():
                self.enter_rotation(consumer)

    # Messages

    def hold(self, consumer: Consumer, messages: list[Acquired]) -> None:
        """Note what a consumer has been given, as its next deliveries."""
        unsettled = consumer.unsettled
        number = consumer.next_delivery
        byte_count: i64 = 0
        now = self.now_ms
        for message in messages:
            message.acquired_ms = now
            unsettled[number] = message
            byte_count += message.byte_count
            number += 1
        consumer.next_delivery = number
        self.unsettled_count += len(messages)
        self.unsettled_bytes += byte_count
        timeout = self.timeout_of(consumer)
        if timeout > 0 and (self.overdue_ms == 0 or now + timeout < self.overdue_ms):
            self.overdue_ms = now + timeout

    def timeout_of(self, consumer: Consumer) -> i64:
        """Return for how long a consumer may leave a delivery unsettled, 0 or less for ever."""
        own = consumer.timeout_ms
        return own if own > 0 else self.settings.consumer_timeout_ms

    def release(self, consumer: Consumer, messages: list[Acquired]) -> None:
        """Note that deliveries of a consumer are settled or returned."""
        byte_count: i64 = 0
        for message in messages:
            byte_count += message.byte_count
            if message.key and message.key in self.ready.groups.groups:
                self.ready.settled(message)
        self.unsettled_bytes -= byte_count
        self.unsettled_count -= len(messages)
        if consumer.prefetch_bytes > 0:
            consumer.byte_count -= byte_count

    def archive(self, messages: list[Acquired], outcome: i64, effects: list[Effect]) -> None:
        """Forget messages that ended with an OUTCOME, entry by entry, or keep rows of them."""
        if not messages:
            return
        entries = self.ready.entries
        if self.archived.mode != ARCHIVE_NONE:
            for message in messages:
                entries.archive_message(message, outcome, effects)
            return
        if self.watermark.commands:
            for message in messages:
                self.watermark.leave(message.entry_index, message.position, message.position + 1)
        entry_index = messages[0].entry_index
        gone: i64 = 0
        for message in messages:
            if message.entry_index != entry_index:
                entries.archive(entry_index, gone, effects)
                entry_index = message.entry_index
                gone = 0
            gone += 1
        entries.archive(entry_index, gone, effects)
