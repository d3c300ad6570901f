"""What a set of voters has decided: elections, commitment, activity.

Everything that counts members is here, so that a second set of voters (a joint configuration)
changes this module and nothing else.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_raftlog.core.progress import Progress

VOTE_PENDING: Final = 0
VOTE_WON: Final = 1
VOTE_LOST: Final = 2


@final
class Electorate:
    """The voters of a group and how they decide: by majority.

    Args:
        voters: member ids, at least one.
    """

    def __init__(self, voters: tuple[int, ...]) -> None:
        self.voters = voters
        self.majority: i64 = len(voters) // 2 + 1

    def contains(self, member: i64) -> bool:
        """Return whether `member` counts."""
        return member in self.voters

    def outcome(self, votes: dict[int, bool]) -> i64:
        """Return VOTE_WON, VOTE_LOST or VOTE_PENDING for the answers got so far.

        Args:
            votes: member id -> granted; answers of members that do not count are ignored.
        """
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
        if granted >= self.majority:
            return VOTE_WON
        if len(self.voters) - refused < self.majority:
            return VOTE_LOST
        return VOTE_PENDING

    def committed_index(self, peers: dict[int, Progress], own_match: i64) -> i64:
        """Return the highest index that a majority holds durably.

        Args:
            peers: progress of the other members; a voter that is not in it is this member.
            own_match: highest index durable on this member.
        """
        matches: list[int] = []
        for voter in self.voters:
            progress = peers.get(voter)
            matches.append(own_match if progress is None else progress.match)
        matches.sort()
        return matches[len(matches) - self.majority]

    def is_active(self, peers: dict[int, Progress]) -> bool:
        """Return whether a majority, this member included, was heard since the last check."""
        active: i64 = 0
        for voter in self.voters:
            progress = peers.get(voter)
            if progress is None or progress.recent_active:
                active += 1
        return active >= self.majority

    def is_in_touch(self, peers: dict[int, Progress]) -> bool:
        """Return whether a majority, this member included, is not known to be out of reach."""
        reached: i64 = 0
        for voter in self.voters:
            progress = peers.get(voter)
            if progress is None or not progress.is_out_of_reach():
                reached += 1
        return reached >= self.majority
