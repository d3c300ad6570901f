"""Questions about the groups of a node."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace_raftlog.core.progress import SNAPSHOT_OFFERED
from headrace_raftlog.core.raft import RaftCore
from headrace_raftlog.model.errors import LostEntryError
from headrace_raftlog.model.group import LEADER
from headrace_raftlog.model.histogram import Histogram
from headrace_raftlog.model.membership import Membership, member_node
from headrace_raftlog.node.entry_repair import EntryRepair
from headrace_raftlog.node.host import Host
from headrace_raftlog.node.hosted_group import HostedGroup
from headrace_raftlog.node.membership import wanted_nodes
from headrace_raftlog.node.state_comparison import StateComparison
from headrace_raftlog.storage.group.lost_entries import lost_indexes
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_raftlog.transport.transport import Transport


class MemberProgress(NamedTuple):
    """A leader's knowledge of a member."""

    member: int  # its id
    role: str  # "voter", "learner" (it only receives entries) or "leaving" (it still votes)
    match: int  # highest index known to be on its disk and equal to the leader's
    reachable: bool  # whether it answers
    fetching: bool  # whether it needs the snapshot first


class RaftFigures(NamedTuple):
    """Figures of a node's replicas and its log; counts are since the start."""

    groups: int  # replicas on this node
    led: int  # of these, those that lead
    leaderless: int  # those that know of no leader
    quarantined: int  # those that were found damaged and are rebuilt
    suspended: int  # those that stand still until damaged entries are put back
    entries_lost: int  # entries found damaged while the node ran
    entries_repaired: int  # damaged entries put back from other members
    compared: int  # comparisons of the states of a group's members, by this node as its leader
    diverged: int  # replicas here whose state differed from a majority's, and that were given up
    differing: int  # groups led here whose states differ without a majority for one of them
    entries: int  # applied here
    latency: Histogram  # from a leader's log to application, of entries that were timed
    elections: int  # terms that began
    leader_changes: int  # leaders that followed others
    # entries that the replicas of other nodes lack of what is led here, by node id
    lags: dict[int, int]
    lag_max: int  # the most that one of them lacks
    snapshots: int  # taken
    installed: int  # snapshots that were fetched from others
    log_bytes: int  # of all files
    live_bytes: int  # of what is needed in them
    segments: int  # files
    backlog_bytes: int  # appended and not known to be durable
    written_bytes: int  # in batches
    syncs: Histogram  # how long batches took to be durable
    blocking_reads: int  # of the log that the event loop has waited for
    disk_full: bool  # whether the log has met a full disk
    disk_stalled: bool  # whether the disk hangs


class GroupQueries:
    """The part of a node that answers questions about its groups.

    Questions about a group that is not on this node raise KeyError, unless they say otherwise.
    """

    _host: Host
    _log: SharedLog
    _damaged: dict[int, str]
    _repair: EntryRepair
    _comparison: StateComparison
    _transport: Transport

    @property
    def disk_full(self) -> bool:
        """True if proposals are BUSY because the log cannot grow."""
        return self._host.disk_full

    def counters(self) -> dict[str, int]:
        """Return counts since the start, over all peers, beats included in the frames."""
        return self._transport.counters()

    @property
    def disk_stalled(self) -> bool:
        """True while the disk hangs: this node leads nothing, and nothing is applied here."""
        return self._host.disk_stalled

    def members(self, group: int) -> Membership:
        """Return who belongs to a group as far as this node knows."""
        return self._hosted(group).core.membership

    def snapshot_index(self, group: int) -> int:
        """Return the position up to which a group's log is only a snapshot on this node."""
        return self._hosted(group).view.snapshot_index

    def quarantined(self) -> dict[int, str]:
        """Return why groups were set aside as damaged or different, by group.

        A group stays here until its replica is rebuilt from the others and votes again. One that is
        there to learn only stays until it has what was decided up to its admission.
        """
        for group in list(self._damaged):
            hosted = self._host.find(group)
            if hosted is None or hosted.suspended:
                continue
            core = hosted.core
            if core.membership.is_voter(core.member) or _has_learnt(hosted):
                del self._damaged[group]
        return dict(self._damaged)

    def damages(self) -> dict[int, str]:
        """Return the damage of groups on this node, by group: `quarantined`, and more.

        That is those that stand still until their damaged entries are put back, and those led here
        whose members have different states.
        """
        found = self.quarantined()
        for group, nodes in self._comparison.differing.items():
            found[group] = (
                f"its states on nodes {', '.join(map(str, nodes))} differ, none has a majority; "
                "see 'Replicas that differ' in docs/clustering.md"
            )
        for hosted in self._host.groups():
            if hosted.contradiction:
                found[hosted.group] = f"{hosted.contradiction}; it stands still on this node"
            elif hosted.suspended and (lost := lost_indexes(hosted.view)):
                found[hosted.group] = (
                    f"{len(lost)} of its entries are damaged, the first is {lost[0]}; it stands "
                    "still on this node until they are put back from its other members"
                )
        return found

    @property
    def disk_behind(self) -> bool:
        """True while the disk is full, or far behind what was appended: proposals are refused."""
        return self._host.is_backlogged

    def unclaimed_groups(self) -> list[int]:
        """Return the groups that the log holds data of and that do not run here, ascending.

        Those are all that were not created since the start, damaged ones among them, and what is
        left of groups that this node has left. None of them was removed.
        """
        held = {*self._log.groups(), *self._log.quarantined}
        return sorted(group for group in held if self._host.find(group) is None)

    def leader(self, group: int) -> int:
        """Return the node id of a group's leader, 0 while unknown or not on this node."""
        hosted = self._host.find(group)
        return member_node(hosted.core.leader) if hosted is not None else 0

    def serving(self, group: int) -> bool:
        """Return whether this node leads a group and has applied everything committed before."""
        hosted = self._host.find(group)
        return hosted is not None and hosted.core.ready_to_serve

    def applied_index(self, group: int) -> int:
        """Return how far a group is applied on this node."""
        return self._hosted(group).core.applied_index

    def entry_at_hand(self, group: int, index: int, done: Callable[[], None]) -> bytes | None:
        """Return the data of an entry where that needs no disk; else begin to read it.

        Args:
            group: whose log.
            index: which entry.
            done: called in a later turn of the event loop, when the entry was read or could not
                be, which a call from there says; later the entry may have to be read again.

        Returns:
            None while it is being read. Of a damaged entry, `done` is called once it was put back
            from another member; until then the group stands still on this node.

        Raises KeyError: the group is not on this node, or has no such entry; OSError: its file
        cannot be read for another reason than that the disk has lost it.
        """
        hosted = self._hosted(group)
        suspensions = self._host.suspensions
        if hosted.view.lost is not None and suspensions.wait(hosted, index, done):
            return None
        try:
            entry = hosted.view.entry_at_hand(index, done)
        except LostEntryError as error:
            suspensions.note(hosted, error.index)
            suspensions.wait(hosted, error.index, done)
            return None
        return None if entry is None else entry.data

    def give_up(self, done: Callable[[], None]) -> None:
        """Cancel the callback of a function that was handed to `entry_at_hand`."""
        self._log.recovery.reader.reads.give_up(done)
        self._host.suspensions.give_up(done)

    def entry_bytes(self, group: int, index: int) -> int:
        """Return the size of an entry's data, 0 where there is no such entry."""
        view = self._hosted(group).view
        return view.length_of(index) if view.has(index) else 0

    def _hosted(self, group: int) -> HostedGroup:
        hosted = self._host.find(group)
        if hosted is None:
            raise KeyError(f"group {group} is not on this node")
        return hosted

    def is_settled(self, group: int) -> bool:
        """Return whether this node leads a group and no change of its members is under way.

        What `members` says is committed then.
        """
        hosted = self._host.find(group)
        if hosted is None or hosted.core.role != LEADER:
            return False
        return hosted.core.ready_to_serve and not hosted.core.is_changing

    def led(self) -> list[int]:
        """Return the groups that this node leads."""
        return [hosted.group for hosted in self._host.groups() if hosted.core.role == LEADER]

    def last_index(self, group: int) -> int:
        """Return the highest index of a group's log on this node."""
        return self._hosted(group).core.last_index

    def figures(self) -> RaftFigures:
        """Return everything that is counted; looks once at each group."""
        host, log = self._host, self._log
        led = leaderless = lag_max = 0
        lags = dict.fromkeys(host.nodes_up(), 0)
        groups = host.groups()
        for hosted in groups:
            core = hosted.core
            leaderless += core.leader == 0
            if core.role != LEADER:
                continue
            led += 1
            last = core.last_index
            for each in core.peers:
                lag = max(last - each.match, 0)
                node = member_node(each.member)
                lags[node] = lags.get(node, 0) + lag
                lag_max = max(lag_max, lag)
        ledger, commits = log.recovery.ledger, host.commits
        syncs, written, _ = log.writes()
        return RaftFigures(
            groups=len(groups),
            led=led,
            leaderless=leaderless,
            quarantined=len(self.quarantined()),
            suspended=sum(hosted.suspended for hosted in groups),
            entries_lost=host.suspensions.entries_lost,
            entries_repaired=self._repair.entries_repaired,
            compared=self._comparison.compared,
            diverged=host.suspensions.rebuilt,
            differing=len(self._comparison.differing),
            entries=int(commits.entries),
            latency=commits.latency,
            elections=int(commits.elections),
            leader_changes=int(commits.leader_changes),
            lags=lags,
            lag_max=int(lag_max),
            snapshots=int(host.snapshots.taken),
            installed=int(commits.installed),
            log_bytes=int(ledger.size),
            live_bytes=int(ledger.live),
            segments=len(ledger.segments),
            backlog_bytes=int(log.backlog_bytes),
            written_bytes=written,
            syncs=syncs,
            blocking_reads=int(log.recovery.reader.blocking),
            disk_full=host.disk_full,
            disk_stalled=host.disk_stalled,
        )

    def progress(self, group: int) -> list[MemberProgress]:
        """Return what this node, leading a group, knows of its members; empty if it does not."""
        core = self._hosted(group).core
        if core.role != LEADER:
            return []
        return [_progress(core, member) for member in core.membership.everyone()]


def _progress(core: RaftCore, member: int) -> MemberProgress:
    membership = core.membership
    role = "leaving"
    if member in membership.voters:
        role = "voter"
    elif member in membership.learners:
        role = "learner"
    if member == core.member:
        return MemberProgress(member, role, core.last_index, True, False)
    progress = core.progress(member)
    if progress is None:
        return MemberProgress(member, role, 0, False, False)
    fetching = progress.state == SNAPSHOT_OFFERED
    return MemberProgress(member, role, progress.match, not progress.is_out_of_reach(), fetching)


def _has_learnt(hosted: HostedGroup) -> bool:
    """Return whether a member that is never to vote has what was decided up to its admission."""
    core = hosted.core
    if hosted.desired is None or core.member not in core.membership.learners:
        return False
    wanted = wanted_nodes(core.membership, hosted.desired, hosted.voting)
    never = member_node(core.member) in wanted.learners
    return never and core.applied_index >= core.membership_index()
