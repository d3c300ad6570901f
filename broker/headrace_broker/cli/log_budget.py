"""Bounds of the log: lines of one event, and lines of those who have not proven who they are."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from typing_extensions import override

from headrace_broker.logs.log_event import LINES_LEFT_OUT, log_event
from headrace_broker.model.limits import (
    LOG_EVENT_LINES,
    LOG_EVENT_SECONDS,
    LOG_UNPROVEN_LINES,
    LOG_UNPROVEN_PLACE_LINES,
    LOG_UNPROVEN_SECONDS,
)
from headrace_broker.runtime.security.unproven_log import ATTRIBUTE

_DECIDED: Final = "within_budget"


class _Kind:
    """Counts of records written and left out, for one line of code."""

    def __init__(self, name: str, level: int, event: str, seconds: float) -> None:
        self.name = name
        self.level = level
        self.event = event
        self.seconds = seconds
        self.until = 0.0
        self.lines = 0
        self.places: dict[str, int] = {}
        self.left_out = 0
        self.message = ""


class LogBudget(logging.Filter):
    """Lets so many records of a kind pass in a while, and so many of one place.

    A kind is an event at one level, or the line of code of a record that is marked as caused by
    somebody unproven. The filter says how many were left out once the while is over, or with the
    next one that passes. Other records all pass.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock  # seconds of a clock that never goes back
        self._kinds: dict[tuple[str, int], _Kind] = {}  # as many as events and marked lines

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is written; one that several handlers ask for is judged once."""
        place = getattr(record, ATTRIBUTE, None)
        event = getattr(record, "event", "")
        if (place is None and not event) or event == LINES_LEFT_OUT.name:
            return True
        decided = getattr(record, _DECIDED, None)
        if decided is None:
            decided = self._judge(record, None if place is None else str(place), event)
            setattr(record, _DECIDED, decided)
        return bool(decided)

    def _judge(self, record: logging.LogRecord, place: str | None, event: str) -> bool:
        key = (event or record.name, record.levelno if event else record.lineno)
        kind = self._kinds.get(key)
        if kind is None:
            seconds = LOG_EVENT_SECONDS if place is None else LOG_UNPROVEN_SECONDS
            kind = self._kinds[key] = _Kind(record.name, record.levelno, event, seconds)
        now = self._clock()
        if now >= kind.until:
            self._tell(kind)
            kind.until = now + kind.seconds
            kind.lines = 0
            kind.places.clear()
        if place is None:
            passes = kind.lines < LOG_EVENT_LINES
        else:
            of_place = kind.places.get(place, 0)
            passes = kind.lines < LOG_UNPROVEN_LINES and of_place < LOG_UNPROVEN_PLACE_LINES
        if not passes:
            if kind.left_out == 0:
                self._tell_later(kind, kind.until - now)
            kind.left_out += 1
            kind.message = record.getMessage()
            return False
        kind.lines += 1
        if place is not None:
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
            log_event(
                logging.getLogger(kind.name),
                LINES_LEFT_OUT,
                kind.level,
                count=count,
                seconds=kind.seconds,
                of=kind.event,
                last=kind.message,
            )
