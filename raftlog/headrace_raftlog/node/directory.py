"""Opening a data directory, and remembering how far disks have come."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from headrace_raftlog.model.errors import DirectoryGoneError, ForgottenError
from headrace_raftlog.model.limits import DIRECTORY_LOOK_S, MARKS_WRITE_S
from headrace_raftlog.model.mark import Mark
from headrace_raftlog.node.options import NodeOptions
from headrace_raftlog.storage.disk.files import Files
from headrace_raftlog.storage.inspection.set_aside import ASIDE_NAME, condemn, finish
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_raftlog.storage.recovery.directory_watch import DirectoryWatch
from headrace_raftlog.storage.writing.identity import Identity
from headrace_raftlog.storage.writing.mark_file import MarkFile
from headrace_raftlog.storage.writing.segment_supply import FULL_ERRNOS
from headrace_raftlog.transport.peer_memory import PeerMemory

LOG: Final = logging.getLogger("headrace.cluster")

_PROCESS_BITS: Final = 56  # numbers in metadata have 18 digits at most


class Directory:
    """A data directory in use."""

    def __init__(self, identity: Identity, log: SharedLog, marks: MarkFile) -> None:
        """Use `open`."""
        self.identity = identity  # whose it is; to be kept up to date
        self.log = log
        # what is remembered of the peers' disks; saved by `save`
        self.memory = PeerMemory(identity.node, marks.marks.peers)
        self.process = secrets.randbits(_PROCESS_BITS) + 1  # random number of this process
        self._found = log.recovery.next_number - 1
        self._file = marks
        self._marks = marks.marks
        self._saved_at = 0.0
        self._saving: asyncio.Future[None] | None = None
        self._watch = DirectoryWatch(Files(), log.directory, log.lock, log.position)
        self._looked_at = 0.0
        self._looking: asyncio.Future[str] | None = None

    @staticmethod
    def open(options: NodeOptions) -> Directory:
        """Count a start, recover the log, and compare it with the marks of its disk.

        A log that lacks what was synced once is set aside, and the node begins anew with another
        disk. Where it is the only node of its cluster it goes on with what is left.

        Raises:
            CorruptLogError: stored data is damaged; nothing was changed.
            IdentityError: the directory is another node's.
            LogLockedError: another process uses it.
            OSError: as the system says.
        """
        path = options.data_dir
        owner = (options.cluster, options.node)
        if finish(path, owner=owner):
            LOG.warning("former data of node %d kept in %s/%s", options.node, path, ASIDE_NAME)
        while True:
            found = Directory._open(options)
            lost = found.lost()
            if not lost:
                break
            if set(options.peers) | set(found.identity.formed) == {options.node}:
                LOG.error("%s. There is no other node to get it from: it goes on without", lost)
                break
            found.close()
            LOG.error(
                "%s. It takes part no more with these data: they are set aside in %s/%s, and it "
                "gets everything from the other nodes as a new member",
                *(lost, path, ASIDE_NAME),
            )
            condemn(path, lost)
            finish(path, owner=owner)
        try:
            found.begin()
        except BaseException:
            found.close()
            raise
        return found

    @staticmethod
    def _open(options: NodeOptions) -> Directory:
        path = options.data_dir
        identity = Identity.open(path, options.cluster, options.node)
        log = SharedLog.open(path, options.log, identity)
        try:
            return Directory(identity, log, MarkFile.open(path))
        except BaseException:
            log.close()
            raise

    def begin(self) -> None:
        """Remember that a process has begun with the log as it was found."""
        identity = self.identity
        own = Mark(identity.disk, identity.boot, self.process, self._found)
        self._marks = self._file.marks.begun(own)
        self._write()

    def become(self, identity: Identity) -> None:
        """Note that the identity has changed: its boot, or that it is formed now.

        What this process has found at its start stays under the boot that it began with: a peer
        that was not told of a later one has heard of its batches under the first.
        """
        self.identity = identity
        own = self._marks.own
        assert own is not None, "it has begun"
        self._marks = replace(self._marks, own=own._replace(boot=identity.boot))

    @property
    def starts(self) -> tuple[tuple[int, int], ...]:
        """The newest starts of this disk, each with the last batch that was found then."""
        return self._marks.starts

    def condemn(self, reason: ForgottenError) -> None:
        """Condemn the log: the next start sets it aside.

        Raises OSError: as the system says.
        """
        condemn(self.log.directory, str(reason))

    def save_soon(self, failed: Callable[[BaseException], None]) -> None:
        """Remember how far disks have come, in another thread, if it is time.

        Args:
            failed: called when that cannot be written, for another reason than a full disk.
        """
        now = time.monotonic()
        if self._saving is not None or now - self._saved_at < MARKS_WRITE_S:
            return
        own = self._marks.own
        if not self.memory.changed and own is not None and own.batch == self.log.synced():
            return
        self._saved_at = now
        loop = asyncio.get_running_loop()
        self._gather()
        self._saving = loop.run_in_executor(None, self._write)
        self._saving.add_done_callback(lambda done: self._saved(done, failed))

    def look_soon(self, failed: Callable[[BaseException], None]) -> None:
        """Check in another thread, if it is time, whether the open files are still there.

        Args:
            failed: called when they are not: what is synced now is gone at the next start.
        """
        now = time.monotonic()
        if self._looking is not None or now - self._looked_at < DIRECTORY_LOOK_S:
            return
        self._looked_at = now
        self._looking = asyncio.get_running_loop().run_in_executor(None, self._watch.poll)
        self._looking.add_done_callback(lambda done: self._looked(done, failed))

    async def close_soon(self) -> None:
        """Close the log, then record how far it has come; nothing uses it any more."""
        under_way = [each for each in (self._saving, self._looking) if each is not None]
        if under_way:
            await asyncio.wait(under_way)
        await asyncio.to_thread(self.close, save=True)

    def close(self, save: bool = False) -> None:
        """Close log and file."""
        self.log.close()
        try:
            if save and self.log.failure is None:
                self._gather()
                self._write()
        except OSError as error:
            LOG.warning("sync position of the disks not saved at shutdown: %s", error)
        finally:
            self._file.close()
            self._watch.close()

    def lost(self) -> str:
        """Return what the log lacks of its synced batches, "" for nothing."""
        lost = self._file.marks.lost(self.identity, self._found)
        return f"{lost} in {self.log.directory}" if lost else ""

    def _gather(self) -> None:
        self.memory.changed = False
        own = self._marks.own
        assert own is not None, "it has begun"
        batch = max(self.log.synced(), own.batch)
        peers = self.memory.marks()
        self._marks = replace(self._marks, own=own._replace(batch=batch), peers=peers)

    def _write(self) -> None:
        self._file.write(self._marks)

    def _saved(self, done: asyncio.Future[None], failed: Callable[[BaseException], None]) -> None:
        self._saving = None
        error = None if done.cancelled() else done.exception()
        if error is None:
            return
        self.memory.changed = True
        if not (isinstance(error, OSError) and error.errno in FULL_ERRNOS):
            failed(error)

    def _looked(self, done: asyncio.Future[str], failed: Callable[[BaseException], None]) -> None:
        self._looking = None
        if done.cancelled():
            return
        error = done.exception()
        if error is None and (gone := done.result()):
            error = DirectoryGoneError(
                f"node {self.identity.node} ends: in {self.log.directory} {gone}. See what does "
                "that to the directory; put files back that were only moved; then start the node. "
                "Where its log is gone, it gets all from the other nodes, if any, as a new member"
            )
        if error is not None:
            failed(error)
