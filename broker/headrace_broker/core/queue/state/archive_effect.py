"""Effects of a queue for groups that read its archive (see `archive`)."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.core.queue.messages.effect import GroupAnswer

ARCHIVE_OK: Final = 0
ARCHIVE_FENCED: Final = 1  # another owner has opened the group since
ARCHIVE_UNKNOWN_GROUP: Final = 2
ARCHIVE_NOT_YET: Final = 3  # there are no such rows yet
ARCHIVE_GROUPS_FULL: Final = 4  # the archive has as many groups as it may
ARCHIVE_OFF: Final = 5  # the queue never had an archive

ARCHIVE_STATUS_NAMES: Final = {
    ARCHIVE_OK: "ok",
    ARCHIVE_FENCED: "fenced",
    ARCHIVE_UNKNOWN_GROUP: "unknown_group",
    ARCHIVE_NOT_YET: "not_yet",
    ARCHIVE_GROUPS_FULL: "groups_full",
    ARCHIVE_OFF: "off",
}


@final
class ArchiveGroupInfo:
    """Group of an archive, as effects carry it."""

    def __init__(self, name: bytes, epoch: i64, committed: i64, committed_ms: i64) -> None:
        self.name = name  # unique in the archive
        self.epoch = epoch  # who opened it last has this one
        self.committed = committed  # index of the first row that it is not done with
        self.committed_ms = committed_ms  # when it said so, or was opened (Unix time in ms)

    def __repr__(self) -> str:
        return (
            f"ArchiveGroupInfo({self.name!r}, {self.epoch}, {self.committed}, {self.committed_ms})"
        )


@final
class ArchiveInfo:
    """Archive, as effects carry it."""

    def __init__(
        self,
        mode: i64,
        since_ms: i64,
        first: i64,
        following: i64,
        byte_count: i64,
        first_ms: i64,
        last_ms: i64,
        groups: list[ArchiveGroupInfo],
    ) -> None:
        self.mode = mode  # an ARCHIVE constant: what becomes of messages that are settled now
        self.since_ms = since_ms  # when the queue had an archive first, 0 for never
        self.first = first  # index of the first row that there is; `following` where there is none
        self.following = following  # index of the next row
        self.byte_count = byte_count  # of the bodies of the messages whose rows there are
        self.first_ms = first_ms  # when the first of them was settled, 0 for none
        self.last_ms = last_ms  # and the last
        self.groups = groups  # that read it, in the order in which they were made

    def __repr__(self) -> str:
        return (
            f"ArchiveInfo({self.mode}, {self.since_ms}, {self.first}, {self.following},"
            f" {self.byte_count}, {self.first_ms}, {self.last_ms}, {self.groups})"
        )


@final
class ArchiveAnswer(GroupAnswer):
    """A command of a group was applied, or may not be."""

    def __init__(
        self, request: i64, status: i64, group: ArchiveGroupInfo | None, first: i64, following: i64
    ) -> None:
        super().__init__(request)
        self.status = status  # one of the ARCHIVE constants
        self.group = group  # as it is now, None where there is none
        self.first = first  # index of the first row that there is, before what the command lets go
        self.following = following  # index of the next row

    def __repr__(self) -> str:
        return (
            f"ArchiveAnswer({self.request}, {ARCHIVE_STATUS_NAMES[int(self.status)]},"
            f" {self.group}, {self.first}, {self.following})"
        )
