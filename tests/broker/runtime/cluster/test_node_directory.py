"""Members of the cluster, peers of the logs, and admission of nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from headrace_broker.catalog.event import NodeAdded, NodeRemoved
from headrace_broker.catalog.machine import Catalog
from headrace_broker.model.definition import Node
from headrace_broker.runtime.cluster import node_directory as module
from headrace_broker.runtime.cluster.node_directory import Admission, NodeDirectory, join_problem
from headrace_raftlog.model.membership import Membership

ONE, TWO, THREE = (Node(number, f"n{number}", f"h:{number}") for number in (1, 2, 3))
FOUR = Node(4, "n4", "h:4", disk=44)


class World:
    """Node 1, configured with nodes 1 and 2, and a catalog."""

    def __init__(self) -> None:
        self.known: dict[int, Node] = {}
        self.barred: list[tuple[int, int]] = []
        self.membership = Membership((1, 2))
        self.told: list[dict[int, str]] = []
        self.changes: list[str] = []
        view: Any = self
        self.directory = NodeDirectory(1, [ONE, TWO], view, self)
        self.directory.added = lambda node: self.changes.append(f"+{node}")
        self.directory.removed = lambda node: self.changes.append(f"-{node}")

    def node(self, node: int) -> Node | None:
        return self.known.get(node)

    def nodes(self) -> list[Node]:
        return list(self.known.values())

    def forgotten(self) -> list[tuple[int, int]]:
        return self.barred

    def members(self, group: int) -> Membership:
        return self.membership

    async def set_peers(
        self, peers: Mapping[int, str], barred: Collection[tuple[int, int]] = ()
    ) -> None:
        assert list(barred) == self.barred
        self.told.append(dict(peers))

    def come(self, *nodes: Node) -> None:
        self.known |= {node.id: node for node in nodes}
        self.directory.on_events([NodeAdded(node) for node in nodes])

    def go(self, node: Node) -> None:
        del self.known[node.id]
        self.directory.on_events([NodeRemoved(node)])


def test_processes_of_a_node_are_one() -> None:
    async def scenario(world: World) -> None:
        world.come(Node(65, "n1:1", "h:101"), Node(66, "n2:1", "h:102"))
        pairs = [(1, 65), (65, 1), (1, 2), (2, 65), (66, 2), (65, 66), (1, 67), (67, 68)]
        found = [world.directory.are_one(*pair) for pair in pairs]
        assert found == [True, True, False, False, True, False, False, False]

    run(scenario)


async def settle() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


def run(scenario: Any) -> None:
    async def work() -> None:
        world = World()
        await scenario(world)
        await world.directory.stop()

    asyncio.run(work())


def test_configuration_counts_until_the_catalog_is_known() -> None:
    async def scenario(world: World) -> None:
        directory = world.directory
        assert directory.nodes() == [ONE, TWO]
        assert (directory.names, directory.others) == ({1: "n1", 2: "n2"}, {2: "n2"})
        names = directory.names
        world.come(ONE, THREE)
        await settle()
        assert world.told[-1] == {1: "h:1", 2: "h:2", 3: "h:3"}
        directory.settle()
        world.membership = Membership((1, 3))
        await settle()
        assert world.told[-1] == {1: "h:1", 3: "h:3"}
        assert directory.nodes() == [ONE, THREE]
        assert names is directory.names
        assert names == {1: "n1", 3: "n3"}
        assert world.changes == ["+3", "-2"]

    run(scenario)


def moved(node: Node, number: int = 0) -> Node:
    """Return where a node was before all have moved; another process with a number."""
    name = f"{node.name}:{number}" if number else node.name
    return Node(node.id + 64 * number, name, f"old:{node.id + 100 * number}")


def test_nodes_that_have_all_moved_are_called_where_the_configuration_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ELSEWHERE_SECONDS", 0.0)
    monkeypatch.setattr(module, "ELSEWHERE_SECONDS_MAX", 0.0)

    async def scenario(world: World) -> None:
        old = [*map(moved, (ONE, TWO, THREE)), moved(TWO, 1), Node(67, "n5:1", "old:103")]
        world.come(*old)
        await settle()
        at_disk = {node.id: node.address for node in old}
        assert world.told[0] == at_disk
        elsewhere = at_disk | {1: "h:1", 2: "h:2", 66: "h:102"}  # it names neither n3 nor n5
        await until(lambda: world.told[-1] == elsewhere)
        await until(lambda: world.told[-1] == at_disk)
        await until(lambda: world.told[-1] == elsewhere)
        world.directory.peers_up = {2: 7, 66: 0}
        await until(lambda: world.told[-1] == at_disk | {2: "h:2"})
        world.membership = Membership((1, 2, 3))
        world.directory.settle()
        await settle()
        assert world.told[-1] == at_disk
        count = len(world.told)
        world.directory.peers_up = {}
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(world.told) == count

    run(scenario)


def test_a_node_is_called_where_it_was_before_it_is_called_elsewhere() -> None:
    async def scenario(world: World) -> None:
        world.come(moved(ONE), moved(TWO))
        await settle()
        assert world.told == [{1: "old:1", 2: "old:2"}]
        loop = asyncio.get_running_loop()
        turn = world.directory._turn
        assert turn is not None
        assert 2.0 < turn.when() - loop.time() <= module.ELSEWHERE_SECONDS

    run(scenario)


async def until(check: Callable[[], bool]) -> None:
    """Wait until a check passes, for 10,000 turns of the loop at most."""
    for _ in range(10_000):
        if check():
            return
        await asyncio.sleep(0)
    raise AssertionError("it is not so")


def test_changes_are_followed() -> None:
    async def scenario(world: World) -> None:
        world.come(ONE, TWO)
        world.directory.settle()
        world.come(FOUR, Node(2, "second", "elsewhere:2"))
        await settle()
        assert world.told[-1] == {1: "h:1", 2: "elsewhere:2", 4: "h:4"}
        assert world.directory.others == {2: "second", 4: "n4"}

    run(scenario)


def test_node_that_is_removed_is_heard_until_its_membership_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "FAREWELL_LOOK_SECONDS", 0.0)

    async def scenario(world: World) -> None:
        world.come(ONE, TWO, FOUR)
        world.directory.settle()
        world.membership = Membership((1, 2), (44 << 10 | 4,))
        await settle()
        world.barred = [(4, 44)]
        world.go(FOUR)
        await settle()
        assert world.changes[-1] == "-4"
        assert world.told[-1] == {1: "h:1", 2: "h:2", 4: "h:4"}
        world.membership = Membership((1, 2))
        await settle()
        assert world.told[-1] == {1: "h:1", 2: "h:2"}

    run(scenario)


def test_node_whose_membership_does_not_end_is_cut_off_anyway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "FAREWELL_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(module, "FAREWELL_LOOKS_MAX", 3)

    async def scenario(world: World) -> None:
        world.come(ONE, TWO)
        world.directory.settle()
        world.go(TWO)
        for _ in range(10):
            await settle()
        assert world.told[-1] == {1: "h:1"}

    run(scenario)


def test_this_node_may_be_removed_itself() -> None:
    async def scenario(world: World) -> None:
        world.come(ONE, TWO)
        world.directory.settle()
        world.go(ONE)
        assert world.changes[-1] == "-1"

    run(scenario)


def test_member_that_calls_early_is_talked_to() -> None:
    async def scenario(world: World) -> None:
        world.directory.adopt(THREE)
        await settle()
        assert world.told[-1] == {1: "h:1", 2: "h:2", 3: "h:3"}
        assert world.directory.nodes() == [ONE, TWO, THREE]
        world.come(ONE, TWO)
        world.directory.settle()
        await settle()
        assert world.told[-1] == {1: "h:1", 2: "h:2"}

    run(scenario)


class Gate:
    """Admission request."""

    def __init__(self, admits: bool = True, ready: bool = True) -> None:
        self.ready = ready
        self.refusal = ""
        self.admitted: list[Node] = []
        self.adopted: list[Node] = []
        self.admission = Admission(
            lambda node: "" if admits else "cluster.admit_nodes is off",
            lambda: self.ready,
            self.admit,
            self.adopted.append,
        )

    async def admit(self, node: Node) -> str:
        self.admitted.append(node)
        return self.refusal

    def ask(self, node: Node = FOUR, formed: bool = False) -> str:
        return self.admission.ask(node, formed)


def test_stranger_is_admitted_once_however_often_it_calls() -> None:
    async def body() -> None:
        gate = Gate()
        assert "is being admitted" in gate.ask()
        assert "is being admitted" in gate.ask()
        await settle()
        assert gate.admitted == [FOUR]
        await gate.admission.stop()

    asyncio.run(body())


def test_stranger_hears_why_the_catalog_refuses_it() -> None:
    async def body() -> None:
        gate = Gate()
        gate.refusal = "two nodes have the same name"
        gate.ask()
        await settle()
        assert gate.ask() == "two nodes have the same name"
        gate.refusal = ""
        await settle()
        assert "is being admitted" in gate.ask()
        await gate.admission.stop()

    asyncio.run(body())


@pytest.mark.parametrize(
    ("gate", "node", "formed", "reason"),
    [
        (Gate(ready=False), FOUR, False, "does not belong to the cluster yet"),
        (Gate(), FOUR, True, "move its data directory away and start it"),
        (Gate(admits=False), FOUR, False, "cluster.admit_nodes is off"),
        (Gate(), Node(4, "", ""), False, "runs an older release"),
    ],
)
def test_stranger_may_have_to_wait_or_to_go(
    gate: Gate, node: Node, formed: bool, reason: str
) -> None:
    assert reason in gate.ask(node, formed)
    assert gate.admitted == []


def test_further_process_that_was_accepted_too_early_is_admitted_with_its_data() -> None:
    shard = Node(68, "n4:1", "h:168")

    async def scenario() -> None:
        gate = Gate()
        assert "is being admitted" in gate.ask(shard, formed=True)
        await settle()
        assert gate.admitted == [shard]

    asyncio.run(scenario())


def test_node_that_knows_no_catalog_takes_a_member_at_its_word() -> None:
    gate = Gate(ready=False)
    assert "is from now on" in gate.ask(formed=True)
    assert gate.adopted == [FOUR]


@pytest.mark.parametrize(
    ("admits", "version", "node", "problem"),
    [
        (False, 2, FOUR, "cluster.admit_nodes is off"),
        (True, 1, FOUR, ""),
        (False, 2, Node(65, "n1:1", "h:165"), ""),
        (False, 1, Node(65, "n1:1", "h:165"), "need cluster version 2: finish the upgrade"),
        (True, 1, Node(65, "n1:1", "h:165"), "need cluster version 2: finish the upgrade"),
        (True, 2, Node(68, "n4:1", "h:168"), "node 'n4', whose process it would be, is not known"),
        (True, 2, Node(65, "n1:1", "elsewhere:165"), "node 'n1', whose process it would be"),
    ],
)
def test_processes_of_members_may_join(
    admits: bool, version: int, node: Node, problem: str
) -> None:
    view = Catalog()
    view.put_node(ONE)
    view.raise_cluster_version(version)
    found = join_problem(view, admits, node)
    assert problem in found
    assert bool(found) is bool(problem)
