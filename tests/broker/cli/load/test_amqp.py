"""Acknowledgements of a load's consumers."""

from __future__ import annotations

import asyncio

from headrace_broker.cli.load.amqp import Acks


def acks(prefetch: int, bytes_max: int = 1000) -> tuple[Acks, list[int]]:
    sent: list[int] = []

    async def send(tag: int) -> None:
        sent.append(tag)

    return Acks(prefetch, send, bytes_max), sent


def test_a_quarter_of_the_prefetch_is_acknowledged_at_once() -> None:
    async def run() -> None:
        given, sent = acks(8)
        for tag in range(1, 6):
            await given.add(tag, 1)
        assert sent == [2, 4]

    asyncio.run(run())


def test_many_bytes_are_acknowledged_however_few_messages_they_are() -> None:
    async def run() -> None:
        given, sent = acks(1000)
        await given.add(1, 999)
        assert sent == []
        await given.add(2, 1)
        await given.add(3, 5000)
        assert sent == [2, 3]

    asyncio.run(run())


def test_few_are_acknowledged_when_no_more_come() -> None:
    async def run() -> None:
        sent: asyncio.Queue[int] = asyncio.Queue()
        given = Acks(1000, sent.put, 1000)
        await given.add(1, 1)
        await given.add(2, 1)
        running = asyncio.create_task(given.run())
        assert await sent.get() == 2
        running.cancel()
        await given.flush()
        assert sent.empty()

    asyncio.run(run())
