"""Stability check of one group: a leader that hears a quorum is left alone, during faults too.

A leader is settled when it and a majority of the voters have run undisturbed for long enough, with
links between them that lost and delayed nothing, at delays which the election timeout allows. Then
neither may another member win a question for votes, nor may the leader step down by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from headrace_raftlog.model.group import LEADER
from headrace_raftlog.model.membership import Membership, member_node
from headrace_raftlog.simulator.coverage import Coverage
from headrace_raftlog.simulator.invariant_error import InvariantError
from headrace_raftlog.simulator.network import TAIL_FACTOR
from headrace_raftlog.simulator.parameters import TICK
from headrace_raftlog.simulator.port import MemberPort, NodePort

LATE_UNITS: Final = 4  # until a node sends what it decided: its turns may be late
SKEW: Final = 1.3  # longest tick, as a multiple of TICK
SETTLE_ELECTIONS: Final = 3  # base election timeouts until what went before has no effect


@final
class Leadership:
    """A member that leads a term.

    Attributes:
        since: when it was elected.
        membership: whom it went by when it was last looked at.
        changed_at: when that became another.
        transferred: it was told to hand over, and the successor may stand whenever it hears it.
    """

    def __init__(self, replica: MemberPort, now: int) -> None:
        self.replica = replica
        self.term = replica.core.term
        self.since = now
        self.membership: Membership = replica.core.membership
        self.changed_at = now
        self.transferred = False


@final
class Stability:
    """Judges every end of a leadership of one group, and every candidacy against one.

    Args:
        group: incarnation id.
        nodes: of the run, in the order of their numbers.
    """

    def __init__(self, group: int, nodes: Sequence[NodePort], coverage: Coverage) -> None:
        self._group = group
        self._nodes = nodes
        self._coverage = coverage
        self._leads: dict[int, Leadership] = {}  # by member
        self._stood: dict[int, int] = {}  # newest term in which a member stood
        self._terms: dict[int, bool] = {}  # terms in which anyone stood
        self._durable: dict[int, tuple[int, int]] = {}  # member: durable term, since when
        self._disturbed_at = 0

    def disturb(self, now: int) -> None:
        """Judge nothing for a while: a member was told to stand."""
        self._disturbed_at = now

    def started(self, replica: MemberPort) -> None:
        """Forget what a member was before it restarted."""
        self._leads.pop(replica.member, None)
        core = replica.core
        if core.vote == replica.member:
            self._stood[replica.member] = core.term
            self._terms[core.term] = True

    def synced(self, replica: MemberPort, term: int) -> None:
        """Note since when a term is durable on a member's disk."""
        if self._durable.get(replica.member, (-1, 0))[0] != term:
            self._durable[replica.member] = (term, replica.node.loop.now)

    def transferred(self, replica: MemberPort) -> None:
        """Note that a leader was told to hand over."""
        lead = self._leads.get(replica.member)
        if lead is not None:
            lead.transferred = True

    def note_settled(self) -> None:
        """Count the leaders that may not lose their leadership now."""
        for lead in self._leads.values():
            leads = not lead.replica.stopped and lead.replica.core.role == LEADER
            if leads and self._is_settled(lead):
                self._coverage.note("settled leaders")

    def observe(self, replica: MemberPort) -> None:
        """Check one member after it handled an event."""
        core = replica.core
        member = replica.member
        term = core.term
        if core.vote == member and term > self._stood.get(member, 0):
            self._stood[member] = term
            self._terms[term] = True
            self._judge_candidate(replica)
        lead = self._leads.get(member)
        if core.role == LEADER:
            if lead is None or lead.term != term:
                self._leads[member] = Leadership(replica, replica.node.loop.now)
            elif core.membership is not lead.membership:
                lead.membership = core.membership
                lead.changed_at = replica.node.loop.now
        elif lead is not None:
            del self._leads[member]
            self._judge_end(lead)

    def _judge_candidate(self, candidate: MemberPort) -> None:
        """Demand that no settled leader of an older term is there."""
        core = candidate.core
        for lead in self._leads.values():
            leads = not lead.replica.stopped and lead.replica.core.role == LEADER
            if leads and lead.term < core.term and self._is_settled(lead):
                raise InvariantError(
                    20,
                    f"member {candidate.member} stands in term {core.term}, and member "
                    f"{lead.replica.member} leads term {lead.term} with a quorum",
                )

    def _judge_end(self, lead: Leadership) -> None:
        """Demand a reason for the end of a leadership."""
        replica = lead.replica
        core = replica.core
        if core.term > lead.term:
            if core.term not in self._terms:
                raise InvariantError(
                    20, f"leader {replica.member} gave way to term {core.term}, nobody stood in it"
                )
            return
        if not core.membership.is_voter(replica.member) or replica.node.disk_watch.stalled:
            return
        if self._is_settled(lead):
            raise InvariantError(
                20, f"leader {replica.member} of term {lead.term} stepped down from its quorum"
            )

    def _is_settled(self, lead: Leadership) -> bool:
        """Return whether nothing explains the end of a leadership."""
        replica = lead.replica
        node = replica.node
        settle = self._settle_units(node)
        now = node.loop.now
        since = max(lead.since, lead.changed_at, self._disturbed_at, node.calm_since)
        resumed = max(one.resumed_at for one in self._nodes)  # it has heard what is long over
        membership = lead.membership
        if lead.transferred or membership.is_joint or now - max(since, resumed) < settle:
            return False
        held = sum(
            voter == replica.member or now - self._in_touch_since(lead, voter) >= settle
            for voter in membership.voters
        )
        return membership.is_voter(replica.member) and held > len(membership.voters) // 2

    def _in_touch_since(self, lead: Leadership, voter: int) -> int:
        """Return since when a voter and its leader hear each other in time; now for never."""
        node = lead.replica.node
        other = self._nodes[member_node(voter) - 1]
        now = node.loop.now
        replica = other.replicas.get(self._group)
        if replica is None or replica.member != voter or replica.stopped:
            return now
        term, durable_at = self._durable.get(voter, (-1, now))
        if term != lead.term or not self._is_in_time(node, other):
            return now
        links = node.network.calm_since(node.number, other.number)
        return max(other.calm_since, links, durable_at, replica.began_at)

    def _is_in_time(self, leader: NodePort, follower: NodePort) -> bool:
        """Return whether heartbeats and answers take less than the shortest election timeout."""
        parameters = leader.parameters
        ticks = parameters.election_ticks - 1
        delay = parameters.delay_max + LATE_UNITS
        beat = parameters.heartbeat_ticks * leader.tick_units
        return (
            beat + delay <= ticks * follower.tick_units
            and beat + 2 * delay <= ticks * leader.tick_units
        )

    def _settle_units(self, node: NodePort) -> int:
        parameters = node.parameters
        delay = parameters.delay_max * (TAIL_FACTOR if parameters.tail else 1)
        elections = SETTLE_ELECTIONS * parameters.election_ticks * TICK * SKEW
        return int(elections) + 2 * delay
