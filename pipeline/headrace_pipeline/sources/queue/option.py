"""Options of the source `headrace_queue`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from headrace_pipeline.error import OptionError
from headrace_pipeline.limits import (
    GROUP_NAME_BYTES_MAX,
    LEASE_TTL_MS,
    LEASE_TTL_MS_MAX,
    LEASE_TTL_MS_MIN,
    PARTITIONS_MAX,
    QUEUE_TRIGGER_BYTES,
    QUEUE_TRIGGER_BYTES_MAX,
    QUEUE_TRIGGER_ROWS,
    QUEUE_TRIGGER_ROWS_MAX,
)
from headrace_pipeline.options.connection import Connection, read_connection
from headrace_pipeline.options.option import Options
from headrace_pipeline.schema.column import Table
from headrace_pipeline.schema.queue import QUEUE_MESSAGES

NAME: Final = "headrace_queue"
_NO_PLACES: Final = (
    "a queue gives what waits in it, oldest first, and has no places to start from or to end at; "
    "settled messages are in its archive, which headrace_log reads"
)
_NO_SETTLING: Final = (
    "a batch read takes nothing out of the queue; to do so use readStream, with "
    "trigger(availableNow=True) for what waits now"
)


class QueueOptions(NamedTuple):
    """Options of the source; has no secret, and can be pickled and printed."""

    connection: Connection  # to the brokers; the queue is in its vhost
    queue: str  # name of the queue
    group: str  # name of the group
    rows_max: int = QUEUE_TRIGGER_ROWS  # that a batch takes
    # of bodies that a batch takes; the message that exceeds it is the last
    bytes_max: int = QUEUE_TRIGGER_BYTES
    partitions_min: int = 0  # that a batch is cut into, 0 for one for each lease
    include_headers: bool = False  # there is a column `headers`
    ttl_ms: int = LEASE_TTL_MS  # after which messages go back when the driver is not heard of
    fail_on_data_loss: bool = True  # fail when messages that a batch had cannot be read again

    @property
    def table(self) -> Table:
        """Schema of the rows."""
        return QUEUE_MESSAGES if self.include_headers else QUEUE_MESSAGES.without("headers")

    @property
    def where(self) -> str:
        """The group, for people."""
        return f"group '{self.group}' on queue '{self.queue}' in vhost '{self.connection.vhost}'"


def read_options(given: Mapping[str, str]) -> QueueOptions:
    """Take the options of the source.

    Raises:
        OptionError: one is missing, unknown or wrong.
    """
    options = Options(given, NAME)
    for name in ("startingOffsets", "endingOffsets"):
        options.refuse(name, _NO_PLACES)
    options.refuse("settle", _NO_SETTLING)
    found = QueueOptions(
        read_connection(options),
        options.text("queue"),
        options.text("group"),
        options.integer("maxRowsPerTrigger", QUEUE_TRIGGER_ROWS, 1, QUEUE_TRIGGER_ROWS_MAX),
        options.integer("maxBytesPerTrigger", QUEUE_TRIGGER_BYTES, 1, QUEUE_TRIGGER_BYTES_MAX),
        options.integer("minPartitions", 0, 0, PARTITIONS_MAX),
        options.flag("includeHeaders", False),
        options.integer("leaseTtlMs", LEASE_TTL_MS, LEASE_TTL_MS_MIN, LEASE_TTL_MS_MAX),
        options.flag("failOnDataLoss", True),
    )
    options.done()
    if len(found.group.encode()) > GROUP_NAME_BYTES_MAX:
        raise OptionError("group", f"must have at most {GROUP_NAME_BYTES_MAX} bytes")
    return found
