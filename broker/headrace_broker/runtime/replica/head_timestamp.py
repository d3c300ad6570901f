"""Timestamp property of the oldest message of a queue."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Final

from headrace_broker.codecs.batch import message_start, properties_start
from headrace_broker.core.property_reader import UNSET, PropertyReader
from headrace_broker.core.queue.command.command import ENQUEUE_BATCH_OFFSET
from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.model.limits import HEADS_REMEMBERED_MAX
from headrace_broker.runtime.replica.queue_host import QueueHost

_NOTHING: Final = (0, UNSET)


class HeadTimestamps:
    """Reads the property `timestamp` of oldest messages, of each message once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}  # group -> message id, timestamp
        self._reading: set[int] = set()  # groups of which the oldest message is being read
        self._reader = PropertyReader()

    def timestamp(self, host: QueueHost) -> int:
        """Return the timestamp (Unix time in seconds) of the oldest ready message, -1 for none.

        It is -1 as well while that message is being read from the disk, which is begun then.
        """
        oldest = host.machine.available_from(0, 1)
        if not oldest:
            return UNSET
        group, message = host.queue.group, oldest[0]
        message_id = int(message.message_id)
        if self._known.get(group, _NOTHING)[0] != message_id and group not in self._reading:
            self._look(host, message)
        known, timestamp = self._known.get(group, _NOTHING)
        return timestamp if known == message_id else UNSET

    def _look(self, host: QueueHost, message: Acquired) -> None:
        group = host.queue.group
        read = partial(self._read, host, message)
        entry = host.log.entry_at_hand(message.entry_index, read)
        if entry is None:
            self._reading.add(group)
            return
        start = message_start(entry, ENQUEUE_BATCH_OFFSET, message.position)
        self._reader.scan(entry, properties_start(entry, start))
        if len(self._known) >= HEADS_REMEMBERED_MAX:
            self._known.clear()
        self._known[group] = (int(message.message_id), int(self._reader.timestamp(entry)))

    def _read(self, host: QueueHost, message: Acquired) -> None:
        """Use an entry that was read for an earlier question, unless it is gone since."""
        self._reading.discard(host.queue.group)
        with suppress(KeyError):
            self._look(host, message)
