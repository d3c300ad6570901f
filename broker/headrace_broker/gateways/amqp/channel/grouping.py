"""Puts publishes together that take the same way, and acknowledgements of consecutive deliveries.

So a chunk costs few calls per queue.
"""

from __future__ import annotations

from typing import TypeAlias

from headrace_broker.codecs.event import Acked, Event
from headrace_broker.model.message import Publish

Step: TypeAlias = Event | list[Publish]


def group_events(events: list[Event]) -> list[Step]:
    """Return the events of each channel in order, with those that belong together as one.

    Consecutive publishes alike but for their content become one list. A basic.ack is added to that
    of the tag before it, if nothing but what other channels publish and acknowledge is in between.
    """
    steps: list[Step] = []
    group: list[Publish] = []
    acks: dict[int, Acked] | None = None  # by channel, where that came last
    for event in events:
        if not isinstance(event, Publish):
            if isinstance(event, Acked) and not event.multiple:
                if acks is None:
                    acks = {}
                before = acks.get(int(event.channel))
                if before is not None and before.delivery_tag == event.delivery_tag - 1:
                    before.delivery_tag = event.delivery_tag
                    continue
                acks[int(event.channel)] = event
            else:
                acks = None
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
        if acks is not None:
            acks.pop(int(event.channel), None)
    return steps
