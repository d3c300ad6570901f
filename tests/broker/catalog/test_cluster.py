"""Nodes join, are drained and are forgotten; queues move between them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.event import NodeAdded, NodeRemoved, QueueChanged, QueueRemoved
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.result import Exists, NotFound, Ok, Refused
from headrace_broker.catalog.store import SNAPSHOT_VERSION, SNAPSHOT_VERSION_PLAIN
from headrace_broker.catalog.version import ZONES
from headrace_broker.model.definition import Node, Queue
from headrace_broker.model.limits import FORGOTTEN_NODES_MAX, NODES_MAX, REPLICAS_MAX

FOURTH = Node(4, "n4", "h:4", disk=44)


def refusal(result: Any) -> str:
    assert isinstance(result, Refused), result
    return str(result.reason)


def admit(driver: Any, number: int) -> Node:
    node = Node(number, f"n{number}", f"h:{number}", disk=number * 11)
    assert driver.do(commands.AdmitNode(node)) == Ok(node)
    return node


def move(driver: Any, queue: Queue, add: tuple[int, ...], remove: tuple[int, ...] = ()) -> Queue:
    result = driver.do(commands.SetMembers("/", queue.name, queue.group, add, remove))
    assert isinstance(result, Ok), result
    assert driver.events == [QueueChanged(result.value)]
    moved = result.value
    assert driver.catalog.queue("/", queue.name) is moved
    assert isinstance(moved, Queue)
    return moved


class TestAdmit:
    def test_new_node_is_added(self, driver: Any) -> None:
        assert driver.do(commands.AdmitNode(FOURTH)) == Ok(FOURTH)
        assert driver.events == [NodeAdded(FOURTH)]
        assert driver.catalog.node_named("n4") == FOURTH
        assert driver.do(commands.AdmitNode(FOURTH)) == Exists(FOURTH)

    def test_known_node_is_as_it_says_and_keeps_what_it_does_not(self, driver: Any) -> None:
        driver.do(commands.AnnounceNode(3, 7))
        driver.do(commands.SetMaintenance(3, True))
        driver.do(commands.AdmitNode(Node(3, "third", "elsewhere:3", disk=5)))
        assert driver.catalog.node(3) == Node(3, "third", "elsewhere:3", 7, True, 5)

    @pytest.mark.parametrize(
        ("node", "reason"),
        [
            (Node(0, "n0", "h:0"), "node id 0 is not within 1 to 1023"),
            (Node(4, "", "h:4"), "node name"),
            (Node(4, "n1", "h:4"), "two nodes have the same name"),
            (Node(4, "n4", "127.0.0.1:7001"), "node 'n4' and node 'n1' have the same address"),
        ],
    )
    def test_node_that_cannot_be_is_refused(self, driver: Any, node: Node, reason: str) -> None:
        assert reason.split()[0] in refusal(driver.do(commands.AdmitNode(node)))
        assert driver.catalog.node(4) is None

    def test_cluster_has_room_for_so_many(self, driver: Any) -> None:
        for number in range(4, NODES_MAX + 1):
            admit(driver, number)
        last = Node(NODES_MAX + 1, "last", "h:99")
        assert f"the cluster has {NODES_MAX} nodes" in refusal(driver.do(commands.AdmitNode(last)))


class TestForget:
    def test_node_without_replicas_goes_and_its_disk_does_not_come_back(self, driver: Any) -> None:
        driver.do(commands.AdmitNode(FOURTH))
        assert driver.do(commands.ForgetNode(4)) == Ok(FOURTH)
        assert driver.events == [NodeRemoved(FOURTH)]
        assert driver.catalog.node(4) is None
        assert driver.catalog.forgotten() == [(4, 44)]
        assert "was removed from the cluster" in refusal(driver.do(commands.AdmitNode(FOURTH)))
        anew = Node(4, "n4", "h:4", disk=45)
        assert driver.do(commands.AdmitNode(anew)) == Ok(anew)
        assert driver.catalog.forgotten() == [(4, 44)]

    def test_node_whose_disk_nobody_knows_is_not_remembered(self, driver: Any) -> None:
        driver.do(commands.ForgetNode(3))
        assert driver.catalog.forgotten() == []

    def test_forgotten_disks_survive_a_snapshot_and_are_bounded(self, driver: Any) -> None:
        assert b"version" in driver.catalog.snapshot()
        before = Catalog.restore(driver.catalog.snapshot())
        assert before.forgotten() == []
        for disk in range(1, FORGOTTEN_NODES_MAX + 3):
            driver.do(commands.AdmitNode(Node(4, "n4", "h:4", disk=disk)))
            driver.do(commands.ForgetNode(4))
        found = driver.catalog.forgotten()
        assert found[0] == (4, 3)
        assert len(found) == FORGOTTEN_NODES_MAX
        again = Catalog.restore(driver.catalog.snapshot())
        assert again.forgotten() == found
        assert again.digest() == driver.catalog.digest()
        assert SNAPSHOT_VERSION > SNAPSHOT_VERSION_PLAIN

    def test_id_of_a_node_without_a_known_disk_is_given_anew_by_hand(self, driver: Any) -> None:
        driver.do(commands.AdmitNode(Node(4, "n4", "h:4")))
        assert isinstance(driver.do(commands.ForgetNode(4, bars_unknown=True)), Ok)
        assert driver.catalog.forgotten() == [(4, 0)]
        answer = refusal(driver.do(commands.AdmitNode(Node(4, "n4", "h:4", disk=7))))
        assert answer.startswith("node 4 was removed from the cluster before it had said")
        assert isinstance(driver.do(commands.AdmitNode(Node(4, "m4", "h:4"))), Ok)
        assert driver.catalog.forgotten() == []
        assert isinstance(driver.do(commands.AdmitNode(Node(4, "m4", "h:4", disk=7))), Ok)
        driver.do(commands.AnnounceNode(4, 1, 7))
        driver.do(commands.ForgetNode(4, bars_unknown=True))
        assert driver.catalog.forgotten() == [(4, 7)]

    def test_entry_of_an_earlier_release_bars_no_unknown_disk(self, driver: Any) -> None:
        driver.do(commands.AdmitNode(Node(4, "n4", "h:4")))
        driver.do(commands.ForgetNode(4))
        assert driver.catalog.forgotten() == []
        assert isinstance(driver.do(commands.AdmitNode(Node(4, "n4", "h:4", disk=7))), Ok)

    def test_node_with_replicas_stays(self, driver: Any) -> None:
        queue = driver.queue("q", "quorum", replicas=3)
        assert (
            refusal(driver.do(commands.ForgetNode(3)))
            == "node 'n3' has replicas of 1 queues, for instance queue 'q' in vhost '/': move them "
            "off it first"
        )
        moved = move(driver, queue, (), (3,))
        assert "has replicas of 1 queues" in refusal(driver.do(commands.ForgetNode(3)))
        driver.do(commands.SettleMembers(queue.group, moved.revision, (3,)))
        assert isinstance(driver.do(commands.ForgetNode(3)), Ok)

    def test_queues_in_its_memory_go_with_it(self, driver: Any) -> None:
        queue = driver.queue("q", durable=False, preferred_node=3)
        assert queue.members == (3,)
        assert isinstance(driver.do(commands.ForgetNode(3)), Ok)
        assert [type(event) for event in driver.events] == [QueueRemoved, NodeRemoved]
        assert driver.catalog.queues() == []

    def test_last_node_stays_and_unknown_ones_are_none(self, driver: Any) -> None:
        assert driver.do(commands.ForgetNode(9)) == NotFound("node 9")
        driver.do(commands.ForgetNode(3))
        driver.do(commands.ForgetNode(2))
        assert refusal(driver.do(commands.ForgetNode(1))) == "node 'n1' is the last one"


class TestMaintenance:
    def test_drained_node_is_told_so_once(self, driver: Any) -> None:
        drained = Node(2, "n2", "127.0.0.1:7002", maintenance=True)
        assert driver.do(commands.SetMaintenance(2, True)) == Ok(drained)
        assert driver.events == [NodeAdded(drained)]
        assert driver.do(commands.SetMaintenance(2, True)) == Exists(drained)
        assert driver.do(commands.SetMaintenance(9, True)) == NotFound("node 9")
        driver.do(commands.DeclareNodes((Node(2, "n2", "elsewhere:2"),)))
        assert driver.catalog.node(2).maintenance

    def test_new_queues_avoid_it(self, driver: Any) -> None:
        admit(driver, 4)
        driver.do(commands.SetMaintenance(1, True))
        assert driver.queue("a", "quorum", replicas=3, preferred_node=1).members == (2, 3, 4)
        assert driver.queue("b", "quorum", replicas=3).members[0] != 1
        assert driver.queue("c", "quorum", replicas=5).members[-1] == 1
        assert driver.queue("d", durable=False, preferred_node=1).members == (1,)


class TestMembers:
    def test_replica_is_added_and_removed_and_leaves_when_it_may(self, driver: Any) -> None:
        admit(driver, 4)
        queue = driver.queue("q", "quorum", replicas=3, preferred_node=1)
        grown = move(driver, queue, (4,))
        assert (grown.members, grown.leaving, grown.revision) == ((1, 2, 3, 4), (), 1)
        assert grown.founders == queue.founders
        moved = move(driver, grown, (), (1, 2))
        assert (moved.members, moved.leaving, moved.revision) == ((3, 4), (1, 2), 2)
        assert [driver.catalog.replica_count(node) for node in (1, 2, 3, 4)] == [1, 1, 1, 1]
        assert driver.catalog.first_lead_count(3) == 1
        result = driver.do(commands.SettleMembers(queue.group, 2, (1, 9)))
        assert result.value.leaving == (2,)
        assert driver.events == [QueueChanged(result.value)]
        assert driver.catalog.replica_count(1) == 0

    def test_replica_that_is_wanted_again_leaves_no_more(self, driver: Any) -> None:
        queue = driver.queue("q", "quorum", replicas=3)
        first = queue.members[0]
        gone = move(driver, queue, (), (first,))
        back = move(driver, gone, (first,))
        assert back.leaving == ()
        stale = commands.SettleMembers(queue.group, gone.revision, (first,))
        assert driver.do(stale) == Exists(back)

    def test_what_is_so_already_changes_nothing(self, driver: Any) -> None:
        queue = driver.queue("q", "quorum", replicas=2)
        away = next(node for node in (1, 2, 3) if node not in queue.members)
        command = commands.SetMembers("/", "q", queue.group, queue.members, (away,))
        assert driver.do(command) == Exists(queue)

    def test_queue_declared_anew_is_another_one(self, driver: Any) -> None:
        queue = driver.queue("q", "quorum", replicas=1)
        stale = commands.SetMembers("/", "q", queue.group + 1, (2,))
        assert driver.do(stale) == NotFound("queue 'q' in vhost '/'")
        assert isinstance(driver.do(commands.SettleMembers(99, 1, (1,))), NotFound)
        nowhere = commands.SetMembers("/", "q", queue.group, (9,))
        assert driver.do(nowhere) == NotFound("node 9")

    def test_single_replica_can_be_replaced_and_not_removed(self, driver: Any) -> None:
        queue = driver.queue("q", preferred_node=1)
        alone = commands.SetMembers("/", "q", queue.group, (), (1,))
        assert "would lose its last replica" in refusal(driver.do(alone))
        more = commands.SetMembers("/", "q", queue.group, (2,))
        assert "is of type 'classic' and has one replica" in refusal(driver.do(more))
        assert move(driver, queue, (2,), (1,)).members == (2,)

    def test_queue_in_memory_stays_where_it_is(self, driver: Any) -> None:
        queue = driver.queue("q", durable=False, preferred_node=1)
        command = commands.SetMembers("/", "q", queue.group, (2,), (1,))
        assert "lives in the memory of its node" in refusal(driver.do(command))

    def test_no_two_replicas_are_in_processes_of_one_node(self, driver: Any) -> None:
        assert isinstance(driver.do(commands.AdmitNode(Node(66, "n2:1", "h:66", disk=66))), Ok)
        queue = driver.queue("q", "quorum", replicas=3)
        command = commands.SetMembers("/", "q", queue.group, (66,))
        later = msgspec.structs.replace(command, version=ZONES)
        assert "in two processes of one node" in refusal(driver.do(later))
        swap = msgspec.structs.replace(later, remove=(2,))
        assert driver.do(swap).value.members == (1, 3, 66)
        assert isinstance(driver.do(msgspec.structs.replace(command, add=(2,))), Ok), "as before"

    def test_replicas_are_bounded(self, driver: Any) -> None:
        for number in range(4, REPLICAS_MAX + 2):
            admit(driver, number)
        queue = driver.queue("q", "quorum", replicas=REPLICAS_MAX)
        spare = next(n for n in range(1, REPLICAS_MAX + 2) if n not in queue.members)
        command = commands.SetMembers("/", "q", queue.group, (spare,))
        assert f"more than {REPLICAS_MAX}" in refusal(driver.do(command))
