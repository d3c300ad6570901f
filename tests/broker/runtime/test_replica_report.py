"""What a node tells of the replicas that it has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headrace_broker.model.definition import QUEUE_CLASSIC, QUEUE_QUORUM, Queue
from headrace_broker.model.status import MemberStatus
from headrace_broker.runtime.inquiry import Replicas
from headrace_broker.runtime.replica_report import ReplicaReport
from headrace_raftlog.model.membership import Membership
from headrace_raftlog.node.queries import MemberProgress


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


def test_a_queue_that_lives_in_memory_has_no_replicas_to_tell_of():
    queues = (
        Queue("/", "q", QUEUE_QUORUM, 1, (1,)),
        Queue("/", "m", QUEUE_CLASSIC, 2, (1,), durable=False),
    )
    hosts: Any = {queue.group: SimpleNamespace(queue=queue) for queue in queues}
    report = ReplicaReport(1, hosts, FakeRaft(), lambda: 0)
    assert list(report.rows(Replicas(2))) == []
    assert list(report.rows(Replicas(3))) == []
    [found] = report.rows(Replicas(1))
    assert isinstance(found, MemberStatus)
    assert (found.node, found.match, found.lag) == (1, 7, 0)
