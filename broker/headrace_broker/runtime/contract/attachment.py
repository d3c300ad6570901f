"""Terms on which a queue serves a consumer."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64


@final
class Attachment:
    """Terms on which a consumer is served.

    Attributes:
        tag: for people.
        prefetch: how many deliveries may be unsettled at once, 1 or more.
        exclusive: be the queue's only consumer.
        priority: those of higher priority are served first; any 32-bit number, 0 by default.
        prefetch_octets: octets of bodies that may be unsettled at once, 0 for no limit; one message
            that is larger still comes.
        timeout_ms: how long a delivery may stay unsettled, 0 for what the queue says.
        filter_table: a field table with the one field "x-filter", b"" for none.
    """

    def __init__(
        self,
        tag: str,
        prefetch: i64,
        exclusive: bool = False,
        priority: i64 = 0,
        prefetch_octets: i64 = 0,
        timeout_ms: i64 = 0,
        filter_table: bytes = b"",
    ) -> None:
        self.tag = tag
        self.prefetch = prefetch
        self.exclusive = exclusive
        self.priority = priority
        self.prefetch_octets = prefetch_octets
        self.timeout_ms = timeout_ms
        self.filter_table = filter_table
