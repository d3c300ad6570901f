"""What was asked of a log, in order, and what of it was promised to be durable."""

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

    The log is one sequence: whatever was appended to any group is on disk before what was
    appended later to any other. So a recovered log must equal one of these states as a whole.

    Attributes:
        steps: what the log held after each call, the state at the beginning first.
        names: what each call was, for people.
        acknowledged: number of the newest call that was reported durable.
        forgetful: whether garbage was collected: with the last record of a removed group the log
            may forget that it was removed, and that overtakes what is not written yet.
    """

    def __init__(self, start: LogImage) -> None:
        self.steps: list[LogImage] = [start]
        self.names: list[str] = ["start"]
        self.acknowledged = 0
        self.forgetful = False
        self._within: list[list[LogImage]] = [[]]

    @property
    def now(self) -> LogImage:
        """What the log holds after the newest call."""
        return self.steps[-1]

    def add(self, name: str, image: LogImage, within: list[LogImage]) -> int:
        """Note a call; return its number.

        Args:
            name: what was called.
            image: what the log holds afterwards.
            within: states that a crash may also leave because the call needs several batches.
        """
        self.steps.append(image)
        self.names.append(name)
        self._within.append(within)
        return len(self.steps) - 1

    def acknowledge(self, number: int) -> None:
        """Note that a call and all before it were reported durable."""
        assert number > self.acknowledged, "tokens are called back once, in order"
        self.acknowledged = number

    def legal(self, starts: Starts = NO_STARTS) -> Legal:
        """Return what a log may hold that is opened after a crash now."""
        return Legal(self, self.acknowledged, len(self.steps) - 1, starts, self.forgetful)

    def find(self, found: LogImage, first: int, last: int, forgetful: bool) -> int:
        """Return the newest call from `first` to `last` whose state is `found`, or -1."""
        for number in range(last, first - 1, -1):
            within = self._within[number] if number > first else []
            for image in (self.steps[number], *within):
                if allows(image, found, forgetful):
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
    """

    history: History
    first: int
    last: int
    starts: Starts
    forgetful: bool

    def implied_by(self, other: Legal) -> bool:
        """Return whether everything that `other` allows is allowed."""
        return (
            self.history is other.history and self.first <= other.first <= other.last <= self.last
        )

    def complete(self, found: LogImage) -> LogImage:
        """Return what a log holds, with those removed groups that it has forgotten."""
        number = self.history.find(found, self.first, self.last, self.forgetful)
        assert number >= 0, "it was judged before"
        for group, image in self.history.steps[number].items():
            if image.removed and group not in found:
                found = {**found, group: FORGETTABLE}
        return found

    def judge(self, found: LogImage) -> str:
        """Return what is wrong with a recovered log, '' if nothing is."""
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
