"""/api/parameters and /api/global-parameters."""

from __future__ import annotations

LIMITS = "/api/parameters/vhost-limits/%2F/limits"
POLICY = "/api/parameters/operator_policy/%2F/op"


def test_limits_of_a_vhost_are_a_parameter(api, refused, node):
    assert api("PUT", LIMITS, {"value": {"max-queues": 3}})[0] == 201
    assert api("PUT", LIMITS, {"value": {"max-connections": 4}})[0] == 204
    assert node.view.vhost_limits("/") == {"max-connections": 4}
    row = {
        "vhost": "/",
        "component": "vhost-limits",
        "name": "limits",
        "value": {"max-connections": 4},
    }
    assert api("GET", LIMITS) == (200, row)
    for path in ("", "/vhost-limits", "/vhost-limits/%2F"):
        assert api("GET", f"/api/parameters{path}") == (200, [row])
    assert api("GET", "/api/parameters/operator_policy") == (200, [])
    assert api("DELETE", LIMITS)[0] == 204
    assert refused(404, "DELETE", LIMITS).startswith("no parameter 'limits'")
    assert refused(404, "GET", LIMITS) == "no parameter 'limits'"


def test_operator_policies_are_parameters(api, node):
    value = {"pattern": "^q", "definition": {"max-length": 3}, "priority": 1, "apply-to": "queues"}
    assert api("PUT", POLICY, {"value": value})[0] == 201
    assert node.view.policy("/", "op", operator=True).definition == {"max-length": 3}
    assert api("GET", POLICY)[1]["value"] == value
    assert api("DELETE", POLICY)[0] == 204


def test_what_is_wrong_is_named(refused, node):
    wrong = "/api/parameters/shovel/%2F/s"
    assert refused(400, "PUT", wrong, {"value": {}}).startswith("component: 'shovel'")
    assert refused(400, "DELETE", wrong).startswith("component: 'shovel'")
    assert refused(400, "PUT", LIMITS.replace("limits", "x")).startswith("value: is missing")
    assert refused(400, "PUT", LIMITS, {"value": 5})
    assert "max-odd" in refused(400, "PUT", LIMITS, {"value": {"max-odd": 5}})
    assert refused(404, "PUT", LIMITS.replace("%2F", "no"), {"value": {}}) == "no vhost 'no'"


def test_limits_of_flow_control_are_global_parameters(api, refused, node):
    path = "/api/global-parameters/credit"
    assert api("PUT", path, {"value": 70})[0] == 201
    assert api("PUT", path, {"value": 80})[0] == 204
    assert api("GET", path) == (200, {"name": "credit", "value": 80})
    assert api("GET", "/api/global-parameters") == (200, [{"name": "credit", "value": 80}])
    assert api("DELETE", path)[0] == 204
    assert refused(404, "DELETE", path) == "no global parameter 'credit'"
    assert refused(404, "GET", path) == "no global parameter 'credit'"
    assert refused(400, "PUT", "/api/global-parameters/odd", {"value": 1}).startswith("name: 'odd'")
    assert "integer" in refused(400, "PUT", path, {"value": 0})
    assert "integer" in refused(400, "PUT", path, {"value": None})
