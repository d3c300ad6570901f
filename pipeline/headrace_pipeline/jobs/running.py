"""Streaming queries of a job: they run until one ends, or the process is told to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery

from headrace_pipeline.limits import STOP_LOOK_SECONDS

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Set an event at SIGTERM and SIGINT, within; must be called in the main thread.

    Spark's own handler of SIGINT, which cancels all jobs, is back afterwards.
    """
    told = threading.Event()

    def note(_number: int, _frame: FrameType | None) -> None:
        told.set()

    before = {each: signal.signal(each, note) for each in _SIGNALS}
    try:
        yield told
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def await_queries(queries: Sequence[StreamingQuery]) -> None:
    """Wait until all queries have ended, one has failed, or the process is told to stop.

    Whatever still runs then is stopped: its checkpoint says where the next start goes on.

    Raises:
        StreamingQueryException: one has failed.
    """
    with stop_signals() as told:
        try:
            is_over = False
            while not told.is_set() and not is_over:
                ended = [_has_ended(each) for each in queries]  # of all: one may have failed
                is_over = all(ended)
        finally:
            for each in queries:
                each.stop()


def _has_ended(query: StreamingQuery) -> bool:
    """Wait a moment for the end of a query; raises its error."""
    return bool(query.awaitTermination(STOP_LOOK_SECONDS))
