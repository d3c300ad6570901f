"""/api/flow/limits, and the health checks of alarms."""

from __future__ import annotations

import pytest

from headrace_broker.model.flow_parameter import PARAMETERS
from headrace_broker.runtime.alarm.alarms import AlarmStatus


def test_limits_are_listed_with_value_default_unit_and_source(api):
    status, rows = api("GET", "/api/flow/limits", user="mon")
    assert (status, [row["name"] for row in rows]) == (200, list(PARAMETERS))
    row = next(row for row in rows if row["name"] == "queue-commands")
    assert (row["value"], row["default"], row["unit"]) == (32, 32, "commands")
    assert (row["source"], row["set"]) == ("default", False)
    assert row["rule"] == "an integer from 1 to 1000000 (commands)"
    assert all(row["description"] for row in rows)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("queue-commands", 8, 8),
        ("account_bytes", "1000", 1000),
        ("memory-high-watermark", 0.25, 0.25),
        ("memory-high-watermark", "0.25", 0.25),
        ("memory-high-watermark", 1e-9, 1e-9),
        ("memory-high-watermark", 1 << 30, 1 << 30),
        ("memory_paging_watermark", 1.0, 1.0),
        ("disk-free-limit", 1.5, 1.5),
    ],
)
def test_a_limit_is_set_shown_and_taken_back(api, name, value, shown):
    path = f"/api/flow/limits/{name}"
    before = api("GET", path)[1]
    assert api("PUT", path, {"value": value}) == (204, None)
    row = api("GET", path)[1]
    assert (row["value"], row["source"], row["set"]) == (shown, "cluster", True)
    assert row["default"] == before["value"]
    assert api("DELETE", path) == (204, None)
    assert api("GET", path)[1] == before
    assert api("DELETE", path) == (204, None)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("queue-commands", 0, "queue-commands: 0 is not an integer from 1 to 1000000 (commands)"),
        ("queue-commands", 0.5, "queue-commands: 0.5 is not an integer"),
        ("queue-commands", "many", "queue-commands: many is not an integer"),
        ("queue-commands", True, "queue-commands: True is not an integer"),
        ("queue-commands", None, "queue-commands: NoneType is not an integer"),
        ("queue-commands", [1], "queue-commands: list is not an integer"),
        (
            "memory-high-watermark",
            1.5,
            "memory-high-watermark: 1.5 is not an integer from 0 to 1125899906842624 (bytes) or a "
            "fraction of the memory limit from 0.0 to 1.0",
        ),
        ("memory-high-watermark", -0.5, "memory-high-watermark: -0.5 is not an integer"),
        ("memory-high-watermark", "0.6.1", "memory-high-watermark: 0.6.1 is not an integer"),
        ("disk-free-limit", "10.000000001", "disk-free-limit: 10.000000001 is not an integer"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_by_name_and_rule(refused, name, value, reason):
    path = f"/api/flow/limits/{name}"
    assert refused(400, "PUT", path, {"value": value}).startswith(reason)


def test_who_may_not_and_what_is_not_there(refused):
    path = "/api/flow/limits/queue-commands"
    assert "monitoring" in refused(403, "GET", "/api/flow/limits", user="alice")
    assert "administrator" in refused(403, "PUT", path, {"value": 1}, user="mon")
    assert "administrator" in refused(403, "DELETE", path, user="pol")
    assert refused(400, "PUT", path, {}) == "value: is missing"
    reason = refused(404, "PUT", "/api/flow/limits/warp", {"value": 1})
    assert reason.startswith("no limit 'warp'; limits are account-messages, ")


def test_health_checks_of_alarms_answer_as_rabbitmq_does(api, node):
    for path in ("alarms", "local-alarms"):
        assert api("GET", f"/api/health/checks/{path}", user="alice") == (200, {"status": "ok"})
    node.alarms_on.append(AlarmStatus("n2", "memory", "low on memory: ...", 5))
    assert api("GET", "/api/health/checks/local-alarms") == (200, {"status": "ok"})
    alarm = {"node": "n2", "resource": "memory", "reason": "low on memory: ..."}
    assert api("GET", "/api/health/checks/alarms") == (
        503,
        {
            "status": "failed",
            "reason": "There are alarms in effect in the cluster",
            "alarms": [alarm],
        },
    )
    node.alarms_on.append(AlarmStatus("n1", "disk", "low on disk: ...", 6))
    status, body = api("GET", "/api/health/checks/local-alarms")
    assert (status, [each["node"] for each in body["alarms"]]) == (503, ["n1"])


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("user-limits/guest/publish-weight", "limit 'publish-weight' must be an integer from"),
        ("user-limits/guest/channel-flow", "limit 'channel-flow' must be an integer from"),
        ("vhost-limits/%2F/publish-weight", "limit 'publish-weight' is not recognised"),
    ],
)
def test_limits_of_users_and_vhosts_have_ranges(refused, path, reason):
    assert refused(400, "PUT", f"/api/{path}", {"value": 101}).startswith(reason)


def test_a_weight_of_nothing_is_refused(refused, api, node):
    path = "/api/user-limits/guest/publish-weight"
    assert "would never be served" in refused(400, "PUT", path, {"value": 0})
    assert api("PUT", path, {"value": 7})[0] == 204
    assert node.view.user_limits("guest") == {"publish-weight": 7}
