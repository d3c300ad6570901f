"""The groups of a telemetry log, and how far they have come; a small file, written whole."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Final

import msgspec

from headrace_broker.model.limits import EXPORT_GROUPS_MAX, EXPORT_OPENERS_KEPT_MAX
from headrace_broker.runtime.export.log import FencedError, TooManyGroupsError, UnknownGroupError
from headrace_raftlog.storage.disk.files import Files

NAME: Final = "groups.json"
_UNFINISHED: Final = ".new"

log = logging.getLogger("headrace.node")


class GroupEntry(msgspec.Struct):
    """A group."""

    epoch: int  # under which it is open; above all that were given in this log before
    committed: int  # index of the first row that it is not done with
    committed_ms: int  # Unix time at which it said so, or was made
    openers: list[tuple[bytes, int]] = []  # who opened it lately, with their epochs


class _Page(msgspec.Struct):
    incarnation: int
    groups: dict[str, GroupEntry] = {}
    epochs: int = 0  # the last one that was given


class GroupBook:
    """Keeps groups on the disk."""

    def __init__(self, files: Files, directory: str) -> None:
        self.groups: dict[str, GroupEntry] = {}  # by name
        self._files = files
        self._directory = directory  # of the log
        self._incarnation = 0
        self._epochs = 0  # the last one that was given, also to groups that are closed

    def load(self, incarnation: int) -> None:
        """Read the file; a damaged one, or another incarnation's, is empty. Raises OSError."""
        self._incarnation = incarnation
        if NAME not in self._files.names(self._directory):
            return
        fd = self._files.open(self._path)
        try:
            data = self._files.read(fd, self._files.size(fd), 0)
        finally:
            self._files.close(fd)
        try:
            page = msgspec.json.decode(data, type=_Page)
        except msgspec.DecodeError as error:
            log.error("%s is damaged, its groups are lost: %s", self._path, error)
            return
        if page.incarnation == incarnation:
            self.groups = page.groups
            self._epochs = max([page.epochs, *(entry.epoch for entry in page.groups.values())])

    @property
    def _path(self) -> str:
        return os.path.join(self._directory, NAME)

    def least(self) -> int | None:
        """Return what all groups are done with: the index behind it, None without groups."""
        return min((entry.committed for entry in self.groups.values()), default=None)

    def open(self, name: str, opener: bytes, first_index: int, now_ms: int) -> GroupEntry:
        """Open a group, see `ExportLog.open_group`; a new one begins at `first_index`.

        Raises TooManyGroupsError: likewise; OSError: it cannot be written; nothing changed.
        """
        known = self.groups.get(name)
        epoch = self._epochs + 1
        if known is None:
            if len(self.groups) >= EXPORT_GROUPS_MAX:
                raise TooManyGroupsError(
                    f"there are {EXPORT_GROUPS_MAX} groups, which is the maximum: close one"
                )
            entry = GroupEntry(epoch, first_index, now_ms, [(opener, epoch)])
        else:
            epochs = dict(known.openers)
            if opener in epochs:
                return msgspec.structs.replace(known, epoch=epochs[opener])
            openers = [*known.openers, (opener, epoch)][-EXPORT_OPENERS_KEPT_MAX:]
            entry = GroupEntry(epoch, known.committed, known.committed_ms, openers)
        self._write({**self.groups, name: entry}, epoch)
        return entry

    def commit(self, name: str, epoch: int, up_to: int, now_ms: int) -> GroupEntry:
        """Note how far a group has come; it never goes back.

        Raises UnknownGroupError, FencedError: likewise; OSError: nothing changed.
        """
        known = self._known(name, epoch)
        if up_to <= known.committed:
            return known
        entry = msgspec.structs.replace(known, committed=up_to, committed_ms=now_ms)
        self._write({**self.groups, name: entry}, self._epochs)
        return entry

    def close(self, name: str, epoch: int) -> None:
        """Forget a group, whatever its epoch for 0; FencedError, or OSError and nothing changed."""
        if name not in self.groups:
            return
        self._known(name, epoch or self.groups[name].epoch)
        left = {each: entry for each, entry in self.groups.items() if each != name}
        self._write(left, self._epochs)

    def _known(self, name: str, epoch: int) -> GroupEntry:
        known = self.groups.get(name)
        if known is None:
            raise UnknownGroupError("it is not open")
        if epoch != known.epoch:
            raise FencedError("somebody else has opened the group since", known.epoch)
        return known

    def _write(self, groups: dict[str, GroupEntry], epochs: int) -> None:
        data = msgspec.json.encode(_Page(self._incarnation, groups, epochs))
        unfinished = self._path + _UNFINISHED
        with contextlib.suppress(FileNotFoundError):
            self._files.remove(unfinished)
        fd = self._files.create(unfinished)
        try:
            written = 0
            while written < len(data):
                written += self._files.write(fd, data[written:], written)
            self._files.sync(fd)
        finally:
            self._files.close(fd)
        self._files.rename(unfinished, self._path)
        self._files.sync_directory(self._directory)
        self.groups = groups
        self._epochs = epochs
