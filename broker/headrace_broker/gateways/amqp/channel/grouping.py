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

    Consecutive publishes alike but for their content become one list. A basic.ack is put together
    with those of the tags before it, where the last of them stands or later: none is handled before
    what was sent before it, on any channel, nor behind a method, which may wait for another turn.
    """
    steps: list[Step] = []
    group: list[Publish] = []
    acks: dict[int, Acked] | None = None  # by channel, of those that are no steps yet
    for event in events:
        if isinstance(event, Publish):
            if acks:
                own = acks.pop(int(event.channel), None)
                if own is not None:
                    steps.append(own)
                    group = []
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
            continue
        if isinstance(event, Acked) and not event.multiple:
            if acks is None:
                acks = {}
            before = acks.get(int(event.channel))
            if before is not None:
                if before.delivery_tag == event.delivery_tag - 1:
                    before.delivery_tag = event.delivery_tag
                    continue
                steps.append(before)
                group = []
            acks[int(event.channel)] = event
            continue
        if acks:
            steps.extend(acks.values())
            acks = None
        group = []
        steps.append(event)
    if acks:
        steps.extend(acks.values())
    return steps
