"""Damage that is found while a node runs: its group stands still there until it is mended."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.raftlog.node.inside import entry_data, snapshot_now

from headrace_raftlog.model.errors import CorruptLogError, DamageFoundError, LostEntryError
from headrace_raftlog.storage.inspection import inspect
from headrace_raftlog.storage.segment.segment import segment_name

MakeCluster = Callable[..., Any]
ALL = (1, 2, 3)
GROUP = 5
OTHER = 6


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(body)


def bodies_of(count: int) -> list[bytes]:
    return [b"entry %04d " % number * 20 for number in range(count)]


async def equal(c: Any, group: int, bodies: list[bytes]) -> None:
    await c.until(lambda: all(c.machines[node, group].applied == bodies for node in c.nodes))


async def filled(c: Any, count: int = 12) -> list[bytes]:
    """Start all nodes with two groups and write entries that leave memory at once."""
    await c.start(*ALL)
    for node in ALL:
        c.nodes[node].set_cache_bytes(0)
    c.create(GROUP)
    c.create(OTHER)
    bodies = bodies_of(count)
    for body in bodies:
        await c.propose(GROUP, body)
    await c.propose(OTHER, b"of another group")
    await equal(c, GROUP, bodies)
    await equal(c, OTHER, [b"of another group"])
    await c.ticks(lambda: not any(view(c, node).recent for node in ALL))
    return bodies


def view(c: Any, node: int, group: int = GROUP) -> Any:
    return c.nodes[node]._log.group(group)


def hosted(c: Any, node: int, group: int = GROUP) -> Any:
    return c.nodes[node]._host.find(group)


def index_of(c: Any, node: int, body: bytes) -> int:
    machine = c.machines[node, GROUP]
    return int(machine.indexes[machine.applied.index(body)])


def damage(c: Any, node: int, location: int, at: int = 50) -> None:
    """Flip a bit of a record under a running node."""
    path = Path(c.nodes[node]._log.directory) / segment_name(location >> 32)
    with path.open("r+b") as file:
        file.seek((location & 0xFFFFFFFF) + at)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 4]))
    c.nodes[node]._log.recovery.reader.reads.forget(location >> 32)  # what was read before


def rot(c: Any, node: int, body: bytes) -> int:
    """Flip a bit of an entry under a running node; return its index."""
    index = index_of(c, node, body)
    damage(c, node, view(c, node).location_of(index))
    return index


def sound(c: Any, node: int) -> bool:
    return not hosted(c, node).suspended and view(c, node).lost is None


def test_leader_that_reads_a_damaged_entry_hands_over_and_is_mended(
    cluster: MakeCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        c = cluster()
        bodies = await filled(c)
        leader = await c.elected(GROUP)
        before = hosted(c, leader).core.member
        index = rot(c, leader, bodies[4])
        with pytest.raises(LostEntryError):
            entry_data(c.nodes[leader], GROUP, index)
        machine = c.machines[leader, GROUP]
        await c.until(lambda: not machine.leaders[-1][2])
        await c.ticks(lambda: sound(c, leader))
        assert entry_data(c.nodes[leader], GROUP, index) == bodies[4]
        await c.until(lambda: c.leader(GROUP) not in (0, leader))
        await c.propose(GROUP, b"later")
        await equal(c, GROUP, [*bodies, b"later"])
        assert hosted(c, leader).core.member == before
        assert not c.fatal
        figures = c.nodes[leader].figures()
        assert (figures.entries_lost, figures.entries_repaired) == (1, 1)
        await c.stop()
        for node in ALL:
            report = inspect.verify(str(tmp_path / str(node)))
            assert not report.quarantined
            assert not report.lost
        await c.start(*ALL)
        c.create(GROUP)
        c.create(OTHER)
        await equal(c, GROUP, [*bodies, b"later"])
        await c.stop()

    run(body())
    assert sum("are damaged on this node" in each.message for each in caplog.records) == 1
    assert sum("log repaired" in each.message for each in caplog.records) == 1


def test_other_damage_in_the_same_file_is_mended_with_it(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster()
        bodies = await filled(c)
        leader = await c.elected(GROUP)
        indexes = [rot(c, leader, bodies[number]) for number in (2, 5, 9)]
        with pytest.raises(LostEntryError):
            entry_data(c.nodes[leader], GROUP, indexes[1])
        await c.ticks(lambda: c.nodes[leader].figures().entries_repaired == 3)
        await c.ticks(lambda: sound(c, leader))
        read = [entry_data(c.nodes[leader], GROUP, index) for index in indexes]
        assert read == [bodies[2], bodies[5], bodies[9]]
        await c.stop()

    run(body())


def test_damaged_entry_for_a_follower_that_lags_is_mended_and_sent(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster()
        bodies = await filled(c)
        leader = await c.elected(GROUP)
        late = next(node for node in ALL if node != leader)
        await c.stop(late)
        more = [b"more %04d " % number * 20 for number in range(6)]
        for each in more:
            await c.propose(GROUP, each)
        leader = await c.elected(GROUP)
        rot(c, leader, more[3])
        await c.start(late)
        c.create(GROUP, late)
        c.create(OTHER, late)
        await equal(c, GROUP, [*bodies, *more])
        await c.ticks(lambda: all(sound(c, node) for node in ALL))
        assert not c.fatal
        await c.stop()

    run(body())


def test_rot_in_different_entries_of_all_members_that_run_loses_nothing(
    cluster: MakeCluster,
) -> None:
    async def body() -> None:
        c = cluster()
        bodies = await filled(c)
        indexes = {node: rot(c, node, bodies[3 + node]) for node in ALL}
        for node in ALL:
            with pytest.raises(LostEntryError):
                entry_data(c.nodes[node], GROUP, indexes[node])
        await c.ticks(lambda: all(sound(c, node) for node in ALL))
        for node in ALL:
            for other in ALL:
                assert entry_data(c.nodes[node], GROUP, indexes[other]) == bodies[3 + other]
        await c.propose(GROUP, b"later")
        await equal(c, GROUP, [*bodies, b"later"])
        assert not c.fatal
        await c.stop()

    run(body())


def test_only_replica_stands_still_and_other_groups_go_on(
    cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        c = cluster(founders=(1,))
        await c.start(1)
        c.nodes[1].set_cache_bytes(0)
        for group in (GROUP, OTHER):
            c.create(group, 1, founders=(1,))
        bodies = bodies_of(5)
        for each in bodies:
            await c.propose(GROUP, each)
        await c.ticks(lambda: not view(c, 1).recent)
        monkeypatch.setattr("headrace_raftlog.node.entry_repair.MEND_LOG_S", 0.0)
        index = rot(c, 1, bodies[2])
        for _ in range(2):  # again, as long as it stands still
            with pytest.raises(CorruptLogError):
                entry_data(c.nodes[1], GROUP, index)
            await c.ticks(lambda: "headrace log salvage" in caplog.text)
        assert c.nodes[1].propose(GROUP, b"refused") < 0
        assert "damaged" in c.nodes[1].damages()[GROUP]
        await c.propose(OTHER, b"of another group")
        assert c.machines[1, OTHER].applied == [b"of another group"]
        assert not c.fatal
        await c.stop()

    run(body())


def test_live_entry_that_is_damaged_is_mended_while_the_node_runs(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster()
        c.is_live = lambda index: index % 3 == 0
        bodies = await filled(c)
        for node in ALL:
            assert snapshot_now(c.nodes[node], GROUP)
            await c.ticks(lambda node=node: view(c, node).snapshot_index > 0)
        leader = await c.elected(GROUP)
        index = list(view(c, leader).live_indexes())[1]
        damage(c, leader, view(c, leader).location_of(index))
        with pytest.raises(LostEntryError):
            entry_data(c.nodes[leader], GROUP, index)
        await c.ticks(lambda: hosted(c, leader).suspended)
        await c.ticks(lambda: sound(c, leader))
        assert entry_data(c.nodes[leader], GROUP, index) in bodies
        await c.propose(GROUP, b"later")
        await equal(c, GROUP, [*bodies, b"later"])
        await c.stop()

    run(body())


def test_entry_that_a_peer_compacted_away_is_dead_in_an_own_snapshot(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster()
        bodies = await filled(c)
        leader = await c.elected(GROUP)
        for node in ALL:
            if node != leader:
                assert snapshot_now(c.nodes[node], GROUP)
                await c.ticks(lambda node=node: view(c, node).snapshot_index > 0)
        index = rot(c, leader, bodies[4])
        with pytest.raises(LostEntryError):
            entry_data(c.nodes[leader], GROUP, index)
        await c.ticks(lambda: hosted(c, leader).suspended)
        await c.ticks(lambda: sound(c, leader))
        assert c.machines[leader, GROUP].restored == 0, "it goes on from its own state"
        await c.propose(GROUP, b"later")
        await equal(c, GROUP, [*bodies, b"later"])
        await c.stop()

    run(body())


def test_sector_that_the_disk_does_not_give_any_more_is_mended_like_rot(
    cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        c = cluster()
        bodies = await filled(c)
        leader = await c.elected(GROUP)
        index = index_of(c, leader, bodies[4])
        location = view(c, leader).location_of(index)
        reader = view(c, leader).reader
        files = reader.files
        bad = Path(reader.path(location >> 32))
        offset = location & 0xFFFFFFFF
        read, read_cached = files.read, files.read_cached

        def broken(fd: int, count: int, at: int) -> bytes:
            if Path(os.readlink(f"/proc/self/fd/{fd}")) == bad and at <= offset + 50 < at + count:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return bytes(read(fd, count, at))

        monkeypatch.setattr(files, "read", broken)
        monkeypatch.setattr(files, "read_cached", lambda *_: None)
        reader.reads.forget(location >> 32)
        with pytest.raises(LostEntryError):
            entry_data(c.nodes[leader], GROUP, index)
        await c.ticks(lambda: hosted(c, leader).suspended)
        await c.ticks(lambda: sound(c, leader))
        monkeypatch.setattr(files, "read_cached", read_cached)
        assert entry_data(c.nodes[leader], GROUP, index) == bodies[4]
        assert not c.fatal
        await c.stop()

    run(body())


def test_damaged_snapshot_of_a_leader_is_taken_anew_for_a_member_that_needs_it(
    cluster: MakeCluster, tmp_path: Path
) -> None:
    async def body() -> None:
        c = cluster()
        bodies = await filled(c)
        leader = await c.elected(GROUP)
        late = next(node for node in ALL if node != leader)
        await c.stop(late)
        await c.propose(GROUP, b"missed")
        for node in c.nodes:
            assert snapshot_now(c.nodes[node], GROUP)
            await c.ticks(
                lambda node=node: (stored := view(c, node).snapshot) is not None and stored.location
            )
            damage(c, node, view(c, node).snapshot.location)
        await c.start(late)
        c.create(GROUP, late)
        c.create(OTHER, late)
        await equal(c, GROUP, [*bodies, b"missed"])
        assert not c.fatal
        await c.propose(GROUP, b"later")
        await equal(c, GROUP, [*bodies, b"missed", b"later"])
        await c.stop()

    run(body())


def test_damaged_beginning_of_a_group_has_the_node_start_again_and_rebuild_it(
    cluster: MakeCluster,
) -> None:
    async def body() -> None:
        c = cluster()
        bodies = await filled(c)
        at = view(c, 3).base_at
        damage(c, 3, at, 41)
        await c.nodes[3]._damage_scanner.look_at(hosted(c, 3), at >> 32)
        await c.until(lambda: 3 in c.fatal)
        assert isinstance(c.fatal[3], DamageFoundError)
        await c.stop(3)
        await c.start(3)
        c.create(GROUP, 3)
        c.create(OTHER, 3)
        await c.propose(GROUP, b"later")
        await equal(c, GROUP, [*bodies, b"later"])
        await c.stop()

    run(body())
