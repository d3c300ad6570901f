"""Report of a node on its replicas."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headrace_broker.model.definition import QUEUE_CLASSIC, QUEUE_QUORUM, Queue
from headrace_broker.model.limits import BALANCE_HAND_SECONDS
from headrace_broker.model.status import LedQueue, MemberStatus
from headrace_broker.runtime.hosting.replica_report import NodeState, ReplicaReport
from headrace_broker.runtime.rpc.question import Leads, Replicas, Transfer
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.node.queries import MemberProgress

STATE = NodeState(lambda: "", lambda: ())


class FakeRaft:
    """Leads group 1, and knows no other."""

    def progress(self, group: int) -> list[MemberProgress]:
        self.last_index(group)
        return [MemberProgress(1, "voter", 7, True, False)]

    def last_index(self, group: int) -> int:
        return {1: 7}[group]

    def transfer(self, group: int, node: int) -> bool:
        return False

    def members(self, group: int) -> Membership:
        return Membership((1,))

    def led(self) -> list[int]:
        return [1]


def test_a_queue_whose_leader_was_chosen_by_hand_stays_for_a_while():
    queue = Queue("/", "q", QUEUE_QUORUM, 1, (1,))
    hosts: Any = {1: SimpleNamespace(queue=queue)}
    now = 0.0
    state = NodeState(lambda: "its memory is scarce", lambda: (3,), lambda: now)
    report = ReplicaReport(1, hosts, FakeRaft(), lambda: 0, lambda group: group == 1, state)

    def chosen() -> bool:
        [row] = report.rows(Leads())
        assert isinstance(row, LedQueue)
        assert row.busy
        return row.chosen

    assert not report.transfer(Transfer(1, 1))
    assert not chosen()
    assert not report.transfer(Transfer(1, 1, by_hand=True))
    assert chosen()
    now = BALANCE_HAND_SECONDS
    assert not chosen()
    report.transfer(Transfer(1, 1, by_hand=True))
    report.transfer(Transfer(1, 2, by_hand=True))  # and it goes on to another node
    assert not chosen()
    load = report.load()
    assert (load.unfit, load.unheard) == ("its memory is scarce", (3,))


class ThreeReplicas(FakeRaft):
    """Leads groups 1 to 4 on node 1, with replicas on nodes 2 and 3; that of 3 lags in group 2."""

    def progress(self, group: int) -> list[MemberProgress]:
        last = 0 if group == 2 else 7000
        return [
            MemberProgress(1, "voter", 7000, True, False),
            MemberProgress(2, "voter", 7000, True, False),
            MemberProgress(3, "voter", last, True, False),
        ]

    def last_index(self, group: int) -> int:
        return 7000

    def led(self) -> list[int]:
        return [1, 2, 3, 4]


def test_only_queues_that_could_be_handed_over_are_told_of_where_targets_are_named():
    queues = (Queue("/", f"q{group}", QUEUE_QUORUM, group, (1, 2, 3)) for group in (1, 2, 3, 4))
    hosts: Any = {queue.group: SimpleNamespace(queue=queue) for queue in queues}
    report = ReplicaReport(1, hosts, ThreeReplicas(), lambda: 0, lambda group: group == 4, STATE)
    report.transfer(Transfer(3, 1, by_hand=True))

    def found(question: Leads) -> list[int]:
        return [row.group for row in report.rows(question) if isinstance(row, LedQueue)]

    assert found(Leads()) == [1, 2, 3, 4]
    assert found(Leads(targets=(3, 9))) == [1, 4]
    assert found(Leads(targets=(2,))) == [1, 2, 4]
    assert found(Leads(targets=(2,), busy=False)) == [1, 2]
    assert found(Leads(busy=True)) == [4]
    assert found(Leads(targets=(9,))) == []


def test_a_queue_that_lives_in_memory_has_no_replicas_to_tell_of():
    queues = (
        Queue("/", "q", QUEUE_QUORUM, 1, (1,)),
        Queue("/", "m", QUEUE_CLASSIC, 2, (1,), durable=False),
    )
    hosts: Any = {queue.group: SimpleNamespace(queue=queue) for queue in queues}
    report = ReplicaReport(1, hosts, FakeRaft(), lambda: 0, lambda group: False, STATE)
    assert list(report.rows(Replicas(2))) == []
    assert list(report.rows(Replicas(3))) == []
    [found] = report.rows(Replicas(1))
    assert isinstance(found, MemberStatus)
    assert (found.node, found.match, found.lag) == (1, 7, 0)
