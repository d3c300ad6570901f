"""Ends of tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


async def end_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait until they are over."""
    ending = tuple(tasks)
    for task in ending:
        task.cancel()
    if ending:
        await asyncio.wait(ending)


def task_error(task: asyncio.Future[Any]) -> BaseException | None:
    """Return the error that a task has ended with, None where it did well or was cancelled."""
    return None if task.cancelled() else task.exception()
