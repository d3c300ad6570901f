"""A disk that takes a write and does not answer."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.group import CoreOptions
from headrace_raftlog.model.limits import WRITING_MESSAGES_MAX
from headrace_raftlog.model.message import (
    APPEND,
    APPEND_REPLY,
    HEARTBEAT,
    HEARTBEAT_REPLY,
    PRE_VOTE,
    VOTE,
    Message,
)
from headrace_raftlog.node.health import NodeHealth
from headrace_raftlog.storage.disk.files import Files
from headrace_raftlog.storage.log.shared_log import SharedLog
from headrace_simulation.memory_files import MemoryFiles

GROUPS = (1, 2, 3, 4)
STALL_S = 0.5


class HangingFiles(Files):
    """Writes hang while `answers` is not set."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = threading.Event()
        self.answers.set()

    def write_through(self, fd: int, pieces: list[bytes], offset: int) -> int:
        self.answers.wait()
        return super().write_through(fd, pieces, offset)


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, HangingFiles]]:
    """The disks of nodes that are started, by directory."""
    found: dict[str, HangingFiles] = {}
    monkeypatch.setattr("headrace_raftlog.node.directory.SharedLog", SharedLogOpener(found))
    yield found
    for each in found.values():
        each.answers.set()


class SharedLogOpener:
    """Opens logs on disks that can be made to hang."""

    def __init__(self, found: dict[str, HangingFiles]) -> None:
        self._found = found

    def open(self, directory: str, options: Any, identity: Any) -> Any:
        disk = self._found[directory] = HangingFiles()
        return SharedLog.open(directory, options, identity, disk)


def bring(running: Any, group: int, node: int) -> bool:
    """Return whether a node leads a group; ask who does to hand it over."""
    leader = running.leader(group)
    if leader not in (0, node):
        running.nodes[leader].transfer(group, node)
    return bool(leader == node)


async def led_by_one(running: Any) -> int:
    """Make one node lead all groups; return its id."""
    await running.start(1, 2, 3)
    for group in GROUPS:
        running.create(group, campaign=1)
    for group in GROUPS:
        await running.propose(group, b"first")
    await running.ticks(lambda: all(bring(running, group, 1) for group in GROUPS))
    return 1


def test_leader_whose_disk_hangs_hands_over_and_leads_again_when_it_answers(
    cluster: Callable[..., Any],
    disks: dict[str, HangingFiles],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[bool] = []
    monkeypatch.setattr(NodeHealth, "set_stalled", lambda _, stalled: told.append(stalled))

    async def body() -> None:
        running = cluster(disk_stall_s=STALL_S)
        hung = await led_by_one(running)
        node = running.nodes[hung]
        disk = disks[str(running.directory / str(hung))]
        disk.answers.clear()
        assert node.propose(1, b"while it hangs") > 0  # the others are led, and silent
        await running.ticks(lambda: node.disk_stalled)
        await running.ticks(lambda: all(running.leader(group) in (2, 3) for group in GROUPS))
        for group in GROUPS:
            await running.propose(group, b"by the others")
        await running.ticks(lambda: all(node.leader(group) in (2, 3) for group in GROUPS))
        assert node.figures().disk_stalled
        assert node.figures().led == 0
        leader = running.leader(1)
        assert running.nodes[leader].transfer(1, hung)
        await running.ticks(lambda: running.nodes[leader].propose(1, b"not taken over") > 0)
        assert all(running.leader(group) in (2, 3) for group in GROUPS)
        disk.answers.set()
        await running.ticks(lambda: not node.disk_stalled)
        await running.until(
            lambda: (
                b"not taken over" in running.machines[hung, 1].applied
                and all(b"by the others" in running.machines[hung, g].applied for g in GROUPS)
            )
        )
        await running.ticks(lambda: bring(running, 1, hung))
        assert not running.fatal
        await running.stop()

    with caplog.at_level(logging.INFO, "headrace.raft"):
        asyncio.run(body())
    lines = [each.getMessage() for each in caplog.records]
    begun, ended = [line for line in lines if "disk of" in line]
    assert "hands over the 4 of its 4 groups that it leads" in begun
    assert "answers again; it hung for" in ended
    assert told == [True, False]


def test_follower_whose_disk_hangs_holds_nobody_up(
    cluster: Callable[..., Any], disks: dict[str, HangingFiles]
) -> None:
    async def body() -> None:
        running = cluster(disk_stall_s=STALL_S)
        await led_by_one(running)
        disk = disks[str(running.directory / "3")]
        disk.answers.clear()
        leaders = {group: running.machines[1, group].leaders[-1] for group in GROUPS}
        await running.propose(1, b"reveals it")
        await running.ticks(lambda: running.nodes[3].disk_stalled)
        for round_number in range(20):
            for group in GROUPS:
                await running.propose(group, b"%d" % round_number)
        assert all(running.machines[1, g].leaders[-1] == leaders[g] for g in GROUPS)
        disk.answers.set()
        await running.until(
            lambda: all(running.machines[3, group].applied[-1:] == [b"19"] for group in GROUPS)
        )
        await running.stop()

    asyncio.run(body())


def test_what_waits_for_a_disk_that_hangs_stays_bounded(tmp_path: Any, world_type: Any) -> None:
    disk = MemoryFiles()
    entered, answers = threading.Event(), threading.Event()

    def hold(call: str, path: str) -> None:
        if call == "sync":
            entered.set()
            assert answers.wait(30)

    world = world_type(tmp_path, CoreOptions(), disk)
    world.host.create_group(1, (1, 2, 3), (), world.machine(1), False)
    disk.fault = hold
    entries = [Entry(1, 1, 0, b"x")]
    world.host.receive([Message(APPEND, 1, 2, 1, 1, entries=entries)])
    world.run_turns()
    assert entered.wait(30)
    world.host.set_disk_stalled(True)
    hosted = world.host.find(1)
    for index in range(50 * WRITING_MESSAGES_MAX):
        more = [Entry(2 + index, 1, 0, b"x")]
        world.host.receive(
            [
                Message(HEARTBEAT, 1, 2, 1, 1, context=1 + index),
                Message(APPEND, 1, 2, 1, 1, index=1, log_term=1),
                Message(APPEND, 1, 2, 1, 1, index=1 + index, log_term=1, entries=more),
                Message(PRE_VOTE, 1, 3, 1, 9, index=9, log_term=9),
                Message(VOTE, 1, 3, 1, 9, index=9, log_term=9),
            ]
        )
        world.run_turns()
    assert len(hosted.writing.messages) == WRITING_MESSAGES_MAX
    assert len(hosted.core.durability.writing) <= 3
    assert hosted.core.term == 1
    assert hosted.core.last_index == 1
    assert not world.posted, "nothing that depends on the disk has left"
    answers.set()
    world.settle(1)
    assert {m.kind for m in world.posted} == {APPEND_REPLY, HEARTBEAT_REPLY}
    assert hosted.writing is None
    world.log.close()
