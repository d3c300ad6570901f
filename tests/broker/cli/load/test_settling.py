"""Acknowledgements of a load's consumers, and confirms of its publishers."""

from __future__ import annotations

import asyncio

import pytest

from headrace_broker.cli.load.settling import Acks, Window


def acks(prefetch: int, bytes_max: int = 1000) -> tuple[Acks, list[int]]:
    sent: list[int] = []
    return Acks(prefetch, sent.append, bytes_max), sent


def test_a_quarter_of_the_prefetch_is_acknowledged_at_once() -> None:
    given, sent = acks(8)
    for tag in range(1, 6):
        given.add(tag, 1)
    assert sent == [2, 4]


def test_many_bytes_are_acknowledged_however_few_messages_they_are() -> None:
    given, sent = acks(1000)
    given.add(1, 999)
    assert sent == []
    given.add(2, 1)
    given.add(3, 5000)
    assert sent == [2, 3]


def test_few_are_acknowledged_when_no_more_come() -> None:
    async def run() -> None:
        sent: asyncio.Queue[int] = asyncio.Queue()
        given = Acks(1000, sent.put_nowait, 1000)
        given.add(1, 1)
        given.add(2, 1)
        running = asyncio.create_task(given.run())
        assert await sent.get() == 2
        running.cancel()
        given.flush()
        assert sent.empty()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("confirms", "counts"),
    [
        ([(5, True)], [5]),
        ([(1, False), (2, False), (5, True)], [1, 1, 3]),
        ([(4, False), (2, False), (3, True), (5, False)], [1, 1, 2, 1]),
        ([(3, True), (3, True), (2, False), (5, True)], [3, 0, 0, 2]),
        ([(2, False), (0, True)], [1, 4]),
        ([(9, True), (9, False)], [5, 0]),
    ],
)
def test_confirms_are_counted_once_in_any_order(
    confirms: list[tuple[int, bool]], counts: list[int]
) -> None:
    window = Window(5)
    window.sent(5)
    assert [window.confirm(*each) for each in confirms] == counts
    asyncio.run(asyncio.wait_for(window.wait_empty(), 60))


def test_a_full_window_has_room_once_something_is_confirmed() -> None:
    async def run() -> None:
        window = Window(3)
        assert await window.room(2) == 2
        window.sent(2)
        assert await window.room(2) == 1
        window.sent(1)
        waiting = asyncio.create_task(window.room(9))
        await asyncio.sleep(0)
        assert not waiting.done()
        window.confirm(2, multiple=True)
        assert await waiting == 2

    asyncio.run(run())


def test_without_confirms_there_is_always_room() -> None:
    async def run() -> None:
        window = Window(0)
        window.sent(1_000_000)
        assert await window.room(64) == 64
        await window.wait_empty()

    asyncio.run(run())
