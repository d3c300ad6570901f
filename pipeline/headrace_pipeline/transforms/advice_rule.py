"""Rule for the number of consumers of one queue, minute by minute.

    wanted = ceil((1.2 * L95 + B / T) / mu)

with the arrival rate L95, the backlog B, the time T in which it should be gone, and the rate mu at
which a busy consumer settles. Values in, values out; `consumer_advice` runs it on tables.

Hysteresis, so that advice does not flap and take the consumers with it:

- it begins when consumers were the bottleneck in BEGIN_MINUTES of the last BEGIN_OF;
- once it has been followed they are the bottleneck no more, so it is kept up for as long as the
  load wants more than the baseline, which is what there was before it;
- it rises only while consumers are the bottleneck, and only by more than BAND;
- it falls only to the most that was wanted in FALL_MINUTES, and only by more than BAND.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from headrace_pipeline.schema.analysis import CONSUMERS_SATURATED

HEADROOM: Final = 1.2  # of L95; consumers that are busy all the time never catch up
DRAIN_S: Final = 300  # s, T; a backlog should be gone in five minutes
VALID_S: Final = 300  # s; five minutes without Spark, and advice lapses
CONSUMERS_LEAST: Final = 1  # advice never ends consumption
CONSUMERS_MOST: Final = 256  # of a queue; the broker looks at no more of them one by one
GROWTH_MOST: Final = 4  # times what there is: mu of so many more is a guess, look again then
BEGIN_MINUTES: Final = 2  # of BEGIN_OF: one saturated minute is a burst
BEGIN_OF: Final = 3  # minutes
FALL_MINUTES: Final = 10  # minutes; load that comes every few minutes keeps its consumers
BAND: Final = 0.1  # of what is advised; less is noise of mu


class Load(NamedTuple):
    """A queue in a minute."""

    minute: int  # its number since 1970
    bottleneck: str | None  # class of `schema.analysis`, None for none
    consumers: int  # that are attached
    arrival: float  # messages/s that come, the 95th percentile of seconds
    backlog: int  # messages that wait at its end
    service: float | None  # messages/s that a busy consumer settles; None where none was busy


class Advised(NamedTuple):
    """Advice that was given."""

    minute: int  # after which it was given
    value: int  # consumers
    baseline: int  # consumers that there were before
    began: int  # minute of the first one without a gap


def wanted(load: Load, drain_s: int = DRAIN_S) -> int | None:
    """Return the number of consumers that would be enough, None if unknown.

    Args:
        load: of the queue.
        drain_s: T, in seconds.
    """
    if not load.service or load.service <= 0:
        return None
    needed = (HEADROOM * load.arrival + load.backlog / drain_s) / load.service
    most = min(CONSUMERS_MOST, max(load.consumers, 1) * GROWTH_MOST)
    return max(math.ceil(min(needed, most)), CONSUMERS_LEAST)  # needed may be infinite


def advise(
    history: Sequence[Load], given: Advised | None, drain_s: int = DRAIN_S, valid_s: int = VALID_S
) -> Advised | None:
    """Return the advice after a minute, None for none.

    Args:
        history: minutes in order, the last one that which has ended; gaps are minutes in which
            nothing moved or waited. FALL_MINUTES are enough.
        given: advice before.
        drain_s: T, in seconds.
        valid_s: for how long advice holds: older advice has lapsed.
    """
    now = history[-1]
    if given is not None and (now.minute - given.minute) * 60 > valid_s:
        given = None
    if given is None:
        return _begin(history, drain_s)
    most = _most(history, FALL_MINUTES, drain_s)
    fresh = now.minute - given.began < FALL_MINUTES
    if most is None:
        return given._replace(minute=now.minute) if fresh else None
    if most <= given.baseline and not fresh:
        return None
    value, band = given.value, max(given.value * BAND, 1)
    need = wanted(now, drain_s)
    if need is not None and need >= value + band and now.bottleneck == CONSUMERS_SATURATED:
        value = need
    elif most <= value - band and not fresh:
        value = max(most, given.baseline)
    return given._replace(minute=now.minute, value=value)


def _begin(history: Sequence[Load], drain_s: int) -> Advised | None:
    now = history[-1]
    recent = [each for each in history if each.minute > now.minute - BEGIN_OF]
    saturated = [
        each
        for each in recent
        if each.bottleneck == CONSUMERS_SATURATED and each.consumers > 0  # not: nobody consumes
    ]
    if now.bottleneck != CONSUMERS_SATURATED or len(saturated) < BEGIN_MINUTES:
        return None
    value = wanted(now, drain_s)
    if value is None or value <= now.consumers:
        return None
    return Advised(now.minute, value, now.consumers, now.minute)


def _most(history: Sequence[Load], minutes: int, drain_s: int) -> int | None:
    last = history[-1].minute
    recent = [wanted(each, drain_s) for each in history if each.minute > last - minutes]
    return max((each for each in recent if each is not None), default=None)
