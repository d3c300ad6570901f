"""History of requests to a log, in order, and of their acknowledged durability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace_raftlog.crash_explorer.image import EMPTY, FORGETTABLE, LogImage
from headrace_raftlog.crash_explorer.starts import Starts

NO_STARTS: Final = Starts()


def allows(expected: LogImage, found: LogImage, forgetful: bool) -> bool:
    """Return whether a log may hold `found` where `expected` is expected.

    Args:
        expected: what it should hold.
        found: what it holds.
        forgetful: whether it may have forgotten which groups were removed.
    """
    for group in {**expected, **found}:
        wanted = expected.get(group, EMPTY)
        if forgetful and wanted.removed:
            wanted = FORGETTABLE
        if not wanted.allows(found.get(group, EMPTY)):
            return False
    return True


def difference(expected: LogImage, found: LogImage) -> str:
    """Return a line for each group that is not as expected."""
    lines = [
        f"  group {group}: expected {expected.get(group, EMPTY)}; found {found.get(group, EMPTY)}"
        for group in sorted({**expected, **found})
        if not expected.get(group, EMPTY).allows(found.get(group, EMPTY))
    ]
    return "\n".join(lines)


class History:
    """The states that a log has to pass through, and how far it has promised to have come.

    While nothing is written in slices, the log is one sequence: whatever was appended to any group
    is on disk before what was appended later to any other. So a recovered log must equal one of
    these states as a whole. Otherwise each group is a sequence of its own, and must.

    Attributes:
        steps: what the log held after each call, the state at the beginning first.
        names: what each call was, for people.
        acknowledged: number of the newest call that was reported durable.
        group_acknowledged: the same by group, where each is a sequence of its own; else None.
        forgetful: whether garbage was collected: with the last record of a removed group the log
            may forget that it was removed, and that overtakes what is not written yet.
    """

    def __init__(self, start: LogImage, by_group: bool = False) -> None:
        self.steps: list[LogImage] = [start]
        self.names: list[str] = ["start"]
        self.acknowledged = 0
        self.group_acknowledged: dict[int, int] | None = {} if by_group else None
        self._groups: list[int] = [0]
        self.forgetful = False
        self._within: list[list[LogImage]] = [[]]

    @property
    def now(self) -> LogImage:
        """Content of the log after the newest call."""
        return self.steps[-1]

    def add(self, name: str, group: int, image: LogImage, within: list[LogImage]) -> int:
        """Note a call; return its number.

        Args:
            name: what was called.
            group: the one that it changed.
            image: what the log holds afterwards.
            within: states that a crash may also leave because the call needs several batches.
        """
        self.steps.append(image)
        self.names.append(name)
        self._groups.append(group)
        self._within.append(within)
        return len(self.steps) - 1

    def acknowledge(self, number: int) -> None:
        """Note that a call and all before it, of its group at least, were reported durable."""
        known = self.group_acknowledged
        if known is None:
            assert number > self.acknowledged, "tokens are called back once, in order"
        else:
            group = self._groups[number]
            assert number > known.get(group, 0), "a group's tokens are called back once, in order"
            known[group] = number
        self.acknowledged = max(self.acknowledged, number)

    def waiting(self) -> list[int]:
        """Return the numbers of the last calls, of each group if need be, not reported durable."""
        last = len(self.steps) - 1
        known = self.group_acknowledged
        if known is None:
            return [] if self.acknowledged == last else [last]
        newest = {self._groups[number]: number for number in range(1, last + 1)}
        return [number for group, number in newest.items() if known.get(group, 0) < number]

    def legal(self, starts: Starts = NO_STARTS) -> Legal:
        """Return what a log may hold that is opened after a crash now."""
        known = self.group_acknowledged
        firsts = dict(known) if known is not None else None
        return Legal(self, self.acknowledged, len(self.steps) - 1, starts, self.forgetful, firsts)

    def find(self, found: LogImage, first: int, last: int, forgetful: bool) -> int:
        """Return the newest call from `first` to `last` whose state is `found`, or -1."""
        for number in range(last, first - 1, -1):
            within = self._within[number] if number > first else []
            for image in (self.steps[number], *within):
                if allows(image, found, forgetful):
                    return number
        return -1

    def find_group(
        self, group: int, found: LogImage, first: int, last: int, forgetful: bool
    ) -> int:
        """Return the newest call from `first` to `last` after which a group is as found, or -1."""
        held = {group: found.get(group, EMPTY)}
        for number in range(last, first - 1, -1):
            within = self._within[number] if number > first else []
            for image in (self.steps[number], *within):
                if allows({group: image.get(group, EMPTY)}, held, forgetful):
                    return number
        return -1


@dataclass(frozen=True, slots=True)
class Legal:
    """A range of a history's states, any of which a recovered log may hold.

    Attributes:
        history: the history.
        first: number of the newest call that was acknowledged.
        last: number of the newest call.
        starts: what the data directory must remember besides.
        forgetful: as the history was.
        firsts: by group, number of its newest call that was acknowledged, where each group is a
            sequence of its own; else None.
    """

    history: History
    first: int
    last: int
    starts: Starts
    forgetful: bool
    firsts: dict[int, int] | None = None

    def implied_by(self, other: Legal) -> bool:
        """Return whether everything that `other` allows is allowed."""
        if self.history is not other.history or other.last > self.last:
            return False
        if self.firsts is None or other.firsts is None:
            return self.first <= other.first
        theirs = other.firsts
        return all(first <= theirs.get(group, 0) for group, first in self.firsts.items())

    def complete(self, found: LogImage) -> LogImage:
        """Return what a log holds, with those removed groups that it has forgotten."""
        history = self.history
        number = -1
        if self.firsts is None:
            number = history.find(found, self.first, self.last, self.forgetful)
        for group in history.steps[self.last]:
            if group in found:
                continue
            if self.firsts is not None:
                first = self.firsts.get(group, 0)
                number = history.find_group(group, found, first, self.last, self.forgetful)
            assert number >= 0, "it was judged before"
            if history.steps[number].get(group, EMPTY).removed:
                found = {**found, group: FORGETTABLE}
        return found

    def judge(self, found: LogImage) -> str:
        """Return the error in a recovered log, '' for none."""
        if self.firsts is not None:
            return self._judge_groups(found, self.firsts)
        history = self.history
        if history.find(found, self.first, self.last, self.forgetful) >= 0:
            return ""
        stale = history.find(found, 0, self.first - 1, self.forgetful)
        if stale >= 0:
            text = f"holds the state after call {stale} ({history.names[stale]})"
        else:
            text = "holds a state that never was"
        return (
            f"the log {text}; acknowledged is call {self.first} ({history.names[self.first]}), "
            f"newest is call {self.last} ({history.names[self.last]}).\n"
            f"Against what was acknowledged:\n{difference(history.steps[self.first], found)}\n"
            f"Against the newest:\n{difference(history.steps[self.last], found)}"
        )

    def _judge_groups(self, found: LogImage, firsts: dict[int, int]) -> str:
        history = self.history
        newest = history.steps[self.last]
        for group in sorted({**newest, **found}):
            first = firsts.get(group, 0)
            if history.find_group(group, found, first, self.last, self.forgetful) < 0:
                return (
                    f"group {group} holds a state that never was, or one before what was "
                    f"acknowledged, call {first} ({history.names[first]}).\n"
                    f"Against that:\n{difference(history.steps[first], found)}\n"
                    f"Against the newest:\n{difference(newest, found)}"
                )
        return ""
