"""One simulated member: a host that owes the core what a real node owes it, and can crash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from zlib import crc32

from headrace_raftlog.core.raft import RaftCore
from headrace_raftlog.model.entry import ENTRY_CONFIG, ENTRY_NORMAL, Entry, HardState
from headrace_raftlog.model.group import LEADER, CoreOptions, GroupConfig
from headrace_raftlog.model.log import GroupLog
from headrace_raftlog.model.message import APPEND_REPLY, Message
from headrace_raftlog.model.ready import Ready
from headrace_raftlog.simulator.disk import Disk, Write
from headrace_raftlog.simulator.invariants import Checker
from headrace_raftlog.simulator.loop import Loop
from headrace_raftlog.simulator.network import Network
from headrace_raftlog.simulator.parameters import TICK, Parameters

DOWN_AFTER: Final = 4 * TICK  # units of silence after which a node counts as down
LOSS_NOTICED: Final = 0.2  # probability that a lost message is reported to the core
BACKLOG_MAX: Final = 200  # messages kept for a paused process; more are lost


@dataclass(frozen=True)
class HostFaults:
    """Bugs a host can have; the simulator must notice each of them.

    Attributes:
        ack_before_sync: what must wait for the disk leaves at once, and is reported durable.
        vote_not_persisted: votes are not written.
        commit_ahead: the commit index of a hard state is written as newest known.
        never_wake: changes of other nodes' liveness are not told to the core.
    """

    ack_before_sync: bool = False
    vote_not_persisted: bool = False
    commit_ahead: bool = False
    never_wake: bool = False


class MemoryLog(GroupLog):
    """A group's log in a list; `items[0]` has index 1."""

    def __init__(self, items: list[Entry]) -> None:
        self.items = items

    def first_index(self) -> int:
        """Return 1: nothing is ever compacted."""
        return 1

    def last_index(self) -> int:
        """Return the highest index, 0 for an empty log."""
        return len(self.items)

    def term_at(self, index: int) -> int:
        """Return the term of `index`; 0 for index 0; -1 beyond the end."""
        if index == 0:
            return 0
        return self.items[index - 1].term if index <= len(self.items) else -1

    def entries(self, low: int, high: int, bytes_max: int) -> list[Entry]:
        """Return entries from `low` up to and without `high`, cut by bytes but never empty."""
        if not 0 < low <= len(self.items):
            raise KeyError(low)
        size = 0
        for position in range(low - 1, min(high - 1, len(self.items))):
            size += len(self.items[position].data)
            if size > bytes_max and position >= low:
                return self.items[low - 1 : position]
        return self.items[low - 1 : high - 1]

    def config_entries(self) -> list[Entry]:
        """Return the entries of kind ENTRY_CONFIG."""
        return [entry for entry in self.items if entry.kind == ENTRY_CONFIG]

    def append(self, entries: list[Entry]) -> None:
        """Put `entries` at their indexes; what was there and beyond is replaced."""
        del self.items[entries[0].index - 1 :]
        self.items.extend(entries)


class CrashedError(Exception):
    """The process stopped in the middle of what it was doing."""


class Process:
    """A member of the group with its host.

    Attributes:
        core: None while the process is down.
        boot: counts starts.
        paused: nothing happens until `resume`.
        applied_hash: digest of everything applied in this life, in order.
        heard_at, heard_boot, peer_up: failure detection per other node.
    """

    def __init__(
        self,
        loop: Loop,
        parameters: Parameters,
        network: Network,
        checker: Checker,
        config: GroupConfig,
        core_type: type[RaftCore],
        faults: HostFaults,
    ) -> None:
        self.loop = loop
        self.parameters = parameters
        self.network = network
        self.checker = checker
        self.config = config
        self.core_type = core_type
        self.faults = faults
        self.member = config.member
        self.disk = Disk(loop, parameters)
        self.core: RaftCore | None = None
        self.log = MemoryLog([])
        self.boot = 0
        self.paused = False
        self.backlog: list[Message] = []
        self.durable_backlog: list[list[Write]] = []
        self.applied_hash = 0
        self.proposed: dict[int, bytes] = {}
        self.peers: list[Process] = []
        self.heard_at: dict[int, int] = {}
        self.heard_boot: dict[int, int] = {}
        self.peer_up: dict[int, bool] = {}

    def start(self) -> None:
        """Recover from the disk and run."""
        assert self.core is None
        self.boot += 1
        self.paused = False
        self.log = MemoryLog(list(self.disk.entries))
        self.disk.open(self._on_durable)
        self.applied_hash = 0
        for peer in self.peers:
            self.heard_at[peer.member] = self.loop.now
            self.heard_boot[peer.member] = peer.boot
            self.peer_up[peer.member] = True
        if self.loop.tracing:
            self.loop.trace(f"start    {self.member} {self.disk.hard_state!r} {self.log.items!r}")
        self.core = self.core_type(
            self.config,
            core_options(self.parameters),
            self.log,
            self.disk.hard_state,
            0,
            self.loop.rng.getrandbits(31),
        )
        self.checker.started(self)
        self._run()
        self.loop.after(self._tick_units(), self._tick, self.boot)

    def crash(self) -> None:
        """Stop at once; the disk loses what was not synced."""
        if self.core is None:
            return
        if self.loop.tracing:
            self.loop.trace(f"crash    {self.member}")
        self.core = None
        self.backlog.clear()
        self.durable_backlog.clear()
        self.proposed.clear()
        self.disk.power_off()

    def pause(self) -> None:
        """Stand still, like a virtual machine that is not scheduled."""
        if self.core is not None:
            self.paused = True

    def resume(self) -> None:
        """Go on; what arrived meanwhile is handled at once."""
        if not self.paused:
            return
        self.paused = False
        durable, self.durable_backlog = self.durable_backlog, []
        for batch in durable:
            self._on_durable(batch)
        backlog, self.backlog = self.backlog, []
        for message in backlog:
            self.receive(message)

    def receive(self, message: Message) -> None:
        """Take a message from the network; any message shows that its sender is alive."""
        core = self.core
        if core is None:
            return
        if self.paused:
            if len(self.backlog) < BACKLOG_MAX:
                self.backlog.append(message)
            return
        if self.loop.tracing:
            self.loop.trace(f"arrived  {message!r}")
        self.heard_at[message.source] = self.loop.now
        self.peer_up[message.source] = True
        core.step(message)
        self._run()

    def propose(self, payloads: list[bytes]) -> int:
        """Offer commands to this member; return what the core answers, 0 if nobody listens."""
        core = self.core
        if core is None or self.paused:
            return 0
        index = core.propose(payloads)
        if index > 0:
            for position, payload in enumerate(payloads):
                self.proposed[index + position] = payload
        self._run()
        return index

    def transfer(self, target: int) -> None:
        """Let this member hand its leadership to `target`, if it can."""
        if self.core is not None and not self.paused:
            self.core.transfer(target)
            self._run()

    def campaign(self) -> None:
        """Let this member stand for election."""
        if self.core is not None and not self.paused:
            self.core.campaign()
            self._run()

    def is_leader(self) -> bool:
        """Return whether this member runs and takes itself for the leader."""
        return self.core is not None and self.core.role == LEADER

    def _tick_units(self) -> int:
        return self.parameters.tick_units[self.member - 1]

    def _tick(self, boot: int) -> None:
        core = self.core
        if core is None or boot != self.boot:
            return
        self.loop.after(self._tick_units(), self._tick, boot)
        if self.paused:
            return
        self._watch_peers(core)
        if not core.quiesced:
            core.tick()
        self._run()

    def _watch_peers(self, core: RaftCore) -> None:
        """Tell the core when a node that matters to it went away or came back anew."""
        now = self.loop.now
        for peer in self.peers:
            member = peer.member
            changed = False
            alive = peer.core is not None and not peer.paused
            if alive and self.network.connected(member, self.member):
                self.heard_at[member] = now
                self.peer_up[member] = True
                changed = self.heard_boot[member] != peer.boot
                self.heard_boot[member] = peer.boot
            if self.peer_up[member] and now - self.heard_at[member] > DOWN_AFTER:
                self.peer_up[member] = False
                changed = True
            if changed and not self.faults.never_wake and core.leader in (self.member, member):
                if core.leader == member and not self.peer_up[member]:
                    core.lose_leader()
                else:
                    core.wake()

    def _run(self) -> None:
        """Handle everything the core has ready, as a node's loop does."""
        core = self.core
        try:
            while core is not None and core.has_ready():
                self._handle(core, core.ready())
        except CrashedError:
            self.crash()
        self.checker.observe(self)

    def _handle(self, core: RaftCore, ready: Ready) -> None:
        if ready.entries:
            self.log.append(ready.entries)
        self._crash_point()
        for message in ready.messages:
            self._send(message, self._claim(message))
        self._crash_point()
        self._write(core, ready)
        self._apply(core, ready.committed)

    def _write(self, core: RaftCore, ready: Ready) -> None:
        after = ready.messages_after_persist
        if not (ready.must_sync or ready.hard_state or ready.entries or after):
            return
        hard_state = ready.hard_state
        if hard_state is not None and self.faults.vote_not_persisted:
            hard_state = HardState(hard_state.term, 0, hard_state.commit)
        if hard_state is not None and self.faults.commit_ahead:
            hard_state = HardState(hard_state.term, hard_state.vote, core.commit_index)
        write = Write(ready.number, hard_state, ready.entries, after)
        write.claims = [self._claim(message) for message in after]
        if self.faults.ack_before_sync:
            self._release([write])
            write.messages = []
            write.claims = []
            self.disk.submit(write)
            core.persisted(write.number)
        else:
            self.disk.submit(write)

    def _on_durable(self, batch: list[Write]) -> None:
        core = self.core
        if core is None:
            return
        if self.paused:
            self.durable_backlog.append(batch)
            return
        self.checker.synced(self)
        try:
            self._crash_point()
            if self.loop.rng.random() < 0.5:
                core.persisted(batch[-1].number)
                self._release(batch)
            else:
                for write in batch:
                    self._release([write])
                    core.persisted(write.number)
        except CrashedError:
            self.crash()
        self._run()

    def _release(self, batch: list[Write]) -> None:
        for write in batch:
            for message, claim in zip(write.messages, write.claims, strict=True):
                self._send(message, claim)
                self._crash_point()

    def _claim(self, message: Message) -> int:
        """Return the term of the entry whose durability `message` asserts, 0 for none."""
        if message.kind != APPEND_REPLY or message.reject:
            return 0
        return max(0, self.log.term_at(message.index))

    def _send(self, message: Message, claim: int) -> None:
        self.checker.sent(self, message, claim)
        arrives = self.network.send(message)
        if not arrives and self.core is not None and self.loop.rng.random() < LOSS_NOTICED:
            self.core.report_unreachable(message.target)

    def _apply(self, core: RaftCore, entries: list[Entry]) -> None:
        for entry in entries:
            self.applied_hash = crc32(entry.data, crc32(b"%d" % entry.term, self.applied_hash))
            self.checker.applied(self, entry)
            if entry.kind == ENTRY_NORMAL and self.proposed.pop(entry.index, b"") == entry.data:
                self.checker.acknowledged(entry)
        if entries:
            core.applied(entries[-1].index)

    def _crash_point(self) -> None:
        if self.parameters.crash_point and self.loop.rng.random() < self.parameters.crash_point:
            raise CrashedError


def core_options(parameters: Parameters) -> CoreOptions:
    """Return the core's tunables as the run drew them."""
    return CoreOptions(
        election_ticks=parameters.election_ticks,
        heartbeat_ticks=parameters.heartbeat_ticks,
        append_entries_max=parameters.append_entries_max,
        append_bytes_max=parameters.append_bytes_max,
        inflight_max=parameters.inflight_max,
        inflight_bytes_max=parameters.inflight_bytes_max,
        uncommitted_bytes_max=parameters.uncommitted_bytes_max,
        committed_bytes_max=parameters.committed_bytes_max,
        quiesce_ticks=parameters.quiesce_ticks,
    )
