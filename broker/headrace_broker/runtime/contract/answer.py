"""Awaited answers of a queue."""

from __future__ import annotations

import asyncio

from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import REQUEST_SECONDS_MAX
from headrace_broker.model.reply_code import INTERNAL_ERROR, NOT_FOUND, AmqpError

Answer = asyncio.Future[tuple[int, int]]  # status of core.effect, count


async def wait_answer(queue: Queue, future: Answer) -> tuple[int, int]:
    """Return status and count of the answer to a request.

    Raises:
        AmqpError: the queue is gone, or did not answer within REQUEST_SECONDS_MAX.
    """
    try:
        async with asyncio.timeout(REQUEST_SECONDS_MAX):
            return await future
    except TimeoutError:
        raise _no_answer(queue) from None


async def wait_over(queue: Queue, future: asyncio.Future[None]) -> None:
    """Wait until a queue has answered everything. Raises as `wait_answer`."""
    try:
        async with asyncio.timeout(REQUEST_SECONDS_MAX):
            await future
    except TimeoutError:
        raise _no_answer(queue) from None


def _no_answer(queue: Queue) -> AmqpError:
    text = (
        f"queue '{queue.name}' in vhost '{queue.vhost}' did not answer within "
        f"{REQUEST_SECONDS_MAX} s: too few of its replicas are running"
    )
    return AmqpError(INTERNAL_ERROR, text)


def no_queue(queue: Queue) -> AmqpError:
    """Return the error for a queue that is gone."""
    return AmqpError(NOT_FOUND, f"no queue '{queue.name}' in vhost '{queue.vhost}'")
