"""Watch whether the files that a log has open are still those of its directory."""

from __future__ import annotations

import logging
from typing import Final, final

from headrace_raftlog.model.limits import DIRECTORY_LOOKS
from headrace_raftlog.storage.disk.files import Files
from headrace_raftlog.storage.recovery.opening import LOCK_NAME
from headrace_raftlog.storage.segment.segment import segment_name
from headrace_raftlog.storage.writing.write_position import WriterPosition

LOG: Final = logging.getLogger("headrace.raft")


@final
class DirectoryWatch:
    """Compares the lock and the newest segment, as they are open, with what their names lead to.

    Names are looked up in the directory as it was opened, so that one that is moved, or mounted
    over, has lost nothing; that its path leads elsewhere is only logged. Other links to a file, and
    whoever reads or touches it, change nothing.
    """

    def __init__(self, files: Files, directory: str, lock: int, position: WriterPosition) -> None:
        self._files = files  # the file system
        self._path = directory  # its path
        self._lock = lock  # descriptor of the lock
        # of the log's writer, whose thread changes it; what is seen half changed once is whole at
        # the next look
        self._position = position
        self._fd = files.open_directory(directory)
        self._suspect = ""
        self._looks = 0
        self._moved = False

    def poll(self) -> str:
        """Check once; return what happened to a file that is gone or replaced, "" for nothing.

        That is returned when DIRECTORY_LOOKS looks in a row have found it so. What a disk refuses
        to tell is not known to be gone: its writes show how it is.
        """
        try:
            found = self._missing()
            self._look_at_path()
        except OSError as error:
            LOG.debug("files in %s cannot be examined: %s", self._path, error)
            found = ""
        self._looks = self._looks + 1 if found and found == self._suspect else int(found != "")
        self._suspect = found
        return found if self._looks >= DIRECTORY_LOOKS else ""

    def close(self) -> None:
        """Stop the watch."""
        self._files.close(self._fd)

    def _missing(self) -> str:
        name = segment_name(self._position.header.sequence)
        if not self._files.leads_to(name, self._position.fd, self._fd):
            return (
                f"its log file {name} was removed or replaced while in use, so what it syncs now "
                "is gone at the next start"
            )
        if not self._files.leads_to(LOCK_NAME, self._lock, self._fd):
            return (
                f"its file {LOCK_NAME!r} was removed or replaced while in use, so a second process "
                "could use the directory at the same time"
            )
        return ""

    def _look_at_path(self) -> None:
        moved = not self._files.leads_to(self._path, self._fd)
        if moved and not self._moved:
            LOG.warning(
                "the data directory is not at %s any more: it was moved, or another one has its "
                "place. The node goes on with the files that it has open until it needs another "
                "one; put the directory back before that, and before the next start",
                self._path,
            )
        self._moved = moved
