"""/api/policies and /api/operator-policies."""

from __future__ import annotations

import pytest

from headrace_broker.catalog.command import PutPermission, PutPolicy, PutVhost
from headrace_broker.model.definition import Permission, Policy, Vhost

BODY = {"pattern": "^q", "definition": {"max-length": 5}}


@pytest.mark.parametrize("path", ["/api/policies", "/api/operator-policies"])
def test_a_policy_is_set_shown_and_deleted(api, path):
    body = {**BODY, "priority": "3", "apply-to": "queues"}
    assert api("PUT", f"{path}/%2F/p", body) == (201, None)
    assert api("PUT", f"{path}/%2F/p", body) == (204, None)
    row = {**body, "vhost": "/", "name": "p", "priority": 3}
    assert api("GET", f"{path}/%2F/p") == (200, row)
    assert api("GET", f"{path}/%2F") == (200, [row])
    assert api("GET", path) == (200, [row])
    assert api("DELETE", f"{path}/%2F/p") == (204, None)
    assert api("GET", f"{path}/%2F/p")[0] == 404
    assert api("DELETE", f"{path}/%2F/p")[0] == 404


def test_the_two_kinds_have_names_of_their_own(api):
    api("PUT", "/api/policies/%2F/p", BODY)
    assert api("GET", "/api/operator-policies/%2F/p")[0] == 404


def test_a_policy_that_was_just_set_elsewhere_is_found(api, node):
    node.behind.append(PutPolicy(Policy("/", "late", ".*", {"max-length": 1})))
    assert api("GET", "/api/policies/%2F/late")[0] == 200


def test_what_another_version_took_says_why_it_applies_to_nothing(api, node):
    node.do(PutPolicy(Policy("/", "old", "(a+)+\\1b", {"max-length": 1})))
    node.do(PutPermission(Permission("alice", "/", ".*", "(a+)+\\1b", ".*")))
    problem = "the expression could take too long to find in a name: it has GROUPREF"
    assert api("GET", "/api/policies/%2F/old")[1]["problem"] == f"pattern: {problem}"
    assert api("GET", "/api/policies")[1][0]["problem"] == f"pattern: {problem}"
    assert api("GET", "/api/permissions/%2F/alice")[1]["problem"] == f"write: {problem}"
    assert "problem" not in api("GET", "/api/permissions/%2F/guest")[1]
    assert "problem" not in api("GET", "/api/definitions")[1]["policies"][0]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"definition": {"max-length": 5}}, "pattern: is missing"),
        ({"pattern": ".*"}, "definition: is missing"),
        ({**BODY, "pattern": "("}, "pattern: "),
        ({**BODY, "pattern": "(a+)+\\1b"}, "pattern: the expression could take too long to find"),
        ({**BODY, "definition": {}}, "definition: must not be empty"),
        ({**BODY, "definition": {"ha-mode": "all"}}, "definition: 'ha-mode' is not recognised"),
        ({**BODY, "definition": {"max-length": -1}}, "definition: 'max-length' must be an integer"),
        ({**BODY, "definition": "x"}, "definition: expected `object`, got `str`"),
        ({**BODY, "priority": "high"}, "priority: expected `int`, got `str`"),
        ({**BODY, "apply-to": "everything"}, "apply-to: 'everything' is not one of "),
    ],
)
def test_a_bad_policy_is_refused_by_field_and_rule(refused, body, reason):
    assert refused(400, "PUT", "/api/policies/%2F/p", body).startswith(reason)


def test_a_policy_needs_its_vhost(refused):
    assert refused(404, "PUT", "/api/policies/v/p", BODY) == "no vhost 'v'"


@pytest.mark.parametrize("setting", ["dead-letter-exchange", "alternate-exchange"])
def test_a_policy_sends_on_to_where_its_author_may_publish_alone(api, node, refused, setting):
    node.do(PutPermission(Permission("pol", "/", "", "^mine$", "")))
    body = {**BODY, "definition": {setting: "others"}}
    text = refused(403, "PUT", "/api/policies/%2F/p", body, user="pol")
    assert text == "write access to exchange 'others' in vhost '/' refused for user 'pol'"
    body = {**BODY, "definition": {setting: "mine"}}
    assert api("PUT", "/api/policies/%2F/p", body, user="pol") == (201, None)
    body = {**BODY, "definition": {setting: "others"}}
    assert api("PUT", "/api/policies/%2F/other", body)[0] == 201  # an administrator


def test_policymakers_make_policies_where_they_may_enter(api, node, refused):
    node.do(PutVhost(Vhost("v")))
    node.do(PutPermission(Permission("pol", "v", "", "", "")))
    node.do(PutPermission(Permission("alice", "v", "", "", "")))
    assert api("PUT", "/api/policies/v/p", BODY, user="pol") == (201, None)
    assert "vhost '/'" in refused(403, "PUT", "/api/policies/%2F/p", BODY, user="pol")
    assert "policymaker" in refused(403, "PUT", "/api/policies/v/p", BODY, user="alice")
    assert "administrator" in refused(403, "PUT", "/api/operator-policies/v/p", BODY, user="pol")
    assert [row["name"] for row in api("GET", "/api/policies", user="alice")[1]] == ["p"]
    api("PUT", "/api/policies/%2F/other", BODY)
    assert [row["name"] for row in api("GET", "/api/policies", user="alice")[1]] == ["p"]
