"""Terms on which a queue serves a consumer."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64


@final
class Attachment:
    """Terms on which a consumer is served."""

    def __init__(
        self,
        tag: str,
        prefetch: i64,
        exclusive: bool = False,
        priority: i64 = 0,
        prefetch_bytes: i64 = 0,
        timeout_ms: i64 = 0,
        filter_table: bytes = b"",
    ) -> None:
        self.tag = tag  # for people
        self.prefetch = prefetch  # how many deliveries may be unsettled at once, 1 or more
        self.exclusive = exclusive  # be the queue's only consumer
        self.priority = priority  # higher ones are served first; any 32-bit number, 0 by default
        self.prefetch_bytes = prefetch_bytes  # of bodies unsettled at once (but for one), 0: any
        self.timeout_ms = timeout_ms  # most time unsettled, 0 for what the queue says
        self.filter_table = filter_table  # with the one field "x-filter", b"" for none
