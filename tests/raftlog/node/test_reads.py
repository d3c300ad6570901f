"""Read barriers on leaders, followers, and deposed leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from headrace_raftlog.model.errors import ReadTimeoutError
from headrace_raftlog.model.group import CoreOptions
from headrace_raftlog.node.read_barriers import BOOT_SHIFT, ReadBarriers
from headrace_raftlog.node.reads import GroupReads

MakeCluster = Callable[..., Any]
ALL = (1, 2, 3)


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(body)


def test_every_member_sees_what_was_committed_before(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(*ALL)
        c.create(5)
        for at in range(30):
            data = b"%d" % at
            leader = await c.elected(5)
            index = c.nodes[leader].propose(5, data)
            await c.until(lambda i=index, n=leader: i in c.machines[n, 5].indexes)
            await asyncio.gather(*(c.nodes[n].read_barrier(5) for n in ALL))
            assert all(data in c.machines[n, 5].applied for n in ALL)
        await c.stop()

    run(body())


def test_quiesced_group_answers_reads(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster(core=CoreOptions(election_ticks=50, quiesce_ticks=5))
        await c.start(*ALL)
        c.create(5)
        await c.propose(5, b"x")
        cores = [c.nodes[n]._host.find(5).core for n in ALL]
        await c.ticks(lambda: all(core.quiesced for core in cores))
        for node in ALL:
            await c.nodes[node].read_barrier(5)
        await c.stop()

    run(body())


def test_leader_that_is_cut_off_answers_no_read(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(*ALL)
        c.create(5)
        await c.propose(5, b"old")
        old = await c.elected(5)
        others = [n for n in ALL if n != old]
        cut(c, old)
        await c.until(lambda: any(c.nodes[n].serving(5) for n in others))
        new = next(n for n in others if c.nodes[n].serving(5))
        index = c.nodes[new].propose(5, b"new")
        await c.until(lambda: index in c.machines[new, 5].indexes)
        with pytest.raises(ReadTimeoutError, match="no leader of group 5 confirmed"):
            await c.nodes[old].read_barrier(5, 0.5)
        assert b"new" not in c.machines[old, 5].applied
        heal(c, old)
        await c.nodes[old].read_barrier(5, 30)
        assert b"new" in c.machines[old, 5].applied
        await c.stop()

    run(body())


def cut(c: Any, node: int) -> None:
    """Let nothing through from or to a node, without either side noticing by itself."""
    for one in ALL:
        host = c.nodes[one]._host
        real = host._port.post
        host._port.post = lambda message, n=one, real=real: (
            True if node in (n, message.target) else real(message)
        )
        c.cuts = [*getattr(c, "cuts", []), (host._port, real)]


def heal(c: Any, node: int) -> None:
    for port, real in c.cuts:
        port.post = real


def test_read_that_begins_before_the_cut_is_lost_and_asked_again(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(*ALL)
        c.create(5)
        await c.propose(5, b"x")
        old = await c.elected(5)
        cut(c, old)
        reading = asyncio.create_task(c.nodes[old].read_barrier(5, 60))
        others = [n for n in ALL if n != old]
        await c.until(lambda: any(c.nodes[n].serving(5) for n in others))
        assert not reading.done()
        heal(c, old)
        await reading
        await c.stop()

    run(body())


def test_read_of_a_group_that_goes_ends(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(1)
        c.create(5, 1)
        reading = asyncio.create_task(c.nodes[1].read_barrier(5, 60))
        await asyncio.sleep(0)
        c.nodes[1].remove_group(5)
        with pytest.raises(KeyError, match="removed"):
            await reading
        with pytest.raises(KeyError, match="not on this node"):
            await c.nodes[1].read_barrier(5)
        await c.stop()

    run(body())


class Asked:
    """A host that leaves the questions to its leader to `answer`, and a group on it."""

    def __init__(
        self,
        answer: Callable[[list[int]], tuple[list[tuple[int, int]], list[int]]],
        applied: int = 7,
        retry_s: float = 60.0,
    ) -> None:
        self.contexts: list[int] = []
        self.core = SimpleNamespace(applied_index=applied)
        self.hosted: Any = SimpleNamespace(group=5, removed=False, reads=None, core=self.core)
        self._answer = answer  # returns answers and lost questions once one more was asked
        host: Any = self
        self._barriers = ReadBarriers(host, lambda: 3, 0.01, retry_s)

    def read_index(self, hosted: Any, context: int) -> bool:
        self.contexts.append(context)
        later = asyncio.get_running_loop().call_soon
        later(hosted.reads.answered, *self._answer(self.contexts))
        return True

    async def wait(self) -> None:
        await self._barriers.wait(self.hosted, 60.0)


def test_read_waits_until_its_index_is_applied_here() -> None:
    async def body() -> None:
        host = Asked(lambda contexts: ([(contexts[-1], 7)], []), applied=5)
        reading = asyncio.create_task(host.wait())
        for _ in range(10):
            await asyncio.sleep(0)
        reads = host.hosted.reads
        assert reads._answered
        reads.applied(6)
        await asyncio.sleep(0)
        assert not reading.done()
        reads.applied(7)
        await reading
        host.core.applied_index = 7
        await host.wait()
        assert host.contexts == [(3 << BOOT_SHIFT) + 1, (3 << BOOT_SHIFT) + 2]

    run(body())


def test_answer_slower_than_the_next_question_counts() -> None:
    async def body() -> None:
        host = Asked(lambda asked: ([(asked[0], 7)] if len(asked) == 3 else [], []), retry_s=0.02)
        await host.wait()
        assert len(host.contexts) == 3
        assert host.hosted.reads._asked == {}, "nobody waits for the others"

    run(body())


def test_lost_questions_are_asked_again() -> None:
    def answer(asked: list[int]) -> tuple[list[tuple[int, int]], list[int]]:
        return ([], asked[-1:]) if len(asked) < 3 else ([(asked[-1], 7)], [])

    async def body() -> None:
        host = Asked(answer)
        await host.wait()
        assert len(host.contexts) == 3

    run(body())


def test_answers_go_to_their_own_questions() -> None:
    async def body() -> None:
        reads = GroupReads()
        first, second, third = (reads.ask(context) for context in (1, 2, 3))
        reads.forget(2)
        reads.answered([(3, 7), (2, 9)], [1, 99])
        assert (first.result(), third.result(), second.done()) == (-1, 7, False)
        near, far = reads.reach(5), reads.reach(6)
        reads.applied(5)
        assert near.result()
        assert not far.done()
        reads.close()
        assert not far.result()

    run(body())
