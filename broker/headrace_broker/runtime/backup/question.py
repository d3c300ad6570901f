"""Requests to a node about points of queues: see `backup.points`."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from headrace_broker.runtime.rpc.protocol import BACKUPS, Question


class BackupAnswer(msgspec.Struct, frozen=True):
    """Answer of a node."""

    status: int  # OK and others, as in `backup.points`
    text: str = ""  # why not, for people
    point: int = 0  # number of the point that was opened
    applied_index: int = 0  # of the queue's log there
    messages: int = 0  # in it, or in the queue that was probed
    byte_count: int = 0  # of their bodies
    last_id: int = 0  # of the last of them
    time_ms: int = 0  # Unix time of the point
    heads: bytes = b""  # of messages that were read, as in `backup.chunk`; none at the end
    batch: bytes = b""  # likewise
    next_number: int = 0  # first number of a publisher that the queue that was probed has not had


class OpenPoint(Question[BackupAnswer], frozen=True, tag="backup_open"):
    """Freeze the queue's messages as they stand when all that is committed now is applied."""

    pool: ClassVar[str] = BACKUPS
    group: int  # of the queue
    ttl_ms: int  # time to live
    user: str  # whose the point is


class ReadPoint(Question[BackupAnswer], frozen=True, tag="backup_read"):
    """Messages of a user's point with ids above `after`."""

    pool: ClassVar[str] = BACKUPS
    point: int
    user: str
    after: int
    messages: int
    byte_count: int


class KeepPoint(Question[BackupAnswer], frozen=True, tag="backup_keep"):
    """Put the end of a user's point off, and give up what comes first in it."""

    point: int
    user: str
    ttl_ms: int = 0  # a new time to live, 0 for the one that it has
    done: int = 0  # messages with ids up to this one are not read again


class ClosePoint(Question[BackupAnswer], frozen=True, tag="backup_close"):
    """Give a user's point up."""

    point: int
    user: str


class Probe(Question[BackupAnswer], frozen=True, tag="backup_probe"):
    """Request the content of a queue, and what it has had of a publisher."""

    pool: ClassVar[str] = BACKUPS
    group: int
    publisher: bytes
