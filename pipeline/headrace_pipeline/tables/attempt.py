"""Trying a commit again when others were faster."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from headrace_pipeline.limits import COMMIT_PAUSE_S, COMMIT_TRIES_MAX


def attempts() -> Iterator[int]:
    """Give the numbers of attempts, from 0, with growing pauses between."""
    for attempt in range(COMMIT_TRIES_MAX):
        if attempt:
            time.sleep(COMMIT_PAUSE_S * 2 ** (attempt - 1) * random.uniform(1, 2))  # noqa: S311
        yield attempt
