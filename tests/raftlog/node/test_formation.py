"""New nodes that found a cluster, in any order and with crashes, and nodes that come to one."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from headrace_raftlog.model.errors import ForgottenError
from headrace_raftlog.model.membership import member_id
from headrace_raftlog.node.formation import Formation, founders_of
from headrace_raftlog.storage.disk.files import Files
from headrace_raftlog.storage.writing.identity import Identity, read_identity
from headrace_raftlog.transport.identity import StreamIdentity

MakeCluster = Callable[..., Any]
ALL = (1, 2, 3)
FOUNDED = {1: 11, 2: 22, 3: 33}


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(body)


def new(node: int) -> StreamIdentity:
    return StreamIdentity("test", node, 1, node * 11)


def member(node: int) -> StreamIdentity:
    return StreamIdentity("test", node, 1, node * 11, FOUNDED)


@pytest.mark.parametrize(
    ("node", "met", "founders"),
    [
        (1, [new(2), new(3)], FOUNDED),
        (1, [new(2)], {}),
        (1, [], {}),
        (2, [new(1), new(3)], {}),
        (2, [member(1)], FOUNDED),
        (1, [member(3)], FOUNDED),
        (1, [new(2), member(3)], FOUNDED),
    ],
)
def test_lowest_node_founds_with_all_others_and_whoever_meets_a_member_joins_it(
    node: int, met: list[StreamIdentity], founders: dict[int, int]
) -> None:
    identity = Identity("test", node, 1, node * 11)
    assert founders_of(identity, ALL, {peer.node: peer for peer in met}) == founders


def test_node_alone_founds_its_cluster_at_once() -> None:
    assert founders_of(Identity("test", 5, 1, 55), (5,), {}) == {5: 55}


class Alone:
    """Node 1 with an empty directory and a configuration that names it alone."""

    def __init__(self, directory: Path, looks: int) -> None:
        self.became: list[Identity] = []
        identity = Identity.open(str(directory), "test", 1)
        self.formation = Formation(identity, str(directory), (1,), self.became.append, looks)

    async def poll(self, times: int) -> bool:
        for _ in range(times):
            await self.formation.advance(())
        return self.formation.formed.is_set()


def test_node_alone_listens_before_it_founds(tmp_path: Path) -> None:
    async def body() -> None:
        alone = Alone(tmp_path, looks=3)
        assert not await alone.poll(3)
        assert await alone.poll(1)
        (identity,) = alone.became
        assert identity.formed == {1: identity.disk}

    run(body())


def test_member_that_calls_a_node_alone_while_it_listens_is_its_cluster(tmp_path: Path) -> None:
    async def body() -> None:
        alone = Alone(tmp_path, looks=3)
        assert not await alone.poll(2)
        alone.formation.called(new(4))
        assert not await alone.poll(1)
        alone.formation.called(member(2))
        assert await alone.poll(1)
        (identity,) = alone.became
        assert identity.formed == FOUNDED
        assert identity.generation == identity.disk != FOUNDED[1]

    run(body())


def test_founders_that_all_lost_their_disks_listen_too_before_they_found_again(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        became: list[Identity] = []
        identity = Identity.open(str(tmp_path), "test", 1)
        formation = Formation(identity, str(tmp_path), (1, 2), became.append, 2)
        formation.met(new(2))
        await formation.advance((2,))
        formation.called(StreamIdentity("test", 3, 1, 33, {1: 11, 2: 22}))
        await formation.advance((2,))
        assert [each.formed for each in became] == [{1: 11, 2: 22}]

    run(body())


def test_member_whose_first_node_founds_again_has_it_give_way(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster()
        asked: list[str] = []
        everybody = c.addresses
        c.addresses = {1: everybody[1]}
        shutil.rmtree(c.directory / "1")
        await c.start(1)
        c.nodes[1].on_rival = asked.append
        await c.nodes[1].wait_formed()  # nobody calls
        c.addresses = {node: everybody[node] for node in (1, 2)}
        await c.start(2)
        await c.ticks(lambda: len(asked) > 1)
        assert "first by nodes 1, 2, 3, as node 2 says, and again by nodes 1, when" in asked[0]
        await c.ticks(lambda: c.nodes[2].refusals() == {1: asked[0]})
        assert c.peers[1] == c.peers[2] == []
        c.nodes[1].set_aside(asked[0])
        await c.until(lambda: 1 in c.fatal)
        assert isinstance(c.fatal[1], ForgottenError)
        await c.stop(1)
        await c.start(1)
        await c.nodes[1].wait_formed()
        assert c.nodes[1].member == member_id(1, c.nodes[1].disk)
        await c.stop()

    run(body())


@pytest.mark.parametrize("wiped", [(3,), (2, 3)])
def test_node_that_kept_its_data_knows_when_most_voters_are_gone(
    cluster: MakeCluster, wiped: tuple[int, ...]
) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(*ALL)
        c.create(5)
        await c.propose(5, b"x")
        await c.stop()
        for node in wiped:
            shutil.rmtree(c.directory / str(node))
        await c.start(*ALL)
        await c.ticks(lambda: formed(c, *ALL))
        for node in ALL:
            c.create(5, node)
        assert c.nodes[3].lost_voters(5) == ()
        if len(wiped) == 1:
            await c.ticks(lambda: not c.nodes[3].is_unadmitted(5))
            assert c.nodes[1].lost_voters(5) == ()
        else:
            await c.ticks(lambda: c.nodes[1].lost_voters(5) == wiped)
            assert [c.nodes[n].is_unadmitted(5) for n in ALL] == [False, True, True]
        await c.stop()

    run(body())


def formed(c: Any, *nodes: int) -> bool:
    return all(c.nodes[n].is_formed for n in nodes)


@pytest.mark.parametrize("order", list(itertools.permutations(ALL)))
def test_new_nodes_found_a_cluster_whatever_the_order_of_their_starts(
    cluster: MakeCluster, order: tuple[int, ...]
) -> None:
    async def body() -> None:
        c = cluster(founders=())
        await c.start(*order[:2])
        await c.ticks(lambda: all(c.nodes[n]._formation._met for n in order[:2]))
        assert not any(c.nodes[n].is_formed for n in order[:2])
        assert c.peers[order[0]] == []
        await c.start(order[2])
        async with asyncio.timeout(30):
            await asyncio.gather(*(c.nodes[n].wait_formed() for n in ALL))
        disks = {n: c.nodes[n]._formation.identity.disk for n in ALL}
        for node in c.nodes.values():
            assert node._formation.identity.formed == disks
            assert [node.member_of(n) for n in ALL] == [1, 2, 3]
        c.create(5)
        await c.propose(5, b"x")
        await c.stop()

    run(body())


def test_waiting_node_says_whom_it_has_yet_to_meet(
    cluster: MakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        c = cluster(founders=())
        await c.start(1)
        await c.ticks(lambda: any("has yet to meet nodes [2, 3]" in m for m in caplog.messages))
        assert c.nodes[1].missing_nodes == (2, 3)
        await c.start(2)
        await c.ticks(lambda: c.nodes[1].missing_nodes == (3,))
        await c.start(3)
        await c.nodes[1].wait_formed()
        assert c.nodes[1].missing_nodes == ()
        await c.stop()

    run(body())


@pytest.mark.parametrize("crashed", ALL)
def test_node_that_stops_just_after_or_before_it_is_formed_goes_on_as_a_founder(
    cluster: MakeCluster, crashed: int
) -> None:
    async def body() -> None:
        c = cluster(founders=())
        await c.start(*ALL)
        await c.ticks(lambda: c.nodes[1].is_formed)
        was = c.nodes[crashed]._formation.identity.disk
        await c.stop(crashed)
        await c.start(crashed)
        await c.ticks(lambda: formed(c, *ALL))
        assert c.nodes[crashed]._formation.identity.disk == was
        assert [c.nodes[n].member for n in ALL] == [1, 2, 3]
        await c.stop()

    run(body())


def test_formed_nodes_restart_without_waiting_for_anybody(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster(founders=())
        await c.start(*ALL)
        await c.ticks(lambda: formed(c, *ALL))
        await c.stop()
        await c.start(2)
        assert c.nodes[2].is_formed
        assert c.nodes[2].member == 2
        assert c.nodes[2].boot == 2
        await c.stop()

    run(body())


def test_wiped_node_comes_back_under_a_new_member_id_and_keeps_it(
    cluster: MakeCluster, tmp_path: Path
) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(*ALL)
        await c.until(lambda: all(len(c.peers[n]) == 2 for n in ALL))
        await c.stop(1)
        shutil.rmtree(tmp_path / "1")
        await c.start(1)
        await c.until(lambda: len(c.peers[1]) == 2)
        await c.until(lambda: all(c.peers[n][-1][:2] == (1, True) for n in (2, 3)))
        mine = c.nodes[1].member
        assert mine == member_id(1, c.nodes[1]._formation.identity.disk)
        assert [c.nodes[n].member_of(1) for n in ALL] == [mine] * 3
        assert [c.nodes[1].member_of(n) for n in (2, 3)] == [2, 3]
        assert c.nodes[1].boot == 1
        assert [up for peer, up, _ in c.peers[2] if peer == 1] == [True, False, True]
        await c.stop(1)
        await c.start(1)
        assert c.nodes[1].member == mine
        assert c.nodes[1].boot == 2
        await c.stop()

    run(body())


def test_raised_boot_is_what_peers_hear_and_later_starts_go_on_from(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(*ALL)
        await c.until(lambda: all(len(c.peers[n]) == 2 for n in ALL))
        await c.nodes[1].raise_boot(70)
        assert c.nodes[1].boot == 70
        await c.until(lambda: all(c.peers[n][-1] == (1, True, 70) for n in (2, 3)))
        await c.stop(1)
        await c.start(1)
        assert c.nodes[1].boot == 71
        await c.stop()

    run(body())


def test_boot_that_cannot_be_raised_stops_the_node(
    cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise OSError(5, "bad disk")

    async def body() -> None:
        c = cluster()
        await c.start(*ALL)
        monkeypatch.setattr(Identity, "raised", fail)
        with pytest.raises(OSError, match="bad disk"):
            await c.nodes[1].raise_boot(70)
        await c.until(lambda: 1 in c.fatal)
        await c.stop()

    run(body())


def test_wiped_node_is_refused_under_its_old_identity(
    cluster: MakeCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        c = cluster()
        await c.start(2, 3)
        files = Files()
        kept = read_identity(str(tmp_path / "1"), files)
        assert kept is not None
        c.nodes[1] = node = c.make(1)
        await node.start()
        # It claims to be a founder although its disk is another one now.
        claim = StreamIdentity("test", 1, 9, kept.disk + 1, {**kept.formed, 1: kept.disk + 1})
        node._transport.become(claim)
        await c.ticks(lambda: any("move its data directory away" in m for m in caplog.messages))
        assert not any(up for peer, up, _ in c.peers[2] if peer == 1 and c.peers[2][-1][1])
        await c.stop()

    run(body())


def test_node_added_to_the_configuration_later_joins_as_a_new_member(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster(founders=(1, 2))
        await c.start(*ALL)
        await c.ticks(lambda: formed(c, *ALL))
        assert c.nodes[3].member == member_id(3, c.nodes[3]._formation.identity.disk)
        assert sorted(c.nodes[3]._formation.identity.formed) == [1, 2]
        await c.stop()

    run(body())


def test_directory_that_cannot_be_written_stops_the_node(
    cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise OSError(5, "bad disk")

    async def body() -> None:
        c = cluster(founders=())
        monkeypatch.setattr(Identity, "form", fail)
        await c.start(*ALL)
        await c.until(lambda: 1 in c.fatal)
        assert not c.nodes[1].is_formed
        await c.stop()

    run(body())


def test_node_that_nobody_knew_is_announced_joins_and_votes(cluster: MakeCluster) -> None:
    async def body() -> None:
        c = cluster(ALL)
        asked: list[Any] = []
        await c.start(*ALL)

        def stranger_calls(stranger: Any) -> str:
            asked.append(stranger)
            return "wait"

        for node in ALL:
            c.nodes[node].on_stranger = stranger_calls
        await asyncio.gather(*(node.wait_formed() for node in c.nodes.values()))
        c.create(7, campaign=1)
        await c.propose(7, b"before")
        fourth = cluster((4,), founders=()).addresses
        everybody = {**c.addresses, **fourth}
        c.addresses = {1: c.addresses[1], **fourth}
        await c.start(4)
        await c.ticks(lambda: bool(asked))
        stranger = asked[0]
        assert (stranger.node, stranger.address, stranger.formed) == (4, fourth[4], False)
        assert stranger.disk == c.nodes[4].disk
        await c.ticks(lambda: c.nodes[4].refusals() == {1: "wait"})
        for node in (1, 2, 3, 4):
            await c.nodes[node].set_peers(everybody)
        await c.nodes[4].wait_formed()
        c.create(7, 4, founders=ALL)
        for node in (1, 2, 3, 4):
            c.nodes[node].set_members(7, (1, 2, 3, 4), (1, 2, 3))
        await c.ticks(lambda: c.nodes[4].members(7).learners == (c.nodes[4].member,))
        await c.propose(7, b"after")
        await c.until(lambda: b"after" in c.machines[4, 7].applied)
        for node in (1, 2, 3, 4):
            c.nodes[node].set_members(7, (1, 3, 4), (1, 3, 4))

        def replaced() -> bool:
            leader = c.leader(7)
            if not leader:
                return False
            return {at & 1023 for at in c.nodes[leader].members(7).voters} == {1, 3, 4}

        await c.ticks(replaced)
        for node in (1, 3, 4):
            await c.nodes[node].set_peers({n: a for n, a in everybody.items() if n != 2})
        await c.propose(7, b"without 2")
        await c.stop()
        assert not c.fatal

    run(body())
