"""One call for the snapshots of many groups."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from headrace_raftlog.model.limits import SMALL_SNAPSHOTS_MAX
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.node.small_fetch import SmallSnapshotFetcher
from headrace_raftlog.transport.bulk_client import FetchFailedError, UnknownCallError
from headrace_raftlog.transport.codec import FrameError
from headrace_raftlog.transport.small_snapshot import SmallSnapshot, Wanted


def small(group: int) -> SmallSnapshot:
    return SmallSnapshot(group, Snapshot(9, 1, Membership((1, 2)), b"", array("Q")), [])


class Bulk:
    """A peer's answers, each held back until the test lets it go."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, dict[int, Wanted]]] = []
        self.gates: list[asyncio.Event] = []
        self.asked = asyncio.Event()
        self.lacking: set[int] = set()
        self.error: Exception | None = None

    async def small_snapshots(
        self, peer: int, member: int, wanted: Mapping[int, Wanted]
    ) -> AsyncIterator[SmallSnapshot]:
        assert member == 2
        self.calls.append((peer, dict(wanted)))
        gate = asyncio.Event()
        self.gates.append(gate)
        self.asked.set()
        await gate.wait()
        for group in wanted:
            if group not in self.lacking:
                yield small(group)
        if self.error is not None:
            raise self.error


def hosted(group: int) -> Any:
    return SimpleNamespace(
        group=group,
        removed=False,
        view=SimpleNamespace(last=group + 10),
        core=SimpleNamespace(member=2, commit_index=20),
    )


class World:
    """A fetcher whose host and peers are the test's."""

    def __init__(self) -> None:
        self.bulk = Bulk()
        self.failures: list[BaseException] = []
        host: Any = SimpleNamespace(is_backlogged=False, fail=self.failures.append)
        bulk: Any = self.bulk
        self.host = host
        self.fetcher = SmallSnapshotFetcher(host, bulk, 0.001)

    def fetch(self, group: int, node: int = 1) -> asyncio.Task[SmallSnapshot | None]:
        return self.ask(hosted(group), node)

    def ask(self, of: Any, node: int = 1) -> asyncio.Task[SmallSnapshot | None]:
        return asyncio.create_task(self.fetcher.fetch(of, node, 100 + of.group))


def with_world(body: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        w = World()
        await body(w)
        await w.fetcher.stop()
        assert not w.failures

    asyncio.run(main())


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_groups_that_gather_during_a_call_share_the_next() -> None:
    async def body(w: World) -> None:
        first = w.fetch(1)
        await turns()
        others = [w.fetch(group) for group in range(2, SMALL_SNAPSHOTS_MAX + 4)]
        await turns()
        assert [len(groups) for _, groups in w.bulk.calls] == [1]
        for call in range(3):
            w.bulk.gates[call].set()
            await turns(3 * SMALL_SNAPSHOTS_MAX)
        sizes = [len(groups) for _, groups in w.bulk.calls]
        assert sizes == [1, SMALL_SNAPSHOTS_MAX, 2]
        got = await asyncio.gather(first, *others)
        assert [each.group for each in got if each] == list(range(1, SMALL_SNAPSHOTS_MAX + 4))
        assert w.bulk.calls[1][1][2] == Wanted(102, 12)  # its log ends before the commit index
        assert w.bulk.calls[1][1][30] == Wanted(130, 20)

    with_world(body)


def test_peers_are_asked_beside_each_other() -> None:
    async def body(w: World) -> None:
        slow, quick = w.fetch(1, 1), w.fetch(2, 3)
        await turns()
        assert [peer for peer, _ in w.bulk.calls] == [1, 3]
        w.bulk.gates[1].set()
        assert await quick == small_like(2)
        assert not slow.done()

    with_world(body)


def small_like(group: int) -> Any:
    """Equal a small snapshot of a group."""

    class Like:
        def __eq__(self, other: object) -> bool:
            return isinstance(other, SmallSnapshot) and other.group == group

        __hash__ = object.__hash__

    return Like()


@pytest.mark.parametrize(
    "error", [FetchFailedError("cut"), UnknownCallError("old"), FrameError("nonsense")]
)
def test_who_gets_nothing_is_told_and_the_next_call_is_made(error: Exception) -> None:
    async def body(w: World) -> None:
        w.bulk.error, w.bulk.lacking = error, {2}
        one, two = w.fetch(1), w.fetch(2)
        await turns()
        w.bulk.gates[0].set()
        assert await one == small_like(1)
        assert await two is None
        w.bulk.error = None
        again = w.fetch(1)
        await turns()
        w.bulk.gates[1].set()
        assert await again == small_like(1)

    with_world(body)


def test_who_asks_in_the_turn_of_the_answer_is_answered_too() -> None:
    async def body(w: World) -> None:
        async def ask() -> None:
            for _ in range(3):
                assert await w.fetcher.fetch(hosted(1), 1, 101) == small_like(1)

        asking = asyncio.create_task(ask())
        for call in range(3):
            await turns()
            w.bulk.gates[call].set()
        await turns()
        assert asking.done()
        await asking

    with_world(body)


def test_who_was_cancelled_is_not_asked_for() -> None:
    async def body(w: World) -> None:
        first, gone, third = w.fetch(1), w.fetch(2), w.fetch(3)
        await turns(1)
        gone.cancel()
        await turns()
        assert [sorted(groups) for _, groups in w.bulk.calls] == [[1, 3]]
        first.cancel()
        await turns()
        w.bulk.gates[0].set()
        assert await third == small_like(3)
        assert len(w.bulk.calls) == 1

    with_world(body)


def test_who_needs_it_no_more_is_not_asked_for() -> None:
    async def body(w: World) -> None:
        removed, late = hosted(1), hosted(2)
        w.host.is_backlogged = True
        gone, came, wants = w.ask(removed), w.ask(late), w.fetch(3)
        await turns()
        removed.removed = True
        late.core.commit_index = 102
        w.host.is_backlogged = False
        await w.bulk.asked.wait()
        assert [list(groups) for _, groups in w.bulk.calls] == [[3]]
        assert await gone is None
        assert await came is None
        w.bulk.gates[0].set()
        assert await wants == small_like(3)

    with_world(body)


def test_a_call_to_a_node_that_is_down_ends_and_the_next_is_made() -> None:
    async def body(w: World) -> None:
        under_way, elsewhere = w.fetch(1), w.fetch(1, 3)
        await turns()
        waiting = w.fetch(2)
        await turns()
        for node in (1, 1, 7):
            w.fetcher.peer_down(node)
        again = w.fetch(3)
        await turns()
        assert await under_way is None
        assert await waiting is None
        w.bulk.gates[2].set()
        assert await again == small_like(3)
        assert not elsewhere.done()

    with_world(body)


def test_who_asks_a_node_that_was_just_down_is_answered() -> None:
    async def body(w: World) -> None:
        w.fetch(1)
        await turns()
        again = asyncio.create_task(w.fetcher.fetch(hosted(2), 1, 102))
        w.fetcher.peer_down(1)  # whose call has not ended yet when the next begins
        await turns()
        for gate in w.bulk.gates:
            gate.set()
        assert await again == small_like(2)
        assert not w.fetcher._calling

    with_world(body)


def test_no_call_is_made_while_the_disk_is_far_behind() -> None:
    async def body(w: World) -> None:
        w.host.is_backlogged = True
        fetch = w.fetch(1)
        await asyncio.sleep(0.01)
        assert not w.bulk.calls
        w.host.is_backlogged = False
        await w.bulk.asked.wait()
        w.bulk.gates[0].set()
        assert await fetch == small_like(1)

    with_world(body)


def test_a_failure_of_ours_ends_the_node() -> None:
    async def main() -> None:
        w = World()
        w.bulk.error = ZeroDivisionError()
        fetch = w.fetch(1)
        await turns()
        w.bulk.gates[0].set()
        await fetch
        await turns()
        assert [type(failure) for failure in w.failures] == [ZeroDivisionError]

    asyncio.run(main())


def test_a_stop_ends_the_calls() -> None:
    async def body(w: World) -> None:
        w.fetch(1)
        await turns()
        await w.fetcher.stop()
        assert not [t for t in asyncio.all_tasks() if t.get_name().startswith("small snapshots")]

    with_world(body)
