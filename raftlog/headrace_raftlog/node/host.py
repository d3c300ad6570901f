"""The pump: drives all groups of a node, one turn of the event loop at a time.

Whatever arrives in one turn (messages, proposals, ticks, finished writes) marks its groups dirty.
The next turn collects one Ready of each dirty group, in the order in which they became dirty, so
that everything leaves in one append to the shared log and one frame per peer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from headrace_raftlog.core.raft import RaftCore
from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.group import BUSY, LEADER, NOT_LEADER, CoreOptions, GroupConfig
from headrace_raftlog.model.message import Message
from headrace_raftlog.node.handler import GroupHandler
from headrace_raftlog.node.held_messages import HeldMessages
from headrace_raftlog.node.hosted_group import HostedGroup, Writing
from headrace_raftlog.storage.shared_log import SharedLog

_SEED_FACTOR: Final = 1_000_003  # spreads seeds of (node, group, boot)


@final
class HostPort:
    """What the host needs from the world around it.

    Attributes:
        post: queue a message; False when it is dropped.
        flush: let queued messages leave.
        call_soon: have a function called in the next turn of the event loop.
        failed: called once with what the host cannot survive.
        leader_changed: called with a group and its new leader, 0 for none known.
    """

    def __init__(
        self,
        post: Callable[[Message], bool],
        flush: Callable[[], None],
        call_soon: Callable[[Callable[[], None]], object],
        failed: Callable[[BaseException], None],
        leader_changed: Callable[[int, int], None],
    ) -> None:
        self.post = post
        self.flush = flush
        self.call_soon = call_soon
        self.failed = failed
        self.leader_changed = leader_changed


@final
class Host:
    """All groups of one node. Everything is called on the event loop; nothing blocks.

    An exception out of a core, the log or a handler is a bug or a lost disk: the host stops at
    once, so that it neither acknowledges nor sends anything more, and reports it.

    Attributes:
        disk_full: whether proposals are refused because the log cannot grow.
        stopped: whether the host does nothing any more.
        messages_sent: Raft messages posted since the start, dropped ones included.
    """

    def __init__(
        self, node: i64, boot: i64, options: CoreOptions, log: SharedLog, port: HostPort
    ) -> None:
        self.disk_full = False
        self.stopped = False
        self.messages_sent: i64 = 0
        self._node = node
        self._boot = boot
        self._options = options
        self._log = log
        self._port = port
        self._groups: dict[int, HostedGroup] = {}
        self._removed: set[int] = set()
        self._held = HeldMessages()
        self._dirty: list[HostedGroup] = []
        self._scheduled = False

    def create_group(
        self,
        group: i64,
        voters: tuple[int, ...],
        learners: tuple[int, ...],
        handler: GroupHandler,
        campaign: bool,
    ) -> None:
        """Start a group on this node, with what the log holds of it.

        Raises:
            KeyError: the group was removed; ids are never used again.
            ValueError: the group is there already, or this node is not a member.
        """
        if group in self._groups:
            raise ValueError(f"group {group} exists on this node")
        voters = tuple(sorted(voters))
        learners = tuple(sorted(learners))
        if self._node not in voters and self._node not in learners:
            raise ValueError(f"node {self._node} is no member of group {group}")
        view = self._log.group(group)
        config = GroupConfig(group, self._node, voters, learners)
        seed = (group * _SEED_FACTOR + self._node) * _SEED_FACTOR + self._boot
        core = RaftCore(config, self._options, view, view.hard_state, 0, seed)
        hosted = HostedGroup(group, core, view, handler, voters + learners)
        self._groups[group] = hosted
        for message in self._held.take(group):
            core.step(message)
        if campaign:
            core.campaign()
        self._mark(hosted)

    def remove_group(self, group: i64) -> None:
        """Stop a group and forget its log for good; nothing happens if it is not there."""
        hosted = self._groups.pop(group, None)
        if hosted is not None:
            hosted.removed = True
        self._removed.add(group)
        self._held.take(group)
        self._log.remove_group(group)
        self._schedule()

    def find(self, group: i64) -> HostedGroup | None:
        """Return a group, None where it is not on this node."""
        return self._groups.get(group)

    def propose(self, group: i64, data: bytes) -> int:
        """Append one entry; return its index, NOT_LEADER or BUSY."""
        hosted = self._groups.get(group)
        if hosted is None or self.stopped:
            return NOT_LEADER
        if hosted.core.role == LEADER and (self.disk_full or self._log.backlogged):
            return BUSY
        index = hosted.core.propose([data])
        self._mark(hosted)
        return index

    def receive(self, messages: list[Message]) -> None:
        """Step the messages of one frame.

        While the disk is far behind, messages with entries are dropped, as a network might: what
        waits for the disk stays bounded however many groups there are. Their leaders find out by
        their heartbeats, and send them again.
        """
        if self.stopped:
            return
        try:
            backlogged = self._log.backlogged
            for message in messages:
                hosted = self._groups.get(message.group)
                if hosted is not None:
                    if backlogged and message.entries:
                        continue
                    hosted.core.step(message)
                    self._mark(hosted)
                elif message.group not in self._removed:
                    self._held.hold(message)
        except Exception as error:  # noqa: BLE001  (outermost: reports it and stops)
            self._fail(error)

    def durable(self, tokens: list[object]) -> None:
        """Release what waited for writes that are durable now, oldest first."""
        if self.stopped:
            return
        try:
            touched: list[HostedGroup] = []
            for token in tokens:
                assert isinstance(token, Writing)
                hosted = token.hosted
                if hosted.removed:
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
            self._fail(error)

    def tick(self) -> None:
        """Let one tick pass for every group that is not silent."""
        if self.stopped:
            return
        try:
            for hosted in self._groups.values():
                core = hosted.core
                if not core.quiesced:
                    core.tick()
                    if core.has_ready():
                        self._mark(hosted)
        except Exception as error:  # noqa: BLE001  (outermost: reports it and stops)
            self._fail(error)

    def peer_changed(self, peer: i64, up: bool) -> None:
        """Wake the groups for which a node that went down, or came up, matters.

        These are the groups it leads, which look for another leader when it is down, and those
        led from here of which it is a member.
        """
        if self.stopped:
            return
        try:
            if not up:
                self._held.drop_from(peer)
            for hosted in self._groups.values():
                core = hosted.core
                if core.role == LEADER:
                    if peer not in hosted.members:
                        continue
                    core.report_unreachable(peer)
                elif core.leader != peer:
                    continue
                if up or core.role == LEADER:
                    core.wake()
                else:
                    core.lose_leader()
                if core.has_ready():
                    self._mark(hosted)
        except Exception as error:  # noqa: BLE001  (outermost: reports it and stops)
            self._fail(error)

    def pump(self) -> None:
        """Do one turn of work for all dirty groups."""
        self._scheduled = False
        if self.stopped:
            return
        try:
            self._turn()
        except Exception as error:  # noqa: BLE001  (outermost: reports it and stops)
            self._fail(error)

    def fail(self, error: BaseException) -> None:
        """Stop for a reason from outside, such as a failed disk."""
        self._fail(error)

    def _turn(self) -> None:
        batch = self._dirty
        self._dirty = []
        appliers: list[HostedGroup] = []
        committed: list[list[Entry]] = []
        for hosted in batch:
            hosted.dirty = False
            if hosted.removed:
                continue
            core = hosted.core
            if not core.has_ready():
                continue
            ready = core.ready()
            self._post_all(hosted, ready.messages)
            if ready.must_sync or ready.messages_after_persist:
                token = Writing(hosted, ready.number, ready.messages_after_persist)
                self._log.append(
                    hosted.group, ready.hard_state, ready.entries, ready.must_sync, token
                )
            if ready.committed:
                appliers.append(hosted)
                committed.append(ready.committed)
        self._log.flush()
        self._port.flush()
        for at in range(len(appliers)):
            if not appliers[at].removed:
                appliers[at].apply(committed[at])
        for hosted in batch:
            if not hosted.removed:
                self._finish(hosted)

    def _finish(self, hosted: HostedGroup) -> None:
        if hosted.tell_leadership():
            self._port.leader_changed(hosted.group, hosted.core.leader)
        if not hosted.removed and hosted.core.has_ready():
            self._mark(hosted)

    def _post_all(self, hosted: HostedGroup, messages: list[Message]) -> None:
        post = self._port.post
        self.messages_sent += len(messages)
        for message in messages:
            if not post(message):
                hosted.core.report_unreachable(message.target)

    def _mark(self, hosted: HostedGroup) -> None:
        if not hosted.dirty:
            hosted.dirty = True
            self._dirty.append(hosted)
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled and not self.stopped:
            self._scheduled = True
            self._port.call_soon(self.pump)

    def _fail(self, error: BaseException) -> None:
        if not self.stopped:
            self.stopped = True
            self._port.failed(error)
