"""Decisions of a group's electorates: elections, commitment, activity.

Everything that counts members is here. While a membership is joint there are two electorates, and
every decision needs a majority of each.

Source: thesis section 4.3.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_raftlog.core.progress import Progress
from headrace_raftlog.model.membership import Membership

VOTE_PENDING: Final = 0
VOTE_WON: Final = 1
VOTE_LOST: Final = 2


@final
class Majority:
    """One set of voters, which decides by majority."""

    def __init__(self, voters: tuple[int, ...]) -> None:
        # member ids; none for a member that was not admitted yet, which decides nothing
        self.voters = voters
        self.size: i64 = len(voters) // 2 + 1

    def outcome(self, votes: dict[int, bool]) -> i64:
        """Return VOTE_WON, VOTE_LOST or VOTE_PENDING for the answers got so far."""
        granted: i64 = 0
        refused: i64 = 0
        for voter in self.voters:
            answer = votes.get(voter)
            if answer is None:
                continue
            if answer:
                granted += 1
            else:
                refused += 1
        if granted >= self.size:
            return VOTE_WON
        if len(self.voters) - refused < self.size:
            return VOTE_LOST
        return VOTE_PENDING

    def committed_index(self, peers: dict[int, Progress], own_match: i64) -> i64:
        """Return the highest index that a majority holds durably."""
        matches: list[int] = []
        for voter in self.voters:
            progress = peers.get(voter)
            matches.append(own_match if progress is None else progress.match)
        matches.sort()
        return matches[len(matches) - self.size]

    def confirmed_round(self, peers: dict[int, Progress], own_round: i64) -> i64:
        """Return the newest round of heartbeats that a majority has answered."""
        rounds: list[int] = []
        for voter in self.voters:
            progress = peers.get(voter)
            rounds.append(own_round if progress is None else progress.read_round)
        rounds.sort()
        return rounds[len(rounds) - self.size]

    def is_active(self, peers: dict[int, Progress]) -> bool:
        """Return whether a majority was heard since the last check."""
        active: i64 = 0
        for voter in self.voters:
            progress = peers.get(voter)
            if progress is None or progress.recent_active:
                active += 1
        return active >= self.size

    def is_in_touch(self, peers: dict[int, Progress]) -> bool:
        """Return whether a majority is not known to be out of reach."""
        reached: i64 = 0
        for voter in self.voters:
            progress = peers.get(voter)
            if progress is None or not (progress.down or progress.is_out_of_reach()):
                reached += 1
        return reached >= self.size


@final
class Electorate:
    """Everyone who counts in a membership.

    In `peers` below stands the progress of the other members; a voter that is not in it is this
    member itself.
    """

    def __init__(self, membership: Membership) -> None:
        # member ids of both electorates, each once, ascending
        self.voters: tuple[int, ...] = membership.voters
        self._incoming = Majority(membership.voters)
        self._outgoing: Majority | None = None
        if membership.outgoing:
            self.voters = tuple(sorted({*membership.voters, *membership.outgoing}))
            self._outgoing = Majority(membership.outgoing)

    def contains(self, member: i64) -> bool:
        """Return whether `member` counts."""
        return member in self.voters

    def outcome(self, votes: dict[int, bool]) -> i64:
        """Return VOTE_WON, VOTE_LOST or VOTE_PENDING for the answers got so far.

        Args:
            votes: member id -> granted; answers of members that do not count are ignored.
        """
        outcome = self._incoming.outcome(votes)
        outgoing = self._outgoing
        if outgoing is None or outcome == VOTE_LOST:
            return outcome
        other = outgoing.outcome(votes)
        if other == VOTE_WON:
            return outcome
        return other

    def committed_index(self, peers: dict[int, Progress], own_match: i64) -> i64:
        """Return the highest index that majorities hold durably.

        Args:
            peers: progress of the other members.
            own_match: highest index durable on this member.
        """
        index = self._incoming.committed_index(peers, own_match)
        outgoing = self._outgoing
        if outgoing is None:
            return index
        return min(index, outgoing.committed_index(peers, own_match))

    def confirmed_round(self, peers: dict[int, Progress], own_round: i64) -> i64:
        """Return the newest round of heartbeats that majorities have answered."""
        number = self._incoming.confirmed_round(peers, own_round)
        outgoing = self._outgoing
        if outgoing is None:
            return number
        return min(number, outgoing.confirmed_round(peers, own_round))

    def is_active(self, peers: dict[int, Progress]) -> bool:
        """Return whether majorities, this member included, were heard since the last check."""
        outgoing = self._outgoing
        return self._incoming.is_active(peers) and (outgoing is None or outgoing.is_active(peers))

    def is_in_touch(self, peers: dict[int, Progress]) -> bool:
        """Return whether majorities, this member included, are not known to be out of reach."""
        outgoing = self._outgoing
        return self._incoming.is_in_touch(peers) and (
            outgoing is None or outgoing.is_in_touch(peers)
        )
