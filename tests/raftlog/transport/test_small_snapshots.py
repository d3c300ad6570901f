"""Snapshots of many groups that are fetched with one call."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace_protos.raftlog.v1 import transport_pb2 as wire
from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.limits import (
    BULK_CHUNK_BYTES,
    BULK_STREAMS_MAX,
    SMALL_SNAPSHOT_BYTES_MAX,
    SMALL_SNAPSHOTS_MAX,
    SMALL_STREAMS_MAX,
)
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.transport import bulk_server
from headrace_raftlog.transport.bulk_client import FetchFailedError, UnknownCallError
from headrace_raftlog.transport.bulk_server import _header
from headrace_raftlog.transport.codec import FrameError
from headrace_raftlog.transport.small_snapshot import SmallSnapshot, Wanted, read_small

Addresses = dict[int, str]
MEMBERSHIP = Membership((1, 2, 3))


def snapshot_of(index: int, live: tuple[int, ...] = (), state: bytes = b"state") -> Snapshot:
    return Snapshot(index, 2, MEMBERSHIP, state, array("Q", live))


class Source:
    """Groups with a snapshot each; entries as long as they are told to be, none of length -1."""

    def __init__(self, snapshots: dict[int, Snapshot], sizes: dict[int, int]) -> None:
        self.snapshots = snapshots
        self.sizes = sizes
        self.read: list[int] = []
        self.entries_read = 0

    async def snapshot(self, group: int) -> Snapshot | None:
        self.read.append(group)
        return self.snapshots.get(group)

    def snapshot_bytes(self, group: int) -> int:
        return len(self.snapshots[group].state) if group in self.snapshots else 0

    def length(self, group: int, index: int) -> int | None:
        size = self.sizes.get(index, 3)
        return None if size < 0 else size

    def prepare(self, group: int, index: int, done: Callable[[], None]) -> bool:
        return True

    def entry(self, group: int, index: int) -> Entry | None:
        self.entries_read += 1
        size = self.sizes.get(index, 3)
        return None if size < 0 else Entry(index, 1, 0, bytes(size))


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await body()

    asyncio.run(main())


async def fetch(bulk: Any, wanted: dict[int, Wanted], member: int = 2) -> dict[int, SmallSnapshot]:
    return {small.group: small async for small in bulk.small_snapshots(1, member, wanted)}


async def pair(node_type: Any, addresses: Addresses, source: Source) -> tuple[Any, Any]:
    one, two = node_type(1, addresses), node_type(2, addresses)
    await one.start()
    await two.start()
    one.transport.bulk_servicer.source = source
    return one, two


def test_small_ones_come_with_the_entries_that_are_lacking(
    node_type: Any, addresses: Addresses
) -> None:
    async def body() -> None:
        snapshots = {
            4: snapshot_of(9, (3, 5, 8)),
            5: snapshot_of(9, (3, 6)),  # of which one is long
            6: snapshot_of(9, state=bytes(SMALL_SNAPSHOT_BYTES_MAX)),
            7: snapshot_of(9, (3,), bytes(SMALL_SNAPSHOT_BYTES_MAX - 7)),  # one byte too many
            8: snapshot_of(2),  # older than what is asked for
            9: snapshot_of(9, (3, 7)),  # of which one has gone
            11: snapshot_of(9, state=bytes(SMALL_SNAPSHOT_BYTES_MAX + 1)),
            12: snapshot_of(900, tuple(range(700, 900))),  # which are small, but many
        }
        source = Source(snapshots, {6: SMALL_SNAPSHOT_BYTES_MAX, 7: -1})
        one, two = await pair(node_type, addresses, source)
        wanted = {group: Wanted(5, 3 if group == 4 else 0) for group in range(4, 13)}
        got = await fetch(two.transport.bulk, wanted)
        assert sorted(got) == [4, 6]
        assert [(e.index, e.term, e.data) for e in got[4].entries] == [
            (5, 1, bytes(3)),
            (8, 1, bytes(3)),
        ]
        assert got[6].entries == []
        assert 11 not in source.read  # what is not small is not read
        assert source.entries_read == 2
        for group, small in got.items():
            sent = snapshots[group]
            assert (small.snapshot.index, small.snapshot.term) == (sent.index, sent.term)
            assert (small.snapshot.state, small.snapshot.live) == (sent.state, sent.live)
            assert small.snapshot.membership == MEMBERSHIP
        assert one.transport.bulk_servicer.active_small == 0
        await one.stop()
        await two.stop()

    run(body)


def test_one_that_the_disk_does_not_give_keeps_no_other_from_coming(
    node_type: Any, addresses: Addresses
) -> None:
    class OnBadDisk(Source):
        async def snapshot(self, group: int) -> Snapshot | None:
            if group == 5:
                raise OSError(5, "Input/output error")
            return await super().snapshot(group)

        def entry(self, group: int, index: int) -> Entry | None:
            if group == 6:
                raise OSError(5, "Input/output error")
            return super().entry(group, index)

    async def body() -> None:
        snapshots = {group: snapshot_of(9, (3,)) for group in (4, 5, 6, 7)}
        one, two = await pair(node_type, addresses, OnBadDisk(snapshots, {}))
        got = await fetch(two.transport.bulk, {group: Wanted(1, 0) for group in snapshots})
        assert sorted(got) == [4, 7]
        await one.stop()
        await two.stop()

    run(body)


def test_many_come_in_pieces_of_bounded_size(node_type: Any, addresses: Addresses) -> None:
    async def body() -> None:
        state = bytes(SMALL_SNAPSHOT_BYTES_MAX)
        groups = range(1, SMALL_SNAPSHOTS_MAX + 1)
        one, two = await pair(
            node_type, addresses, Source({group: snapshot_of(9, (), state) for group in groups}, {})
        )
        bulk = two.transport.bulk
        sizes: list[int] = []
        real = bulk._parts

        async def parts(*args: Any) -> Any:
            async for part in real(*args):
                sizes.append(part.ByteSize())
                yield part

        bulk._parts = parts
        got = await fetch(bulk, {group: Wanted(1, 0) for group in groups})
        assert sorted(got) == list(groups)
        assert len(sizes) >= 4
        assert max(sizes) <= BULK_CHUNK_BYTES + 2 * SMALL_SNAPSHOT_BYTES_MAX
        await one.stop()
        await two.stop()

    run(body)


def test_too_many_none_and_those_of_other_nodes_are_refused(
    node_type: Any, addresses: Addresses
) -> None:
    async def body() -> None:
        one, two = await pair(node_type, addresses, Source({}, {}))
        bulk = two.transport.bulk
        many = {group: Wanted(1, 0) for group in range(1, SMALL_SNAPSHOTS_MAX + 2)}
        with pytest.raises(FetchFailedError, match="65 snapshots, 1 to 64 are possible"):
            await fetch(bulk, many)
        with pytest.raises(FetchFailedError, match="0 snapshots, 1 to 64 are possible"):
            await fetch(bulk, {})
        with pytest.raises(FetchFailedError, match="node 2 fetches for member 3"):
            await fetch(bulk, {4: Wanted(1, 0)}, 3)
        await one.stop()
        await two.stop()

    run(body)


def test_calls_are_bounded_and_do_not_take_the_room_of_others(
    node_type: Any, addresses: Addresses
) -> None:
    async def body() -> None:
        one, two = await pair(node_type, addresses, Source({5: snapshot_of(9)}, {}))
        servicer = one.transport.bulk_servicer
        servicer.active = BULK_STREAMS_MAX
        assert sorted(await fetch(two.transport.bulk, {5: Wanted(1, 0)})) == [5]
        servicer.active, servicer.active_small = 0, SMALL_STREAMS_MAX
        with pytest.raises(FetchFailedError, match="16 fetches are under way"):
            await fetch(two.transport.bulk, {5: Wanted(1, 0)})
        await one.stop()
        await two.stop()

    run(body)


def test_a_sender_that_is_slow_is_not_silent(
    node_type: Any, addresses: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends what it has, be it nothing, rather than to wait for a whole piece."""
    monkeypatch.setattr(bulk_server, "SMALL_PART_S_MAX", 0.0)

    async def body() -> None:
        one, two = await pair(node_type, addresses, Source({7: snapshot_of(9)}, {}))
        parts: list[int] = []
        real = two.transport.bulk._parts

        async def counted(*args: Any) -> Any:
            async for part in real(*args):
                parts.append(len(part.snapshots))
                yield part

        two.transport.bulk._parts = counted
        wanted = {group: Wanted(1, 0) for group in (5, 6, 7)}
        assert sorted(await fetch(two.transport.bulk, wanted)) == [7]
        assert parts == [0, 0, 1, 0]
        await one.stop()
        await two.stop()

    run(body)


def test_a_connection_that_is_closed_fails_the_fetch_and_cancels_nobody(
    node_type: Any, addresses: Addresses
) -> None:
    async def body() -> None:
        source = Source({5: snapshot_of(9)}, {})
        one, two = await pair(node_type, addresses, source)
        hangs = asyncio.Event()

        async def hang(group: int) -> None:
            source.read.append(group)
            await hangs.wait()

        source.snapshot = hang  # type: ignore[method-assign]
        bulk = two.transport.bulk
        fetching = asyncio.create_task(fetch(bulk, {5: Wanted(1, 0)}))
        while not source.read:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await bulk.close(1)
        with pytest.raises(FetchFailedError, match="connection to node 1 was closed"):
            await fetching
        fetching = asyncio.create_task(fetch(bulk, {5: Wanted(1, 0)}))
        while len(source.read) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        hangs.set()
        await one.stop()
        await two.stop()

    run(body)


@pytest.mark.parametrize("times", [1, 2])
def test_a_snapshot_that_was_not_asked_for_ends_the_call(
    node_type: Any, addresses: Addresses, times: int
) -> None:
    async def body() -> None:
        one, two = await pair(node_type, addresses, Source({}, {}))
        bulk = two.transport.bulk

        async def parts(*args: Any) -> Any:
            yield wire.SmallSnapshotsPart(snapshots=[raw(group=3 + times)] * times)

        bulk._parts = parts
        with pytest.raises(FrameError, match=f"group {3 + times} was not asked for"):
            await fetch(bulk, {5: Wanted(1, 4)})
        await one.stop()
        await two.stop()

    run(body)


class OtherNames:
    """A connection to a node that knows no call for small snapshots: it is named otherwise."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def unary_stream(self, path: str, *args: Any, **more: Any) -> Any:
        return self._real.unary_stream(path.replace("FetchSmall", "FetchNo"), *args, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def test_an_earlier_release_does_not_know_the_call(node_type: Any, addresses: Addresses) -> None:
    async def body() -> None:
        one, two = await pair(node_type, addresses, Source({}, {}))
        bulk = two.transport.bulk
        opened = bulk._channel
        bulk._channel = lambda peer: OtherNames(opened(peer))
        with pytest.raises(UnknownCallError):
            await fetch(bulk, {5: Wanted(1, 0)})
        await one.stop()
        await two.stop()

    run(body)


def raw(**changes: Any) -> wire.SmallSnapshot:
    sent = snapshot_of(9, (4, 8), b"abc")
    small = wire.SmallSnapshot(
        group=5,
        header=_header(sent),
        state=sent.state,
        live=wire.LiveSteps(steps=[4, 4]),
        entries=[stored(8)],
    )
    for name, value in changes.items():
        small.ClearField(name)  # type: ignore[arg-type]
        small.MergeFrom(wire.SmallSnapshot(**{name: value}))
    return small


def stored(index: int, term: int = 1, data: bytes = b"x", more: bool = False) -> wire.StoredEntry:
    return wire.StoredEntry(index=index, term=term, kind=0, data=data, more=more)


def test_what_a_correct_peer_sends_is_read() -> None:
    got = read_small(raw(), Wanted(9, 4))
    assert (got.group, got.snapshot.index, list(got.snapshot.live)) == (5, 9, [4, 8])
    assert [(e.index, e.data) for e in got.entries] == [(8, b"x")]
    assert read_small(raw(entries=[]), Wanted(9, 8)).entries == []


LONG = bytes(SMALL_SNAPSHOT_BYTES_MAX + 1)


@pytest.mark.parametrize(
    ("small", "index_min"),
    [
        (raw(), 10),
        (raw(state=b"ab"), 9),
        (raw(state=LONG, header=_header(snapshot_of(9, (4, 8), LONG))), 9),
        (raw(live=wire.LiveSteps(steps=[4])), 9),
        (raw(live=wire.LiveSteps(steps=[4, 6])), 9),
        (raw(entries=[stored(4), stored(8)]), 9),
        (raw(entries=[stored(7)]), 9),
        (raw(entries=[]), 9),
        (raw(entries=[stored(8), stored(9)]), 9),
        (raw(entries=[stored(8, term=3)]), 9),
        (raw(entries=[stored(8, more=True)]), 9),
        (raw(entries=[stored(8, data=LONG)]), 9),
    ],
)
def test_what_no_correct_peer_sends_is_refused(small: wire.SmallSnapshot, index_min: int) -> None:
    with pytest.raises(FrameError):
        read_small(small, Wanted(index_min, 4))
