"""Which groups there are, who should be in them, and which nodes know it already."""

from __future__ import annotations

from typing import final

from headrace_raftlog.model.membership import Membership
from headrace_raftlog.simulator.invariants import Checker


@final
class GroupRecord:
    """One group incarnation.

    Attributes:
        group: its id, never used again.
        founding: its first membership.
        checker: its history.
        desired: nodes that should have a member that votes, ascending.
        observers: nodes that should have a learner.
        hosts: nodes that were told to host a member.
        deleted: the group is gone; nodes in `forgotten` know.
        lost: members whose data was destroyed.
    """

    def __init__(
        self,
        founding: Membership,
        desired: tuple[int, ...],
        observers: tuple[int, ...],
        checker: Checker,
    ) -> None:
        self.group = checker.group
        self.founding = founding
        self.desired = desired
        self.observers = observers
        self.checker = checker
        self.hosts: dict[int, bool] = {}
        self.deleted = False
        self.forgotten: dict[int, bool] = {}
        self.lost: dict[int, bool] = {}

    def may_lose(self, members: tuple[int, ...]) -> bool:
        """Return whether the group can continue for ever without these members' data.

        A member whose data is lost never comes back: every membership in use must keep a
        majority of each of its electorates.
        """
        for membership in self.checker.in_use():
            for half in (membership.voters, membership.outgoing):
                kept = [one for one in half if one not in members and one not in self.lost]
                if half and len(kept) < len(half) // 2 + 1:
                    return False
        return True

    def may_have(self, voters: tuple[int, ...]) -> bool:
        """Return whether a majority of these voters still has its data."""
        kept = [one for one in voters if one not in self.lost]
        return len(kept) >= len(voters) // 2 + 1


@final
class Catalog:
    """All groups of a run.

    Attributes:
        records: those that are not deleted, and those that are, in order of their creation.
    """

    def __init__(self) -> None:
        self.records: list[GroupRecord] = []
        self.by_group: dict[int, GroupRecord] = {}

    def add(self, record: GroupRecord) -> None:
        """Take a new group in."""
        self.records.append(record)
        self.by_group[record.group] = record

    def alive(self) -> list[GroupRecord]:
        """Return the groups that are not deleted."""
        return [record for record in self.records if not record.deleted]
