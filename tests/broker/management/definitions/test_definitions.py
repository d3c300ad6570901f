"""Definitions out of a cluster and into another one."""

from __future__ import annotations

import base64
import io
from typing import Any

import msgspec
import pytest

from headrace_broker.catalog.command import (
    Bind,
    DeclareExchange,
    DeclareQueue,
    PutPermission,
    PutPolicy,
    PutTopicPermission,
    PutVhost,
    SetParameter,
    SetUserLimits,
    SetVhostLimits,
)
from headrace_broker.management.definitions.file import DefinitionFile, check_size
from headrace_broker.management.definitions.importing import cluster_steps
from headrace_broker.management.http.answer import ApiError
from headrace_broker.management.http.body import decoded
from headrace_broker.model.definition import Binding, Exchange, Permission, Policy, Vhost
from headrace_broker.model.limits import (
    DEFINITION_CONTAINERS_MAX,
    DEFINITION_VALUES_MAX,
    LARGE_BODY_BYTES_MAX,
)


@pytest.fixture
def other(fake_node: Any) -> Any:
    return type(fake_node)()


@pytest.fixture
def filled(node):
    node.do(PutVhost(Vhost("v", "classic", "second", ("a", "b"))))
    node.do(PutPermission(Permission("alice", "v", "^a", ".*", "")))
    node.do(SetVhostLimits("v", {"max-queues": 9}))
    node.do(SetUserLimits("alice", {"max-channels": 3}))
    node.do(SetParameter("credit", 70))
    node.do(SetParameter("memory-high-watermark", "0.5"))
    node.do(PutPolicy(Policy("v", "p", "^q", {"max-length": 5}, 7, "queues")))
    node.do(PutPolicy(Policy("v", "op", ".*", {"max-length": 4}, operator=True)))
    node.do(DeclareExchange(Exchange("v", "x", "topic", arguments={"alternate-exchange": "y"})))
    node.do(DeclareQueue("v", "q", "quorum", arguments={"x-max-length": 3}, replicas=3))
    node.do(DeclareQueue("/", "c", "classic", durable=False))
    node.do(DeclareQueue("/", "own", "classic", exclusive=True, owner="n1/1/1"))
    node.do(Bind(Binding("v", "x", "queue", "q", "a.*", {"k": [1, {"l": None}]})))
    node.do(Bind(Binding("/", "amq.fanout", "queue", "own", "")))
    node.do(Bind(Binding("v", "amq.topic", "exchange", "x", "#")))
    return node


def exported(api, path="/api/definitions") -> dict[str, Any]:
    status, body = api("GET", path)
    assert status == 200
    return dict(body)


def test_definitions_are_those_of_rabbitmq(api, filled):
    found = exported(api)
    assert [vhost["name"] for vhost in found["vhosts"]] == ["/", "v"]
    assert found["global_parameters"] == [
        {"name": "credit", "value": 70},
        {"name": "memory-high-watermark", "value": 0.5},
    ]
    assert [row["component"] for row in found["parameters"]] == ["vhost-limits", "operator_policy"]
    assert found["policies"] == [
        {
            "vhost": "v",
            "name": "p",
            "pattern": "^q",
            "apply-to": "queues",
            "definition": {"max-length": 5},
            "priority": 7,
        }
    ]
    assert [(row["vhost"], row["name"]) for row in found["exchanges"]] == [("v", "x")]
    assert [(row["name"], row["arguments"]["x-queue-type"]) for row in found["queues"]] == [
        ("q", "quorum"),
        ("c", "classic"),
    ]
    assert [row["destination"] for row in found["bindings"]] == ["q", "x"]
    alice = next(user for user in found["users"] if user["name"] == "alice")
    assert alice["limits"] == {"max-channels": 3}


def test_an_import_makes_another_cluster_the_same_and_a_second_one_changes_nothing(
    api, filled, other
):
    for user in filled.catalog.users():  # with hashes of the length that they have
        body = {"tags": list(user.tags), "password_hash": base64.b64encode(bytes(48)).decode()}
        assert api("PUT", f"/api/users/{user.name}", body)[0] == 204
    file = exported(api)
    there = type(api)(other)
    assert there("POST", "/api/definitions", file) == (204, None)
    assert exported(there) == file
    index = other.catalog.applied_index
    queues = other.catalog.queues()
    assert there("POST", "/api/definitions", file) == (204, None)
    assert exported(there) == file
    assert other.catalog.queues() == queues
    assert other.catalog.applied_index > index  # users and policies are put again


def test_a_vhost_goes_into_another_one(api, filled):
    file = exported(api, "/api/definitions/v")
    assert "users" not in file
    assert all("vhost" not in row for name in ("queues", "bindings") for row in file[name])
    assert api("PUT", "/api/vhosts/w", {})[0] == 201
    api("PUT", "/api/permissions/w/guest", {"configure": "", "write": "", "read": ""})
    assert api("POST", "/api/definitions/w", file) == (204, None)
    again = exported(api, "/api/definitions/w")
    assert again == file


def test_what_is_there_stays_as_it_is(api, filled):
    body = {"queues": [{"name": "q", "vhost": "v", "arguments": {"x-max-length": 8}}]}
    assert api("POST", "/api/definitions", body)[0] == 204
    assert filled.view.queue("v", "q").arguments == {"x-max-length": 3}


GOOD = {"name": "new", "vhost": "/"}


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ({"queues": [GOOD, {"vhost": "/"}]}, ("queues[1].name", "missing")),
        ({"queues": [GOOD, {"name": 5, "vhost": "/"}]}, ("queues[1].name",)),
        ({"queues": [GOOD, {"name": "q", "vhost": "no"}]}, ("queues[1] 'q'", "no vhost 'no'")),
        (
            {"queues": [GOOD, {"name": "q", "vhost": "/", "arguments": {"x-max-length": -1}}]},
            ("queues[1] 'q'", "x-max-length"),
        ),
        (
            {"queues": [GOOD], "exchanges": [{"name": "x", "vhost": "/", "type": "odd"}]},
            ("exchanges[0] 'x'", "odd"),
        ),
        (
            {
                "queues": [GOOD],
                "bindings": [
                    {
                        "source": "amq.topic",
                        "vhost": "/",
                        "destination": "gone",
                        "destination_type": "queue",
                    }
                ],
            },
            ("bindings[0]", "no queue 'gone'"),
        ),
        (
            {
                "queues": [GOOD],
                "permissions": [
                    {"user": "nobody", "vhost": "/", "configure": "", "write": "", "read": ""}
                ],
            },
            ("permissions[0]", "no user 'nobody'"),
        ),
        (
            {"queues": [GOOD], "permissions": [{"user": "alice", "vhost": "/", "configure": "("}]},
            ("permissions[0].write", "missing"),
        ),
        (
            {"queues": [GOOD], "policies": [{"name": "p", "vhost": "/", "pattern": "("}]},
            ("policies[0].definition", "missing"),
        ),
        (
            {
                "queues": [GOOD],
                "policies": [{"name": "p", "vhost": "/", "pattern": "(", "definition": {}}],
            },
            ("policies[0] 'p'", "pattern"),
        ),
        (
            {
                "queues": [GOOD],
                "parameters": [{"component": "shovel", "vhost": "/", "name": "s", "value": {}}],
            },
            ("parameters[0] 's'", "component", "shovel"),
        ),
        (
            {
                "queues": [GOOD],
                "parameters": [
                    {
                        "component": "vhost-limits",
                        "vhost": "/",
                        "name": "limits",
                        "value": {"max-queues": "many"},
                    }
                ],
            },
            ("parameters[0] 'limits'", "int"),
        ),
        (
            {"queues": [GOOD], "global_parameters": [{"name": "odd", "value": 1}]},
            ("global_parameters[0] 'odd'",),
        ),
        (
            {"queues": [GOOD], "global_parameters": [{"name": "credit", "value": -1}]},
            ("global_parameters[0] 'credit'", "integer"),
        ),
        (
            {"queues": [GOOD], "users": [{"name": "u", "password": ""}]},
            ("users[0] 'u'", "password", "empty"),
        ),
        (
            {
                "queues": [GOOD],
                "users": [
                    {
                        "name": "u",
                        "password_hash": "AAAA",
                        "hashing_algorithm": "rabbit_password_hashing_sha256",
                    }
                ],
            },
            ("users[0] 'u'", "password_hash"),
        ),
        ({"queues": [GOOD], "users": [{"name": ""}]}, ("users[0] ''", "user")),
        ({"queues": [GOOD], "topic_permissions": [{}]}, ("topic_permissions[0]",)),
        (
            {
                "queues": [GOOD],
                "topic_permissions": [
                    {"user": "u", "vhost": "/", "exchange": "x", "write": "", "read": ""}
                ],
            },
            ("topic_permissions[0] of 'u' in '/'", "no user 'u'"),
        ),
        ({"queues": {}}, ("queues", "array")),
    ],
)
def test_one_thing_that_is_wrong_is_named_and_nothing_is_done(refused, node, file, words):
    reason = refused(400, "POST", "/api/definitions", file)
    for word in words:
        assert word in reason
    assert node.view.queue("/", "new") is None


def test_the_files_of_other_brokers_hold_what_is_not_meant_for_this_one(api, node):
    file = {
        "rabbit_version": "3.10.8",
        "global_parameters": [{"name": "internal_cluster_id", "value": "x"}],
        "exchanges": [{"name": "", "vhost": "/", "type": "direct"}],
        "queues": [GOOD],
    }
    assert api("POST", "/api/definitions", file)[0] == 204
    assert node.view.queue("/", "new").kind == "quorum"


@pytest.mark.parametrize("order", [1, -1])
def test_tag_administrator_is_given_to_others_before_it_is_taken(api, refused, node, order):
    guest = {"name": "guest", "password": "guest", "tags": ""}
    file = {"queues": [GOOD], "users": [guest]}
    assert "the last user with the tag" in refused(400, "POST", "/api/definitions", file)
    assert node.view.queue("/", "new") is None
    file["users"] = [guest, {"name": "root", "password": "root", "tags": "administrator"}][::order]
    assert api("POST", "/api/definitions", file)[0] == 204
    assert [node.view.user(name).tags for name in ("guest", "root")] == [(), ("administrator",)]


def test_a_permission_does_not_come_before_what_narrows_it(node):
    told = {"user": "alice", "vhost": "/", "write": "^a", "read": ".*"}
    narrowing, permission = told | {"exchange": "amq.topic"}, told | {"configure": ""}
    values = {"permissions": [permission], "topic_permissions": [narrowing]}
    steps = cluster_steps(msgspec.convert(values, DefinitionFile), node.catalog)
    stages = {type(each.command): each.stage for each in steps}
    assert stages[PutTopicPermission] < stages[PutPermission]


def test_definitions_are_for_administrators(refused, node):
    for user in ("mon", "pol", "alice"):
        for path in ("/api/definitions", "/api/definitions/%2F"):
            refused(403, "GET", path, user=user)
            refused(403, "POST", path, {}, user=user)


def test_a_lost_quorum_is_said(refused, node):
    node.lost = True
    assert refused(503, "POST", "/api/definitions", {"queues": [GOOD]}) == "no quorum"


def test_a_browser_is_given_a_file_name(api, refused, node):
    api("GET", "/api/definitions?download=all.json")
    assert api.headers["Content-Disposition"] == 'attachment; filename="all.json"'
    assert refused(400, "GET", "/api/definitions?download=a%22b").startswith("download:")


@pytest.mark.parametrize(
    ("value", "count", "rule"),
    [
        (b"[]", DEFINITION_CONTAINERS_MAX, "objects and arrays"),
        (b"{}", DEFINITION_CONTAINERS_MAX, "objects and arrays"),
        (b"1", DEFINITION_VALUES_MAX, "values"),
    ],
)
def test_a_file_of_too_many_values_is_refused_before_they_are_made(refused, value, count, rule):
    values = (value + b",") * count
    body = b'{"queues":[{"name":"q","arguments":{"x":[' + values + value + b"]}}]}"
    said = refused(400, "POST", "/api/definitions", data=io.BytesIO(body))
    assert said.startswith("body: must have at most")
    assert rule in said


def test_a_large_file_is_read():
    row = {
        "source": "an.exchange.of.some.kind",
        "vhost": "/",
        "destination": "a.queue.whose.name.says.what.it.is.for",
        "destination_type": "queue",
        "routing_key": "a.key.with.some.words",
        "arguments": {"x-match": "all", "kind": "order"},
    }
    text = msgspec.json.encode({"bindings": [row] * 100_000})
    assert len(text) <= LARGE_BODY_BYTES_MAX
    check_size(text)
    assert len(decoded(text, DefinitionFile).bindings) == 100_000


def test_what_is_skipped_has_to_be_json_as_well():
    for text in (b'{"x": "\xff"}', b'{"x": [}'):
        with pytest.raises(ApiError, match="body: is not JSON"):
            decoded(text, DefinitionFile)
