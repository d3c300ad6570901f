"""An activity as listings show it."""

from __future__ import annotations

from headrace_broker.flow.activity import SECOND_US, WINDOWS_S, Activity
from headrace_broker.model.flow import BLOCKED, BLOCKING, FLOW, LIMIT_NAMES, NO_LIMIT, RUNNING
from headrace_broker.model.flow_status import ActivityStatus

NOTHING = ActivityStatus()
MILLISECONDS = SECOND_US // 1000


def activity_status(activity: Activity, now_us: int) -> ActivityStatus:
    """Return what stops an activity, and for how much of the time."""
    by_limit: dict[str, tuple[float, float, float, int]] = {}
    sums = [0.0, 0.0, 0.0]
    for limit in activity.limits():
        shares = [
            min(activity.stopped_us(limit, window, now_us) / (seconds * SECOND_US), 1.0)
            for window, seconds in enumerate(WINDOWS_S)
        ]
        if any(shares) or limit == activity.limit:
            group = int(activity.latest_group(limit))
            one, ten, sixty = (round(share, 4) for share in shares)
            by_limit[LIMIT_NAMES[limit]] = (one, ten, sixty, group)
            sums = [min(total + share, 1.0) for total, share in zip(sums, shares, strict=True)]
    if not by_limit:
        return NOTHING
    one, ten, sixty = (round(total, 4) for total in sums)
    return ActivityStatus(
        limit=LIMIT_NAMES[activity.limit] if activity.limit != NO_LIMIT else "",
        group=int(activity.group),
        since_ms=max(now_us - int(activity.since_us), 0) // MILLISECONDS,
        shares=(one, ten, sixty),
        by_limit=by_limit,
    )


def state_name(state: str, activity: Activity, now_us: int) -> str:
    """Return the state to show: an alarm's, FLOW if stopped now or a moment ago, RUNNING.

    Args:
        state: as the connection says.
        activity: of it, or of one of its channels.
        now_us: on the activities' clock.
    """
    if state in (BLOCKED, BLOCKING):
        return state
    return FLOW if activity.in_flow(now_us) else RUNNING
