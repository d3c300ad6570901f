"""Order of a node's replicas by when something was applied to them last.

A task that looks at queues now and then asks for those that changed since its last look, and pays
for these, not for all that the node has.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import final

from mypy_extensions import i64


@final
class RecentlyApplied:
    """Groups of one node; a change moves a group to the end, once between two looks.

    Changes are that something was applied, or that the leader is another one. `replicas` are the
    groups that have a replica here, as they come and go.
    """

    def __init__(self, replicas: Container[int]) -> None:
        self._replicas = replicas
        self.look: i64 = 1  # number of the look that comes next, of all readers
        self._looks: dict[int, int] = {}  # by group, `look` at its last change; ascending

    def note(self, group: i64, look: i64) -> i64:
        """Note a change of a group whose last was at a look, 0 for none; return that of this."""
        if look != self.look:
            self._looks.pop(group, None)
            self._looks[group] = int(self.look)
        return self.look

    def reader(self) -> Callable[[], list[int]]:
        """Return a function that returns the groups that changed since it was called before."""
        return _Reader(self).groups

    def since(self, look: i64) -> list[int]:
        """Return the groups changed at or after a look, the newest first; a new look begins."""
        self.look += 1
        found: list[int] = []
        gone: list[int] = []
        for group, at in reversed(self._looks.items()):
            if at < look:
                break
            if group in self._replicas:
                found.append(group)
            else:
                gone.append(group)
        for group in gone:
            del self._looks[group]
        return found


@final
class _Reader:
    """Looks of one task."""

    def __init__(self, recent: RecentlyApplied) -> None:
        self._recent = recent
        self._look: i64 = 0  # the first that it has not seen

    def groups(self) -> list[int]:
        """Return the groups that changed since the call before, at the first call all."""
        found = self._recent.since(self._look)
        self._look = self._recent.look
        return found
