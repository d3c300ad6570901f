"""Nodes that come back with less than they promised, or twice."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from headrace_raftlog.model.errors import CloneError, ForgottenError
from headrace_raftlog.node.formation import founders_of
from headrace_raftlog.storage.inspection.set_aside import ASIDE_NAME
from headrace_raftlog.storage.writing.identity import Identity
from headrace_raftlog.storage.writing.mark_file import MARKS_NAME
from headrace_raftlog.transport.identity import StreamIdentity

MakeCluster = Callable[..., Any]
ALL = (1, 2, 3)
SECTOR = 512


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(body)


def segment(tmp_path: Path, node: int) -> Path:
    return sorted((tmp_path / str(node)).glob("*.log"))[-1]


def cut_tail(path: Path, sectors: int) -> None:
    """Zero the last sectors that hold anything."""
    data = path.read_bytes()
    end = -(-len(data.rstrip(b"\0")) // SECTOR) * SECTOR
    start = max(end - sectors * SECTOR, SECTOR)
    path.write_bytes(data[:start] + bytes(len(data) - start))


async def all_up(c: Any) -> None:
    def up(node: int) -> bool:
        sessions = c.nodes[node]._transport.sessions.values()
        return all(session.up for session in sessions)

    await c.until(lambda: all(up(node) for node in c.nodes))


async def write(c: Any, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        await c.propose(5, f"entry {number}".encode())


async def heard(c: Any, node: int, by: int) -> None:
    """Wait until a node has heard of all that another has synced."""

    def batch() -> int:
        disk = c.nodes[node].disk
        marks = c.nodes[by]._transport.memory.marks().get(node, ())
        return max((mark.batch for mark in marks if mark.disk == disk), default=-1)

    await c.ticks(lambda: batch() >= c.nodes[node]._log.synced())


def test_end_of_the_log_that_is_gone_is_noticed_at_the_start(
    cluster: MakeCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(*ALL)
        c.create(5)
        await write(c, 20)
        was = c.nodes[3].disk
        await c.stop(3)
        cut_tail(segment(tmp_path, 3), 6)
        await c.start(3)
        assert c.nodes[3].disk != was
        await c.nodes[3].wait_formed()
        assert c.nodes[3].member > 1023
        assert any("has lost the end of its log" in m for m in caplog.messages)
        assert list((tmp_path / "3" / ASIDE_NAME).glob("*.log"))
        await c.stop()

    run(body())


@pytest.mark.parametrize("running", [(1,), (2,), (1, 2)])
def test_peers_refuse_an_old_copy_and_its_node_sets_it_aside(
    cluster: MakeCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture, running: tuple[int, ...]
) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(*ALL)
        c.create(5)
        await write(c, 5)
        await c.stop(3)
        shutil.copytree(tmp_path / "3", tmp_path / "copy")
        await c.start(3)
        c.create(5, 3)
        await write(c, 10, 5)
        for node in running:
            await heard(c, 3, node)
        await c.stop(3)
        shutil.rmtree(tmp_path / "3")
        shutil.move(tmp_path / "copy", tmp_path / "3")
        for node in [n for n in (1, 2) if n not in running]:
            await c.stop(node)
        await c.start(3)
        await c.until(lambda: 3 in c.fatal)
        assert isinstance(c.fatal[3], ForgottenError)
        assert c.peers[3] == [], "it was never up anywhere"
        assert any("node 3 came back with older data" in m for m in caplog.messages)
        was = c.nodes[3].disk
        await c.stop(3)
        await c.start(3)
        assert c.nodes[3].disk != was
        await c.nodes[3].wait_formed()
        await c.stop()

    run(body())


def test_what_a_peer_has_heard_survives_its_restart(cluster: MakeCluster, tmp_path: Path) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(*ALL)
        c.create(5)
        await write(c, 5)
        await c.stop(3)
        shutil.copytree(tmp_path / "3", tmp_path / "copy")
        await c.start(3)
        c.create(5, 3)
        await write(c, 10, 5)
        await heard(c, 3, 1)
        await c.stop()
        shutil.rmtree(tmp_path / "3")
        shutil.move(tmp_path / "copy", tmp_path / "3")
        await c.start(*ALL)
        await c.until(lambda: 3 in c.fatal)
        assert isinstance(c.fatal[3], ForgottenError)
        await c.stop()

    run(body())


def test_node_that_was_let_in_by_who_knew_nothing_is_put_out_when_another_knows(
    cluster: MakeCluster, tmp_path: Path
) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(*ALL)
        c.create(5)
        await write(c, 5)
        await c.stop(3)
        shutil.copytree(tmp_path / "3", tmp_path / "copy")
        await c.stop(2)
        await c.start(3)
        c.create(5, 3)
        await write(c, 10, 5)
        await heard(c, 3, 1)
        await c.stop()
        shutil.rmtree(tmp_path / "3")
        shutil.move(tmp_path / "copy", tmp_path / "3")
        await c.start(2, 3)
        await c.until(lambda: bool(c.peers[2]) or 3 in c.fatal)
        assert 3 not in c.fatal, "node 2 cannot know"
        await c.start(1)
        await c.until(lambda: 3 in c.fatal)
        assert isinstance(c.fatal[3], ForgottenError)
        await c.until(lambda: c.peers[2][-1][:2] == (1, True) or c.peers[2][-1][:2] == (3, False))
        await c.stop()

    run(body())


def test_second_process_of_a_node_is_refused_and_the_first_stays(
    cluster: MakeCluster,
    tmp_path: Path,
    addresses: dict[int, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(*ALL)
        c.create(5)
        await write(c, 5)
        await c.stop(3)
        shutil.copytree(tmp_path / "3", tmp_path / "4")
        await c.start(3)
        await all_up(c)
        failed: list[BaseException] = []
        clone = c.make_clone(3, tmp_path / "4", addresses[4])
        clone.on_fatal = failed.append
        await clone.start()
        await c.ticks(lambda: bool(failed))
        assert isinstance(failed[0], CloneError)
        assert any("node 3 runs twice" in m for m in caplog.messages)
        await clone.stop()
        assert 3 not in c.fatal
        c.create(5, 3)
        await write(c, 5, 5)
        await c.stop()
        assert not (tmp_path / "4" / ASIDE_NAME).exists()

    run(body())


def test_kills_and_lost_unsynced_batches_are_no_reason(
    cluster: MakeCluster, tmp_path: Path
) -> None:
    async def body() -> None:
        c = cluster()
        disks: dict[int, int] = {}
        for turn in range(3):
            await c.start(*ALL)
            c.create(5)
            await write(c, 5, turn * 5)
            disks = disks or {n: c.nodes[n].disk for n in ALL}
            assert {n: c.nodes[n].disk for n in ALL} == disks
            await c.stop()
        assert c.fatal == {}

    run(body())


def test_directory_of_an_earlier_release_starts_and_is_remembered_from_then_on(
    cluster: MakeCluster, tmp_path: Path
) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(*ALL)
        c.create(5)
        await write(c, 5)
        disks = {n: c.nodes[n].disk for n in ALL}
        await c.stop()
        for node in ALL:
            (tmp_path / str(node) / MARKS_NAME).unlink()
        await c.start(*ALL)
        c.create(5)
        await write(c, 5, 5)
        assert {n: c.nodes[n].disk for n in ALL} == disks
        await heard(c, 3, 1)
        await c.stop()

    run(body())


def test_node_alone_goes_on_with_what_is_left_and_says_so(
    cluster: MakeCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        c = cluster((1,), founders=())
        await c.start(1)
        await c.nodes[1].wait_formed()
        c.create(5, 1, campaign=1, founders=(1,))
        await write(c, 5)
        was = c.nodes[1].disk
        await c.stop(1)
        cut_tail(segment(tmp_path, 1), 3)
        await c.start(1)
        assert c.nodes[1].disk == was
        assert any("it goes on without" in m for m in caplog.messages)
        await c.stop()

    run(body())


def test_nodes_whose_data_were_set_aside_found_no_cluster() -> None:
    new = {n: StreamIdentity("test", n, 1, n * 11) for n in ALL}
    lost = StreamIdentity("test", 2, 1, 22, rejoins=True)
    own = Identity("test", 1, 1, 11)
    assert founders_of(own, ALL, {2: new[2], 3: new[3]})
    assert not founders_of(own, ALL, {2: lost, 3: new[3]})
    assert not founders_of(Identity("test", 1, 1, 11, rejoins=True), ALL, {2: new[2], 3: new[3]})


def test_node_whose_leader_counts_on_entries_that_it_lost_sets_its_log_aside(
    cluster: MakeCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(*ALL)
        c.create(5)
        await write(c, 20)
        leader = c.leader(5)
        lost = next(n for n in ALL if n != leader)
        await c.ticks(lambda: min(len(c.machines[n, 5].applied) for n in ALL) >= 20)
        await c.stop(lost)
        cut_tail(segment(tmp_path, lost), 8)
        (tmp_path / str(lost) / MARKS_NAME).unlink()
        for node in c.nodes.values():
            node._transport.memory._marks.clear()  # as if nobody had heard of it
        await c.start(lost)
        c.create(5, lost)
        await c.until(lambda: lost in c.fatal)
        assert isinstance(c.fatal[lost], ForgottenError)
        assert any("was acknowledged by this member" in m for m in caplog.messages)
        was = c.nodes[lost].disk
        await c.stop(lost)
        await c.start(lost)
        assert c.nodes[lost].disk != was
        await c.stop()

    run(body())


def test_peer_that_did_not_hear_of_a_raised_boot_lets_the_next_start_in(
    cluster: MakeCluster,
) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(*ALL)
        c.create(5)
        await write(c, 5)
        await heard(c, 1, 2)
        was = c.nodes[1].disk
        await c.stop(2)
        await c.nodes[1].raise_boot(70)
        await write(c, 5, 5)
        await c.stop(1)
        await c.start(1, 2)
        await all_up(c)
        assert c.fatal == {}
        assert c.nodes[1].disk == was
        assert c.nodes[1].boot == 71
        await c.stop()

    run(body())


def test_old_copy_that_leads_already_gives_way_when_who_knows_comes_back(
    cluster: MakeCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(*ALL)
        c.create(5)
        await write(c, 5)
        await c.until(lambda: all(len(c.machines[n, 5].applied) >= 5 for n in ALL))
        await c.stop(3)
        shutil.copytree(tmp_path / "3", tmp_path / "copy")
        await c.stop(2)
        await c.start(3)
        c.create(5, 3)
        await write(c, 10, 5)  # nodes 1 and 3 promise it
        await heard(c, 3, 1)
        await c.stop()
        shutil.rmtree(tmp_path / "3")
        shutil.move(tmp_path / "copy", tmp_path / "3")
        await c.start(2, 3)
        c.create(5)
        await write(c, 3, 100)  # decided without what was promised to node 1
        if c.leader(5) != 3:
            assert c.nodes[2].transfer(5, 3)
        await c.until(lambda: c.leader(5) == 3)
        await c.start(1)
        c.create(5, 1)
        await c.until(lambda: 3 in c.fatal)
        assert isinstance(c.fatal[3], ForgottenError)
        await c.ticks(lambda: c.nodes[1]._host.find(5).suspended or c.nodes[2].serving(5))
        await c.ticks(lambda: 5 in c.nodes[1].damages())
        assert "is committed here" in c.nodes[1].damages()[5]
        assert any("an older copy of their data" in m for m in caplog.messages)
        assert c.nodes[1]._log.group(5).last_index() >= 15, "its data are kept"
        assert set(c.fatal) == {3}, "other groups go on"
        await c.stop()

    run(body())
