"""Linearizability of reads and writes of one register.

Source: Wing and Gong, "Testing and Proving Linearizability for Concurrent Objects", JPDC 17
(1993), with the memory of visited states of Lowe, "Testing for Linearizability", CCPE 29 (2017).
"""

from __future__ import annotations

import bisect
import enum
from collections.abc import Iterable, Sequence

import msgspec
from e2e.chaos.history import Operation


class Reads(enum.StrEnum):
    """Strictness of reads.

    STRICT: every write that was answered before, whichever node answered it (linearizability).
    OWN_NODE: writes answered by the same node, and what that node has shown before; writes among
        themselves keep to the order in which they were answered on any node.
    OWN_ROUTING: STRICT, but OWN_NODE for bindings, which a node may route by for a moment after
        they were changed through another.
    """

    STRICT = "strict"
    OWN_NODE = "own-node"
    OWN_ROUTING = "own-routing"

    def of(self, operations: Iterable[Operation]) -> Reads:
        """Return STRICT or OWN_NODE: what holds for the operations on one name."""
        if self is not Reads.OWN_ROUTING:
            return self
        return Reads.OWN_NODE if any(each.routing for each in operations) else Reads.STRICT


def precedes(first: Operation, second: Operation, reads: Reads) -> bool:
    """Return whether `first` must come before `second` in every allowed order."""
    if first.completed is None or first.completed >= second.invoked:
        return False
    return reads is Reads.STRICT or first.node == second.node or (first.write and second.write)


def explainable(
    operations: Sequence[Operation], initial: bool = False, reads: Reads = Reads.STRICT
) -> bool:
    """Return whether the operations on one name have an allowed order in which every read is right.

    Writes of unknown outcome may take effect at any time after their invocation, or never.
    """
    items = sorted(operations, key=lambda each: each.invoked)
    before = [0] * len(items)  # bit j of before[i]: item j must come before item i
    after = [0] * len(items)
    for i, second in enumerate(items):
        for j in range(i):
            if precedes(items[j], second, reads):
                before[i] |= 1 << j
                after[j] |= 1 << i
    required = sum(1 << i for i, each in enumerate(items) if each.completed is not None)
    stack = [(0, initial)]
    visited = set(stack)
    while stack:
        done, value = stack.pop()
        if done & required == required:
            return True
        for state in _next_states(items, before, after, done, value):
            if state not in visited:
                visited.add(state)
                stack.append(state)
    return False


def _next_states(
    items: Sequence[Operation], before: list[int], after: list[int], done: int, value: bool
) -> list[tuple[int, bool]]:
    """States one operation further; orders that others stand for are left out.

    A read that is right now goes first: it changes nothing. Of writes of the same value, one that
    has to precede all that another has to precede stands for it. A write of unknown outcome that
    changes nothing is never needed.
    """
    writes: list[int] = []
    for i, item in enumerate(items):
        if done >> i & 1 or before[i] & ~done:
            continue
        if item.write:
            if item.completed is not None or item.value != value:
                writes.append(i)
        elif item.value == value:
            return [(done | 1 << i, value)]
    chosen: list[int] = []
    for i in writes:
        if not any(_stands_for(items, after, j, i) for j in chosen):
            chosen = [j for j in chosen if not _stands_for(items, after, i, j)]
            chosen.append(i)
    return [(done | 1 << i, items[i].value) for i in chosen]


def _stands_for(items: Sequence[Operation], after: list[int], first: int, second: int) -> bool:
    if items[first].value != items[second].value:
        return False
    if (items[first].completed is None) != (items[second].completed is None):
        return False
    return after[second] & ~after[first] == 0


def first_unexplained(
    operations: Sequence[Operation], initial: bool = False, reads: Reads = Reads.STRICT
) -> Operation | None:
    """Return the operation whose answer no order explains given all answers before it.

    Returns:
        None when the whole history is explainable.
    """
    answered = sorted(
        (each for each in operations if each.completed is not None),
        key=lambda each: each.completed or 0.0,
    )

    def broken(count: int) -> bool:
        return not explainable(as_seen(operations, answered, count), initial, reads)

    position = bisect.bisect_left(range(1, len(answered) + 1), True, key=broken)
    return answered[position] if position < len(answered) else None


def as_seen(
    operations: Sequence[Operation], answered: list[Operation], count: int
) -> list[Operation]:
    """Return the history at the moment of the `count`-th answer: later answers are unknown yet."""
    known = answered[:count]
    moment = known[-1].completed or 0.0
    identities = {id(each) for each in known}
    pending = [
        msgspec.structs.replace(each, completed=None)
        for each in operations
        if each.write and each.invoked <= moment and id(each) not in identities
    ]
    return known + pending
