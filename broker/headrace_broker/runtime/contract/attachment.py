"""Terms on which a queue serves a consumer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from mypy_extensions import i64


@final
@dataclass(eq=False)
class Attachment:
    """Terms on which a consumer is served."""

    tag: str  # for people
    prefetch: i64  # how many deliveries may be unsettled at once, 1 or more
    exclusive: bool = False  # be the queue's only consumer
    priority: i64 = 0  # higher ones are served first; any 32-bit number, 0 by default
    prefetch_bytes: i64 = 0  # of bodies unsettled at once (but for one), 0: any
    timeout_ms: i64 = 0  # most time unsettled, 0 for what the queue says
    filter_table: bytes = b""  # with the one field "x-filter", b"" for none
