"""What publishers said about when the oldest message of a queue was made."""

from __future__ import annotations

from typing import Final

from headrace_broker.codecs.batch import message_start, properties_start
from headrace_broker.core.property_reader import UNSET, PropertyReader
from headrace_broker.core.queue.command import ENQUEUE_BATCH_OFFSET
from headrace_broker.model.limits import HEADS_REMEMBERED_MAX
from headrace_broker.runtime.queue_host import QueueHost

_NOTHING: Final = (0, UNSET)


class HeadTimestamps:
    """Reads the property `timestamp` of oldest messages, of each message once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}  # group -> message id, timestamp
        self._reader = PropertyReader()

    def timestamp(self, host: QueueHost) -> int:
        """Return the timestamp (Unix time in seconds) of the oldest ready message, -1 for none."""
        oldest = host.machine.available_from(0, 1)
        if not oldest:
            return UNSET
        group, message = host.queue.group, oldest[0]
        known, timestamp = self._known.get(group, _NOTHING)
        if known != int(message.message_id):
            timestamp = self._read(host, int(message.entry_index), int(message.position))
            if len(self._known) >= HEADS_REMEMBERED_MAX:
                self._known.clear()
            self._known[group] = (int(message.message_id), timestamp)
        return timestamp

    def _read(self, host: QueueHost, index: int, position: int) -> int:
        entry = host.log.entry_data(index)
        start = message_start(entry, ENQUEUE_BATCH_OFFSET, position)
        self._reader.scan(entry, properties_start(entry, start))
        return int(self._reader.timestamp(entry))
