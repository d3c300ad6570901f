"""/api/queues/V/Q/archive."""

from __future__ import annotations

import pytest

from headrace_broker.catalog.command import DeclareQueue, PutPermission
from headrace_broker.model.archive import ArchiveGroupStatus, ArchiveStatus
from headrace_broker.model.definition import Permission

PATH = "/api/queues/%2F/work/archive"


@pytest.fixture
def archived(node):
    """A queue with an archive that two groups read, and one without."""
    node.do(DeclareQueue("/", "work", "quorum"))
    node.do(DeclareQueue("/", "rest", "quorum"))
    groups = [ArchiveGroupStatus("a job", 3, 14, 1700, 6), ArchiveGroupStatus("b", 1, 20, 0, 0)]
    node.archives.found["work"] = ArchiveStatus(
        "/", "work", 7, "n2", 2, 1600, 12, 20, 9000, 1650, 1690, groups
    )
    return node


def test_archive_of_a_queue_is_shown_with_who_reads_it(api, archived):
    status, body = api("GET", PATH)
    assert status == 200
    assert body == {
        "vhost": "/",
        "queue": "work",
        "node": "n2",
        "archive": "full",
        "shard": "7",
        "messages": 8,
        "message_bytes": 9000,
        "first_index": 12,
        "next_index": 20,
        "since_ms": 1600,
        "first_settled_ms": 1650,
        "last_settled_ms": 1690,
        "groups": [
            {"name": "a job", "epoch": 3, "committed": 14, "committed_ms": 1700, "lag": 6},
            {"name": "b", "epoch": 1, "committed": 20, "committed_ms": 0, "lag": 0},
        ],
    }
    assert api("GET", "/api/queues/%2F/rest/archive")[0] == 404
    assert api("GET", "/api/queues/%2F/none/archive")[0] == 404


def test_group_that_reads_is_closed(api, archived):
    assert api("DELETE", PATH + "/groups/a%20job") == (204, None)
    assert archived.archives.closed == [("work", "a job")]
    assert api("DELETE", PATH + "/groups/c")[0] == 404
    assert api("DELETE", "/api/queues/%2F/none/archive/groups/a")[0] == 404


def test_who_may_not_read_the_queue_closes_no_group(api, archived, refused):
    archived.do(PutPermission(Permission("guest", "/", ".*", ".*", "^rest$")))
    refused(403, "DELETE", PATH + "/groups/b")
    assert archived.archives.closed == []
