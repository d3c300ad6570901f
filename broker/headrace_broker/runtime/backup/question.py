"""Requests to a node about points of queues: see `backup.points`."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from headrace_broker.runtime.rpc.protocol import BACKUPS, Question


class BackupAnswer(msgspec.Struct, frozen=True):
    """Answer of a node.

    Attributes:
        status: OK and others, as in `backup.points`.
        text: why not, for people.
        point: number of the point that was opened.
        applied_index: of the queue's log there.
        messages: in it, or in the queue that was probed.
        byte_count: of their bodies.
        last_id: of the last of them.
        time_ms: Unix time of the point.
        heads: of messages that were read, as in `backup.chunk`; none at the end.
        batch: likewise.
        next_number: first number of a publisher that the queue that was probed has not had.
    """

    status: int
    text: str = ""
    point: int = 0
    applied_index: int = 0
    messages: int = 0
    byte_count: int = 0
    last_id: int = 0
    time_ms: int = 0
    heads: bytes = b""
    batch: bytes = b""
    next_number: int = 0


class OpenPoint(Question[BackupAnswer], frozen=True, tag="backup_open"):
    """Freeze the queue's messages as they stand when all that is committed now is applied.

    Attributes:
        group: of the queue.
        ttl_ms: time to live.
        user: whose the point is.
    """

    pool: ClassVar[str] = BACKUPS
    group: int
    ttl_ms: int
    user: str


class ReadPoint(Question[BackupAnswer], frozen=True, tag="backup_read"):
    """Messages of a user's point with ids above `after`."""

    pool: ClassVar[str] = BACKUPS
    point: int
    user: str
    after: int
    messages: int
    byte_count: int


class KeepPoint(Question[BackupAnswer], frozen=True, tag="backup_keep"):
    """Put the end of a user's point off, and give up what comes first in it.

    Attributes:
        ttl_ms: a new time to live, 0 for the one that it has.
        done: messages with ids up to this one are not read again.
    """

    point: int
    user: str
    ttl_ms: int = 0
    done: int = 0


class ClosePoint(Question[BackupAnswer], frozen=True, tag="backup_close"):
    """Give a user's point up."""

    point: int
    user: str


class Probe(Question[BackupAnswer], frozen=True, tag="backup_probe"):
    """Request the content of a queue, and what it has had of a publisher."""

    pool: ClassVar[str] = BACKUPS
    group: int
    publisher: bytes
