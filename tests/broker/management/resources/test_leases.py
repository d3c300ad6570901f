"""/api/queues/V/Q/lease-groups."""

from __future__ import annotations

import pytest

from headrace_broker.catalog.command import DeclareQueue, PutPermission
from headrace_broker.model.definition import Permission
from headrace_broker.model.status import LeaseGroupStatus

PATH = "/api/queues/%2F/work/lease-groups"


@pytest.fixture
def leased(node):
    """A queue with two groups, and another one."""
    node.do(DeclareQueue("/", "work", "quorum"))
    node.do(DeclareQueue("/", "rest", "quorum"))
    node.leases.groups = [
        LeaseGroupStatus("/", "work", "a job", "n2", 3, 8, 5, 1700, 2, 900, 9000),
        LeaseGroupStatus("/", "work", "b", "n2", 1, 1, 0, 0, 0, 0, 0),
        LeaseGroupStatus("/", "rest", "a job", "n2", 1, 1, 0, 0, 0, 0, 0),
    ]
    return node


def test_groups_of_a_queue_are_listed(api, leased):
    status, rows = api("GET", PATH)
    assert status == 200
    assert [row["name"] for row in rows] == ["a job", "b"]
    assert rows[0] == {
        "vhost": "/",
        "queue": "work",
        "name": "a job",
        "node": "n2",
        "epoch": 3,
        "next_lease": 8,
        "settled": 5,
        "deadline_ms": 1700,
        "leases": 2,
        "messages": 900,
        "byte_count": 9000,
    }
    assert api("GET", "/api/queues/%2F/none/lease-groups")[0] == 404


def test_group_is_closed(api, leased):
    assert api("DELETE", PATH + "/a%20job") == (204, None)
    assert leased.leases.closed == [("work", "a job")]
    assert api("DELETE", PATH + "/c")[0] == 404
    assert api("DELETE", "/api/queues/%2F/none/lease-groups/a")[0] == 404


def test_who_may_not_read_the_queue_closes_none(api, leased, refused):
    leased.do(PutPermission(Permission("guest", "/", ".*", ".*", "^rest$")))
    refused(403, "DELETE", PATH + "/b")
    assert leased.leases.closed == []
