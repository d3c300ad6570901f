"""The stream WatchAlarms: resources with alarms on each node, and each change of that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from headrace_broker.catalog.access import Caller
from headrace_broker.flow.alarm import STAGE_ALARM, STAGE_PAGING
from headrace_broker.gateways.grpc.flow.watching import Watches
from headrace_broker.model.limits import WATCH_HEARTBEAT_MS
from headrace_broker.runtime.alarm.alarm_watch import CLEAR, CLOCK, AlarmWatch, Key, ResourceState
from headrace_protos.broker.v1 import flow_pb2 as messages

_KINDS: Final = {"memory": messages.MEMORY, "disk": messages.DISK, CLOCK: messages.CLOCK}
_STAGES: Final = {
    CLEAR: messages.ALARM_CLEAR,
    STAGE_PAGING: messages.ALARM_RELIEF,
    STAGE_ALARM: messages.ALARM_BLOCKED,
}


class AlarmNotifier:
    """State that one client was sent, and its changes since."""

    def __init__(self, watch: AlarmWatch) -> None:
        self._watch = watch  # says how it stands
        self._told: dict[Key, int] = {}
        self._begun = False

    def news(self) -> messages.WatchAlarmsResponse | None:
        """Return the next message, None when there are no news."""
        alarms_on = self._watch.alarms_on()
        changed = [each for key, each in alarms_on.items() if self._told.get(key) != each.stage]
        changed += [self._watch.clear(key) for key in self._told if key not in alarms_on]
        if not changed and self._begun:
            return None
        self._told = {key: each.stage for key, each in alarms_on.items()}
        message = heartbeat()
        message.alarms.extend(_render(each) for each in changed)
        message.snapshot_complete, self._begun = not self._begun, True
        return message


class AlarmWatching:
    """Serves streams of changes."""

    def __init__(self, watch: AlarmWatch, watches: Watches) -> None:
        self._watch = watch  # says how it stands
        self._watches = watches  # counts the streams

    async def stream(
        self, who: Caller, request: messages.WatchAlarmsRequest
    ) -> AsyncGenerator[messages.WatchAlarmsResponse, None]:
        """Send resources with alarms, then each change, for ever.

        Raises:
            CallError: the stream ends.
            AmqpError: the caller may not look, or not any more.
        """
        self._watches.caller(who.name)
        notifier = AlarmNotifier(self._watch)
        loop = asyncio.get_running_loop()
        due = loop.time() + WATCH_HEARTBEAT_MS / 1000
        with self._watches.one_more() as stopping:
            while True:
                news = self._watch.news
                self._watches.caller(who.name)
                message = notifier.news()
                if message is None:
                    if not await self._watches.wait(news, stopping, due):
                        continue
                    message = heartbeat()
                yield message
                due = loop.time() + WATCH_HEARTBEAT_MS / 1000


def heartbeat() -> messages.WatchAlarmsResponse:
    """Return a message without news."""
    return messages.WatchAlarmsResponse(heartbeat_ms=WATCH_HEARTBEAT_MS)


def _render(scarcity: ResourceState) -> messages.Alarm:
    return messages.Alarm(
        node=scarcity.node,
        kind=_KINDS[scarcity.resource],
        stage=_STAGES[scarcity.stage],
        since_ms=scarcity.since_ms,
        used_octets=scarcity.used,
        total_octets=scarcity.total,
        free_octets=scarcity.free,
        mark_octets=scarcity.mark,
        reason=scarcity.reason,
    )
