"""Commands of groups that read archives, version 1: what follows the name in `group_command`.

    OPEN_ARCHIVE    u8 n | n bytes id of who opens
    COMMIT_ARCHIVE  u64 epoch | u64 up to
    CLOSE_ARCHIVE   u64 epoch, 0 for whatever the group has

They are those of a group, and are not numbered.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.core.queue.command.command import (
    CLOSE_ARCHIVE,
    COMMIT_ARCHIVE,
    NUMBER_MAX,
    OPEN_ARCHIVE,
    Command,
    Malformed,
)
from headrace_broker.core.queue.command.group_command import (
    GroupCommand,
    begin_command,
    encode_numbers,
)
from headrace_broker.core.queue.messages.byte_reader import ByteReader
from headrace_broker.model.limits import LEASE_OPENER_BYTES_MAX, NAME_BYTES_MAX


class ArchiveCommand(GroupCommand):
    """Base of the commands of groups that read an archive."""


@final
class OpenArchive(ArchiveCommand):
    """Give who opens a group an epoch above all others; the same one when it is repeated."""

    def __init__(self, request: i64, name: bytes, opener: bytes) -> None:
        super().__init__(request, name, 0)
        self.opener = opener  # tells this request from every other


@final
class CommitArchive(ArchiveCommand):
    """Note that a group is done with all rows before index `up_to`."""

    def __init__(self, request: i64, name: bytes, epoch: i64, up_to: i64) -> None:
        super().__init__(request, name, epoch)
        self.up_to = up_to


@final
class CloseArchive(ArchiveCommand):
    """Forget a group."""


def encode_open_archive(request: i64, name: bytes, opener: bytes) -> bytes:
    """Encode OPEN_ARCHIVE."""
    out = begin_command(OPEN_ARCHIVE, request, name)
    out.append(len(opener))
    out.write(opener)
    return out.getvalue()


def encode_commit_archive(request: i64, name: bytes, epoch: i64, up_to: i64) -> bytes:
    """Encode COMMIT_ARCHIVE."""
    return encode_numbers(COMMIT_ARCHIVE, request, name, [epoch, up_to])


def encode_close_archive(request: i64, name: bytes, epoch: i64) -> bytes:
    """Encode CLOSE_ARCHIVE."""
    return encode_numbers(CLOSE_ARCHIVE, request, name, [epoch])


def decode_archive_command(kind: i64, reader: ByteReader) -> Command:
    """Decode what stands behind kind and version; the caller sees to it that nothing is left."""
    request = reader.u64()
    name = reader.read_bytes(reader.u8())
    if not 1 <= len(name) <= NAME_BYTES_MAX:
        return Malformed("a group of an archive without name")
    if kind == OPEN_ARCHIVE:
        opener = reader.read_bytes(reader.u8())
        if not 1 <= len(opener) <= LEASE_OPENER_BYTES_MAX:
            return Malformed("OPEN_ARCHIVE by nobody")
        return OpenArchive(request, name, opener)
    epoch = reader.u64()
    if kind == CLOSE_ARCHIVE:
        return CloseArchive(request, name, epoch)
    up_to = reader.u64()
    if up_to > NUMBER_MAX:
        return Malformed("COMMIT_ARCHIVE beyond all rows")
    return CommitArchive(request, name, epoch, up_to)
