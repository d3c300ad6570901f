"""Everything a core remembers, and the primitives that all its parts use."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from headrace_raftlog.core.durability import Durability
from headrace_raftlog.core.log_view import LogView
from headrace_raftlog.core.prng import Prng
from headrace_raftlog.core.progress import Progress
from headrace_raftlog.core.proposal_queue import ProposalQueue
from headrace_raftlog.core.quorum import Electorate
from headrace_raftlog.core.read_rounds import Reads
from headrace_raftlog.model.entry import ENTRY_CONFIG, Entry, HardState
from headrace_raftlog.model.errors import ForgottenError
from headrace_raftlog.model.group import FOLLOWER, LEADER, CoreOptions, GroupConfig
from headrace_raftlog.model.limits import ASKED_PATIENT, ASKED_SLOWER_MAX, ENTRY_COST_BYTES
from headrace_raftlog.model.log import GroupLog
from headrace_raftlog.model.membership import Membership, decode_membership, member_node
from headrace_raftlog.model.message import APPEND_REPLY, VOTE_REPLY, Message
from headrace_raftlog.model.snapshot import SnapshotOffer

# What most members have none of, one for all of these; never changed.
NO_VOTES: Final[dict[int, bool]] = {}
NO_PEERS: Final[list[Progress]] = []
NO_PROGRESS: Final[dict[int, Progress]] = {}
NOT_UNCOMMITTED: Final[list[tuple[int, int]]] = []
NO_MESSAGES: Final[list[Message]] = []


class RaftState:
    """State of one member of one group.

    What only leaders need is created when it is needed: of the thousands of groups on a node most
    are idle, and most are led elsewhere.

    Raises ValueError: the recovered hard state and log contradict each other.
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
        self.options = options
        self.group = config.group
        self.member = config.member
        self.log = LogView(log)
        _check_recovered(config, self.log, hard_state, applied_index)
        self._memberships: list[tuple[int, Membership]] = [
            (log.first_index() - 1, config.membership)
        ]
        # who belongs to the group: the newest membership in the log, committed or not
        self.membership = config.membership
        self.electorate = Electorate(config.membership)  # who counts in it

        self.role: i64 = FOLLOWER  # as in the thesis; `leader` is 0 while unknown
        self.leader: i64 = 0
        self.term = hard_state.term
        self.vote = hard_state.vote
        self.commit_index: i64 = max(hard_state.commit, applied_index)  # highest one known
        self.applied_index = applied_index  # highest index that the host reported as applied
        self.handed_index = applied_index  # highest index handed out for application
        # the next one, while the host reads it; one that was handed out otherwise
        self.reading_index: i64 = 0
        self.votes = NO_VOTES  # answers to the election under way, member id -> granted
        self.durability = Durability(self.log.last_index, self.term, self.vote)

        # a leader's progress of the other members, ascending, and by member id
        self.peers = NO_PEERS
        self.peer_of = NO_PROGRESS
        self.send_dirty = False  # the next Ready carries something to a leader's followers
        self.noop_index: i64 = 0  # index of the no-op this leader began its term with
        self.uncommitted = NOT_UNCOMMITTED  # last index, bytes; oldest first
        self.uncommitted_bytes: i64 = 0
        self.queue: ProposalQueue | None = None  # a leader's proposals that wait for the window
        self.reconfiguring = False  # this leader has not seen the membership in force committed yet
        self.transferee: i64 = 0  # member id of whoever is to take the leadership over, 0 for none
        self.transfer_elapsed: i64 = 0
        self.reads: Reads | None = None  # what waits to be read, None until something does
        self.read_round: i64 = 0  # number of the newest round of heartbeats that confirms reads
        self.offer: SnapshotOffer | None = None  # a snapshot to fetch, not handed out yet
        self.restored = False  # a snapshot took the log's place; the next Ready is to be written

        self.prng = Prng(seed)
        self.election_elapsed: i64 = 0
        self.heartbeat_elapsed: i64 = 0
        self.idle_elapsed: i64 = 0
        self.election_timeout: i64 = 0
        self.quiesced = False  # the group is silent and its timers stand still
        self.heard_index: i64 = 0  # end of the leader's log in this term, as its heartbeats said
        self.withheld = False  # this member takes no part in elections: its disk does not answer
        # ids of the other nodes that can be reached, None where the host does not say; its host
        # changes it, and all groups of a node share it
        self.nodes_up: set[int] | None = None
        self.asked: i64 = 0  # questions for votes in vain, in a row
        self.askers: tuple[int, ...] = ()  # members that asked since then, in vain as far as known
        # such questions of others that did not wake this member since its group fell silent
        self.doubts: i64 = 0
        self.draw_election_timeout()

        self.outbox = NO_MESSAGES  # messages that claim nothing which is not durable
        self.outbox_durable = NO_MESSAGES  # those that wait until this Ready is durable
        for entry in log.config_entries():
            self._adopt(entry)

    @property
    def promotable(self) -> bool:
        """True if this member may lead: it counts, or its removal is not known to be committed.

        In its own absence a majority of the others may still need it, for it may be the only one
        with the newest entries.

        Source: thesis section 4.2.2.
        """
        if self.electorate.contains(self.member):
            return True
        memberships = self._memberships
        return (
            len(memberships) > 1
            and memberships[-1][0] > self.commit_index
            and memberships[-2][1].is_voter(self.member)
        )

    def draw_election_timeout(self) -> None:
        """Draw a timeout in [election_ticks, 2 * election_ticks). Source: thesis section 3.4."""
        base: i64 = self.options.election_ticks
        self.election_timeout = base + self.prng.below(base)

    def slow_down(self) -> None:
        """Wait longer before the next question for votes, where several were in vain.

        A member that its link to the leader alone is cut from would otherwise ask for ever, for
        each of its groups, others that hear the leader.
        """
        self.asked += 1
        doublings: i64 = min(self.asked - ASKED_PATIENT, ASKED_SLOWER_MAX)
        if doublings > 0:
            self.election_timeout <<= doublings

    def hurry(self) -> None:
        """Ask for votes as soon as at first: something has changed."""
        self.askers = ()
        self._hurry()

    def hear_question(self, asker: i64) -> None:
        """Ask as soon as at first where another member begins to ask: it has lost its leader.

        One that asks in vain as well, again and again, is no news: both would never slow down.
        """
        if asker not in self.askers:
            self.askers = (*self.askers, int(asker))
            self._hurry()

    def _hurry(self) -> None:
        if self.asked > ASKED_PATIENT:
            self.election_elapsed = 0  # a leader that hears of the change speaks first
            self.draw_election_timeout()
        self.asked = 0

    def is_node_up(self, member: i64) -> bool:
        """Return whether the host knows that a member's node can be reached."""
        nodes_up = self.nodes_up
        return nodes_up is not None and member_node(member) in nodes_up

    def send(self, message: Message) -> None:
        """Queue `message`; it waits for the disk if it depends on a pending write."""
        kind = message.kind
        if (
            kind == VOTE_REPLY
            or (kind == APPEND_REPLY and not message.reject)
            or not self.is_hard_state_durable()
        ):
            if self.outbox_durable:
                self.outbox_durable.append(message)
            else:
                self.outbox_durable = [message]
        elif self.outbox:
            self.outbox.append(message)
        else:
            self.outbox = [message]

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
        self.append(entries)
        self.uncommitted.append((index - 1, size))
        self.uncommitted_bytes += size
        self.send_dirty = True
        self.idle_elapsed = 0
        return first

    def append(self, entries: list[Entry]) -> None:
        """Put entries at their indexes; existing ones there and beyond are replaced.

        A membership among them is in force at once; one that is replaced no longer is.

        Source: thesis section 4.1.
        """
        first: i64 = entries[0].index
        if first <= self.log.last_index:
            self.durability.truncated(first)
            self._roll_back(first)
        self.log.append(entries)
        for entry in entries:
            if entry.kind == ENTRY_CONFIG:
                self._adopt(entry)

    def commit_to(self, index: i64) -> None:
        """Raise the commit index; a lower one than known is ignored.

        Raises ForgottenError: the leader counts on entries that this member has acknowledged and
        does not have; the member is as before, and must not go on.
        """
        if index <= self.commit_index:
            return
        if index > self.log.last_index:
            raise ForgottenError(
                f"group {self.group}: entry {index} was acknowledged by this member, for it is "
                f"known to be committed, and its log ends at entry {self.log.last_index}"
            )
        self.commit_index = index
        uncommitted = self.uncommitted
        count: i64 = 0
        while count < len(uncommitted) and uncommitted[count][0] <= index:
            self.uncommitted_bytes -= uncommitted[count][1]
            count += 1
        if count > 0:
            del uncommitted[:count]

    def applicable_index(self) -> i64:
        """Return the highest index that may be handed out: committed, and durable here."""
        return min(self.commit_index, self.durability.last_index)

    def has_committed(self) -> bool:
        """Return whether entries are to be handed out, the next of which is not being read."""
        handed: i64 = self.handed_index
        return self.applicable_index() > handed and self.reading_index <= handed

    def membership_index(self) -> i64:
        """Return the index of the membership in force; that of the snapshot if none is newer."""
        return self._memberships[-1][0]

    def membership_at(self, index: i64) -> Membership:
        """Return the membership in force at an index from `applied_index` on."""
        at: i64 = len(self._memberships) - 1
        while at > 0 and self._memberships[at][0] > index:
            at -= 1
        return self._memberships[at][1]

    def restore_memberships(self, index: i64, membership: Membership, keep: bool) -> None:
        """Begin anew with the membership of a snapshot that ends at `index`.

        Args:
            index: position of the snapshot.
            membership: who belonged to the group there.
            keep: whether the log goes on behind it, with its memberships.
        """
        newer = [pair for pair in self._memberships if keep and pair[0] > index]
        self._memberships = [(int(index), membership), *newer]
        self._take_membership()

    def forget_memberships(self) -> None:
        """Drop memberships that were replaced before everything applied."""
        memberships = self._memberships
        while len(memberships) > 1 and memberships[1][0] <= self.applied_index:
            del memberships[0]

    def create_peers(self) -> None:
        """Begin to follow the progress of every other member, as a new leader does."""
        self.reconfiguring = True
        self.peers, self.peer_of, self.uncommitted = [], {}, []
        for member in self.membership.everyone():
            self._add_peer(member)

    def drop_peers(self) -> None:
        """Forget the progress of all members."""
        self.reconfiguring = False
        self.peers = NO_PEERS
        self.peer_of = NO_PROGRESS

    def drop_peer(self, progress: Progress) -> None:
        """Forget the progress of one member that does not belong to the group any more."""
        self.peers.remove(progress)
        del self.peer_of[progress.member]

    def _adopt(self, entry: Entry) -> None:
        self._memberships.append((int(entry.index), decode_membership(entry.data)))
        self._take_membership()

    def _roll_back(self, first: i64) -> None:
        """Drop memberships whose entries, from index `first` on, are replaced."""
        memberships = self._memberships
        if memberships[-1][0] < first:
            return
        while memberships[-1][0] >= first:
            memberships.pop()
        self._take_membership()

    def _take_membership(self) -> None:
        """Let the newest membership decide from now on.

        A leader goes on sending to those who leave until their leaving is committed.
        """
        self.membership = self._memberships[-1][1]
        self.electorate = Electorate(self.membership)
        if self.role == LEADER:
            self.reconfiguring = True
            for member in self.membership.everyone():
                if member not in self.peer_of:
                    self._add_peer(member)

    def _add_peer(self, member: i64) -> None:
        if member == self.member:
            return
        options = self.options
        progress = Progress(
            member, self.log.last_index + 1, options.inflight_max, options.inflight_bytes_max
        )
        at: i64 = 0
        while at < len(self.peers) and self.peers[at].member < member:
            at += 1
        self.peers.insert(at, progress)
        self.peer_of[member] = progress


def entry_cost(blob: bytes) -> i64:
    """Return the cost of one uncommitted entry against `uncommitted_bytes_max`."""
    return len(blob) + ENTRY_COST_BYTES


def _check_recovered(
    config: GroupConfig, log: LogView, hard_state: HardState, applied_index: i64
) -> None:
    where = f"group {config.group}, member {config.member}"
    if applied_index < log.first_index() - 1:
        raise ValueError(
            f"{where}: applied {applied_index} lies before the snapshot at {log.first_index() - 1}"
        )
    if hard_state.commit > log.last_index or applied_index > log.last_index:
        raise ValueError(
            f"{where}: commit {hard_state.commit} or applied {applied_index} lies beyond the "
            f"log's last index {log.last_index}"
        )
    if hard_state.term < log.last_term():
        raise ValueError(
            f"{where}: term {hard_state.term} is older than the log's last term {log.last_term()}"
        )
