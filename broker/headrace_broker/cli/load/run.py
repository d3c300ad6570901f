"""Runs a load and looks at it each second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol

from headrace_broker.cli.load.plan import Plan, Tally
from headrace_broker.cli.load.report import Second, Summary, latencies, second_of

# seconds that publishers get for what is not confirmed, and then consumers for what is left
DRAIN_S_MAX: Final = 30.0
LOOK_S: Final = 1.0


class Load(Protocol):
    """Publishers and consumers over one protocol."""

    async def publish(self, queue: str) -> None:
        """Publish to a queue until the end."""

    async def consume(self, queue: str) -> None:
        """Consume from a queue until cancelled."""


class Run:
    """One run of a plan."""

    def __init__(
        self, plan: Plan, tally: Tally, ended: asyncio.Event, tell: Callable[[Second], None]
    ) -> None:
        self._plan = plan
        self._tally = tally  # what the load counts in
        self._ended = ended  # set here when publishers shall end
        self._tell = tell  # gets each second as it passes
        self._seconds: list[Second] = []
        self._seen = (0, 0)

    async def run(self, load: Load, seconds: float) -> Summary:
        """Publish for so many seconds, consume what is left, and return what happened.

        Raises BaseExceptionGroup: what went wrong with connections.
        """
        plan, tally = self._plan, self._tally
        began = time.monotonic()
        used = time.thread_time()
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(self._look_forever(began))
            ends = [
                group.create_task(load.consume(plan.queues[number % len(plan.queues)]))
                for number in range(plan.consumers)
            ]
            publishers = [
                group.create_task(load.publish(plan.queues[number % len(plan.queues)]))
                for number in range(plan.publishers)
            ]
            await asyncio.sleep(seconds)
            share = (time.thread_time() - used) / (time.monotonic() - began)
            self._ended.set()
            if publishers:
                await asyncio.wait(publishers, timeout=DRAIN_S_MAX)
            lasted = time.monotonic() - began
            if plan.publishers and plan.consumers:
                await self._drain()
            for task in (*publishers, *ends, looking):
                task.cancel()
        received_s = max(tally.received_ns / 1e9 - began, lasted)
        return self._summary(lasted, received_s, share)

    async def _drain(self) -> None:
        """Wait until everything has come that was sent, or nothing comes any more."""
        tally = self._tally
        deadline = time.monotonic() + DRAIN_S_MAX
        while tally.received < tally.sent and time.monotonic() < deadline:
            before = tally.received
            await asyncio.sleep(LOOK_S)
            if tally.received == before:
                return

    async def _look_forever(self, began: float) -> None:
        last = began
        while True:
            await asyncio.sleep(LOOK_S)
            now = time.monotonic()
            second = self._look(now - began, now - last)
            last = now
            self._tell(second)

    def _look(self, at_s: float, span_s: float) -> Second:
        tally = self._tally
        sent, received = tally.sent - self._seen[0], tally.received - self._seen[1]
        self._seen = (tally.sent, tally.received)
        second = second_of(at_s, span_s, sent, received, tally.take_latency())
        self._seconds.append(second)
        return second

    def _summary(self, published_s: float, received_s: float, share: float) -> Summary:
        tally = self._tally
        tally.take_latency()
        return Summary(
            seconds=round(received_s, 3),
            sent=tally.sent,
            confirmed=tally.confirmed if self._plan.window else 0,
            received=tally.received,
            sent_rate=round(tally.sent / published_s, 1),
            received_rate=round(tally.received / received_s, 1),
            latency_ms=latencies(tally.total_latency),
            processor_share=round(share, 3),
            by_second=self._seconds,
        )
