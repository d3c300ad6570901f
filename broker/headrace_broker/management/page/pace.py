"""Messages per second through the whole cluster, out of what nodes have counted at each look."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from headrace_broker.model.status import MessageCounters

LOOKS_MAX: Final = 4  # the rate is the mean between the first and the last of these
SECONDS_MIN: Final = 0.8  # between these; over less a rate says little
SECONDS_MAX: Final = 30.0  # after which a look says nothing of the present

NAMES: Final = tuple(field.name for field in msgspec.structs.fields(MessageCounters))


class _Look(NamedTuple):
    at: float
    counters: Mapping[str, MessageCounters]


class Pace:
    """Remembers the last few looks."""

    def __init__(self) -> None:
        self._looks: deque[_Look] = deque(maxlen=LOOKS_MAX)

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
