"""Bugs of the log on disk, and of what guards its promises."""

from __future__ import annotations

import errno
from typing import Any, Final

from headrace_raftlog.node.directory import Directory
from headrace_raftlog.storage.disk.disk_watch import DiskWatch
from headrace_raftlog.storage.disk.files import Files, write_all
from headrace_raftlog.storage.recovery.group_recovery import FoundGroup
from headrace_raftlog.storage.segment import record
from headrace_raftlog.transport.peer_memory import PeerMemory
from headrace_simulation.cluster.bugs.bug import Mutation, put, put_all


def _unsynced() -> None:
    def write(files: Any, fd: int, pieces: list[bytes], size: int, offset: int) -> None:
        del size
        files.write(fd, b"".join(pieces), offset)

    put_all(write_all, lambda _: write)


def _ignoring(*numbers: int) -> None:
    """Take writes that failed with one of these errors for written."""

    def made(original: Any) -> Any:
        def write(files: Any, fd: int, pieces: list[bytes], size: int, offset: int) -> None:
            try:
                original(files, fd, pieces, size, offset)
            except OSError as error:
                if error.errno not in numbers:
                    raise

        return write

    put_all(write_all, made)


def _names_unsynced() -> None:
    put(Files, "sync_directory", lambda _: lambda self, directory: None)


def _unchecked() -> None:
    def made(original: Any) -> Any:
        del original

        def record_bytes(data: bytes, start: int, stop: int, salt: int) -> int:
            del salt
            length = int.from_bytes(data[start + 4 : start + 8], "little")
            end = start + record.HEADER_BYTES + length
            blank = not any(data[start : start + record.HEADER_BYTES])
            return -1 if blank or end > stop else end - start

        return record_bytes

    put_all(record.record_bytes, made)


def _states_forgotten() -> None:
    put(FoundGroup, "take_state", lambda _: lambda self, era, state, location: None)


def _old_copies() -> None:
    put(PeerMemory, "judge", lambda _: lambda self, peer, running: None)
    put(PeerMemory, "told", lambda _: lambda self, node, mark, running: False)
    put(Directory, "lost", lambda _: lambda self: "")


def _hung_leads() -> None:
    put(DiskWatch, "tick", lambda _: lambda self, passed_s, step: False)


MUTATIONS: Final = (
    Mutation("no-sync", "writes are not synced", "blackout", 20, _unsynced),
    Mutation(
        "sync-errors-ignored",
        "a write or sync that failed counts as done",
        *("errors", 20, lambda: _ignoring(errno.EIO)),
        is_found=False,
    ),
    Mutation(
        "full-disk-ignored",
        "a write for which there was no space counts as done",
        *("errors", 20, lambda: _ignoring(errno.ENOSPC)),
        is_found=False,
    ),
    Mutation(
        "names-unsynced",
        "directories are not synced, so that new files are lost",
        *("blackout", 20, _names_unsynced),
    ),
    Mutation(
        "restarts-forget-terms",
        "terms and votes are not read when a node starts",
        *("process", 20, _states_forgotten),
    ),
    Mutation(
        "rot-not-noticed",
        "checksums of records are not compared",
        *("loss", 40, _unchecked),
        is_found=False,
    ),
    Mutation(
        "old-copy-of-a-disk-votes",
        "a node with an older copy of its data takes part",
        *("old", 20, _old_copies),
    ),
    Mutation(
        "hung-disk-leads",
        "a node whose disk hangs goes on leading",
        "disk",
        20,
        _hung_leads,
        is_found=False,
    ),
)
