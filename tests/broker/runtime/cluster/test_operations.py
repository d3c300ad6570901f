"""Operations on the cluster, given one node's view of the others."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from headrace_broker.catalog.command import AdmitNode, ForgetNode, SetMaintenance
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.result import Ok
from headrace_broker.model.definition import QUEUE_QUORUM, Node, Queue
from headrace_broker.model.reply_code import PRECONDITION_FAILED, AmqpError
from headrace_broker.runtime.cluster.node_directory import address_problem
from headrace_broker.runtime.cluster.operations import ClusterFacts, Operations
from headrace_broker.runtime.rpc.correlator import Rpc
from headrace_broker.runtime.rpc.protocol import RpcError
from headrace_broker.runtime.rpc.question import Transfer


class Around:
    """Nodes 1 to 3, of which node 1 is asked; all vote on the catalog.

    Attributes:
        up: the nodes that run.
        drained: those that lead nothing.
        done: commands of the catalog.
    """

    def __init__(self) -> None:
        self.up = frozenset({1, 2, 3})
        self.drained: set[int] = set()
        self.voters = (1, 2, 3)
        self.done: list[Any] = []
        self.joining: list[Node] = []  # that the catalog takes in before the next change
        self.revived: list[Node] = []  # by somebody else, while another process is drained
        self.nodes = {n: Node(n, f"n{n}", f"h:{n}") for n in (1, 2, 3)}
        self.known = Catalog()
        surroundings = ClusterFacts(
            1,
            self.known,
            lambda: self.up,
            lambda: self.drained,
            {2: "n2", 3: "n3"},
            self._submit,
            lambda: self.voters,
        )
        ends: Any = SimpleNamespace(rows=None, transfer=None)
        rpc = Rpc(1, lambda node, data: False)
        self.operations = Operations(surroundings, rpc, ends)

    async def _submit(self, command: Any) -> Ok:
        self.done.append(command)
        revived = self.revived if isinstance(command, SetMaintenance) else []
        for node in [*self.joining, *revived]:
            self.known.put_node(node)
        return Ok(command.node if isinstance(command, AdmitNode) else self.nodes[command.node])

    def forget(self, node: int) -> str:
        """Return why a node is not forgotten, "" when it is."""
        try:
            asyncio.run(self.operations.forget(self.nodes[node]))
        except AmqpError as error:
            return f"{error.code} {error.text}"
        return ""


@pytest.fixture
def around() -> Around:
    return Around()


def test_a_node_without_which_the_catalog_has_no_majority_is_not_forgotten(around):
    around.up = frozenset({1, 2})
    around.drained = {2}
    refusal = around.forget(2)
    assert refusal.startswith(str(PRECONDITION_FAILED))
    assert "no majority" in refusal
    assert around.done == []
    assert around.forget(3) == ""
    around.voters = (1, 2)
    assert around.forget(2) == ""
    assert around.done == [ForgetNode(3, bars_unknown=True), ForgetNode(2, bars_unknown=True)]


def test_a_further_process_of_a_drained_node_is_drained(around: Around) -> None:
    first = Node(2, "n2", "h:2", maintenance=True)
    around.known.put_node(first)
    for number, name in ((66, "n2:1"), (67, "n3:1")):
        around.nodes[number] = Node(number, name, f"h:{number}")
        asyncio.run(around.operations.admit(around.nodes[number]))
    [_, drained, _] = around.done
    assert drained == SetMaintenance(66, True)


def test_a_node_is_drained_with_its_further_processes(around: Around) -> None:
    around.nodes[66] = Node(66, "n2:1", "h:66")
    for node in around.nodes.values():
        around.known.put_node(node)
    asyncio.run(around.operations.set_maintenance(around.nodes[2], True))
    assert around.done == [SetMaintenance(66, True), SetMaintenance(2, True)]
    around.up = frozenset({2, 66})
    with pytest.raises(AmqpError, match="no other node would serve"):
        asyncio.run(around.operations.set_maintenance(around.nodes[2], True))
    asyncio.run(around.operations.set_maintenance(around.nodes[66], True))
    assert around.done[2:] == [SetMaintenance(66, True)]


def test_a_process_that_joins_while_its_node_is_revived_is_not_drained(around: Around) -> None:
    joining = around.nodes[66] = Node(66, "n2:1", "h:66")
    around.known.put_node(Node(2, "n2", "h:2", maintenance=True))
    around.revived = [around.nodes[2]]
    asyncio.run(around.operations.admit(joining))
    drain, revive = SetMaintenance(66, True), SetMaintenance(66, False)
    assert around.done == [AdmitNode(joining), drain, revive]


def test_a_process_that_joins_before_its_node_is_drained_is_drained_as_well(around: Around) -> None:
    around.known.put_node(around.nodes[2])
    around.nodes[66] = Node(66, "n2:1", "h:66")
    around.joining = [around.nodes[66], Node(67, "n3:1", "h:67")]
    found = asyncio.run(around.operations.set_maintenance(around.nodes[2], True))
    assert found == around.nodes[2]
    assert around.done == [SetMaintenance(2, True), SetMaintenance(66, True)]


def test_a_node_that_does_not_vote_on_the_catalog_is_forgotten_where_it_had_a_majority(around):
    around.up = frozenset({1, 2})
    around.voters = (1, 2)
    assert around.forget(3) == ""


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("host:7101", ""),
        ("10.0.0.1:1", ""),
        ("[::1]:65535", ""),
        ("", "is not HOST:PORT"),
        ("host", "is not HOST:PORT"),
        (":7101", "is not HOST:PORT"),
        ("a b:7101", "is not HOST:PORT"),
        ("a/b:7101", "is not HOST:PORT"),
        (f"{'h' * 254}:7101", "is not HOST:PORT"),
        ("host:", "is not 1 to 65535"),
        ("host:0", "is not 1 to 65535"),
        ("host:65536", "is not 1 to 65535"),
        ("host:-1", "is not 1 to 65535"),
        ("host:\u0661", "is not 1 to 65535"),
        ("host:" + "9" * 5000, "is not 1 to 65535"),
        ("::1:7101", "needs brackets"),
    ],
)
def test_an_address_of_a_node_is_judged(address: str, problem: str) -> None:
    found = address_problem(address)
    assert problem in found
    assert bool(found) == bool(problem)


def test_a_node_that_runs_keeps_its_id(around: Around) -> None:
    def admit(asked: Node) -> str:
        try:
            asyncio.run(around.operations.admit(asked))
        except AmqpError as error:
            return error.text
        return ""

    around.known.put_node(Node(2, "n2", "h:2"))
    runs = "node 2 runs, as 'n2' at h:2: nobody else may have its id until it has stopped"
    assert admit(Node(2, "n9", "h:2")) == runs
    assert admit(Node(2, "n2", "h:9")) == runs
    assert admit(Node(2, "n9", "h:2", disk=4)) == runs
    assert admit(Node(2, "n2", "h:2")) == ""
    assert admit(Node(2, "n2", "h:9", disk=4)) == ""  # its data is gone
    around.up = frozenset({1, 3})
    assert admit(Node(2, "n9", "h:9")) == ""
    assert "HOST:PORT" in admit(Node(5, "n5", "nowhere"))
    assert len(around.done) == 3


def test_a_node_that_refuses_counts_as_one_that_does_not_answer(around, caplog):
    async def refuse(*_: Any) -> Any:
        raise RpcError("odd", "it says no")

    around.operations._rpc.ask = refuse
    around.operations._report.rows = lambda question: []
    around.operations._report.load = lambda: "own"
    assert asyncio.run(around.operations.loads()) == {1: "own"}
    assert asyncio.run(around.operations.leads()) == ([], ["n2", "n3"])
    queue = Queue("/", "work", QUEUE_QUORUM, 7, (1, 2))
    assert asyncio.run(around.operations.members(queue)) == []
    with caplog.at_level("INFO"):
        asyncio.run(around.operations._begin(2, Transfer(7, 2)))
    assert "leadership transfer skipped: it says no" in caplog.text
