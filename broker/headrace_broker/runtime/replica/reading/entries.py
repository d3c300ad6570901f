"""Entries of a queue's log that an answer is made of, read beside the event loop.

An answer (a chunk of a lease, a page of waiting messages) is *cut* by a function that takes what
entries it needs from `Entries`. What is in memory is there at once. Where something is missing the
cut notes it and goes on without, and is done again once that was read:

    entries = Entries(log)
    answer = cut(entries)        # may note what is missing
    await entries.fill(until)    # reads it
    answer = cut(entries)
"""

from __future__ import annotations

import asyncio
from typing import Final, final

from headrace_broker.runtime.contract.queue_log import QueueLog
from headrace_raftlog.model.errors import CorruptLogError

_FAILURES: Final = (KeyError, CorruptLogError, OSError)


@final
class _Read:
    """One entry on its way to its reader."""

    def __init__(self, log: QueueLog, index: int, found: asyncio.Future[bytes]) -> None:
        self._log = log
        self._index = index
        self._found = found

    def poll(self) -> None:
        """Take the entry where it is at hand, at once: it may not be a turn later."""
        if self._found.done():
            return
        try:
            data = self._log.entry_at_hand(self._index, self.poll)
        except _FAILURES as error:
            self._found.set_exception(error)
        else:
            if data is not None:
                self._found.set_result(data)


async def read_entry(log: QueueLog, index: int) -> bytes:
    """Return an entry once it is there; KeyError, CorruptLogError or OSError if it cannot be."""
    found: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    read = _Read(log, index, found)
    read.poll()
    try:
        return await found
    except asyncio.CancelledError:
        log.give_up(read.poll)
        raise


@final
class Entries:
    """Entries for one answer."""

    def __init__(self, log: QueueLog) -> None:
        self.missing: dict[int, None] = {}  # needed by the cut under way, in order
        self.used = 0  # how often it had what it needed before that
        self._log = log
        self._read: dict[int, bytes] = {}

    def begin(self) -> None:
        """Begin a cut."""
        self.missing.clear()
        self.used = 0

    def get(self, index: int) -> bytes | None:
        """Return an entry, None behind a gap; raises what `read_entry` does."""
        data = self._read.get(index)
        if data is None and not self.missing:
            data = self._log.entry_at_hand(index, self._landed)
        if data is None:
            self.missing[index] = None
        if self.missing:
            return None
        self.used += 1
        return data

    def byte_count(self, index: int) -> int:
        """Return the size of an entry that may be missing."""
        return int(self._log.entry_bytes(index))

    def give_up(self) -> None:
        """Read nothing more of what a cut has begun to read."""
        self._log.give_up(self._landed)

    def _landed(self) -> None:
        """Ignore it: the first missing entry of a cut is read by `fill` as well."""

    async def fill(self, until: float) -> None:
        """Read the missing entries, one after the other; when it is late, the first one alone.

        One is read in any case: what was read before may be needed no more, and whoever cuts again
        and again would keep the event loop. Raises CorruptLogError or OSError.
        """
        loop = asyncio.get_running_loop()
        for at, index in enumerate(self.missing):
            if at and loop.time() >= until:
                return
            try:
                self._read[index] = await read_entry(self._log, index)
            except KeyError:  # it died meanwhile; the next cut does not ask for it
                continue
