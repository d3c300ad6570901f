"""What stops an activity, since when, and for how much of the time."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from headrace_broker.model.flow import NO_LIMIT


@final
class Activity:
    """The flow state of a connection or channel.

    Attributes:
        limit: the LIMIT that stops it now, NO_LIMIT for none.
        group: the queue behind that, 0 for none.
        since_us: when that began, or when it last ended.
    """

    def __init__(self, now_us: i64) -> None:
        self.limit: i64 = NO_LIMIT
        self.group: i64 = 0
        self.since_us = now_us

    def stop(self, limit: i64, group: i64, now_us: i64) -> None:
        """A limit stops it; a limit that stopped it before is another's turn now."""
        if self.limit == NO_LIMIT:
            self.since_us = now_us
        self.limit = limit
        self.group = group

    def go(self, now_us: i64) -> None:
        """Nothing stops it any more."""
        if self.limit != NO_LIMIT:
            self.limit = NO_LIMIT
            self.group = 0
            self.since_us = now_us
