"""/api/vhosts and /api/vhost-limits."""

from __future__ import annotations

import pytest

from headrace_broker.catalog.command import PutPermission, PutVhost
from headrace_broker.model.definition import Permission, Vhost
from headrace_broker.model.stats import VhostStats


def test_a_vhost_is_created_changed_shown_and_deleted(api, node):
    assert api("PUT", "/api/vhosts/a%2Fb") == (201, None)
    body = {"description": "for tests", "tags": "x, y", "default_queue_type": "classic"}
    assert api("PUT", "/api/vhosts/a%2Fb", body) == (204, None)
    assert api("PUT", "/api/vhosts/a%2Fb") == (204, None)  # changes nothing
    status, shown = api("GET", "/api/vhosts/a%2Fb")
    assert status == 200
    assert (shown["name"], shown["description"], shown["tags"]) == ("a/b", "for tests", ["x", "y"])
    assert shown["metadata"]["default_queue_type"] == "classic"
    assert node.view.permission("guest", "a/b") is not None
    api("PUT", "/api/vhosts/a%2Fb", {"default_queue_type": "undefined", "tags": []})
    shown = api("GET", "/api/vhosts/a%2Fb")[1]
    assert (shown["tags"], shown["default_queue_type"]) == ([], "undefined")
    assert [vhost["name"] for vhost in api("GET", "/api/vhosts")[1]] == ["/", "a/b"]
    assert api("DELETE", "/api/vhosts/a%2Fb") == (204, None)
    assert api("GET", "/api/vhosts/a%2Fb") == (
        404,
        {"error": "not_found", "reason": "no vhost 'a/b'"},
    )
    assert api("DELETE", "/api/vhosts/a%2Fb")[0] == 404


def test_a_vhost_that_was_just_created_elsewhere_is_found(api, node):
    node.behind.append(PutVhost(Vhost("late")))
    assert api("GET", "/api/vhosts/late")[0] == 200


def test_without_a_quorum_changes_are_unavailable_and_lists_are_not(api, node, refused):
    node.lost = True
    assert "no quorum" in refused(503, "GET", "/api/vhosts/late")
    assert api("GET", "/api/vhosts")[0] == 200


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"default_queue_type": "stream"}, "default_queue_type: 'stream' is not 'quorum' or 'clas"),
        ({"description": 1}, "description: expected `str | null`, got `int`"),
        ({"tags": {}}, "tags: expected `str | array | null`, got `object`"),
        ([], "body: must be a JSON object"),
    ],
)
def test_a_bad_vhost_is_refused_by_field_and_rule(refused, body, reason):
    assert refused(400, "PUT", "/api/vhosts/v", body).startswith(reason)


def test_a_body_that_is_no_json_or_too_large_is_refused(refused):
    assert refused(400, "PUT", "/api/vhosts/v", data=b"{").startswith("body: is not JSON: ")
    assert refused(400, "PUT", "/api/vhosts/v", data=b'"\xff"').startswith("body: is not JSON: ")
    assert refused(400, "PUT", "/api/vhosts/v", data=b"[" * 60_000).startswith("body: is not JSON")
    reason = refused(413, "PUT", "/api/vhosts/v", data=b" " * 70_000)
    assert reason == "body: must have at most 65536 bytes"


def test_limits_are_set_shown_and_cleared(api, refused):
    assert api("PUT", "/api/vhost-limits/%2F/max-queues", {"value": 5}) == (204, None)
    assert api("PUT", "/api/vhost-limits/%2F/default-queue-max-length", {"value": "7"}) == (
        204,
        None,
    )
    row = {"vhost": "/", "value": {"default-queue-max-length": 7, "max-queues": 5}}
    assert api("GET", "/api/vhost-limits") == (200, [row])
    assert api("DELETE", "/api/vhost-limits/%2F/max-queues") == (204, None)
    row = {"vhost": "/", "value": {"default-queue-max-length": 7}}
    assert api("GET", "/api/vhost-limits/%2F") == (200, [row])
    assert api("DELETE", "/api/vhost-limits/%2F/max-queues") == (204, None)  # as RabbitMQ
    reason = refused(404, "DELETE", "/api/vhost-limits/%2F/max-jokes")
    assert reason == "no limit 'max-jokes' of vhosts"


def test_what_is_in_a_vhost_and_moves_there_is_summed_over_the_nodes(api, node):
    api("PUT", "/api/vhosts/v", {})
    start = (1_000, 5, 1, 100, 1, 200, 2, *range(10, 21))
    after = (6_000, 6, 1, 600, 6, 200, 2, *range(20, 31))
    node.stats.rows = [VhostStats("v", [start, after], [after, start]), VhostStats("v", [start])]
    node.stats.rows.append(VhostStats("/", [after, after]))
    rows = {row["name"]: row for row in api("GET", "/api/vhosts")[1]}
    row = rows["v"]
    assert (row["messages"], row["messages_ready"], row["messages_unacknowledged"]) == (7, 6, 1)
    assert row["messages_ready_details"] == {"rate": 0.2}
    assert (row["recv_oct"], row["recv_oct_details"]) == (600, {"rate": 100.0})
    stats = row["message_stats"]
    assert (stats["publish"], stats["publish_details"]) == (20, {"rate": 2.0})
    assert (stats["deliver_get"], stats["deliver_get_details"]) == (102, {"rate": 8.0})
    assert rows["/"]["message_stats"]["publish_details"] == {"rate": 0.0}
    query = "msg_rates_age=60&columns=message_stats.deliver_get_details"
    status, row = api("GET", f"/api/vhosts/v?{query}")
    assert status == 200
    samples = row["message_stats"]["deliver_get_details"]["samples"]
    assert [each["sample"] for each in samples] == [102, 62]


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        ("%2F/max-fun", {"value": 1}, 400, "limit 'max-fun' is not recognised; limits are "),
        ("%2F/max-queues", {}, 400, "value: is missing"),
        ("%2F/max-queues", {"value": "x"}, 400, "value: expected `int`, got `str`"),
        ("v/max-queues", {"value": 1}, 404, "no vhost 'v'"),
    ],
)
def test_a_bad_limit_is_refused(refused, path, body, status, reason):
    assert refused(status, "PUT", f"/api/vhost-limits/{path}", body).startswith(reason)


def test_who_does_not_administer_sees_the_vhosts_that_he_may_enter_and_changes_none(
    api, node, refused
):
    node.do(PutVhost(Vhost("v")))
    node.do(PutPermission(Permission("alice", "v", "", "", "")))
    assert [vhost["name"] for vhost in api("GET", "/api/vhosts", user="alice")[1]] == ["v"]
    assert [vhost["name"] for vhost in api("GET", "/api/vhosts", user="mon")[1]] == ["/", "v"]
    reason = refused(403, "GET", "/api/vhosts/%2F", user="alice")
    assert reason == "access to vhost '/' refused for user 'alice'"
    for method, path in (("PUT", "/api/vhosts/w"), ("DELETE", "/api/vhosts/v")):
        assert "administrator" in refused(403, method, path, user="mon")
    limit = "/api/vhost-limits/v/max-queues"
    assert "administrator" in refused(403, "PUT", limit, {"value": 1}, user="alice")


def test_nodes_are_for_who_monitors(api, refused):
    assert api("GET", "/api/nodes", user="mon")[0] == 200
    assert "monitoring" in refused(403, "GET", "/api/nodes", user="alice")
    assert api("GET", "/api/overview", user="alice")[0] == 200


@pytest.mark.parametrize("path", ["/api/vhosts", "/api/overview", "/api/nothing"])
def test_a_user_without_a_tag_for_it_is_refused_everywhere(refused, path):
    reason = refused(403, "GET", path, user="app")
    assert reason == "tags: must have one of administrator, management, monitoring, policymaker"


def test_a_wrong_password_is_not_authorized(refused):
    assert "log in" in refused(401, "GET", "/api/vhosts", user="nobody")
