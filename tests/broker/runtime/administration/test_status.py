"""Status of a node, its cluster and its queues."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.command import encode_request
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.request import Request
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.management.view.rendering import render_nodes
from headrace_broker.model.definition import Node, User
from headrace_broker.model.status import ReplicaStatus
from headrace_broker.runtime.administration.status import NodeStatusSource
from headrace_broker.runtime.alarm.alarms import AlarmBoard
from headrace_broker.runtime.cluster.cluster_clock import ClusterClock
from headrace_broker.runtime.cluster.steady_clock import SteadyClock
from headrace_broker.runtime.contract.traffic import Traffic
from headrace_broker.runtime.metrics.stats import local_totals
from headrace_raftlog.model.membership import Membership

NODES = tuple(Node(number, f"n{number}", f"h:{number}") for number in (1, 2, 3))
RENEWED = 0xAB << 10 | 3  # node 3 on another disk


class Raft:
    """The replicated logs of node 1."""

    def __init__(self) -> None:
        self.boot = 4
        self.is_formed = True
        self.missing_nodes: tuple[int, ...] = ()
        self.memberships: dict[int, Membership] = {}
        self.refused: dict[int, str] = {}
        self.leaders: dict[int, int] = {0: 2}
        self.disk_stalled = False
        self.waits_for_data = False
        self.lost: tuple[int, ...] = ()
        self.unadmitted = False

    def lost_voters(self, group: int) -> tuple[int, ...]:
        return self.lost

    def is_unadmitted(self, group: int) -> bool:
        return self.unadmitted

    def leader(self, group: int) -> int:
        return self.leaders.get(group, 0)

    def refusals(self) -> dict[int, str]:
        return self.refused

    def members(self, group: int) -> Membership:
        return self.memberships[group]

    def snapshot_index(self, group: int) -> int:
        return 40 + group


class World:
    """Node 1 of three, as far as its status goes."""

    def __init__(self, shards: int = 1) -> None:
        self.raft = Raft()
        self.catalog = Catalog()
        self.do(commands.Bootstrap(NODES, "/", User("guest", b"s", b"h")))
        cluster = SimpleNamespace(name="test")
        self.hosts: dict[int, Any] = {}
        self.peers_up = {2: 7, 3: 0}
        self.names = {each.id: each.name for each in NODES}
        self.maintenance = SimpleNamespace(on=False, contested="")
        self.alarms = AlarmBoard(1, self.names, lambda: 1, lambda peer, payload: True)
        node: Any = SimpleNamespace(
            raft=self.raft,
            catalog=SimpleNamespace(catalog=self.catalog),
            config=SimpleNamespace(
                node=SimpleNamespace(id=1, name="n1", shards=shards), cluster=cluster
            ),
            nodes_up=lambda: frozenset(
                [1, *(peer for peer, boot in self.peers_up.items() if boot)]
            ),
            hosting=SimpleNamespace(hosts=self.hosts, traffic=Traffic()),
            broker=SimpleNamespace(connections={}),
            peers_up=self.peers_up,
            alarms=self.alarms,
            clocks=ClusterClock(SteadyClock(), 1, {1: "n1"}),
            names=self.names,
            directory=SimpleNamespace(nodes=self.catalog.nodes),
            maintenance=self.maintenance,
            removed=False,
        )
        self.node = node
        self.status = NodeStatusSource(node)

    def do(self, command: Any) -> Any:
        index = self.catalog.applied_index + 1
        return self.catalog.apply(index, encode_request(Request(1, 1, index), command))[0]

    def declare(self, name: str, **more: Any) -> Any:
        queue = self.do(commands.DeclareQueue("/", name, "quorum", replicas=3, **more)).value
        self.hosts[queue.group] = SimpleNamespace(machine=QueueMachine(), serving=False)
        return queue


@pytest.fixture
def world() -> World:
    return World()


class Untouchable(dict[int, Any]):
    """Queues at which nobody may look."""

    def values(self) -> Any:
        raise AssertionError("10,000 queues are not for every second")


def test_what_a_node_is_asked_for_often_looks_at_no_queue(world: World) -> None:
    world.declare("one")
    world.node.hosting.hosts = Untouchable(world.hosts)
    assert world.status.overview().cluster_name == "test"
    with pytest.raises(AssertionError, match="every second"):
        local_totals(world.node)


def test_totals_are_those_of_led_queues(world: World) -> None:
    led, other = world.declare("led"), world.declare("other")
    machine = SimpleNamespace(
        consumer_count=1, ready_count=2, unsettled_count=3, delayed_count=4, dead_count=5
    )
    world.hosts[led.group] = SimpleNamespace(machine=machine, serving=True)
    world.hosts[other.group] = SimpleNamespace(machine=machine, serving=False)
    objects, held = local_totals(world.node)
    assert (objects.consumers, objects.queues) == (1, 2)
    assert (held.ready, held.unsettled) == (2, 3)
    assert (held.delayed, held.dead) == (4, 5)


def test_new_node_names_those_whom_it_waits_for(world: World) -> None:
    world.raft.is_formed = False
    world.raft.missing_nodes = (2, 3)
    assert "the node is new and waits for n2, n3:" in world.status.not_ready_reason()
    world.raft.missing_nodes = ()
    assert "waits for the others to take it in:" in world.status.not_ready_reason()


def test_formed_node_waits_for_the_catalog(world: World) -> None:
    assert "has not joined the cluster" in world.status.not_ready_reason()
    world.status.accepting = True
    assert world.status.not_ready_reason() == ""
    assert world.status.closed_reason() == ""
    world.raft.leaders.clear()
    assert "no leader" in world.status.not_ready_reason()


@pytest.mark.parametrize("accepting", [False, True])
def test_node_whose_fellow_voters_lost_their_disks_does_not_blame_nodes_that_run(
    world: World, accepting: bool
) -> None:
    world.status.accepting = accepting
    world.raft.leaders.clear()
    assert "too few nodes are running" in world.status.not_ready_reason()
    world.raft.lost = (2, 3)
    reason = world.status.not_ready_reason()
    assert "votes are gone for good: n2, n3 run without the disks" in reason
    assert "'Most disks lost' in docs/clustering.md" in reason
    assert "too few" not in reason


def test_node_without_data_points_to_those_that_kept_theirs(world: World) -> None:
    world.raft.leaders.clear()
    world.raft.unadmitted = True
    assert "those that kept their data say why" in world.status.not_ready_reason()
    world.raft.is_formed = False
    world.raft.waits_for_data = True
    assert "waits for one that still has the cluster's data" in world.status.not_ready_reason()


def test_node_of_a_second_cluster_is_not_ready_and_says_what_to_do(world: World) -> None:
    world.status.accepting = True
    world.maintenance.on, world.maintenance.contested = True, "cluster 'c' was founded twice"
    assert world.status.not_ready_reason().endswith("cluster 'c' was founded twice")
    assert world.status.closed_reason()


def test_node_whose_disk_hangs_says_so_and_serves_who_is_there(world: World) -> None:
    world.status.accepting = True
    world.raft.disk_stalled = True
    assert "the disk of the node hangs" in world.status.not_ready_reason()
    assert world.status.closed_reason() == ""


def test_node_that_is_drained_is_closed_and_says_so(world: World) -> None:
    world.status.accepting = True
    world.maintenance.on = True
    assert "is being drained" in world.status.not_ready_reason()
    assert "is being drained" in world.status.closed_reason()


def test_node_that_nobody_talks_to_says_why(world: World) -> None:
    world.raft.refused = {2: "node 1 was removed from cluster 'test'"}
    expected = "refused by n2: node 1 was removed from cluster 'test'"
    assert world.status.not_ready_reason() == expected
    world.status.accepting = True
    assert world.status.not_ready_reason() == ""


def test_node_that_was_removed_says_so(world: World) -> None:
    world.status.accepting = True
    world.node.removed = True
    assert "was removed from the cluster" in world.status.not_ready_reason()


def test_node_that_replaces_its_lost_member_shows_both(world: World) -> None:
    world.raft.memberships[0] = Membership((1, 2, 3), (RENEWED,))
    first, _, third = world.status.overview().nodes
    assert first.catalog == (ReplicaStatus("n1", "1", "voter"),)
    assert third.catalog == (
        ReplicaStatus("n3", "3", "voter"),
        ReplicaStatus("n3", "3.ab", "learner"),
    )
    world.raft.memberships[0] = Membership((1, 2, RENEWED), (), (1, 2, 3))
    assert [each.role for each in world.status.overview().nodes[2].catalog] == ["leaving", "voter"]


def test_node_without_the_catalog_shows_no_members(world: World) -> None:
    assert [node.catalog for node in world.status.overview().nodes] == [(), (), ()]


def test_queue_shows_its_members_and_how_far_its_snapshot_reaches(world: World) -> None:
    queue = world.declare("q")
    world.raft.memberships[queue.group] = Membership((1, 2), (RENEWED,))
    status: Any = world.status.queue("/", "q")
    assert status.replicas == (
        ReplicaStatus("n1", "1", "voter"),
        ReplicaStatus("n2", "2", "voter"),
        ReplicaStatus("n3", "3.ab", "learner"),
    )
    assert status.snapshot_index == 40 + queue.group


def test_queue_that_is_elsewhere_shows_no_members(world: World) -> None:
    queue = world.declare("q")
    del world.hosts[queue.group]
    status: Any = world.status.queue("/", "q")
    assert (status.counts, status.replicas, status.snapshot_index) == (None, None, None)


def test_memory_and_disk_of_a_node_are_told_as_it_reported_them(world: World) -> None:
    own = world.alarms.own
    own.memory_used, own.memory_limit, own.memory_total, own.memory_stage = 7, 6, 10, 2
    own.disk_free, own.disk_limit, own.disk_alarm = 5, 4, False
    first, second, _ = world.status.overview().nodes
    assert second.resources is None
    rendered = render_nodes([first, second])
    assert "resources" not in rendered[0] | rendered[1]
    assert {
        name: rendered[0][name] for name in rendered[0] if name.startswith(("mem_", "disk_"))
    } == {
        "mem_used": 7,
        "mem_limit": 6,
        "mem_total": 10,
        "mem_stage": 2,
        "mem_alarm": True,
        "disk_free": 5,
        "disk_free_limit": 4,
        "disk_free_alarm": False,
    }


def test_a_node_is_ready_when_all_its_processes_are_heard() -> None:
    world = World(shards=2)
    world.status.accepting = True
    reason = "of the node's processes, n1:1 is not heard"
    assert world.status.not_ready_reason().startswith(reason), "it has yet to join"
    world.do(commands.AdmitNode(Node(65, "n1:1", "127.0.0.1:7165", disk=65)))
    world.names[65] = "n1:1"
    world.peers_up[65] = 0
    assert world.status.not_ready_reason().startswith(reason)
    world.peers_up[65] = 3
    assert world.status.not_ready_reason() == ""
    del world.peers_up[65], world.names[65]
    world.do(commands.ForgetNode(65))
    assert world.status.not_ready_reason() == "", "it is not to come back"


def test_a_node_is_critical_with_all_its_processes() -> None:
    world = World(shards=2)
    world.peers_up = world.node.peers_up = {2: 7, 3: 0, 65: 3}
    world.do(commands.AdmitNode(Node(65, "n1:1", "127.0.0.1:7165", disk=65)))
    queue = world.declare("q")
    elsewhere = commands.SetMembers("/", "q", queue.group, (65,), (1,))
    world.do(elsewhere)
    assert world.status.critical_queues() == [("/", "q")], "another process of the node has it"
    world.peers_up[3] = 9
    assert world.status.critical_queues() == []
    world.peers_up = world.node.peers_up = {65: 3}
    assert world.status.critical_queues() is None, "it has no other node"
