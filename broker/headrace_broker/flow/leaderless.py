"""Queue without a leader, as its sentence and next step."""

from __future__ import annotations

import shlex

from headrace_broker.flow import wording
from headrace_broker.model.flow_status import LeaderlessStatus


def leaderless_reason(status: LeaderlessStatus) -> str:
    """Return since when a queue has no leader, the consequences for publishes, and the cause."""
    if status.since_ms is None:
        text = "has no leader that can be reached"
    else:
        text = f"has had no leader that can be reached for {wording.duration(status.since_ms)}"
    text += f": {_publishes(status)}"
    if status.down:
        text += f"; {_replicas(status)} down or cut off ({', '.join(status.down)})"
    return text


def leaderless_hint(status: LeaderlessStatus) -> str:
    """Return the next step."""
    if not status.name:  # hidden from the asker
        return "wait for a leader, or ask an administrator"
    listing = f"headrace queue members list {shlex.quote(status.name)}"
    if status.vhost != "/":
        listing += f" --vhost {shlex.quote(status.vhost)}"
    if not status.lacks_majority:
        return f"wait for an election, and look at its replicas: {listing}"
    return f"bring back the nodes of its replicas: {listing}"


def _publishes(status: LeaderlessStatus) -> str:
    bound = status.refused_after_ms
    if not bound:
        return "its publishes wait for one"
    after = f"leaderless-ms, {wording.duration(bound)}"
    if status.since_ms is not None and status.since_ms >= bound:
        return f"its publishes are refused until there is one, because {after}, has passed"
    return f"its publishes wait for one and are refused after {after}"


def _replicas(status: LeaderlessStatus) -> str:
    if status.replicas == 1:
        return "its only replica is"
    count = len(status.down)
    which = "most" if status.lacks_majority and count < status.replicas else f"{count}"
    verb = "is" if which == "1" else "are"
    return f"{which} of its {status.replicas} replicas {verb}"
