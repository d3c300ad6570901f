"""Members that fell behind what their leader still has, or that lost what they had."""

from __future__ import annotations

import asyncio
import shutil
from array import array
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.raftlog.node.inside import entry_data, snapshot_now

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.group import LEADER, CoreOptions
from headrace_raftlog.model.limits import FETCH_REST_TICKS, FETCHES_MAX
from headrace_raftlog.model.membership import Membership, member_node
from headrace_raftlog.transport.bulk_client import BulkClient, GoneError

MakeCluster = Callable[..., Any]
ALL = (1, 2, 3)
EVERY = 20_000  # bytes between two snapshots


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(body)


def make(cluster: MakeCluster, **options: Any) -> Any:
    c = cluster(snapshot_every_bytes=EVERY, **options)
    c.is_live = lambda index: index % 10 == 0
    return c


async def write(c: Any, group: int, count: int, size: int = 1000) -> None:
    for at in range(count):
        await c.propose(group, b"%06d" % at + bytes(size))


async def all_equal(c: Any, group: int, nodes: tuple[int, ...] = ALL) -> None:
    """Wait until all machines have the same entries, those of the snapshots read from the log."""

    def same() -> bool:
        first, *rest = (c.machines[n, group] for n in nodes)
        return all((m.indexes, m.applied) == (first.indexes, first.applied) for m in rest)

    await c.ticks(same)


def first_index(c: Any, node: int, group: int) -> int:
    return int(c.nodes[node]._host.find(group).view.first_index())


async def behind(c: Any, group: int, follower: int) -> int:
    """Stop a follower and write until the leader has compacted what it lacks; return the leader."""
    await c.stop(follower)
    last = c.machines[follower, group].indexes[-1]
    await write(c, group, 30)
    leader: int = await c.elected(group)
    snapshot_now(c.nodes[leader], group)
    await c.ticks(lambda: first_index(c, leader, group) > last + 1)
    return leader


async def start_group(c: Any, *nodes: int) -> int:
    await c.start(*nodes)
    c.create(5)
    await write(c, 5, 3)
    await all_equal(c, 5, nodes)
    leader: int = await c.elected(5)
    return leader


def test_slow_follower_catches_up_while_the_leader_writes_and_compacts(
    cluster: MakeCluster,
) -> None:
    async def body() -> None:
        c = make(cluster)
        leader = await start_group(c, *ALL)
        slow = next(n for n in ALL if n != leader)
        leader = await behind(c, 5, slow)
        await c.start(slow)
        c.create(5, slow)
        for _ in range(4):
            await write(c, 5, 15)
            snapshot_now(c.nodes[leader], 5)
        await all_equal(c, 5)
        assert c.nodes[slow]._fetcher.installed >= 1
        assert c.machines[slow, 5].restored >= 1
        assert c.nodes[slow]._fetcher.entries_fetched > 0
        await c.ticks(lambda: c.nodes[leader]._host.snapshots.taken >= 4)
        live = [
            i for i in c.machines[slow, 5].indexes if i % 10 == 0 and i < first_index(c, slow, 5)
        ]
        assert live
        for index in live:
            at = c.machines[slow, 5].indexes.index(index)
            assert entry_data(c.nodes[slow], 5, index) == c.machines[slow, 5].applied[at]
        await c.stop()

    run(body())


def test_restart_begins_at_the_newest_snapshot(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = make(cluster)
        await start_group(c, *ALL)
        await write(c, 5, 40)
        await c.ticks(lambda: all(first_index(c, n, 5) > 1 for n in ALL))
        before = {n: list(c.machines[n, 5].applied) for n in ALL}
        await c.stop()
        await c.start(*ALL)
        c.create(5)
        assert all(c.machines[n, 5].restored == 1 for n in ALL)
        await c.elected(5)
        await write(c, 5, 1)
        await all_equal(c, 5)
        for node in ALL:
            assert c.machines[node, 5].applied[: len(before[node])] == before[node]
        await c.stop()

    run(body())


async def with_own_snapshots(c: Any) -> tuple[int, int, int]:
    """Let all members of a group snapshot; return leader, a follower and an entry that is dead."""
    leader = await start_group(c, *ALL)
    await write(c, 5, 10)
    await all_equal(c, 5)
    dead = next(i for i in c.machines[leader, 5].indexes if i % 10)
    return leader, next(n for n in ALL if n != leader), dead


async def snapshots_of(c: Any, *nodes: int) -> None:
    """Take snapshots, and wait until they are in force."""
    for node in nodes:
        last = first_index(c, node, 5)
        snapshot_now(c.nodes[node], 5)
        await c.ticks(lambda node=node, last=last: first_index(c, node, 5) > last)


def test_entries_that_one_member_holds_stay_there_and_nobody_else_hears_of_them(
    cluster: MakeCluster,
) -> None:
    async def body() -> None:
        c = make(cluster)
        leader, slow, dead = await with_own_snapshots(c)
        body_held = entry_data(c.nodes[leader], 5, dead)
        for node in ALL:
            if node != slow:
                c.machines[node, 5].held_here = [dead]
        await snapshots_of(c, *ALL)
        leader = await behind(c, 5, slow)
        assert entry_data(c.nodes[leader], 5, dead) == body_held
        assert dead not in c.nodes[leader]._log.read_snapshot(5).live
        await c.start(slow)
        c.create(5, slow)
        await all_equal(c, 5)
        with pytest.raises(KeyError):
            entry_data(c.nodes[slow], 5, dead)
        c.machines[leader, 5].held_here = []
        await write(c, 5, 1)
        await snapshots_of(c, leader)
        with pytest.raises(KeyError):
            entry_data(c.nodes[leader], 5, dead)
        await c.stop()

    run(body())


def test_entries_of_a_peers_snapshot_that_are_dead_here_are_not_fetched(
    cluster: MakeCluster,
) -> None:
    async def body() -> None:
        c = make(cluster)
        leader, slow, dead = await with_own_snapshots(c)
        for node in ALL:
            machine = c.machines[node, 5]

            def named(machine: Any = machine) -> tuple[bytes, array[int]]:
                state, live = type(machine).snapshot(machine)
                return state, array("Q", sorted([dead, *live]))

            if node != slow:  # as members of an older release do while a backup reads them
                machine.snapshot = named
        await snapshots_of(c, *ALL)
        leader = await behind(c, 5, slow)
        assert dead in c.nodes[leader]._log.read_snapshot(5).live
        await c.start(slow)
        c.create(5, slow)
        await all_equal(c, 5)
        assert c.nodes[slow]._fetcher.installed == 1
        with pytest.raises(KeyError):
            entry_data(c.nodes[slow], 5, dead)
        await c.stop()

    run(body())


def test_fetch_that_brings_nothing_rests_and_holds_no_slot(
    cluster: MakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        c = make(cluster)
        leader = await start_group(c, *ALL)
        slow = next(n for n in ALL if n != leader)
        leader = await behind(c, 5, slow)
        fetches: list[int] = []
        await c.start(slow)
        fetcher = c.nodes[slow]._fetcher

        async def nothing(*args: Any) -> AsyncIterator[list[Entry]]:
            fetches.append(1)
            for piece in list[list[Entry]]():
                yield piece

        real = fetcher._bulk
        fetcher._bulk = Interposed(real, "entries", nothing)
        c.create(5, slow)
        await c.ticks(lambda: fetcher._rests.get(5, (0.0, 0))[1] >= 4 * FETCH_REST_TICKS)
        assert len(fetches) == 3  # one for each failure, and no more
        assert "is still missing" in caplog.text
        assert not fetcher._slots.locked()
        assert fetcher._slots._value == FETCHES_MAX
        fetcher._bulk = real
        await all_equal(c, 5)
        assert 5 not in fetcher._rests
        await c.stop()

    run(body())


class Interposed:
    """Stands before an object and lets a test do something in place of one of its methods."""

    def __init__(self, real: Any, name: str, instead: Callable[..., Any]) -> None:
        self._real = real
        self._name = name
        self._instead = instead

    def __getattr__(self, name: str) -> Any:
        return self._instead if name == self._name else getattr(self._real, name)


class PowerCut:
    """Keeps what is on a node's disk at a moment, and ends what the node was about to do."""

    def __init__(self, c: Any, node: int, tmp_path: Path) -> None:
        self.directory = tmp_path / str(node)
        self.image = tmp_path / "image"
        self._c = c
        self._node = node

    def strike(self, *args: Any) -> Any:
        self.keep()
        raise asyncio.CancelledError

    def keep(self) -> None:
        self._c.nodes[self._node]._host.stopped = True
        for session in self._c.nodes[self._node]._transport.sessions.values():
            session.link.synced = lambda: 0  # nobody hears of what is written from now on
        if not self.image.exists():
            shutil.copytree(self.directory, self.image)
        self._c.changed.set()

    def restore(self) -> None:
        shutil.rmtree(self.directory)
        shutil.copytree(self.image, self.directory)


def interpose(c: Any, node: int, cut: PowerCut, step: str) -> None:
    """Let the power fail at a step of a node's next install."""
    fetcher = c.nodes[node]._fetcher
    if step == "before the snapshot":
        fetcher._bulk = Interposed(fetcher._bulk, "snapshot", cut.strike)
    elif step == "before the install":
        fetcher._host = Interposed(fetcher._host, "install", cut.strike)
    elif step == "within the install":
        c.machines[node, 5].restore = cut.strike
    else:
        host = fetcher._host
        calls: list[int] = []

        def second(*args: Any) -> None:
            calls.append(1)
            if len(calls) == 2:
                cut.strike()
            host.add_incoming(*args)

        fetcher._host = Interposed(host, "add_incoming", second)


@pytest.mark.parametrize(
    "step",
    [
        "before the snapshot",
        "after the first entries",
        "before the install",
        "within the install",
        "after the install",
    ],
)
def test_crash_at_any_step_of_an_install_is_recovered(
    cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr("headrace_raftlog.transport.bulk_server.BULK_CHUNK_BYTES", 1500)

    async def body() -> None:
        c = make(cluster)
        leader = await start_group(c, *ALL)
        slow = next(n for n in ALL if n != leader)
        await behind(c, 5, slow)
        await c.start(slow)
        cut = PowerCut(c, slow, tmp_path)
        c.create(5, slow)
        if step == "after the install":
            await c.ticks(lambda: c.nodes[slow]._fetcher.installed == 1)
            cut.keep()
        else:
            interpose(c, slow, cut, step)
            await c.ticks(cut.image.exists)
        await c.stop(slow)
        cut.restore()
        await c.start(slow)
        c.create(5, slow)
        await write(c, 5, 3)
        await all_equal(c, 5)
        assert not c.fatal
        await c.stop()

    run(body())


def test_fetched_entries_survive_a_restart_and_are_not_fetched_again(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = make(cluster)
        c.is_live = lambda index: True
        leader = await start_group(c, *ALL)
        slow = next(n for n in ALL if n != leader)
        await behind(c, 5, slow)
        await c.start(slow)
        node = c.nodes[slow]
        node._fetcher._host = Interposed(node._fetcher._host, "install", lambda *args: False)
        c.create(5, slow)
        await c.ticks(lambda: node._fetcher.entries_fetched > 20)
        assert node._fetcher.entries_fetched < 60
        await c.stop(slow)
        await c.start(slow)
        c.create(5, slow)
        await all_equal(c, 5)
        assert c.nodes[slow]._fetcher.installed == 1
        assert c.nodes[slow]._fetcher.entries_fetched < 5
        await c.stop()

    run(body())


def test_entry_that_vanishes_at_the_leader_leads_to_its_newer_snapshot(
    cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        c = make(cluster)
        c.is_live = lambda index: True
        leader = await start_group(c, *ALL)
        slow = next(n for n in ALL if n != leader)
        leader = await behind(c, 5, slow)
        real = BulkClient.entries
        vanished: list[int] = []

        def entries(self: Any, *args: Any) -> Any:
            async def gone(pieces: tuple[Any, ...] = ()) -> Any:
                for piece in pieces:
                    yield piece
                vanished.append(first_index(c, leader, 5))
                c.is_live = lambda index: False
                for machine in c.machines.values():
                    machine.is_live = c.is_live
                index = c.nodes[leader].propose(5, b"more")
                await c.until(lambda: index in c.machines[leader, 5].indexes)
                assert snapshot_now(c.nodes[leader], 5)
                await c.ticks(lambda: first_index(c, leader, 5) > index)
                raise GoneError("test")

            return real(self, *args) if vanished else gone()

        monkeypatch.setattr(BulkClient, "entries", entries)
        await c.start(slow)
        c.create(5, slow)
        await c.ticks(lambda: bool(vanished))
        await all_equal(c, 5)
        assert vanished[0] < first_index(c, slow, 5)
        await c.stop()

    run(body())


def voters(c: Any, node: int, group: int) -> tuple[int, ...]:
    membership: Membership = c.nodes[node].members(group)
    return () if membership.is_joint else membership.voters


def test_wiped_node_comes_back_as_a_new_member_of_all_groups(
    cluster: MakeCluster, tmp_path: Path
) -> None:
    async def body() -> None:
        c = make(cluster)
        leader = await start_group(c, *ALL)
        lost = next(n for n in ALL if n != leader)
        await behind(c, 5, lost)
        shutil.rmtree(tmp_path / str(lost))
        await c.start(lost)
        await c.nodes[lost].wait_formed()
        mine = c.nodes[lost].member
        assert mine != lost
        assert member_node(mine) == lost
        c.create(5, lost)
        hosted = c.nodes[lost]._host.find(5)
        assert hosted.core.member == mine
        await c.ticks(lambda: all(mine in voters(c, n, 5) for n in ALL))
        assert all(lost not in voters(c, n, 5) for n in ALL)
        await all_equal(c, 5)
        # It counts: with it and one other the group goes on.
        other = next(n for n in ALL if n not in (lost, leader))
        await c.stop(other)
        await write(c, 5, 3)
        await c.stop()

    run(body())


def test_member_that_waits_to_be_admitted_neither_votes_nor_campaigns(
    cluster: MakeCluster, tmp_path: Path
) -> None:
    async def body() -> None:
        c = make(cluster, core=CoreOptions(election_ticks=4))
        await start_group(c, *ALL)
        await c.stop()
        for node in (1, 2):
            shutil.rmtree(tmp_path / str(node))
        await c.start(*ALL)
        await asyncio.gather(*(c.nodes[n].wait_formed() for n in ALL))
        c.create(5)
        hosted = {n: c.nodes[n]._host.find(5) for n in ALL}
        term = hosted[3].core.term
        await c.ticks(lambda: hosted[1].leaderless_ticks > 50 and hosted[3].leaderless_ticks > 20)
        assert all(h.core.role != LEADER for h in hosted.values())
        assert [hosted[n].core.term for n in (1, 2)] == [0, 0]
        assert hosted[3].core.term <= term + 1
        await c.stop()

    run(body())


def flip(directory: Path, text: bytes, before: int = 0) -> None:
    """Flip a bit of a stored entry, or so many bytes before it."""
    for path in directory.glob("*.log"):
        content = bytearray(path.read_bytes())
        at = content.find(text)
        if at >= 0:
            content[at - before] ^= 1
            path.write_bytes(content)
            return
    raise AssertionError("the entry is not there")


def test_damaged_group_is_rebuilt_from_its_peers_under_a_new_member_id(
    cluster: MakeCluster, tmp_path: Path
) -> None:
    async def body() -> None:
        c = make(cluster)
        await c.start(*ALL)
        c.create(5)
        c.create(6)
        await c.propose(5, b"to be damaged")
        await c.propose(5, b"behind it")
        await c.propose(6, b"of another group")
        await all_equal(c, 5)
        await all_equal(c, 6)
        await c.stop(3)
        flip(tmp_path / "3", b"to be damaged", 24)  # whose it is
        await c.start(3)
        assert 5 in c.nodes[3]._log.quarantined
        c.create(5, 3)
        c.create(6, 3)
        member = c.nodes[3]._host.find(5).core.member
        assert member_node(member) == 3
        assert member not in (3, c.nodes[3].member)
        assert not c.nodes[3]._host.find(5).core.promotable
        await c.ticks(lambda: all(member in voters(c, n, 5) for n in ALL))
        await all_equal(c, 5)
        await all_equal(c, 6)
        await c.stop(3)
        await c.start(3)
        assert not c.nodes[3]._log.quarantined
        c.create(5, 3)
        assert c.nodes[3]._host.find(5).core.member == member
        await c.stop()

    run(body())
