"""Damaged entries are fetched from other members and put back; no promise is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.raftlog.node.inside import snapshot_now

from headrace_raftlog.model.entry import Entry
from headrace_raftlog.model.errors import CorruptLogError
from headrace_raftlog.model.message import APPEND, Message
from headrace_raftlog.model.snapshot import Snapshot
from headrace_raftlog.node.entry_repair import EntryRepair, _Answers
from headrace_raftlog.storage.inspection import inspect
from headrace_raftlog.storage.inspection.set_aside import ASIDE_NAME
from headrace_raftlog.transport.bulk_client import DeniedError, FetchFailedError, GoneError

MakeCluster = Callable[..., Any]
ALL = (1, 2, 3)
GROUP = 5
OTHER = 6


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(body)


def flip(directory: Path, text: bytes, bit: int = 1) -> None:
    """Flip a bit of a stored entry, wherever it stands."""
    found = 0
    for path in directory.glob("*.log"):
        content = bytearray(path.read_bytes())
        at = content.find(text)
        while at >= 0:
            content[at] ^= bit
            found += 1
            at = content.find(text, at + 1)
        path.write_bytes(content)
    assert found, "the entry is not there"


async def equal(c: Any, group: int, bodies: list[bytes]) -> None:
    await c.until(lambda: all(c.machines[node, group].applied == bodies for node in ALL))


async def filled(c: Any, count: int = 12) -> list[bytes]:
    """Start all nodes with two groups and write entries to the first; return them."""
    await c.start(*ALL)
    c.create(GROUP)
    c.create(OTHER)
    bodies = [b"entry %04d " % number * 20 for number in range(count)]
    for body in bodies:
        await c.propose(GROUP, body)
    await c.propose(OTHER, b"of another group")
    await equal(c, GROUP, bodies)
    await equal(c, OTHER, [b"of another group"])
    return bodies


async def restart(c: Any, *nodes: int) -> None:
    await c.start(*nodes)
    for node in nodes:
        c.create(GROUP, node)
        c.create(OTHER, node)


def member(c: Any, node: int) -> int:
    return int(c.nodes[node]._host.find(GROUP).core.member)


def test_damaged_entry_is_put_back_and_the_member_stays_who_it_was(
    cluster: MakeCluster, tmp_path: Path
) -> None:
    async def body() -> None:
        c = cluster()
        bodies = await filled(c)
        before = member(c, 3)
        await c.stop(3)
        flip(tmp_path / "3", bodies[4])
        await restart(c, 3)
        assert not c.nodes[3]._log.quarantined
        assert c.nodes[3]._host.find(GROUP).suspended
        assert not c.nodes[3]._host.find(OTHER).suspended
        await equal(c, GROUP, bodies)
        assert member(c, 3) == before
        assert c.nodes[3]._log.group(GROUP).lost is None
        await c.propose(GROUP, b"later")
        await equal(c, GROUP, [*bodies, b"later"])
        await c.stop(3)
        await restart(c, 3)
        assert not c.nodes[3]._host.find(GROUP).suspended, "it was put back for good"
        await equal(c, GROUP, [*bodies, b"later"])
        await c.stop()

    run(body())


def test_rot_in_different_entries_of_all_members_loses_nothing(
    cluster: MakeCluster, tmp_path: Path
) -> None:
    async def body() -> None:
        c = cluster()
        bodies = await filled(c)
        before = {node: member(c, node) for node in ALL}
        await c.stop()
        for node in ALL:
            flip(tmp_path / str(node), bodies[node])
            flip(tmp_path / str(node), bodies[node + 5], bit=0x80)
        await restart(c, *ALL)
        assert all(c.nodes[node]._host.find(GROUP).suspended for node in ALL)
        await equal(c, GROUP, bodies)
        assert {node: member(c, node) for node in ALL} == before
        await c.propose(GROUP, b"later")
        await equal(c, GROUP, [*bodies, b"later"])
        await c.stop()

    run(body())


def test_member_with_a_damaged_entry_neither_votes_nor_acknowledges(
    cluster: MakeCluster, tmp_path: Path
) -> None:
    async def body() -> None:
        c = cluster()
        bodies = await filled(c)
        await c.stop()
        flip(tmp_path / "2", bodies[3])
        flip(tmp_path / "3", bodies[3])
        await restart(c, 2, 3)  # nobody who runs has the entry
        await c.propose(OTHER, b"of two nodes")
        held = [c.nodes[node]._host.find(GROUP) for node in (2, 3)]
        assert all(hosted.suspended for hosted in held)
        assert [hosted.core.leader for hosted in held] == [0, 0]
        assert c.nodes[2].propose(GROUP, b"refused") < 0
        await restart(c, 1)
        await equal(c, GROUP, bodies)
        await c.stop()

    run(body())


def test_damaged_hard_state_costs_a_term_and_no_vote_is_given_twice(
    cluster: MakeCluster, tmp_path: Path
) -> None:
    async def body() -> None:
        c = cluster()
        bodies = await filled(c)
        view = c.nodes[3]._log.group(GROUP)
        term, at = view.hard_state.term, view.state_at
        before = member(c, 3)
        await c.stop(3)
        path = tmp_path / "3" / f"{at >> 32:016d}.log"
        content = bytearray(path.read_bytes())
        content[(at & 0xFFFFFFFF) + 40] ^= 1  # the vote
        path.write_bytes(content)
        assert inspect.verify(str(tmp_path / "3")).quarantined == {}
        await c.start(3)
        state = c.nodes[3]._log.group(GROUP).hard_state
        assert (state.term, state.vote) == (term + 1, 0)
        c.create(GROUP, 3)
        c.create(OTHER, 3)
        await c.propose(GROUP, b"later")
        await equal(c, GROUP, [*bodies, b"later"])
        assert member(c, 3) == before
        await c.stop()

    run(body())


def test_entry_that_a_peer_compacted_is_replaced_by_its_snapshot(
    cluster: MakeCluster, tmp_path: Path
) -> None:
    async def body() -> None:
        c = cluster()
        bodies = await filled(c)
        before = {node: member(c, node) for node in ALL}
        assert snapshot_now(c.nodes[1], GROUP)
        await c.ticks(lambda: c.nodes[1]._log.group(GROUP).snapshot_index > 0)
        await c.stop()
        for node in (2, 3):
            flip(tmp_path / str(node), bodies[3])  # which nobody has any more
        await restart(c, *ALL)
        await equal(c, GROUP, bodies)
        assert {node: member(c, node) for node in ALL} == before
        assert all(c.nodes[node]._log.group(GROUP).snapshot_index > 0 for node in (2, 3))
        await c.propose(GROUP, b"later")
        await equal(c, GROUP, [*bodies, b"later"])
        await c.stop()
        await restart(c, *ALL)
        assert not any(c.nodes[node]._host.find(GROUP).suspended for node in ALL)
        await equal(c, GROUP, [*bodies, b"later"])
        await c.stop()

    run(body())


def test_live_entry_of_a_snapshot_is_put_back(cluster: MakeCluster, tmp_path: Path) -> None:
    async def body() -> None:
        c = cluster()
        c.is_live = lambda index: index % 3 == 0
        bodies = await filled(c)
        for node in ALL:
            assert snapshot_now(c.nodes[node], GROUP)
            view = c.nodes[node]._log.group(GROUP)
            await c.ticks(lambda view=view: view.snapshot_index > 0)
        live = list(c.nodes[1]._log.group(GROUP).live_indexes())
        damaged = [c.nodes[1]._log.group(GROUP).entry(index).data for index in live[:3]]
        await c.stop()
        for node in ALL:
            flip(tmp_path / str(node), damaged[node - 1])
        await restart(c, *ALL)
        await equal(c, GROUP, bodies)
        await c.stop()
        await restart(c, *ALL)
        assert not any(c.nodes[node]._host.find(GROUP).suspended for node in ALL)
        await equal(c, GROUP, bodies)
        await c.stop()

    run(body())


def test_damaged_entry_that_nobody_else_has_was_not_committed_and_is_cut(
    cluster: MakeCluster, tmp_path: Path
) -> None:
    async def body() -> None:
        c = cluster()
        bodies = await filled(c)
        leader = next(n for n in ALL if c.nodes[n].serving(GROUP))
        others = [node for node in ALL if node != leader]
        before = member(c, leader)
        await c.stop(*others)
        lonely = b"in one log only" * 9
        index = c.nodes[leader].propose(GROUP, lonely)
        assert index > 0
        await c.ticks(lambda: c.nodes[leader]._log.group(GROUP).location_of(index) != 0)
        await c.stop(leader)
        flip(tmp_path / str(leader), lonely)
        await restart(c, leader)
        await c.ticks(lambda: c.nodes[leader]._host.find(OTHER).leaderless_ticks > 30)
        assert c.nodes[leader]._host.find(GROUP).suspended, "others may have it"
        await restart(c, *others)
        await equal(c, GROUP, bodies)
        await c.ticks(lambda: not c.nodes[leader]._host.find(GROUP).suspended)
        await c.propose(GROUP, b"later")
        await equal(c, GROUP, [*bodies, b"later"])
        assert member(c, leader) == before
        await c.stop()

    run(body())


def test_only_member_keeps_what_it_has_and_says_what_to_do(
    cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    async def body() -> None:
        c = cluster(founders=(1,))
        await c.start(1)
        c.create(GROUP, 1, founders=(1,))
        bodies = [b"entry %04d " % number * 20 for number in range(5)]
        for each in bodies:
            await c.propose(GROUP, each)
        await c.stop()
        flip(tmp_path / "1", bodies[2])
        monkeypatch.setattr("headrace_raftlog.node.entry_repair.MEND_LOG_S", 0.0)
        await c.start(1)
        c.create(GROUP, 1, founders=(1,))
        await c.ticks(lambda: "headrace log salvage" in caplog.text)
        assert c.nodes[1]._host.find(GROUP).suspended
        await c.stop()
        flip(tmp_path / "1", bytes([bodies[2][0] ^ 1]) + bodies[2][1:])
        await c.start(1)
        c.create(GROUP, 1, founders=(1,))
        await c.until(lambda: c.machines[1, GROUP].applied == bodies)
        await c.stop()

    run(body())


def make_unreadable(directory: Path) -> None:
    """Make a node refuse its log: both ends of a batch are unreadable, so whom it concerned."""
    (path,) = [each for each in directory.glob("*.log") if b"the last copy" in each.read_bytes()]
    content = bytearray(path.read_bytes())
    at = content.index(b"the last copy")
    start = at // 512 * 512
    content[start + 20] ^= 1  # the head
    content[content.index(bytes([17]), at)] ^= 1  # the trailer's type
    path.write_bytes(content)


async def all_voters(c: Any, group: int) -> None:
    """Wait until the newest members of all nodes vote, and nobody else."""

    def voting() -> bool:
        hosted = [c.nodes[node]._host.find(group) for node in c.nodes]
        members = tuple(sorted(each.core.member for each in hosted))
        return all(each.core.membership.voters == members for each in hosted)

    await c.ticks(voting)


def test_log_that_cannot_be_used_is_set_aside_and_its_node_rebuilt(
    cluster: MakeCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(*ALL)
        c.create(0)
        await c.propose(0, b"the last copy")
        await c.stop()
        bodies = await filled(c)
        c.create(0)
        disk = c.nodes[3].disk
        await c.until(lambda: all(c.machines[node, 0].applied for node in ALL))
        await c.stop(3)
        size = sum(path.stat().st_size for path in (tmp_path / "3").glob("*.log"))
        make_unreadable(tmp_path / "3")
        await c.ticks(lambda: any(c.nodes[node].serving(0) for node in (1, 2)))
        await c.start(3)
        assert c.nodes[3].disk != disk
        await c.until(lambda: c.nodes[3].is_formed)
        assert "sets its data aside" in caplog.text
        place = tmp_path / "3" / ASIDE_NAME
        assert sum(path.stat().st_size for path in place.glob("*.log")) == size
        for group in (0, GROUP, OTHER):
            c.create(group, 3)
            await all_voters(c, group)
        await c.propose(GROUP, b"later")
        await equal(c, GROUP, [*bodies, b"later"])
        await c.stop()
        await restart(c, *ALL)
        await equal(c, GROUP, [*bodies, b"later"])
        await c.stop()

    run(body())


@pytest.mark.parametrize("alone", [True, False])
def test_log_that_cannot_be_used_stays_where_nobody_is_known_to_have_its_data(
    cluster: MakeCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    alone: bool,
) -> None:
    monkeypatch.setattr("headrace_raftlog.node.startup.REBUILD_WAIT_S", 0.1)

    async def body() -> None:
        founders = (1,) if alone else ALL
        c = cluster(founders=founders)
        await c.start(*founders)
        c.create(GROUP, founders=founders)
        await c.propose(GROUP, b"the last copy")
        await c.stop()
        make_unreadable(tmp_path / "1")
        before = {path.name: path.read_bytes() for path in (tmp_path / "1").glob("*.log")}
        with pytest.raises(CorruptLogError):
            await c.start(1)
        c.nodes.clear()
        after = {path.name: path.read_bytes() for path in (tmp_path / "1").glob("*.log")}
        assert after == before
        assert "headrace log salvage" in caplog.text
        reason = "too few other nodes" if alone else "no other node says that the cluster works"
        assert reason in caplog.text

    run(body())


def test_damaged_group_that_too_few_others_have_is_kept_and_the_others_are_served(
    cluster: MakeCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        c = cluster(founders=(1,))
        await c.start(1)
        for group in (GROUP, OTHER):
            c.create(group, 1, founders=(1,))
            await c.propose(group, b"of group %d" % group)
        await c.stop()
        path = min((tmp_path / "1").glob("*.log"))
        content = bytearray(path.read_bytes())
        content[content.index(b"of group 5") - 24] ^= 1  # whose it is
        path.write_bytes(content)
        for _ in range(2):
            await c.start(1)
            assert list(c.nodes[1]._log.quarantined) == [GROUP]
            assert "its data is kept" in caplog.text
            for group in (GROUP, OTHER):
                c.create(group, 1, founders=(1,))
            await c.propose(OTHER, b"more")
            assert c.nodes[1].propose(GROUP, b"refused") < 0
            assert c.nodes[1]._host.find(GROUP).suspended
            await c.stop()
        assert b"of group 5" in path.read_bytes()

    run(body())


class GoneWhileAsked:
    """Members of which one offers a snapshot; the group is removed while it is fetched."""

    def __init__(self, remove: Callable[[], None]) -> None:
        self._remove = remove

    async def stored_entry(
        self, node: int, group: int, member: int, of_member: int, index: int, term: int
    ) -> Entry:
        raise GoneError("compacted") if index == 2 else DeniedError("never there")

    async def snapshot(self, node: int, group: int, member: int, index_min: int) -> Snapshot:
        self._remove()
        raise FetchFailedError("the group has gone")


def test_group_that_is_removed_while_it_is_mended_is_not_cut(world: Any) -> None:
    world.up = [2, 3]
    world.host.create_group(GROUP, ALL, (), world.machine(GROUP), False)
    entries = [Entry(index, 3, 0, b"x") for index in (1, 2, 3)]
    world.host.receive([Message(APPEND, GROUP, 2, 1, 3, entries=entries, commit=1)])
    world.settle(1)
    hosted = world.host.find(GROUP)
    hosted.view.recent.clear()
    for index in (2, 3):
        world.host.suspensions.note(hosted, index)
    world.run_turns()
    assert world.suspended == [hosted]
    bulk: Any = GoneWhileAsked(lambda: world.host.remove_group(GROUP))
    damage_scanner: Any = None

    async def mend() -> None:
        repair = EntryRepair(world.host, world.log, bulk, damage_scanner, 0.01)
        await repair._round(hosted, [2, 3], _Answers(set()))

    hosted.restored = False
    run(mend())
    assert hosted.removed
    assert hosted.view.last == 3
