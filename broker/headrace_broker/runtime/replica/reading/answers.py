"""Answers that are made of entries of queues' logs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar, final

from headrace_broker.model.limits import ANSWER_READ_MS, ANSWERS_READ_MAX
from headrace_broker.runtime.contract.queue_log import QueueLog
from headrace_broker.runtime.replica.reading.entries import Entries
from headrace_broker.runtime.replica.reading.read_turns import ReadTurns

A = TypeVar("A")


@final
class Answers:
    """Cuts answers to one kind of question, and reads for a few of them at a time."""

    def __init__(self) -> None:
        self.turns = ReadTurns(ANSWERS_READ_MAX)  # who reads, and who waits for that

    async def cut(
        self, log: QueueLog, group: int, cut: Callable[[Entries], A], alive: Callable[[], bool]
    ) -> A | None:
        """Return an answer; it is shorter than it might be where reading takes long.

        `cut` makes as much of it as stands before what is missing; None where `alive` says that
        there is none any more. Raises KeyError, CorruptLogError or OSError for an entry.
        """
        entries = Entries(log)
        answer = cut(entries)
        if not entries.missing:
            return answer
        return await self.read(entries, group, cut, alive)

    async def read(
        self, entries: Entries, group: int, cut: Callable[[Entries], A], alive: Callable[[], bool]
    ) -> A | None:
        """Return an answer of which a first cut has missed entries; as `cut`."""
        try:
            async with self.turns.turn(group):
                return await _cut_again(entries, cut, alive)
        finally:
            entries.give_up()


async def _cut_again(
    entries: Entries, cut: Callable[[Entries], A], alive: Callable[[], bool]
) -> A | None:
    loop = asyncio.get_running_loop()
    until = loop.time() + ANSWER_READ_MS / 1000
    while alive():
        entries.begin()
        answer = cut(entries)
        if not entries.missing or (entries.used and loop.time() >= until):
            return answer
        await entries.fill(until)
    return None
