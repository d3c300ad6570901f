"""Puts publishes together that take the same way, so that a chunk costs few calls per queue."""

from __future__ import annotations

from typing import TypeAlias

from headrace_broker.codecs.event import Event
from headrace_broker.model.message import Publish

Step: TypeAlias = Event | list[Publish]


def group_publishes(events: list[Event]) -> list[Step]:
    """Return the events in order, consecutive publishes alike but for their content as one list."""
    steps: list[Step] = []
    group: list[Publish] = []
    for event in events:
        if not isinstance(event, Publish):
            if group:
                group = []
            steps.append(event)
            continue
        if group:
            head = group[0]
            if (
                head.channel == event.channel
                and head.route == event.route
                and head.mandatory == event.mandatory
                and head.immediate == event.immediate
            ):
                group.append(event)
                continue
        group = [event]
        steps.append(group)
    return steps
