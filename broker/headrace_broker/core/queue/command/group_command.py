"""Common part of commands of groups, of leases and of archives.

    u8 kind | u8 version | u64 request | u8 n | n bytes name of the group | fields

They are not numbered: each may be repeated, and is answered by what holds then. `request` names
whoever waits for the answer.
"""

from __future__ import annotations

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64

from headrace_broker.core.queue.command.command import COMMAND_VERSION, Command


class GroupCommand(Command):
    """Base of the commands of groups."""

    def __init__(self, request: i64, name: bytes, epoch: i64) -> None:
        self.request = request  # who waits for the answer
        self.name = name  # of the group
        self.epoch = epoch  # of who works for it


def begin_command(kind: int, request: i64, name: bytes) -> BytesWriter:
    """Begin a command; its fields follow."""
    out = BytesWriter()
    out.append(kind)
    out.append(COMMAND_VERSION)
    write_i64_be(out, request)
    out.append(len(name))
    out.write(name)
    return out


def encode_numbers(kind: int, request: i64, name: bytes, numbers: list[int]) -> bytes:
    """Encode a command whose fields are all u64."""
    out = begin_command(kind, request, name)
    for number in numbers:
        write_i64_be(out, number)
    return out.getvalue()
