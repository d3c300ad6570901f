"""Snapshots and entries over real gRPC, and what no correct peer sends."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace_protos.raftlog.v1.transport_pb2 import (
    EntriesRequest,
    IndexRange,
    LiveSteps,
    SnapshotHeader,
    SnapshotPart,
    StoredEntry,
)
from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.limits import (
    BULK_CHUNK_BYTES,
    BULK_LIVE_STEPS,
    BULK_RANGES_MAX,
    BULK_STREAMS_MAX,
)
from headrace_raftlog.model.membership import Membership, member_id
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.transport.bulk_client import (
    BulkClient,
    FetchFailedError,
    GoneError,
    _stub,
    ranges_of,
)
from headrace_raftlog.transport.bulk_readers import EntryReader, SnapshotReader
from headrace_raftlog.transport.bulk_server import _header
from headrace_raftlog.transport.codec import FrameError
from headrace_raftlog.transport.identity import StreamIdentity, StreamRefusedError
from headrace_raftlog.transport.security import NoSecurity

Addresses = dict[int, str]
MEMBERSHIP = Membership((1, 2, member_id(3, 7)))


class Source:
    """Group 5 with one snapshot, and entries by index."""

    def __init__(self, snapshot: Snapshot | None, entries: dict[int, Entry]) -> None:
        self.newest = snapshot
        self.entries = entries
        self.read = 0
        self.prepared: set[int] | None = None

    async def snapshot(self, group: int) -> Snapshot | None:
        return self.newest if group == 5 else None

    def prepare(self, group: int, index: int, done: Callable[[], None]) -> bool:
        if self.prepared is None or index in self.prepared:
            return True
        self.prepared.add(index)
        asyncio.get_running_loop().call_soon(done)
        return False

    def entry(self, group: int, index: int) -> Entry | None:
        assert self.prepared is None or index in self.prepared
        self.read += 1
        return self.entries.get(index) if group == 5 else None


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await body()

    asyncio.run(main())


async def pair(node_type: Any, addresses: Addresses, source: Source) -> tuple[Any, Any]:
    one, two = node_type(1, addresses), node_type(2, addresses)
    await one.start()
    await two.start()
    one.transport.bulk_servicer.source = source
    return one, two


async def collect(fetch: Any) -> list[Entry]:
    return [entry async for piece in fetch for entry in piece]


def test_snapshot_of_many_pieces_arrives_whole(node_type: Any, addresses: Addresses) -> None:
    async def body() -> None:
        state = bytes(range(256)) * (BULK_CHUNK_BYTES // 256 * 3 + 1)
        live = array("Q", range(7, 7 + 3 * (BULK_LIVE_STEPS + 5), 3))
        sent = Snapshot(live[-1] + 4, 9, MEMBERSHIP, state, live)
        one, two = await pair(node_type, addresses, Source(sent, {}))
        got = await two.transport.bulk.snapshot(1, 5, 2, sent.index)
        assert (got.index, got.term, got.membership) == (sent.index, 9, MEMBERSHIP)
        assert (got.state, got.live) == (state, live)
        with pytest.raises(GoneError, match="group 5 has no snapshot from"):
            await two.transport.bulk.snapshot(1, 5, 2, sent.index + 1)
        with pytest.raises(GoneError, match="group 6"):
            await two.transport.bulk.snapshot(1, 6, 2, 0)
        assert one.transport.bulk_servicer.active == 0
        await one.stop()
        await two.stop()

    run(body)


def test_entries_arrive_in_order_whatever_their_size(node_type: Any, addresses: Addresses) -> None:
    async def body() -> None:
        sizes = [10, BULK_CHUNK_BYTES, 0, 3 * BULK_CHUNK_BYTES, 100, 100]
        entries = {10 + 2 * at: Entry(10 + 2 * at, 3, 0, bytes(n)) for at, n in enumerate(sizes)}
        one, two = await pair(node_type, addresses, Source(None, entries))
        ranges = ranges_of(sorted(entries))
        assert ranges == [(index, index) for index in sorted(entries)]
        got = await collect(two.transport.bulk.entries(1, 5, 2, ranges, 3))
        assert got == list(entries.values())
        with pytest.raises(GoneError, match="group 5 has no entry 13 any more"):
            await collect(two.transport.bulk.entries(1, 5, 2, [(12, 14)], 3))
        with pytest.raises(FrameError, match="was not asked for"):
            await collect(two.transport.bulk.entries(1, 5, 2, [(12, 12)], 2))
        await one.stop()
        await two.stop()

    run(body)


def test_server_waits_for_entries_that_have_to_be_read(
    node_type: Any, addresses: Addresses
) -> None:
    async def body() -> None:
        entries = {index: Entry(index, 3, 0, b"%d" % index) for index in range(1, 6)}
        source = Source(None, entries)
        source.prepared = set()
        one, two = await pair(node_type, addresses, source)
        got = await collect(two.transport.bulk.entries(1, 5, 2, [(1, 5)], 3))
        assert got == list(entries.values())
        assert source.prepared == set(entries)
        await one.stop()
        await two.stop()

    run(body)


def test_long_entry_comes_in_pieces_that_each_show_progress(
    node_type: Any, addresses: Addresses
) -> None:
    async def body() -> None:
        entries = {i: Entry(i, 1, 0, bytes([i]) * (9 * BULK_CHUNK_BYTES + i)) for i in (1, 2)}
        one, two = await pair(node_type, addresses, Source(None, entries))
        client = two.transport.bulk
        sizes: list[int] = []
        parts = client._parts

        async def observed(*call: Any) -> Any:
            async for part in parts(*call):
                sizes.append(part.ByteSize())
                yield part

        client._parts = observed
        assert await collect(client.entries(1, 5, 2, [(1, 2)], 1)) == list(entries.values())
        assert len(sizes) == 20
        assert max(sizes) < BULK_CHUNK_BYTES + 100
        stub = _stub(client._channel(1))  # a caller that does not know of pieces
        ranges = [IndexRange(first=1, last=2)]
        request = EntriesRequest(group=5, member=2, ranges=ranges)
        call = stub.FetchEntries(request, metadata=client.identity.metadata(1))
        whole = [entry async for part in call for entry in part.entries]
        assert [(raw.data, raw.more) for raw in whole] == [
            (e.data, False) for e in entries.values()
        ]
        await one.stop()
        await two.stop()

    run(body)


@pytest.mark.parametrize(
    ("raws", "text"),
    [
        ([StoredEntry(index=1, term=1, data=b"x", more=True)] * 2, "entries are missing"),
        (
            [
                StoredEntry(index=1, term=1, data=b"x", more=True),
                StoredEntry(index=2, term=1, data=b"x"),
            ],
            "entry 2 comes before the end of 1",
        ),
        ([StoredEntry(index=1, term=1, more=True)], "pieces without end"),
        ([StoredEntry(index=1, term=1, data=bytes(1 << 20), more=True)] * 514, "without end"),
    ],
)
def test_pieces_that_do_not_fit_are_refused(raws: list[StoredEntry], text: str) -> None:
    def read() -> None:
        reader = EntryReader([(1, 2)], 1)
        reader.receive(raws)
        reader.finish()

    with pytest.raises(FrameError, match=text):
        read()


def test_server_reads_no_further_than_its_slow_receiver_takes(
    node_type: Any, addresses: Addresses
) -> None:
    async def body() -> None:
        entries = {i: Entry(i, 1, 0, bytes(BULK_CHUNK_BYTES)) for i in range(1, 401)}
        source = Source(None, entries)
        one, two = await pair(node_type, addresses, source)
        await one.events.until(lambda: bool(one.events.peers))
        fetch = two.transport.bulk.entries(1, 5, 2, [(1, 400)], 1)
        await anext(fetch)
        beats = two.transport.sessions[1]
        before = beats.frames_received
        async with asyncio.timeout(30):
            while beats.frames_received < before + 5:  # beats pass meanwhile
                assert one.transport.send(2, b"anything")
                await two.events.until(lambda: bool(two.events.payloads))
                two.events.payloads.clear()
        assert source.read < 200
        assert len(await collect(fetch)) == 399
        await one.stop()
        await two.stop()

    run(body)


def test_one_fetch_too_many_is_refused(node_type: Any, addresses: Addresses) -> None:
    async def body() -> None:
        one, two = await pair(node_type, addresses, Source(None, {1: Entry(1, 1, 0, b"x")}))
        one.transport.bulk_servicer.active = BULK_STREAMS_MAX
        with pytest.raises(FetchFailedError, match="RESOURCE_EXHAUSTED"):
            await collect(two.transport.bulk.entries(1, 5, 2, [(1, 1)], 1))
        one.transport.bulk_servicer.active -= 1
        assert len(await collect(two.transport.bulk.entries(1, 5, 2, [(1, 1)], 1))) == 1
        await one.stop()
        await two.stop()

    run(body)


def test_only_members_of_the_cluster_are_served_and_only_in_their_own_name(
    node_type: Any, addresses: Addresses, identity_of: Callable[..., Any]
) -> None:
    async def body() -> None:
        one, two = await pair(node_type, addresses, Source(None, {1: Entry(1, 1, 0, b"x")}))
        bulk = two.transport.bulk
        for identity in (identity_of(2, cluster="other"), identity_of(2, formed={})):
            bulk.identity = identity
            with pytest.raises(FetchFailedError, match="FAILED_PRECONDITION"):
                await bulk.snapshot(1, 5, 2, 0)
        bulk.identity = identity_of(2)
        with pytest.raises(FetchFailedError, match="node 2 fetches for member 3"):
            await bulk.snapshot(1, 5, 3, 0)
        await one.stop()
        for _ in range(5):
            with pytest.raises(FetchFailedError, match="UNAVAILABLE"):
                await bulk.snapshot(1, 5, 2, 0)
        again = node_type(1, addresses)
        await again.start()
        with pytest.raises(GoneError):  # reached at once, however often it was not there
            await bulk.snapshot(1, 5, 2, 0)
        await again.stop()
        await two.stop()

    run(body)


class Unknown(NoSecurity):
    """Does not know whose certificate to ask for."""

    def open(self, address: str, peer: int) -> Any:
        raise StreamRefusedError(f"the name of node {peer} is not known")


@pytest.mark.parametrize(
    "client", [lambda me: BulkClient(me, {}), lambda me: BulkClient(me, {1: "h:1"}, Unknown())]
)
def test_a_fetch_from_a_node_that_is_no_peer_any_more_fails_as_others_do(client: Any) -> None:
    async def fetch() -> None:
        bulk = client(StreamIdentity("test", 2, 1, 2))
        with pytest.raises(FetchFailedError, match="node 1 is no peer any more"):
            await bulk.snapshot(1, 5, 2, 1)
        with pytest.raises(FetchFailedError, match="node 1 is no peer any more"):
            await collect(bulk.entries(1, 5, 2, [(1, 2)], 1))

    asyncio.run(fetch())


def test_runs_of_indexes_are_found_and_bounded() -> None:
    assert ranges_of([1, 2, 3, 7, 9, 10]) == [(1, 3), (7, 7), (9, 10)]
    assert ranges_of([]) == []
    many = ranges_of(list(range(0, 4 * BULK_RANGES_MAX, 2)))
    assert len(many) == BULK_RANGES_MAX


def head(**changes: Any) -> SnapshotPart:
    header = _header(Snapshot(9, 2, MEMBERSHIP, b"abc", array("Q", (4, 9))))
    for name, value in changes.items():
        setattr(header, name, value)
    return SnapshotPart(header=header)


def live(*steps: int) -> SnapshotPart:
    return SnapshotPart(live=LiveSteps(steps=steps))


STATE = SnapshotPart(state=b"abc")


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [STATE],
        [head(), head()],
        [head()],
        [head(), STATE],
        [head(), live(4, 5)],
        [head(), STATE, STATE],
        [head(), STATE, live(4, 0)],
        [head(), STATE, live(4, 6)],
        [head(), STATE, live(1, 1, 1)],
        [head(), SnapshotPart()],
        [head(index=4), STATE, live(4)],
        [head(term=0), STATE, live(4, 5)],
        [head(index=1 << 63), STATE, live(4, 5)],
        [head(membership=b"x"), STATE, live(4, 5)],
        [head(state_bytes=1 << 40), STATE, live(4, 5)],
        [head(live_count=1 << 40), STATE, live(4, 5)],
        [SnapshotPart(header=SnapshotHeader())],
    ],
)
def test_parts_that_make_no_snapshot_are_refused(parts: list[SnapshotPart]) -> None:
    reader = SnapshotReader(5)
    with pytest.raises(FrameError):
        take(reader, parts)


def take(reader: SnapshotReader, parts: list[SnapshotPart]) -> Snapshot:
    for part in parts:
        reader.receive(part)
    return reader.finish()


def test_parts_in_order_make_a_snapshot() -> None:
    got = take(SnapshotReader(5), [head(), STATE, live(4), live(5)])
    assert (got.index, got.state, list(got.live)) == (9, b"abc", [4, 9])
