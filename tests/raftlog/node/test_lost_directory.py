"""Data directories of which a part is gone: their nodes come back as ones that lost their disk."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from headrace_raftlog.model.errors import DirectoryGoneError, IdentityError, LostDirectoryError
from headrace_raftlog.model.group import NOT_LEADER
from headrace_raftlog.storage.inspection.set_aside import ASIDE_NAME, CONDEMNED_NAME
from headrace_raftlog.storage.writing.identity import IDENTITY_NAME
from headrace_raftlog.storage.writing.mark_file import MARKS_NAME

MakeCluster = Callable[..., Any]
ALL = (1, 2, 3)
GROUPS = (0, 5)


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(body)


def lose_segments(directory: Path) -> None:
    for path in directory.glob("*.log"):
        path.unlink()


def lose_identity(directory: Path) -> None:
    (directory / IDENTITY_NAME).unlink()


def empty_identity(directory: Path) -> None:
    (directory / IDENTITY_NAME).write_bytes(b"")


def garble_all(directory: Path) -> None:
    (directory / IDENTITY_NAME).write_bytes(b"\xff\0{")
    lose_segments(directory)
    (directory / MARKS_NAME).write_bytes(b"\xff" * 100)


def wipe(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.mkdir()


LOSSES = [lose_segments, lose_identity, empty_identity, garble_all, wipe]


async def filled(c: Any, founders: tuple[int, ...] = ALL) -> list[bytes]:
    await c.start(*founders)
    for group in GROUPS:
        c.create(group, founders=founders)
    bodies = [b"entry %04d" % number for number in range(6)]
    for body in bodies:
        await c.propose(5, body)
    await c.propose(0, b"catalog")
    await c.until(lambda: all(c.machines[node, 5].applied == bodies for node in c.nodes))
    return bodies


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


@pytest.mark.parametrize("lose", LOSSES)
def test_node_comes_back_by_itself_as_a_new_member(
    cluster: MakeCluster, tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    async def body() -> None:
        c = cluster()
        bodies = await filled(c)
        disk = c.nodes[3].disk
        await c.stop(3)
        lose(tmp_path / "3")
        await c.ticks(lambda: any(c.nodes[node].serving(0) for node in c.nodes))
        await c.start(3)
        assert c.nodes[3].disk != disk
        await c.nodes[3].wait_formed()
        assert c.nodes[3].member > 1023
        for group in GROUPS:
            c.create(group, 3)
        await c.propose(5, b"later")
        await c.until(lambda: c.machines[3, 5].applied == [*bodies, b"later"])
        await c.stop(3)
        await c.start(3)
        for group in GROUPS:
            c.create(group, 3)
        await c.until(lambda: c.machines[3, 5].applied == [*bodies, b"later"])
        assert not c.fatal
        await c.stop()

    run(body())


@pytest.mark.parametrize("lose", LOSSES[:4])
def test_directory_stays_as_it_is_while_nobody_says_that_the_cluster_works(
    cluster: MakeCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    lose: Callable[[Path], None],
) -> None:
    monkeypatch.setattr("headrace_raftlog.node.startup.REBUILD_WAIT_S", 0.1)

    async def body() -> None:
        c = cluster()
        await filled(c)
        await c.stop()
        lose(tmp_path / "3")
        before = contents(tmp_path / "3")
        with pytest.raises(LostDirectoryError):
            await c.start(3)
        assert contents(tmp_path / "3") == before
        assert "no other node says that the cluster works" in caplog.text

    run(body())


def test_data_of_another_node_are_not_set_aside(cluster: MakeCluster, tmp_path: Path) -> None:
    async def body() -> None:
        c = cluster()
        await filled(c)
        await c.stop(2, 3)
        shutil.rmtree(tmp_path / "3")
        shutil.copytree(tmp_path / "2", tmp_path / "3")
        lose_identity(tmp_path / "3")
        before = contents(tmp_path / "3")
        with pytest.raises(IdentityError, match="belongs to node 2"):
            await c.start(3)
        assert contents(tmp_path / "3") == before
        c.nodes.pop(3)
        await c.stop()

    run(body())


@pytest.mark.parametrize("lose", [lose_identity, empty_identity])
def test_node_alone_goes_on_with_its_log(
    cluster: MakeCluster, tmp_path: Path, lose: Callable[[Path], None]
) -> None:
    async def body() -> None:
        c = cluster((1,), founders=(1,))
        bodies = await filled(c, (1,))
        await c.stop()
        lose(tmp_path / "1")
        await c.start(1)
        await c.nodes[1].wait_formed()
        c.create(5, 1, founders=(1,))
        await c.until(lambda: c.machines[1, 5].applied == bodies)
        await c.stop()

    run(body())


def test_node_alone_whose_log_is_gone_invents_nothing(
    cluster: MakeCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        c = cluster((1,), founders=(1,))
        await filled(c, (1,))
        await c.stop()
        lose_segments(tmp_path / "1")
        with pytest.raises(LostDirectoryError, match="has lost its log"):
            await c.start(1)
        assert "it is the only one" in caplog.text

    run(body())


@pytest.mark.parametrize("rest", [f"{CONDEMNED_NAME}.new", "node.json.new"])
def test_half_written_draft_is_passed_over(cluster: MakeCluster, tmp_path: Path, rest: str) -> None:
    async def body() -> None:
        c = cluster()
        bodies = await filled(c)
        disk = c.nodes[3].disk
        await c.stop(3)
        (tmp_path / "3" / rest).write_bytes(b"its lo")
        await c.start(3)
        assert c.nodes[3].disk == disk
        c.create(5, 3)
        await c.until(lambda: c.machines[3, 5].applied == bodies)
        await c.stop()

    run(body())


@pytest.mark.parametrize("text", [b"", b"\xff" * 4096])
def test_damaged_marks_and_a_condemnation_without_words_are_understood(
    cluster: MakeCluster, tmp_path: Path, text: bytes
) -> None:
    async def body() -> None:
        c = cluster()
        bodies = await filled(c)
        disk = c.nodes[3].disk
        await c.stop(3)
        (tmp_path / "3" / MARKS_NAME).write_bytes(text)
        await c.start(3)
        assert c.nodes[3].disk == disk, "what is remembered of disks begins anew"
        await c.stop(3)
        (tmp_path / "3" / CONDEMNED_NAME).write_bytes(text)
        lose_identity(tmp_path / "3")
        await c.start(3)
        assert c.nodes[3].disk != disk
        assert list((tmp_path / "3" / ASIDE_NAME).glob("*.log"))
        await c.nodes[3].wait_formed()
        c.create(5, 3)
        await c.until(lambda: c.machines[3, 5].applied == bodies)
        await c.stop()

    run(body())


@pytest.mark.parametrize("lose", [wipe, lose_segments])
def test_node_whose_files_are_removed_while_it_runs_ends_and_comes_back_as_a_new_member(
    cluster: MakeCluster,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    lose: Callable[[Path], None],
) -> None:
    async def body() -> None:
        c = cluster()
        bodies = await filled(c)
        leader = await c.elected(5)
        lose(tmp_path / str(leader))
        await c.until(lambda: leader in c.fatal)
        assert isinstance(c.fatal.pop(leader), DirectoryGoneError)
        [told] = [r for r in caplog.records if r.message.startswith(f"node {leader} ends: ")]
        assert told.levelname == "ERROR"
        assert str(tmp_path / str(leader)) in told.message
        assert c.nodes[leader].propose(5, b"never") == NOT_LEADER
        disk = c.nodes[leader].disk
        await c.stop(leader)
        await c.propose(5, b"later")
        await c.start(leader)
        assert c.nodes[leader].disk != disk
        await c.nodes[leader].wait_formed()
        for group in GROUPS:
            c.create(group, leader)
        await c.until(lambda: c.machines[leader, 5].applied == [*bodies, b"later"])
        assert any(f"node {leader} came back on another disk" in m for m in caplog.messages)
        assert not c.fatal
        await c.stop()

    run(body())
