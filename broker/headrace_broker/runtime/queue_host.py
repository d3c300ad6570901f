"""One replica of a queue: commands into its log, committed ones through the machine."""

from __future__ import annotations

import time
from abc import abstractmethod
from array import array
from typing import Final, final

from librt.strings import read_i64_be
from mypy_extensions import i64, mypyc_attr
from typing_extensions import override

from headrace_broker.core.command import (
    CANCEL,
    CLOSE,
    ENQUEUE_BATCH_OFFSET,
    ENQUEUE_SEQ_OFFSET,
    NODE_DOWN,
    STAMP_OCTETS,
    Cancel,
    Close,
    Command,
    NodeDown,
    encode_node_down,
    passes_publishes,
    stamp_command,
)
from headrace_broker.core.command_decoder import decode_command
from headrace_broker.core.delivery import group_by_entry
from headrace_broker.core.effect import (
    Controlled,
    Deliver,
    Detached,
    Effect,
    Enqueued,
    EntryDead,
    Gap,
    Got,
    PublishRejected,
    Rejected,
    TimedOut,
    Unused,
)
from headrace_broker.core.queue_machine import QueueMachine
from headrace_broker.model.definition import Queue
from headrace_broker.model.message import DeliveryRun
from headrace_broker.model.session import session_boot, session_node
from headrace_broker.runtime.feed import Feed
from headrace_broker.runtime.lane_port import HostEnd, Reach
from headrace_broker.runtime.queue_log import BUSY, TAKEN, QueueLog
from headrace_raftlog.model.entry import Entry

FEED_ENDING: Final = (CANCEL, CLOSE, NODE_DOWN)  # kinds of commands that end consumers


@mypyc_attr(allow_interpreted_subclasses=True)
class HostWatcher:
    """Told by a replica what concerns the node."""

    @abstractmethod
    def queue_leader_changed(self, queue: Queue, leader: int) -> None:
        """The replica knows a new leader (0 for none); it serves when that is this node."""

    @abstractmethod
    def queue_unused(self, queue: Queue) -> None:
        """The last consumer of a queue led here has gone."""

    @abstractmethod
    def command_rejected(self, queue: Queue, reason: str) -> None:
        """A committed command was not understood and had no effect."""


@final
class QueueHost(HostEnd):
    """A replica of one queue on this node.

    Attributes:
        queue: its definition.
        machine: the deterministic state; equal on all replicas at equal positions.
        serving: whether this replica leads and has applied everything committed before its term.
    """

    def __init__(self, queue: Queue, node: int, log: QueueLog, reach: Reach, watcher: HostWatcher):
        self.queue = queue
        self.machine = QueueMachine()
        self.serving = False
        self._node = node
        self._log = log
        self._reach = reach
        self._watcher = watcher
        self._feeds: dict[int, dict[int, Feed]] = {}  # by session and consumer
        self._early: dict[int, None] = {}  # sessions that asked before this replica served

    @property
    def feed_count(self) -> int:
        """Number of consumers that are served from here."""
        return sum([len(feeds) for feeds in self._feeds.values()])

    # From gateways

    @override
    def command(self, session: int, data: bytes) -> None:
        """Stamp and propose a command; a refusal goes back at once."""
        outcome = self.propose(data) if self.serving else 0
        if outcome == TAKEN:
            return
        self._refuse(session, outcome == BUSY)

    def _refuse(self, session: int, busy: bool) -> None:
        """Name the leader; one that does not serve yet calls back as soon as it does."""
        leader = self._log.leader()
        if leader == self._node:
            leader = 0
            if not self.serving and session_node(session) != self._node:
                self._early[session] = None
        end = self._reach.session(session)
        if end is not None:
            end.refused(leader, busy, False)

    def propose(self, data: bytes) -> i64:
        """Append a command with this moment's time stamp."""
        stamped = stamp_command(time.time_ns() // 1_000_000, data)
        return self._log.propose(stamped, passes_publishes(data))

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
        """Send what the consumer holds from `number` on, then go on with what it acquires."""
        end = self._reach.session(session)
        if end is None:
            return True
        if not self.serving:
            self._refuse(session, False)
            return True
        if attached and not self.machine.is_attached(session, consumer):
            end.detached(consumer)
            return True
        feed = Feed(consumer, window, self._log, self.machine)
        self._feeds.setdefault(session, {})[int(consumer)] = feed
        held = self.machine.unsettled_from(session, consumer, number)
        start = 0
        while start < len(held):  # numbers have gaps where messages in between are settled
            stop = start + 1
            while stop < len(held) and held[stop][0] == held[stop - 1][0] + 1:
                stop += 1
            feed.deliver(held[start][0], [pair[1] for pair in held[start:stop]], end)
            start = stop
        return True

    @override
    def window(self, session: int, consumer: i64, octets: i64) -> bool:
        """Let a feed send more."""
        feed = self._feed(session, consumer)
        end = self._reach.session(session)
        if feed is not None and end is not None:
            feed.open(octets, end)
        return True

    def _feed(self, session: int, consumer: i64) -> Feed | None:
        feeds = self._feeds.get(session)
        return None if feeds is None else feeds.get(int(consumer))

    # From the log

    def apply(self, entries: list[Entry]) -> None:
        """Apply committed entries of the Raft group in order."""
        for entry in entries:
            self.apply_one(entry.index, entry.data)

    def apply_one(self, index: int, data: bytes) -> None:
        """Apply one committed command and, when leading, carry out its effects."""
        effects = self.machine.apply(index, data)
        for effect in effects:
            if isinstance(effect, EntryDead):
                self._log.forget(effect.index)
            elif isinstance(effect, Rejected):
                self._watcher.command_rejected(self.queue, effect.reason)
            elif self.serving:
                self._perform(effect, data)
        if self._feeds and len(data) > STAMP_OCTETS and data[STAMP_OCTETS] in FEED_ENDING:
            self._drop_feeds(decode_command(data))

    def snapshot(self) -> tuple[bytes, array[int]]:
        """Return the machine's state, and the positions of the entries that hold its messages."""
        return self.machine.snapshot(), self.machine.live_entries()

    def restore(self, state: bytes) -> None:
        """Take over a state that `snapshot` gave, here or on another node; never while serving.

        Raises:
            SnapshotError: the octets are not such a state; nothing changed.
        """
        assert not self.serving, "a leader has nothing to learn"
        self.machine = QueueMachine.restore(state)

    def leadership(self, leader: int, _term: int, serving: bool) -> None:
        """Start or stop serving; feeds of an earlier leadership are void."""
        self.serving = serving
        if not serving:
            self._dismiss(0 if leader == self._node else leader)
        if serving or leader != self._node:
            self._call_early(leader)
        self._watcher.queue_leader_changed(
            self.queue, leader if serving or leader != self._node else 0
        )

    def node_down(self, node: int, boot_kept: int) -> bool:
        """Replicate that a gateway node is gone (0) or back in the boot with mark `boot_kept`.

        Returns:
            False when that is due and the log takes nothing now: to be called again.
        """
        if not self.serving or not self.machine.has_sessions_of(node, boot_kept):
            return True
        return self.propose(encode_node_down(node, boot_kept)) != BUSY

    def _call_early(self, leader: int) -> None:
        """Answer the other nodes' sessions that asked before this replica could serve.

        Sessions of this node hear of their queue's leader from `HostWatcher`.
        """
        early, self._early = self._early, {}
        for session in early:
            end = self._reach.session(session)
            if end is not None:
                end.refused(leader, False, False)

    def _dismiss(self, leader: int) -> None:
        """Send those served from here to the next leader: their nodes need not know of it."""
        feeds, self._feeds = self._feeds, {}
        for session in feeds:
            if session_node(session) != self._node:
                end = self._reach.session(session)
                if end is not None:
                    end.refused(leader, False, False)

    def _drop_feeds(self, command: Command) -> None:
        """Forget the feeds of consumers that a command has ended."""
        if isinstance(command, Close):
            self._feeds.pop(command.session, None)
        elif isinstance(command, Cancel):
            if not self.machine.is_attached(command.session, command.consumer):
                self._drop_feed(command.session, command.consumer)
        elif isinstance(command, NodeDown) and command.boot_keep > 0:
            for session in list(self._feeds):
                boot = session_boot(session)
                if session_node(session) == command.node and boot != command.boot_keep:
                    del self._feeds[session]

    def _drop_feed(self, session: int, consumer: i64) -> None:
        feeds = self._feeds.get(session)
        if feeds is not None:
            feeds.pop(int(consumer), None)
            if not feeds:
                del self._feeds[session]

    # Effects

    def _perform(self, effect: Effect, data: bytes) -> None:
        if isinstance(effect, Deliver):
            self._deliver(effect)
        elif isinstance(effect, Enqueued):
            end = self._reach.session(effect.session)
            if end is not None:
                end.enqueued(read_i64_be(data, ENQUEUE_SEQ_OFFSET), effect.seq)
        elif isinstance(effect, Controlled):
            end = self._reach.session(effect.session)
            if end is not None:
                end.controlled(effect.seq, effect.status, effect.count)
        elif isinstance(effect, Got):
            self._got(effect)
        elif isinstance(effect, Gap):
            end = self._reach.session(effect.session)
            if end is not None:
                end.gap(effect.lane, effect.expected)
        elif isinstance(effect, PublishRejected):
            end = self._reach.session(effect.session)
            if end is not None:
                end.rejected(effect.first, effect.last)
        elif isinstance(effect, TimedOut):
            self._drop_feed(effect.session, effect.consumer)
            end = self._reach.session(effect.session)
            if end is not None:
                end.timed_out(effect.consumer)
        elif isinstance(effect, Detached):
            self._drop_feed(effect.session, effect.consumer)
        elif isinstance(effect, Unused):
            self._watcher.queue_unused(self.queue)

    def _deliver(self, effect: Deliver) -> None:
        feed = self._feed(effect.session, effect.consumer)
        end = self._reach.session(effect.session)
        if feed is not None and end is not None:
            feed.deliver(effect.first, effect.messages, end)

    def _got(self, effect: Got) -> None:
        end = self._reach.session(effect.session)
        if end is None:
            return
        run: DeliveryRun | None = None
        if effect.message is not None:
            group = group_by_entry(effect.delivery, [effect.message])[0]
            run = DeliveryRun(
                0,
                group.first,
                self._log.entry_data(group.entry_index),
                ENQUEUE_BATCH_OFFSET,
                group.positions,
                group.redelivered,
                group.counts,
            )
        end.got(effect.seq, run, effect.ready_left)
