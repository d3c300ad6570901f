"""One object for all groups with the same members."""

from __future__ import annotations

from typing import final

from headrace_raftlog.model.limits import SHARED_MEMBERSHIPS_MAX
from headrace_raftlog.model.membership import Membership


@final
class MembershipPool:
    """Gives equal memberships as one object, so that thousands of groups share a few."""

    def __init__(self) -> None:
        self._known: dict[Membership, Membership] = {}

    def share(self, membership: Membership) -> Membership:
        """Return the object to keep for a membership."""
        if len(self._known) >= SHARED_MEMBERSHIPS_MAX:
            self._known.clear()
        return self._known.setdefault(membership, membership)
