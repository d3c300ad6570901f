"""The Raft core: ticks, messages and proposals in, numbered Readies out.

Pure and synchronous: no clock, no I/O, no randomness but a seeded generator. `INTERNALS.md` of
this component and `model/ready.py` describe what a host owes it.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_raftlog.core import (
    election,
    liveness,
    proposals,
    reads,
    reconfiguration,
    replication,
    transfer,
)
from headrace_raftlog.core.progress import SNAPSHOT_OFFERED, Progress
from headrace_raftlog.core.roles import become_follower
from headrace_raftlog.core.state import NO_MESSAGES, RaftState
from headrace_raftlog.model.entry import HardState
from headrace_raftlog.model.group import (
    BUSY,
    FOLLOWER,
    LEADER,
    NOT_LEADER,
    CoreOptions,
    GroupConfig,
)
from headrace_raftlog.model.log import GroupLog
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.model.message import (
    APPEND,
    APPEND_REPLY,
    HEARTBEAT,
    HEARTBEAT_REPLY,
    PRE_VOTE,
    PRE_VOTE_REPLY,
    READ_INDEX,
    READ_INDEX_REPLY,
    SNAPSHOT,
    TIMEOUT_NOW,
    VOTE,
    VOTE_REPLY,
    Message,
)
from headrace_raftlog.model.ready import Ready


@final
class RaftCore(RaftState):
    """One member of one group.

    Readable attributes: `role`, `leader`, `term`, `vote`, `commit_index`, `applied_index`,
    `last_index`, `quiesced`, `ready_to_serve`, `uncommitted_bytes`, `membership`, `transferee`,
    `is_changing`.

    Raises:
        ValueError: the recovered state is contradictory.

    Source: Ongaro, Consensus: Bridging Theory and Practice (the thesis), chapters 3, 4, 6, 9, 10.
    """

    def __init__(
        self,
        config: GroupConfig,  # who this member is, and who belonged to the group when its log began
        options: CoreOptions,  # tunables
        log: GroupLog,  # the group's log; whatever it holds now is taken to be durable
        hard_state: HardState,  # as recovered; all zero for a new group
        # what the state machine already contains: the index of the snapshot that it was restored
        # from, 0 if it starts empty
        applied_index: i64,
        seed: i64,  # spreads the election timeouts; should differ between members
    ) -> None:
        super().__init__(config, options, log, hard_state, applied_index, seed)
        self.ready_number: i64 = 0
        self.written_term = hard_state.term
        self.written_vote = hard_state.vote
        self.written_commit = hard_state.commit
        self.told_role: i64 = FOLLOWER
        self.told_leader: i64 = 0
        self.told_membership = config.membership

    @property
    def last_index(self) -> i64:
        """Highest index of the log, 0 for an empty one."""
        return self.log.last_index

    @property
    def ready_to_serve(self) -> bool:
        """True if this member leads and its state machine contains all committed entries.

        Source: thesis section 6.4.
        """
        return self.role == LEADER and self.applied_index >= self.noop_index

    def progress(self, peer: i64) -> Progress | None:
        """Return what this leader knows of another member. Read only.

        None if it is no member, or if this one does not lead.
        """
        return self.peer_of.get(peer)

    def tick(self) -> None:
        """Let one tick pass. The host need not call it while `quiesced`."""
        if self.quiesced:
            return
        if self.role == LEADER:
            liveness.tick_leader(self)
            return
        reads.expire(self)
        self.election_elapsed += 1
        if self.election_elapsed >= self.election_timeout:
            election.leader_missing(self)

    def step(self, message: Message) -> None:
        """Take one message; those of other groups or for other members are disregarded."""
        if message.group != self.group or message.target != self.member:
            return
        if self.withheld and message.kind in (PRE_VOTE, VOTE):
            return  # the vote would not become durable, and who counts on it would fail
        if self.quiesced and not (
            liveness.is_late(self, message) or liveness.is_repeated_quiesce(self, message)
        ):
            if liveness.passes_over(self, message):
                return
            liveness.wake_for(self, message)
        if message.kind == PRE_VOTE:
            self.hear_question(message.source)
        if message.term < self.term:
            self._step_older_term(message)
        elif message.term == self.term or self._enter_newer_term(message):
            self._dispatch(message)

    def propose(self, blobs: list[bytes], urgent: bool = False) -> int:
        """Append one entry per blob, all or none.

        Args:
            blobs: at least one.
            urgent: whether it passes proposals that are not, when it has to wait.

        Returns:
            Index of the first entry; QUEUED when it waits until less than
            `uncommitted_bytes_max` is uncommitted (one proposal always fits alone), to be lost
            with the leadership; NOT_LEADER; or BUSY when too much waits already, or the
            leadership is being handed over.

        Raises ValueError: `blobs` is empty.
        """
        if not blobs:
            raise ValueError("blobs must not be empty")
        if self.role != LEADER:
            liveness.doubt_leader(self)
            return NOT_LEADER
        if self.quiesced:
            liveness.wake_silently(self)
        return proposals.propose(self, blobs, urgent)

    def propose_checkpoint(self) -> int:
        """Append a no-op at which members take the digest of their states.

        Returns:
            Its index; NOT_LEADER; or BUSY before this leader serves, and while proposals wait, a
            change of membership is under way or the leadership is being handed over.
        """
        if self.role != LEADER:
            return NOT_LEADER
        if self.is_changing or not self.ready_to_serve:
            return BUSY
        if self.quiesced:
            liveness.wake_silently(self)
        return proposals.propose_checkpoint(self)

    def propose_membership(self, voters: tuple[int, ...], learners: tuple[int, ...] = ()) -> int:
        """Begin to change who belongs to the group.

        It is in force at once, and final when `is_changing` is False again; a leader that leaves
        hands over then. It is rolled back if another leader replaces its entry.

        Args:
            voters: member ids, 1 to VOTERS_MAX; new ones must be learners that have the log.
            learners: member ids that receive entries and never count.

        Returns:
            Index of the entry (that of the present membership if nothing changes); NOT_LEADER;
            NOT_CAUGHT_UP; or BUSY while another change is under way, nothing of this term is
            committed yet, or the leadership is being handed over.

        Raises ValueError: no group can have these members.
        """
        index: int = reconfiguration.propose_membership(self, Membership(voters, learners))
        if index > 0 and self.quiesced:
            liveness.wake_silently(self)
        return index

    @property
    def is_changing(self) -> bool:
        """True while a change of membership is under way."""
        return reconfiguration.is_changing(self)

    def is_caught_up(self, learner: i64) -> bool:
        """Return whether a learner of this leader has enough of the log to become a voter."""
        return reconfiguration.is_caught_up(self, learner)

    def read_index(self, context: i64) -> bool:
        """Ask how far the state machine must be applied to answer a read that begins now.

        The answer comes with a later Ready: in `read_states` under `context`, or in `reads_lost`
        when the leader changed, or did not answer a follower within an election timeout.

        Args:
            context: a number, positive, that this member never used before, in an earlier life
                neither.

        Returns:
            False when no leader is known or too many reads wait.
        """
        liveness.wake(self)
        return reads.ask(self, context)

    def campaign(self) -> None:
        """Start an election now, unless this member leads or may not lead."""
        liveness.wake(self)
        election.campaign(self)

    def transfer(self, target: i64) -> bool:
        """Hand the leadership over to `target`.

        Until it leads, or an election timeout has passed, proposals are BUSY.

        Returns:
            False, and nothing happens, unless this member leads, `target` is another voter, and
            neither a change of membership nor another transfer is under way.

        Source: thesis section 3.10.
        """
        progress = self.peer_of.get(target)
        if (
            self.role != LEADER
            or progress is None
            or target not in self.membership.voters
            or self.is_changing
            or self.transferee != 0
        ):
            return False
        liveness.wake(self)
        transfer.begin(self, progress)
        return True

    def withhold(self, withheld: bool) -> None:
        """Take no part in elections from now on, because the disk does not answer; or again.

        A leader goes on leading until it has handed over (`transfer`), or `resign`.
        """
        if withheld and not self.withheld:
            liveness.withhold(self)
        self.withheld = withheld

    def resign(self) -> None:
        """Stop leading, and let the others elect; nothing happens unless this member leads."""
        if self.role == LEADER:
            liveness.resign(self)

    def restore(self, index: i64, term: i64, membership: Membership) -> bool:
        """Let a fetched snapshot take the place of everything up to `index`.

        The host puts it into the log and the state machine before it calls the core again.

        Args:
            index: position of the snapshot.
            term: term of the entry at `index`.
            membership: who belonged to the group there.

        Returns:
            False, and nothing happens, when this member has as much already, or leads; or when
            `term` is newer than what it was given to write: a snapshot is written before the next
            hard state, and on disk no entry may be newer than the term. A leader of that term
            will offer its snapshot again.
        """
        if index <= self.commit_index or self.role == LEADER or term > self.written_term:
            return False
        replication.restore(self, index, term, membership)
        return True

    def retain_index(self) -> int:
        """Return the index from which on members in reach still need entries of the log."""
        index: i64 = self.last_index
        for progress in self.peers:
            if progress.state == SNAPSHOT_OFFERED:
                index = min(index, progress.next_index - 1)
            elif not progress.is_out_of_reach():
                index = min(index, progress.match)
        return index

    def has_ready(self) -> bool:
        """Return whether `ready` would have anything in it."""
        return (
            self.send_dirty
            or len(self.outbox) > 0
            or len(self.outbox_durable) > 0
            or len(self.log.pending) > 0
            or self.term != self.written_term
            or self.vote != self.written_vote
            or self.has_committed()
            or self.role != self.told_role
            or self.leader != self.told_leader
            or self.membership is not self.told_membership
            or self.offer is not None
            or self.restored
            or reads.has_news(self)
        )

    def ready(self) -> Ready:
        """Hand out everything there is to write, send and apply; see `Ready`."""
        if reads.begin_round(self):
            liveness.broadcast(self, False)
        if self.send_dirty:
            replication.send_appends(self)
        self.ready_number += 1
        ready = Ready(self.ready_number)
        self._hand_writes(ready)
        if self.outbox:
            ready.messages, self.outbox = self.outbox, NO_MESSAGES
        if self.outbox_durable and (ready.must_sync or self.durability.writing):
            ready.messages_after_persist = self.outbox_durable
        else:
            ready.messages.extend(self.outbox_durable)
        self.outbox_durable = NO_MESSAGES
        if ready.must_sync or ready.messages_after_persist:
            self.durability.began(ready.number, self.last_index, self.term, self.vote)
        if self.has_committed():
            ready.committed = replication.take_committed(self)
        ready.role = self.told_role = self.role
        ready.leader = self.told_leader = self.leader
        ready.term = self.term
        self._hand_news(ready)
        return ready

    def persisted(self, number: i64) -> None:
        """Note that the writes of all Readies up to `number` are durable."""
        if not self.durability.finished(number):
            return
        election.count_own_vote(self)
        if self.role == LEADER:
            replication.advance_commit(self)
            reconfiguration.committed(self)

    def applied(self, index: i64) -> None:
        """Note that the state machine contains everything up to `index`."""
        assert self.applied_index <= index <= self.handed_index, "applied what was not handed out"
        self.applied_index = index
        self.forget_memberships()

    def report_unreachable(self, peer: i64) -> None:
        """Note that messages to `peer` may be lost: pipelining to it stops until it answers."""
        progress = self.peer_of.get(peer)
        if progress is not None:
            progress.become_probe()
            progress.probe_sent = True  # the next HEARTBEAT_REPLY lets it go on

    def wake(self) -> None:
        """End quiescence, because a node with a member came up."""
        liveness.wake(self)

    def entries_read(self) -> None:
        """The host has read what `GroupLog.at_hand` did not have: send it, and hand it out."""
        self.reading_index = 0
        if self.role == LEADER:
            self.send_dirty = True

    def watch_nodes(self, nodes_up: set[int]) -> None:
        """Go by which other nodes can be reached, as the host knows by its sessions.

        Args:
            nodes_up: their ids; the host changes it, and then says `peer_down`, `lose_leader` or
                `wake` where that matters.
        """
        self.nodes_up = nodes_up

    def peer_up(self, peer: i64) -> None:
        """Note that the node of a member came up: earlier messages to it may be lost."""
        if not liveness.greet(self, peer):
            self.report_unreachable(peer)
            liveness.wake(self)

    def peer_down(self, peer: i64) -> None:
        """Note that the node of a member is down; a silent leader with a majority stays silent."""
        self.report_unreachable(peer)
        liveness.peer_down(self)

    def lose_leader(self, spread: i64 = 0) -> None:
        """Campaign soon, or if silent within `spread` ticks, for the leader's node is down.

        No harm where the host is wrong: members that hear the leader refuse (stickiness).
        """
        if self.role == FOLLOWER and self.leader != 0:
            liveness.lose_leader(self, spread)

    def _enter_newer_term(self, message: Message) -> bool:
        """Settle the term for a message of a newer one; return whether to dispatch it."""
        kind = message.kind
        if kind in (PRE_VOTE, VOTE):
            if election.is_sticky(self, message):
                return False
            if kind == PRE_VOTE:
                return True
        elif kind == PRE_VOTE_REPLY and not message.reject:
            return True
        follows = kind in (APPEND, HEARTBEAT, SNAPSHOT)
        former: i64 = self.leader
        become_follower(self, message.term, message.source if follows else 0)
        if former not in (0, self.member, message.source):
            # It may be silent, and hear of its successor from nobody else.
            self.send(Message(HEARTBEAT_REPLY, self.group, self.member, former, self.term))
        return True

    def _step_older_term(self, message: Message) -> None:
        """Tell requesters of an older term about this one; drop everything else."""
        kind = message.kind
        if kind in (PRE_VOTE, VOTE):
            election.refuse(self, message)
        elif kind in (APPEND, HEARTBEAT, SNAPSHOT):
            self.send(Message(HEARTBEAT_REPLY, self.group, self.member, message.source, self.term))

    def _dispatch(self, message: Message) -> None:
        kind = message.kind
        if kind in (APPEND, HEARTBEAT, SNAPSHOT):
            self._follow(message)
        elif kind in (VOTE, PRE_VOTE):
            election.answer_request(self, message)
        elif kind in (VOTE_REPLY, PRE_VOTE_REPLY):
            election.take_reply(self, message)
        elif kind == TIMEOUT_NOW:
            if message.source == self.leader:
                election.campaign_forced(self)
        elif kind == READ_INDEX_REPLY:
            reads.take_answer(self, message)
        elif self.role == LEADER:
            self._lead(message)

    def _lead(self, message: Message) -> None:
        kind = message.kind
        if kind == APPEND_REPLY:
            replication.take_append_reply(self, message)
            reconfiguration.committed(self)
        elif kind == HEARTBEAT_REPLY:
            replication.take_heartbeat_reply(self, message)
            reads.note_round(self, message)
        elif kind == READ_INDEX:
            reads.take_question(self, message)

    def _follow(self, message: Message) -> None:
        assert self.role != LEADER, "two leaders in one term"
        if self.role != FOLLOWER or self.leader != message.source:
            assert self.leader == 0, "two leaders in one term"
            become_follower(self, self.term, message.source)
        self.election_elapsed = 0
        if message.kind == APPEND:
            replication.follow_append(self, message)
        elif message.kind == SNAPSHOT:
            replication.follow_snapshot(self, message)
        else:
            liveness.follow_heartbeat(self, message)

    def _hand_writes(self, ready: Ready) -> None:
        """Fill in what must be written.

        The commit index in it never passes what is already durable: were it newer than the
        entries beside it, a torn write could declare replaced entries committed.
        """
        ready.entries = self.log.take_pending()
        changed = self.term != self.written_term or self.vote != self.written_vote
        changed = changed or self.restored
        self.restored = False
        commit: i64 = self.applicable_index()
        if changed or (ready.entries and commit > self.written_commit):
            ready.hard_state = HardState(self.term, self.vote, commit)
            self.written_term = self.term
            self.written_vote = self.vote
            self.written_commit = commit
        ready.must_sync = changed or len(ready.entries) > 0

    def _hand_news(self, ready: Ready) -> None:
        if self.membership is not self.told_membership:
            ready.membership = self.told_membership = self.membership
        ready.offer = self.offer
        self.offer = None
        waiting = self.reads
        if waiting is not None:
            ready.read_states = waiting.states
            ready.reads_lost = waiting.lost
            waiting.states = []
            waiting.lost = []
