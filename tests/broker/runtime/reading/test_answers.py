"""Answers that are made of entries, some of which have to be read first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from headrace_broker.model.limits import ANSWERS_READ_MAX
from headrace_broker.runtime.contract.queue_log import QueueLog
from headrace_broker.runtime.replica.reading import answers as module
from headrace_broker.runtime.replica.reading.answers import Answers
from headrace_broker.runtime.replica.reading.entries import Entries, read_entry
from headrace_raftlog.model.errors import CorruptLogError


class Disk(QueueLog):
    """Entries by index: those in `memory` are at hand, the others once they were read."""

    def __init__(self, count: int = 10) -> None:
        self.entries = {index: b"%d" % index for index in range(1, count + 1)}
        self.memory: set[int] = set()
        self.reading: dict[int, list[Callable[[], None]]] = {}
        self.error: Exception | None = None
        self.asked: list[int] = []

    def entry_at_hand(self, index: int, done: Callable[[], None]) -> bytes | None:
        if self.error is not None:
            raise self.error
        if index not in self.entries:
            raise KeyError(index)
        if index in self.memory:
            return self.entries[index]
        waiting = self.reading.setdefault(index, [])
        if done not in waiting:
            waiting.append(done)
            self.asked.append(index)
        return None

    def give_up(self, done: Callable[[], None]) -> None:
        for index, waiting in list(self.reading.items()):
            if done in waiting:
                waiting.remove(done)
            if not waiting:
                del self.reading[index]

    def entry_bytes(self, index: int) -> int:
        return len(self.entries[index])

    def read(self, index: int) -> None:
        """Let an entry come from the disk: it is in memory for this call alone."""
        self.memory.add(index)
        for done in self.reading.pop(index):
            done()
        self.memory.discard(index)

    def propose(self, data: bytes, urgent: bool) -> int:
        raise AssertionError

    def forget(self, index: int) -> None:
        del self.entries[index]

    def leader(self) -> int:
        raise AssertionError


class Case:
    """Answers that join the entries 1 to 5."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.answers = Answers()
        self.alive = True

    def cut(self, entries: Entries) -> bytes:
        found = [entries.get(index) for index in range(1, 6) if index in self.disk.entries]
        return b"".join(each for each in found if each is not None)

    def ask(self, group: int = 7) -> asyncio.Task[bytes | None]:
        answer = self.answers.cut(self.disk, group, self.cut, lambda: self.alive)
        return asyncio.get_running_loop().create_task(answer)


def run(scenario: Callable[[Case], Awaitable[None]]) -> None:
    async def work() -> None:
        await scenario(Case())

    asyncio.run(work())


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_what_is_in_memory_is_answered_at_once() -> None:
    async def scenario(case: Case) -> None:
        case.disk.memory = set(range(1, 6))
        task = case.ask()
        await asyncio.sleep(0)
        assert (task.result(), case.disk.asked) == (b"12345", [])

    run(scenario)


def test_an_answer_has_one_read_under_way_and_is_whole() -> None:
    async def scenario(case: Case) -> None:
        case.disk.memory = {2, 4}
        task = case.ask()
        for index in (1, 3, 5):
            await settle()
            assert list(case.disk.reading) == [index]
            case.disk.read(index)
        await settle()
        assert task.result() == b"12345"
        assert case.disk.reading == {}

    run(scenario)


def test_an_answer_that_is_late_has_what_there_is(monkeypatch) -> None:
    monkeypatch.setattr(module, "ANSWER_READ_MS", 0)

    async def scenario(case: Case) -> None:
        task = case.ask()
        await settle()
        assert not task.done()  # never nothing, where there is something
        case.disk.read(1)
        await settle()
        assert task.result() == b"1"

    run(scenario)


def test_an_answer_that_is_late_and_lost_what_was_read_reads_on(monkeypatch) -> None:
    monkeypatch.setattr(module, "ANSWER_READ_MS", 0)
    cuts = 0

    class Bounded(Case):
        def cut(self, entries: Entries) -> bytes:
            nonlocal cuts
            cuts += 1
            assert cuts < 10, "it is cut again and again without a turn of the loop"
            return super().cut(entries)

    async def scenario() -> None:
        case = Bounded()
        task = case.ask()
        await settle()
        case.disk.read(1)
        case.disk.forget(1)  # consumers took what was read
        await settle()
        assert list(case.disk.reading) == [2]
        case.disk.read(2)
        await settle()
        assert task.result() == b"2"

    asyncio.run(scenario())


def test_entries_that_died_while_they_were_read_are_left_out() -> None:
    async def scenario(case: Case) -> None:
        task = case.ask()
        await settle()
        del case.disk.entries[1]
        case.disk.memory = {2, 3, 4, 5}
        for done in case.disk.reading.pop(1):
            done()
        await settle()
        assert task.result() == b"2345"

    run(scenario)


def test_there_is_no_answer_where_the_queue_is_led_elsewhere_by_then() -> None:
    async def scenario(case: Case) -> None:
        task = case.ask()
        await settle()
        case.alive = False
        case.disk.read(1)
        for index in (2, 3, 4, 5):
            await settle()
            case.disk.read(index)
        await settle()
        assert task.result() is None

    run(scenario)


@pytest.mark.parametrize("error", [CorruptLogError("f", 1, "why"), OSError(5, "I/O")])
def test_who_asks_hears_why_an_entry_cannot_be_read(error: Exception) -> None:
    async def scenario(case: Case) -> None:
        task = case.ask()
        await settle()
        case.disk.error = error
        for done in case.disk.reading.pop(1):
            done()
        await settle()
        assert task.exception() is error
        assert case.answers.turns.taken == 0

    run(scenario)


def test_a_hung_disk_holds_a_bounded_number_and_nothing_that_was_given_up() -> None:
    async def scenario(case: Case) -> None:
        tasks = [case.ask() for _ in range(ANSWERS_READ_MAX + 3)]
        await settle()
        assert case.answers.turns.taken == ANSWERS_READ_MAX
        for task in tasks:
            task.cancel()
        await settle()
        assert (case.disk.reading, case.answers.turns.taken) == ({}, 0)
        task = case.ask()
        case.disk.memory = set(range(1, 6))
        await settle()
        for done in case.disk.reading.pop(1, []):
            done()
        await settle()
        assert task.result() == b"12345"

    run(scenario)


def test_an_entry_is_taken_in_the_turn_in_which_it_came() -> None:
    async def scenario(case: Case) -> None:
        task = asyncio.get_running_loop().create_task(read_entry(case.disk, 3))
        await settle()
        for done in case.disk.reading.pop(3):  # others needed the room before it was its turn
            done()
        await settle()
        assert not task.done()
        case.disk.read(3)
        await settle()
        assert task.result() == b"3"

    run(scenario)
