"""Bugs of points of queues, and of what is kept for their readers."""

from __future__ import annotations

from typing import Any, Final

from headrace_broker.core.queue.snapshot.frozen import FrozenQueue
from headrace_broker.runtime.backup.points import NO_REPLICA, BackupPoints, _refusal
from headrace_broker.runtime.contract.retention import Retention
from headrace_simulation.cluster.bugs.bug import Mutation, put


def _at_once() -> None:
    async def caught_up(self: Any, group: int) -> Any:
        return self._hosts.get(group) or _refusal(NO_REPLICA, "")

    put(BackupPoints, "_caught_up", lambda _: caught_up)


def _nothing_kept() -> None:
    put(Retention, "covers", lambda _: lambda self, index: False)


def _read_to_the_end_kept() -> None:
    put(FrozenQueue, "first_entry", lambda _: lambda self, after: 1 << 40)


def _released_by_another() -> None:
    def made(original: Any) -> Any:
        def close(self: Any, asked: Any) -> Any:
            point = self._points.get(asked.point)
            answer = original(self, asked)
            if point is not None and point.host.log.hold is not None:
                point.host.log.hold.cover(0, -1)
            return answer

        return close

    put(BackupPoints, "close", made)


MUTATIONS: Final = (
    Mutation(
        "points-open-at-once",
        "a point is of what its replica has applied, and not of what is committed",
        *("backups", 20, _at_once),
    ),
    Mutation(
        "points-keep-nothing",
        "entries that die while a point is read are dropped",
        *("backups", 20, _nothing_kept),
    ),
    Mutation(
        "points-keep-too-little",
        "whoever has read some of a point needs nothing more of it",
        *("backups", 20, _read_to_the_end_kept),
    ),
    Mutation(
        "points-end-together",
        "entries are kept for no point of a queue any more once one of them is closed",
        *("backups", 20, _released_by_another),
    ),
)
