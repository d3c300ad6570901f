"""An aio-pika consumer that records its messages and acknowledges them."""

from __future__ import annotations

import asyncio
from typing import Final

import aio_pika
from aio_pika.abc import AbstractIncomingMessage
from aiormq.exceptions import AMQPError
from e2e.harness.worker import Worker

PREFETCH: Final = 300


class Consumer(Worker):
    """Consumes one queue until told to stop; reconnects by itself.

    Attributes:
        seen: (number, redelivered) of every delivery, in order of arrival.
        numbers: the set of numbers seen.
    """

    def __init__(self, ports: list[int], queue: str) -> None:
        super().__init__("consumer")
        self.seen: list[tuple[int, bool]] = []
        self.numbers: set[int] = set()
        self._ports = ports
        self._queue = queue
        self._awaited: set[int] = set()  # of these numbers, those that have not come

    def wait_all(self, wanted: set[int], seconds: float) -> set[int]:
        """Wait until every number in `wanted` was seen; return those still missing."""
        with self.progress:
            self._awaited = wanted - self.numbers
            self.progress.wait_for(lambda: not self._awaited or self.failure is not None, seconds)
            return set(self._awaited)

    def work(self) -> None:
        """Consume over as many connections as it takes."""
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        attempt = 0
        while not self._halt.is_set():
            port = self._ports[attempt % len(self._ports)]
            attempt += 1
            try:
                await self._one_connection(port)
            except (AMQPError, OSError):
                await asyncio.sleep(0.2)

    async def _one_connection(self, port: int) -> None:
        connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/", timeout=5)
        closed = asyncio.Event()
        connection.close_callbacks.add(lambda *_: closed.set())
        async with connection:
            channel = await connection.channel()
            channel.close_callbacks.add(lambda *_: closed.set())
            await channel.set_qos(prefetch_count=PREFETCH)
            queue = await channel.get_queue(self._queue)
            await queue.consume(self._received)
            while not closed.is_set() and not self._halt.is_set():
                try:
                    async with asyncio.timeout(0.2):
                        await closed.wait()
                except TimeoutError:
                    continue

    async def _received(self, message: AbstractIncomingMessage) -> None:
        number = int(message.body.rstrip(b"."))
        with self.progress:
            self.seen.append((number, bool(message.redelivered)))
            self.numbers.add(number)
            self._awaited.discard(number)
            if not self._awaited:
                self.progress.notify_all()
        await message.ack()
