"""Keeps those from filling the log who have not proven who they are."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from typing_extensions import override

from headrace_broker.model.limits import (
    LOG_UNPROVEN_LINES,
    LOG_UNPROVEN_PLACE_LINES,
    LOG_UNPROVEN_SECONDS,
)
from headrace_broker.runtime.unproven_log import ATTRIBUTE

_DECIDED: Final = "within_budget"


class _Kind:
    """Counts of records written and left out, for one line of code."""

    def __init__(self, name: str, level: int) -> None:
        self.name = name
        self.level = level
        self.until = 0.0
        self.lines = 0
        self.places: dict[str, int] = {}
        self.left_out = 0
        self.message = ""


class LogBudget(logging.Filter):
    """Lets so many records of a kind pass in a while, and so many of one place.

    It says how many were left out once the while is over, or with the next one that passes. Records
    that are not marked all pass.

    Args:
        clock: seconds of a clock that never goes back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, int], _Kind] = {}  # as many as lines of code that are marked

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is written; one that several handlers ask for is judged once."""
        place = getattr(record, ATTRIBUTE, None)
        if place is None:
            return True
        decided = getattr(record, _DECIDED, None)
        if decided is None:
            decided = self._judge(record, str(place))
            setattr(record, _DECIDED, decided)
        return bool(decided)

    def _judge(self, record: logging.LogRecord, place: str) -> bool:
        key = (record.name, record.lineno)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(record.name, record.levelno)
        now = self._clock()
        if now >= kind.until:
            self._tell(kind)
            kind.until = now + LOG_UNPROVEN_SECONDS
            kind.lines = 0
            kind.places.clear()
        of_place = kind.places.get(place, 0)
        if kind.lines >= LOG_UNPROVEN_LINES or of_place >= LOG_UNPROVEN_PLACE_LINES:
            if kind.left_out == 0:
                self._tell_later(kind, kind.until - now)
            kind.left_out += 1
            kind.message = record.getMessage()
            return False
        kind.lines += 1
        kind.places[place] = of_place + 1
        return True

    def _tell_later(self, kind: _Kind, seconds: float) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # the next one tells
        loop.call_later(seconds, self._tell, kind)

    def _tell(self, kind: _Kind) -> None:
        count, kind.left_out = kind.left_out, 0
        if count:
            logging.getLogger(kind.name).log(
                kind.level,
                "%d more lines like this were left out within %.0f s: %s",
                count,
                LOG_UNPROVEN_SECONDS,
                kind.message,
            )
