"""Was a history of one register linearizable? Each value is written once, so no search is needed.

Source: Gibbons and Korach, Testing Shared Memories (1997), of reads whose writes are known.
"""

from __future__ import annotations

from typing import Final, final

NEVER: Final = 1 << 60  # end of an operation whose outcome its client never learned
BEFORE: Final = -1  # when the register had its first value, 0

READ: Final = 0
WRITE: Final = 1


@final
class Operation:
    """One call of a client on one register.

    Attributes:
        kind: READ or WRITE.
        key: which register.
        value: what was written, unique for ever, or what was read (0: never written).
        start: moment before which it cannot have taken effect.
        end: moment at which its client knew the outcome, NEVER for a write in doubt.
    """

    def __init__(self, kind: int, key: int, value: int, start: int, end: int = NEVER) -> None:
        self.kind = kind
        self.key = key
        self.value = value
        self.start = start
        self.end = end

    def __repr__(self) -> str:
        name = "write" if self.kind == WRITE else "read"
        end = "..." if self.end == NEVER else str(self.end)
        return f"{name} {self.value} [{self.start}, {end}]"


@final
class _Zone:
    """The write of one value and all reads of it, which come one after the other in any order."""

    def __init__(self, value: int, start: int, end: int) -> None:
        self.value = value
        self.written = start  # when its write began
        self.first_end = end  # when the first of them was over
        self.last_start = start  # when the last of them began

    def take(self, read: Operation) -> None:
        """Add a read."""
        self.first_end = min(self.first_end, read.end)
        self.last_start = max(self.last_start, read.start)


def first_anomaly(operations: list[Operation]) -> str:
    """Return why the operations on one register are not linearizable, "" if they are.

    All of a value come before all of another value, or behind them. They cannot come before if one
    of the other's was over before one of its own began. So an order explains everything unless
    that holds of two values both ways: a longer circle of values has two such in it.

    Args:
        operations: without reads that got no answer; a write in doubt may have happened or not.
    """
    zones = {0: _Zone(0, BEFORE, BEFORE)}
    for operation in operations:
        if operation.kind == WRITE:
            zones[operation.value] = _Zone(operation.value, operation.start, operation.end)
    for operation in operations:
        if operation.kind == READ:
            zone = zones.get(operation.value)
            if zone is None:
                return f"a read saw {operation.value}, which nobody wrote"
            if operation.end < zone.written:
                return f"{operation!r} was over before the write of its value began"
            zone.take(operation)
    last, *others = sorted(zones.values(), key=lambda each: each.first_end)
    for zone in others:  # `last`: that one before whose last operation begins latest
        if zone.first_end < last.last_start and last.first_end < zone.last_start:
            return f"no order explains operations on {last.value} and on {zone.value}"
        if zone.last_start > last.last_start:
            last = zone
    return ""
