"""Replicas, leaders and nodes over HTTP, with real operations on a real catalog."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_broker.catalog.cluster_version import CLUSTER_VERSION
from headrace_broker.catalog.command import AdmitNode, AnnounceNode, DeclareQueue, SettleMembers
from headrace_broker.catalog.version import CATALOG_VERSION
from headrace_broker.core.queue.machine.queue_machine import MACHINE_VERSION
from headrace_broker.model.definition import Node
from headrace_broker.runtime.cluster.operations import ClusterFacts, Operations
from headrace_broker.runtime.hosting.replica_report import NodeState, ReplicaReport
from headrace_broker.runtime.rpc.correlator import Rpc


class Raft:
    """Node 1 leads nothing."""

    def progress(self, group: int) -> list[Any]:
        return []

    def last_index(self, group: int) -> int:
        return 0

    def transfer(self, group: int, node: int) -> bool:
        return False

    def members(self, group: int) -> Any:
        raise KeyError(group)

    def led(self) -> list[int]:
        return []


@pytest.fixture
def cluster(node: Any) -> Any:
    """Nodes n1 to n3, of which those in `up` run, with a queue on all of them."""
    for number in (2, 3):
        node.do(AdmitNode(Node(number, f"n{number}", f"h:{number}", disk=number)))
    node.do(DeclareQueue("/", "q", "quorum", replicas=3, preferred_node=1))
    node.up = {1, 2, 3}
    rpc = Rpc(1, lambda peer, data: False)
    around = ClusterFacts(
        1,
        node.view,
        lambda: frozenset(node.up),
        lambda: [each.id for each in node.view.nodes() if each.maintenance],
        {2: "n2", 3: "n3"},
        node.submit,
        lambda: (1, 2),
    )
    raft: Any = Raft()
    state = NodeState(lambda: "", lambda: ())
    report = ReplicaReport(1, {}, raft, lambda: 4, lambda group: False, state)
    node.operations = Operations(around, rpc, report)
    return node


def members(node: Any) -> tuple[int, ...]:
    found = node.view.queue("/", "q")
    return tuple(found.members)


def test_replica_goes_and_comes_back(api: Any, cluster: Any) -> None:
    assert api("DELETE", "/api/queues/%2F/q/members/n3") == (204, None)
    assert members(cluster) == (1, 2)
    assert api("DELETE", "/api/queues/%2F/q/members/n3") == (204, None)
    assert api("PUT", "/api/queues/%2F/q/members/n3") == (204, None)
    assert members(cluster) == (1, 2, 3)
    path = "/api/queues/quorum/%2F/q/replicas"
    assert api("DELETE", f"{path}/delete", {"node": "n2"}) == (204, None)
    assert api("POST", f"{path}/add", {"node": "n2"}) == (204, None)
    assert members(cluster) == (1, 3, 2)


def test_replica_without_which_no_majority_runs_stays(refused: Any, cluster: Any) -> None:
    cluster.up = {1, 3}
    reason = refused(400, "DELETE", "/api/queues/%2F/q/members/n3")
    assert "the queue would have no majority" in reason
    assert members(cluster) == (1, 2, 3)
    assert "n9" in refused(404, "PUT", "/api/queues/%2F/q/members/n9")


def test_many_queues_grow_and_shrink(api: Any, cluster: Any) -> None:
    status, rows = api("DELETE", "/api/queues/quorum/replicas/on/n3/shrink")
    assert (status, rows[0]["result"], rows[0]["size"]) == (200, "ok", 2)
    body = {"strategy": "even", "queue_pattern": "^z"}
    assert api("POST", "/api/queues/quorum/replicas/on/n3/grow", body) == (200, [])
    status, rows = api("POST", "/api/queues/quorum/replicas/on/n3/grow", {})
    assert (status, rows[0]["name"], rows[0]["size"]) == (200, "q", 3)


def test_queue_without_a_leader_shows_where_it_should_be(api: Any, cluster: Any) -> None:
    status, found = api("GET", "/api/queues/%2F/q/members")
    assert status == 200
    assert (found["leader"], found["settled"]) == ("", False)
    assert [(row["node"], row["role"]) for row in found["members"]] == [
        ("n1", "missing"),
        ("n2", "missing"),
        ("n3", "missing"),
    ]


def test_node_that_cannot_lead_is_refused(refused: Any, api: Any, cluster: Any) -> None:
    cluster.up = {1, 2}
    path = "/api/queues/%2F/q/leader"
    assert "the node is down" in refused(400, "PUT", path, {"node": "n3"})
    api("POST", "/api/cluster/nodes/n2/drain")
    assert "is being drained" in refused(400, "PUT", path, {"node": "n2"})


def test_node_is_drained_and_revived(api: Any, refused: Any, cluster: Any) -> None:
    status, row = api("POST", "/api/cluster/nodes/n1/drain")
    assert (status, row["being_drained"], row["connections"]) == (200, True, 4)
    assert not row["drained"]
    api("POST", "/api/cluster/nodes/n2/drain")
    assert "no other node would serve" in refused(400, "POST", "/api/cluster/nodes/n3/drain")
    assert api("POST", "/api/cluster/nodes/n1/revive")[1]["being_drained"] is False


def test_node_joins_and_is_forgotten(api: Any, refused: Any, cluster: Any) -> None:
    body = {"id": 4, "name": "n4", "address": "h:4"}
    assert api("POST", "/api/cluster/nodes", body)[1]["running"] is False
    assert "same name" in refused(400, "POST", "/api/cluster/nodes", {**body, "id": 5})
    assert api("DELETE", "/api/cluster/nodes/n4")[1]["forgotten"] is True
    assert "drain it first, or stop it" in refused(400, "DELETE", "/api/cluster/nodes/n3")
    assert "ask another one" in refused(400, "DELETE", "/api/cluster/nodes/n1")
    assert refused(404, "DELETE", "/api/cluster/nodes/n4") == "no node 'n4'"


def test_forgetting_waits_for_replicas_to_leave(
    api: Any, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace_broker.management.resources.cluster.FORGET_SECONDS", 0.0)
    cluster.up = {1, 2}
    status, found = api("DELETE", "/api/cluster/nodes/n3?replicas=shrink")
    assert (status, found) == (202, {"forgotten": False, "replicas": 1, "problems": []})
    queue = cluster.view.queue("/", "q")
    cluster.do(SettleMembers(queue.group, queue.revision, (3,)))
    assert api("DELETE", "/api/cluster/nodes/n3?replicas=shrink")[0] == 200
    assert cluster.view.node(3) is None


def test_changes_are_for_administrators(refused: Any, cluster: Any) -> None:
    for method, path in (
        ("POST", "/api/rebalance/queues"),
        ("POST", "/api/cluster/nodes/n2/drain"),
        ("DELETE", "/api/cluster/nodes/n2"),
        ("PUT", "/api/queues/%2F/q/members/n2"),
    ):
        refused(403, method, path, user="mon")


def test_replicas_are_looked_for_by_the_names_of_their_nodes(api, cluster):
    path = "/api/queues/quorum/%2F/q/status?page=1&name="
    assert [row["node"] for row in api("GET", path + "N2")[1]["items"]] == ["n2"]
    assert api("GET", path + "x")[1]["items"] == []


def test_cluster_version_waits_for_a_node_that_has_said_nothing(api: Any, cluster: Any) -> None:
    status, found = api("GET", "/api/cluster/version")
    assert (status, found["version"], found["newest"]) == (200, 1, CLUSTER_VERSION)
    assert [node["known"] for node in found["nodes"]][1:] == [None, None]
    assert "has not said which release it runs" in found["problem"]


def test_cluster_version_is_raised_once_all_nodes_know_it(api: Any, cluster: Any) -> None:
    for node in (1, 2, 3):
        cluster.do(AnnounceNode(node, MACHINE_VERSION, catalog_version=CATALOG_VERSION))
    _, found = api("GET", "/api/cluster/version")
    assert {node["known"] for node in found["nodes"]} == {CLUSTER_VERSION}
    assert found["problem"] == ""
    for _ in range(2):  # once it is there already
        status, found = api("POST", "/api/cluster/version/raise")
        assert (status, found["version"]) == (200, CLUSTER_VERSION)
