"""Was a history of one register linearizable? The search of Wing and Gong, with Lowe's memo.

Source: Wing and Gong, Testing and Verifying Concurrent Objects (1993); Lowe, Testing for
Linearizability (2017).
"""

from __future__ import annotations

from typing import Final, final

NEVER: Final = 1 << 60  # end of an operation whose outcome its client never learned

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


def first_anomaly(operations: list[Operation]) -> str:
    """Return why the operations on one register are not linearizable, "" if they are.

    Args:
        operations: without reads that got no answer; a write in doubt may have happened or not.
    """
    seen_by: dict[int, int] = {}  # value -> earliest end of a read that saw it
    written: dict[int, bool] = {0: True}
    for operation in operations:
        if operation.kind == WRITE:
            written[operation.value] = True
        else:
            seen_by[operation.value] = min(operation.end, seen_by.get(operation.value, NEVER))
    for value in seen_by:
        if value not in written:
            return f"a read saw {value}, which nobody wrote"
    relevant: list[Operation] = []
    for operation in operations:
        if operation.kind == WRITE:
            # It took effect before whoever saw it was done; in doubt and unseen it never did.
            end = min(operation.end, seen_by.get(operation.value, NEVER))
            if end == NEVER:
                continue
            relevant.append(Operation(WRITE, operation.key, operation.value, operation.start, end))
        else:
            relevant.append(operation)
    relevant.sort(key=_order)
    stuck = _Search(relevant).run()
    return "" if stuck < 0 else f"no order explains what follows {relevant[stuck]!r}"


def _order(operation: Operation) -> tuple[int, int]:
    return operation.start, operation.end


@final
class _Search:
    """Depth-first over (operations that took effect, value of the register), each visited once."""

    def __init__(self, operations: list[Operation]) -> None:
        self.operations = operations
        self.visited: set[tuple[int, int]] = set()
        self.stack: list[tuple[int, int, int]] = [(0, 0, 0)]  # done as bits, value, first undone
        self.deepest = 0

    def run(self) -> int:
        """Return -1 when some order explains everything, else how far the best one came."""
        total = len(self.operations)
        while self.stack:
            done, value, first = self.stack.pop()
            while first < total and done >> first & 1:
                first += 1
            if first == total:
                return -1
            self.deepest = max(self.deepest, first)
            for at in self._next(done, value, first):
                operation = self.operations[at]
                state = (done | 1 << at, operation.value)
                if state not in self.visited:
                    self.visited.add(state)
                    self.stack.append((state[0], state[1], first))
        return self.deepest

    def _next(self, done: int, value: int, first: int) -> list[int]:
        """Return what may take effect next: nothing undone may have ended before it began.

        A read of the current value may always go first, so nothing else need be tried then.
        """
        operations = self.operations
        horizon = NEVER
        undone: list[int] = []
        for at in range(first, len(operations)):
            operation = operations[at]
            if operation.start > horizon:
                break
            if not done >> at & 1:
                undone.append(at)
                horizon = min(horizon, operation.end)
        allowed: list[int] = []
        for at in undone:
            operation = operations[at]
            if operation.start > horizon:
                continue
            if operation.kind == WRITE:
                allowed.append(at)
            elif operation.value == value:
                return [at]
        return allowed
