"""Everything a core remembers, and the primitives that all its parts use."""

from __future__ import annotations

from collections import deque

from mypy_extensions import i64

from headrace_raftlog.core.durability import Durability
from headrace_raftlog.core.log_view import LogView
from headrace_raftlog.core.prng import Prng
from headrace_raftlog.core.progress import Progress
from headrace_raftlog.core.quorum import Electorate
from headrace_raftlog.model.entry import Entry, HardState
from headrace_raftlog.model.group import FOLLOWER, LEADER, CoreOptions, GroupConfig
from headrace_raftlog.model.limits import ENTRY_COST_BYTES
from headrace_raftlog.model.log import GroupLog
from headrace_raftlog.model.message import APPEND_REPLY, VOTE_REPLY, Message


class RaftState:
    """State of one member of one group.

    Attributes:
        role, leader, term, vote: as in the thesis; `leader` is 0 while unknown.
        commit_index: highest index known to be committed.
        applied_index: highest index that the host reported as applied.
        handed_index: highest index handed out for application.
        votes: answers to the election under way, member id -> granted.
        outbox: messages that claim nothing which is not durable.
        outbox_durable: messages that must wait until this Ready is durable.
        send_dirty: a leader has something for its followers that the next Ready will carry.
        noop_index: index of the no-op this leader began its term with.
        quiesced: the group is silent and its timers stand still.

    Raises:
        ValueError: the recovered hard state and log contradict each other, or this member
            belongs to the group neither as voter nor as learner.
    """

    def __init__(
        self,
        config: GroupConfig,
        options: CoreOptions,
        log: GroupLog,
        hard_state: HardState,
        applied_index: i64,
        seed: i64,
    ) -> None:
        self.config = config
        self.options = options
        self.group = config.group
        self.member = config.member
        self.log = LogView(log)
        self.electorate = Electorate(config.voters)
        self.promotable = self.electorate.contains(config.member)
        _check_recovered(config, self.log, hard_state, applied_index)

        self.role: i64 = FOLLOWER
        self.leader: i64 = 0
        self.term = hard_state.term
        self.vote = hard_state.vote
        self.commit_index: i64 = max(hard_state.commit, applied_index)
        self.applied_index = applied_index
        self.handed_index = applied_index
        self.votes: dict[int, bool] = {}
        self.durability = Durability(self.log.last_index, self.term, self.vote)

        self.peers: list[Progress] = []
        self.peer_of: dict[int, Progress] = {}
        self._create_peers()
        self.send_dirty = False
        self.noop_index: i64 = 0
        self.uncommitted: deque[tuple[int, int]] = deque()  # last index, bytes; oldest first
        self.uncommitted_bytes: i64 = 0

        self.prng = Prng(seed)
        self.election_elapsed: i64 = 0
        self.heartbeat_elapsed: i64 = 0
        self.idle_elapsed: i64 = 0
        self.election_timeout: i64 = 0
        self.quiesced = False
        self.draw_election_timeout()

        self.outbox: list[Message] = []
        self.outbox_durable: list[Message] = []

    def draw_election_timeout(self) -> None:
        """Draw a timeout in [election_ticks, 2 * election_ticks). Source: thesis section 3.4."""
        base: i64 = self.options.election_ticks
        self.election_timeout = base + self.prng.below(base)

    def send(self, message: Message) -> None:
        """Queue `message`; it waits for the disk if it depends on what is not durable yet."""
        kind = message.kind
        if (
            kind == VOTE_REPLY
            or (kind == APPEND_REPLY and not message.reject)
            or not self.is_hard_state_durable()
        ):
            self.outbox_durable.append(message)
        else:
            self.outbox.append(message)

    def is_hard_state_durable(self) -> bool:
        """Return whether the current term and vote are on disk."""
        return self.durability.term == self.term and self.durability.vote == self.vote

    def append_own(self, kind: i64, blobs: list[bytes]) -> i64:
        """Append entries as the leader of this term; return the index of the first."""
        assert self.role == LEADER
        first: i64 = self.log.last_index + 1
        entries: list[Entry] = []
        size: i64 = 0
        index: i64 = first
        for blob in blobs:
            entries.append(Entry(index, self.term, kind, blob))
            size += entry_cost(blob)
            index += 1
        self.log.append(entries)
        self.uncommitted.append((index - 1, size))
        self.uncommitted_bytes += size
        self.send_dirty = True
        self.idle_elapsed = 0
        return first

    def commit_to(self, index: i64) -> None:
        """Raise the commit index; a lower one than known is ignored."""
        if index <= self.commit_index:
            return
        assert index <= self.log.last_index, "entries known to be committed are missing"
        self.commit_index = index
        uncommitted = self.uncommitted
        while uncommitted and uncommitted[0][0] <= index:
            self.uncommitted_bytes -= uncommitted.popleft()[1]

    def _create_peers(self) -> None:
        options = self.options
        next_index: i64 = self.log.last_index + 1
        for member in sorted(self.config.voters + self.config.learners):
            if member == self.member:
                continue
            progress = Progress(
                member, next_index, options.inflight_max, options.inflight_bytes_max
            )
            self.peers.append(progress)
            self.peer_of[member] = progress


def entry_cost(blob: bytes) -> i64:
    """Return what one uncommitted entry counts against `uncommitted_bytes_max`."""
    return len(blob) + ENTRY_COST_BYTES


def _check_recovered(
    config: GroupConfig, log: LogView, hard_state: HardState, applied_index: i64
) -> None:
    where = f"group {config.group}, member {config.member}"
    if config.member not in config.voters and config.member not in config.learners:
        raise ValueError(f"{where}: not a member of the group")
    if hard_state.commit > log.last_index or applied_index > log.last_index:
        raise ValueError(
            f"{where}: commit {hard_state.commit} or applied {applied_index} lies beyond the "
            f"log's last index {log.last_index}"
        )
    if hard_state.term < log.last_term():
        raise ValueError(
            f"{where}: term {hard_state.term} is older than the log's last term {log.last_term()}"
        )
