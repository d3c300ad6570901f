"""Points of queues that are read for backups, on this node's replicas.

A *point* is what a queue held at one position of its log, on one replica of it: the messages
frozen, and the log's entries held until they were read. Any replica will do, for all are equal at
one position; a follower has time for it. A point ends when it is closed, when nobody reads for its
time to live, when its owner may not read the queue any more, when too much of what is dead is held,
or when the node's disk runs short meanwhile; with the process in any case. Who reads it then begins
anew with another point.

A point is for the user who opened it, as long as that user may read the queue: this is judged at
each question, and when the catalog changes, and a point whose owner may not is given up at once.
Others are answered as if there were no such point.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from headrace_broker.catalog.access import refused
from headrace_broker.catalog.permission_watch import PermissionWatch, PermissionWatches
from headrace_broker.core.queue.snapshot.frozen import FrozenQueue
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import (
    BACKUP_ANSWER_S,
    BACKUP_CATCH_UP_S,
    BACKUP_CHUNK_BYTES_MAX,
    BACKUP_CHUNK_MESSAGES_MAX,
    BACKUP_HELD_BYTES_MAX,
    BACKUP_HELD_ENTRIES_MAX,
    BACKUP_HELD_MEMORY_BYTES_MAX,
    BACKUP_POINT_S_MAX,
    BACKUP_POINTS_MAX,
    BACKUP_RELEASE_ENTRIES,
    BACKUP_SWEEP_S,
)
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.runtime.backup.chunk import cut_frozen
from headrace_broker.runtime.backup.question import (
    BackupAnswer,
    ClosePoint,
    KeepPoint,
    OpenPoint,
    Probe,
    ReadPoint,
)
from headrace_broker.runtime.contract.clock import Clock
from headrace_broker.runtime.contract.retention import NOTHING, Retention
from headrace_broker.runtime.replica.queue_host import QueueHost
from headrace_broker.runtime.replica.reading.answers import Answers
from headrace_broker.runtime.replica.reading.entries import Entries
from headrace_broker.runtime.rpc.protocol import SILENT, NoAnswerError
from headrace_raftlog.model.errors import RaftLogError

OK: Final = 1
NO_REPLICA: Final = 2  # not here, or it is not caught up
UNKNOWN_POINT: Final = 3  # never opened here, closed, or from before this node started
LOST: Final = 4  # the point was given up; the text says why
TOO_MANY: Final = 5  # the node keeps as many as it may
DENIED: Final = 6  # its owner may not read the queue any more; the text says why

NO_MESSAGES: Final = FrozenQueue(0)

log: Final = logging.getLogger("headrace.queue")


class Point:
    """Point of one reader."""

    def __init__(self, number: int, owner: str, host: QueueHost, now_ms: int, ttl_ms: int) -> None:
        self.number = number  # its name on this node
        self.owner = owner  # user whose it is, "" where the asking node knows no owners
        self.host = host  # the replica
        self.frozen = host.machine.freeze()  # its messages
        self.index = int(host.log.applied_index())  # position of the queue's log
        self.breaks = 0  # of the hold, when it was opened
        self.low = 0  # no entry below is read any more
        self.ttl_ms = ttl_ms  # time to live
        self.deadline_ms = now_ms + ttl_ms  # monotonic, when it ends unless it is read
        self.end_ms = now_ms + BACKUP_POINT_S_MAX * 1000  # when it ends in any case
        self.lost = ""  # why it is over, "" while it is not
        self.standing: PermissionWatch | None = None  # has its owner's permission judged again

    def used(self, now_ms: int) -> None:
        """Put its end off."""
        self.deadline_ms = now_ms + self.ttl_ms


class BackupPoints:
    """Opens, reads and gives up points."""

    def __init__(
        self,
        hosts: Mapping[int, QueueHost],
        boot: Callable[[], int],
        short_of_disk: Callable[[], str],
        refusal: Callable[[str, Queue], str],
        clock: Clock | None = None,
    ) -> None:
        self._hosts = hosts  # replicas on this node by group
        self._boot = boot  # returns the boot count: numbers of points are never used twice
        self._short_of_disk = short_of_disk  # returns why nothing may be held now, ""
        self._refusal = refusal  # returns why a user may not back a queue up now, "" if they may
        self.standings: PermissionWatches | None = None  # judges users again, None before
        self._clock = Clock() if clock is None else clock
        self._points: dict[int, Point] = {}
        self._answers = Answers()
        self._opened = 0
        self._releasing: dict[int, QueueHost] = {}  # by group: the log is to be told of entries
        self._handle: asyncio.TimerHandle | None = None

    @property
    def count(self) -> int:
        """Number of points that are kept."""
        return len(self._points)

    def stop(self) -> None:
        """Stop all timers; the process ends."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    # What is asked

    async def open(self, asked: OpenPoint) -> BackupAnswer:
        """Freeze a queue once everything is applied here that is committed now."""
        host = await self._caught_up(asked.group)
        if isinstance(host, BackupAnswer):
            return host
        if len(self._points) >= BACKUP_POINTS_MAX:
            return _refusal(TOO_MANY, f"{BACKUP_POINTS_MAX} points are open, the maximum of a node")
        return self._open(host, asked.ttl_ms, asked.user)

    async def probe(self, asked: Probe) -> BackupAnswer:
        """Return a queue's content, and a publisher's state there."""
        host = await self._caught_up(asked.group)
        if isinstance(host, BackupAnswer):
            return host
        known = host.machine.publisher(asked.publisher)
        number = 1
        if known is not None:
            holes = known.holes.bounds
            number = int(holes[0] if holes else known.last + 1)
        held = int(host.machine.held_count)
        return BackupAnswer(OK, messages=held, next_number=number)

    async def _caught_up(self, group: int) -> QueueHost | BackupAnswer:
        """Return a replica once everything is applied that is committed now, or why not."""
        host = self._hosts.get(group)
        if host is None:
            return _refusal(NO_REPLICA, "no replica of the queue is there")
        try:
            await host.log.catch_up(BACKUP_CATCH_UP_S)
        except (KeyError, RaftLogError) as error:
            return _refusal(NO_REPLICA, f"the replica is not caught up: {error}")
        if self._hosts.get(group) is not host:
            return _refusal(NO_REPLICA, "no replica of the queue is there")
        return host

    async def read(self, asked: ReadPoint) -> BackupAnswer:
        """Return messages of a user's point.

        Raises NoAnswerError: the disk does not give them back in time.
        """
        point = self._alive(asked.point, asked.user)
        if isinstance(point, BackupAnswer):
            return point
        most = min(asked.messages, BACKUP_CHUNK_MESSAGES_MAX)
        byte_count = min(asked.byte_count, BACKUP_CHUNK_BYTES_MAX)

        def cut(entries: Entries) -> tuple[bytes, bytes]:
            return cut_frozen(entries, point.frozen, asked.after, most, byte_count)

        host = point.host
        try:
            async with asyncio.timeout(BACKUP_ANSWER_S):  # then the request was given up
                found = await self._answers.cut(
                    host.log, host.queue.group, cut, lambda: self._points.get(asked.point) is point
                )
        except TimeoutError:
            text = f"the disk does not give back messages of queue '{host.queue.name}'"
            raise NoAnswerError(SILENT, f"{text} within {BACKUP_ANSWER_S:.0f} s") from None
        except KeyError as error:
            if not point.lost:
                self._lose(point, f"the log has not kept it: {error}")
        again = self._alive(asked.point, asked.user)
        if isinstance(again, BackupAnswer):  # it ended while it was read
            return again
        assert found is not None, "the point is there"
        heads, batch = found
        point.used(int(self._clock.monotonic_ms()))
        return BackupAnswer(OK, heads=heads, batch=batch)

    def keep(self, asked: KeepPoint) -> BackupAnswer:
        """Extend a user's point, and release what is read and safe."""
        point = self._alive(asked.point, asked.user)
        if isinstance(point, BackupAnswer):
            return point
        if asked.ttl_ms:
            point.ttl_ms = asked.ttl_ms
        point.used(int(self._clock.monotonic_ms()))
        if asked.done:
            low = point.frozen.first_entry(asked.done)
            if low > point.low:
                point.low = low
                self._cover(point.host)
        return BackupAnswer(OK)

    def close(self, asked: ClosePoint) -> BackupAnswer:
        """Give a user's point up; one that is not there, or another user's, is no error."""
        point = self._owned(asked.point, asked.user)
        if isinstance(point, BackupAnswer):
            return point if point.status == DENIED else BackupAnswer(OK)
        del self._points[asked.point]
        self._stand_down(point)
        self._cover(point.host)
        return BackupAnswer(OK)

    # Inner

    def _stand(self, point: Point) -> None:
        """Give a point up when its owner may not read the queue any more."""
        queue, owner = point.host.queue, point.owner
        if self.standings is None:
            return

        def judge() -> None:
            if text := self._refusal(owner, queue):
                raise refused(text)

        def end(error: AmqpError) -> None:
            self._lose(point, error.text)

        standing = PermissionWatch(owner, queue.vhost, judge, end)
        try:
            self.standings.enter(standing)
        except AmqpError as error:
            self._lose(point, error.text)
        else:
            point.standing = standing

    def _stand_down(self, point: Point) -> None:
        if self.standings is not None and point.standing is not None:
            self.standings.leave(point.standing)

    def _open(self, host: QueueHost, ttl_ms: int, owner: str) -> BackupAnswer:
        self._opened += 1
        now_ms = int(self._clock.monotonic_ms())
        point = Point((self._boot() << 32) | self._opened, owner, host, now_ms, ttl_ms)
        self._points[point.number] = point
        hold = host.log.hold
        if hold is None:
            in_memory = not host.queue.logged
            bytes_max = BACKUP_HELD_MEMORY_BYTES_MAX if in_memory else BACKUP_HELD_BYTES_MAX
            hold = host.log.hold = Retention(BACKUP_HELD_ENTRIES_MAX, bytes_max)
        point.breaks = int(hold.breaks)
        self._cover(host)
        self._stand(point)
        frozen = point.frozen
        if self._handle is None:
            self._later()
        return BackupAnswer(
            OK,
            point=point.number,
            applied_index=point.index,
            messages=int(frozen.count),
            byte_count=int(frozen.byte_count),
            last_id=int(frozen.last_id),
            time_ms=int(self._clock.unix_ms()),
        )

    def _cover(self, host: QueueHost) -> None:
        """Keep what the points of a replica still need, and no more."""
        hold = host.log.hold
        assert hold is not None, "the first point brought it"
        points = [
            point
            for point in self._points.values()
            if point.host is host and not point.lost and point.breaks == hold.breaks
        ]
        if points:
            hold.cover(min(p.low for p in points), max(p.index for p in points))
        else:
            hold.cover(0, NOTHING)
        if hold.released:
            self._releasing[host.queue.group] = host

    def _owned(self, number: int, user: str) -> Point | BackupAnswer:
        """Return a user's point, or the refusal that there is none, or that it may not be read."""
        point = self._points.get(number)
        if point is None or point.owner != user:
            text = "there is no such point: it was closed, or the node has started anew"
            return _refusal(UNKNOWN_POINT, text)
        denied = self._refusal(user, point.host.queue)
        return _refusal(DENIED, denied) if denied else point

    def _alive(self, number: int, user: str) -> Point | BackupAnswer:
        """Return a user's point that is not over, or why there is none."""
        point = self._owned(number, user)
        if isinstance(point, BackupAnswer):
            return point
        self._check(point)
        return _refusal(LOST, point.lost) if point.lost else point

    def _check(self, point: Point) -> None:
        """See whether a point is over by itself."""
        if point.lost:
            return
        hold = point.host.log.hold
        assert hold is not None, "the first point brought it"
        now_ms = int(self._clock.monotonic_ms())
        if hold.breaks != point.breaks:
            self._lose(point, hold.broken)
        elif self._hosts.get(point.host.queue.group) is not point.host:
            self._lose(point, "the replica is not on this node any more")
        elif now_ms >= point.end_ms:
            self._lose(point, f"it was kept for {BACKUP_POINT_S_MAX} s")
        elif now_ms >= point.deadline_ms:
            self._lose(point, f"nobody read it for {point.ttl_ms} ms")

    def _lose(self, point: Point, reason: str) -> None:
        """Give a point up, and remember the reason for later requests."""
        queue = point.host.queue
        text = "backup of queue '%s' in vhost '%s': point %d is given up: %s"
        log.warning(text, queue.name, queue.vhost, point.number, reason)
        self._stand_down(point)
        point.lost = reason
        point.frozen = NO_MESSAGES
        self._cover(point.host)

    def _later(self) -> None:
        loop = asyncio.get_running_loop()
        self._handle = loop.call_later(BACKUP_SWEEP_S, self.sweep)

    def sweep(self) -> None:
        """Give up expired points, release their log entries, and schedule the next sweep."""
        self.stop()
        short = self._short_of_disk()
        now_ms = int(self._clock.monotonic_ms())
        for point in list(self._points.values()):
            if not point.lost:
                hold = point.host.log.hold
                if short and hold is not None and hold.count and point.host.queue.logged:
                    hold.break_off(short)
                self._check(point)
            elif now_ms >= point.deadline_ms + point.ttl_ms:
                del self._points[point.number]
        self._release()
        if self._points or self._releasing:
            self._later()

    def _release(self) -> None:
        """Release log entries, some in each turn of the loop."""
        for group, host in list(self._releasing.items()):
            hold = host.log.hold
            if self._hosts.get(group) is not host or hold is None or not hold.released:
                del self._releasing[group]
            else:
                host.log.release(hold.next_released(BACKUP_RELEASE_ENTRIES))
        if self._releasing:
            asyncio.get_running_loop().call_soon(self._release)


def _refusal(status: int, text: str) -> BackupAnswer:
    return BackupAnswer(status, text)
