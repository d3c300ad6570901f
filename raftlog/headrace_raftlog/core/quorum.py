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
class Electorate:
    """Everyone who counts in a membership.

    In `peers` below stands the progress of the other members; a voter that is not in it is this
    member itself.
    """

    def __init__(self, membership: Membership) -> None:
        # member ids, ascending; none for a member that was not admitted yet, which decides nothing
        self._incoming = membership.voters
        self._outgoing = membership.outgoing  # likewise; empty where there is one electorate
        # member ids of both electorates, each once, ascending
        self.voters: tuple[int, ...] = membership.voters
        if self._outgoing:
            self.voters = tuple(sorted({*self._incoming, *self._outgoing}))

    def contains(self, member: i64) -> bool:
        """Return whether `member` counts."""
        return member in self.voters

    def outcome(self, votes: dict[int, bool]) -> i64:
        """Return VOTE_WON, VOTE_LOST or VOTE_PENDING for the answers got so far.

        Args:
            votes: member id -> granted; answers of members that do not count are ignored.
        """
        outcome = _outcome(self._incoming, votes)
        if not self._outgoing or outcome == VOTE_LOST:
            return outcome
        other = _outcome(self._outgoing, votes)
        return outcome if other == VOTE_WON else other

    def committed_index(self, peers: dict[int, Progress], own_match: i64) -> i64:
        """Return the highest index that majorities hold durably; `own_match` is on this member."""
        index = _reached(self._incoming, peers, own_match, False)
        if not self._outgoing:
            return index
        return min(index, _reached(self._outgoing, peers, own_match, False))

    def confirmed_round(self, peers: dict[int, Progress], own_round: i64) -> i64:
        """Return the newest round of heartbeats that majorities have answered."""
        number = _reached(self._incoming, peers, own_round, True)
        if not self._outgoing:
            return number
        return min(number, _reached(self._outgoing, peers, own_round, True))

    def is_active(self, peers: dict[int, Progress]) -> bool:
        """Return whether majorities, this member included, were heard since the last check."""
        return self._do_without([each.member for each in peers.values() if not each.recent_active])

    def is_in_touch(self, peers: dict[int, Progress]) -> bool:
        """Return whether majorities, this member included, are not known to be out of reach."""
        lost = [each.member for each in peers.values() if each.down or each.is_out_of_reach()]
        return self._do_without(lost)

    def _do_without(self, lost: list[i64]) -> bool:
        """Return whether the others are majorities."""
        incoming, outgoing = self._incoming, self._outgoing
        if 2 * len([each for each in lost if each in incoming]) >= len(incoming):
            return False
        return not outgoing or 2 * len([each for each in lost if each in outgoing]) < len(outgoing)


def _outcome(voters: tuple[int, ...], votes: dict[int, bool]) -> i64:
    granted: i64 = 0
    refused: i64 = 0
    for voter in voters:
        answer = votes.get(voter)
        if answer is None:
            continue
        if answer:
            granted += 1
        else:
            refused += 1
    size: i64 = len(voters) // 2 + 1
    if granted >= size:
        return VOTE_WON
    return VOTE_LOST if len(voters) - refused < size else VOTE_PENDING


def _reached(voters: tuple[int, ...], peers: dict[int, Progress], own: i64, rounds: bool) -> i64:
    """Return the highest index, or round of heartbeats, that a majority of the voters has."""
    numbers: list[int] = []
    for voter in voters:
        progress = peers.get(voter)
        if progress is None:
            numbers.append(own)
        else:
            numbers.append(progress.read_round if rounds else progress.match)
    numbers.sort()
    return numbers[len(numbers) - (len(voters) // 2 + 1)]
