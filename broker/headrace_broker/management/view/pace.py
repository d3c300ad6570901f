"""Messages per second through nodes, out of what they have counted at each look."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from headrace_broker.management.view.figures import rate
from headrace_broker.model.stats import NODE_FIGURES, NodeStats
from headrace_broker.model.status import MessageCounters

LOOKS_MAX: Final = 4  # the rate is the mean between the first and the last of these
SECONDS_MIN: Final = 0.8  # between these; over less a rate says little
SECONDS_MAX: Final = 30.0  # after which a look says nothing of the present

NAMES: Final = tuple(field.name for field in msgspec.structs.fields(MessageCounters))

_SAMPLED: Final = {"deliver": "deliver_get"}  # figures that have other names


class _Look(NamedTuple):
    at: float
    counters: Mapping[str, MessageCounters]


class Pace:
    """Remembers the last few looks."""

    def __init__(self) -> None:
        self._looks: deque[_Look] = deque(maxlen=LOOKS_MAX)

    def rates(self, now: float, nodes: Collection[NodeStats]) -> dict[str, float]:
        """Return `poll` of nodes' counters; after a long pause the rates of their samples."""
        found = self.poll(now, {node.name: node.counters for node in nodes})
        if found is not None:
            return found
        at = {name: NODE_FIGURES.index(_SAMPLED.get(name, name)) for name in NAMES}
        lasts = [sorted(node.last) for node in nodes]
        return {name: round(sum(rate(last, at[name]) for last in lasts), 1) for name in NAMES}

    def poll(self, now: float, counters: Mapping[str, MessageCounters]) -> dict[str, float] | None:
        """Return the sum of rates by counter at `now`, monotonic seconds; None after a long pause.

        A node that does not answer now, or did not before, does not count; one that began anew
        counts from 0.
        """
        looks = self._looks
        while looks and now - looks[0].at > SECONDS_MAX:
            looks.popleft()
        if not looks or now - looks[-1].at >= SECONDS_MIN:
            looks.append(_Look(now, counters))
        first = looks[0]
        elapsed = now - first.at
        if elapsed < SECONDS_MIN:
            return None
        known = [
            (before, counters[node]) for node, before in first.counters.items() if node in counters
        ]
        return {name: round(_sum(name, known) / elapsed, 1) for name in NAMES}


def _sum(name: str, known: Iterable[tuple[MessageCounters, MessageCounters]]) -> int:
    total = 0
    for before, after in known:
        grown = int(getattr(after, name)) - int(getattr(before, name))
        total += grown if grown >= 0 else int(getattr(after, name))
    return total
