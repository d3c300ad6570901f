"""Vhosts, users, permissions and policies over gRPC."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.model.definition import Permission, Policy
from headrace_broker.runtime.security.password import PasswordChecker
from headrace_protos.broker.v1 import topology_pb2 as topology
from headrace_protos.broker.v1.value_pb2 import Table, Value

Tags = topology.Tags


def policy(**fields: Any) -> topology.Policy:
    given = {"vhost": "/", "name": "p", "pattern": "^q"} | fields
    given.setdefault("definition", Table(fields={"max-length": Value(int64=5)}))
    return topology.Policy(**given)


def test_a_vhost_is_declared_changed_and_deleted(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        request = topology.DeclareVhostRequest(
            name="v", description="first", tags=Tags(tags=["a", "b"]), limits={"max-queues": 5}
        )
        assert (await client.call("DeclareVhost", request)).created
        change = topology.DeclareVhostRequest(
            name="v", default_queue_type="classic", limits={"max-queues": -1, "max-connections": 2}
        )
        assert not (await client.call("DeclareVhost", change)).created
        described = await client.call("DescribeVhost", topology.DescribeVhostRequest(name="v"))
        assert (described.description, list(described.tags)) == ("first", ["a", "b"])
        assert described.default_queue_type == "classic"
        assert dict(described.limits) == {"max-connections": 2}
        listed = await client.call("ListVhosts", topology.ListVhostsRequest())
        assert [each.name for each in listed.vhosts] == ["/", "v"]
        delete = topology.DeleteVhostRequest(name="v")
        assert (await client.call("DeleteVhost", delete)).deleted
        assert not (await client.call("DeleteVhost", delete)).deleted

    serve(scenario)


def test_a_vhost_is_seen_by_who_may_enter_or_monitor(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        client.node.do(commands.PutPermission(Permission("alice", "/", "", "", "")))
        request = topology.ListVhostsRequest()
        for user, seen in (("alice", ["/"]), ("pol", []), ("mon", ["/"])):
            listed = await client.call("ListVhosts", request, user=user)
            assert [each.name for each in listed.vhosts] == seen
        describe = topology.DescribeVhostRequest(name="/")
        error = await client.refusal("DescribeVhost", describe, user="pol")
        assert error.text == "access to vhost '/' refused for user 'pol'"

    serve(scenario)


def test_a_user_is_declared_changed_and_deleted(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        request = topology.DeclareUserRequest(
            name="bob",
            tags=Tags(tags=["monitoring"]),
            password="secret",
            limits={"max-channels": 5},
        )
        assert (await client.call("DeclareUser", request)).created
        first = client.node.view.user("bob")
        assert PasswordChecker().verify(first, "secret")
        assert not (
            await client.call("DeclareUser", topology.DeclareUserRequest(name="bob"))
        ).created
        assert client.node.view.user("bob") == first
        epoch = client.node.catalog.session_epoch("bob")
        await client.call("DeclareUser", topology.DeclareUserRequest(name="bob", end_sessions=True))
        assert client.node.catalog.session_epoch("bob") > epoch
        assert client.node.view.user("bob") == first
        change = topology.DeclareUserRequest(name="bob", tags=Tags(), no_password=True)
        await client.call("DeclareUser", change)
        described = await client.call("DescribeUser", topology.DescribeUserRequest(name="bob"))
        assert (list(described.tags), described.has_password) == ([], False)
        assert dict(described.limits) == {"max-channels": 5}
        assert "secret" not in str(described)
        listed = await client.call("ListUsers", topology.ListUsersRequest())
        names = [each.name for each in listed.users]
        assert (names == sorted(names), "bob" in names) == (True, True)
        delete = topology.DeleteUserRequest(name="bob")
        assert (await client.call("DeleteUser", delete)).deleted
        assert not (await client.call("DeleteUser", delete)).deleted
        error = await client.refusal("DescribeUser", topology.DescribeUserRequest(name="bob"))
        assert (error.code, error.text) == ("NOT_FOUND", "no user 'bob'")

    serve(scenario)


def test_a_permission_is_given_and_taken(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        ends = {"user": "app", "vhost": "/"}
        permission = topology.Permission(**ends, configure="^a", write=".*", read="")
        request = topology.DeclarePermissionRequest(permission=permission)
        assert (await client.call("DeclarePermission", request)).created
        assert not (await client.call("DeclarePermission", request)).created
        describe = topology.DescribePermissionRequest(**ends)
        assert await client.call("DescribePermission", describe) == permission
        listed = await client.call("ListPermissions", topology.ListPermissionsRequest(user="app"))
        assert list(listed.permissions) == [permission]
        delete = topology.DeletePermissionRequest(**ends)
        assert (await client.call("DeletePermission", delete)).deleted
        assert not (await client.call("DeletePermission", delete)).deleted
        error = await client.refusal("DescribePermission", describe)
        assert error.code == "NOT_FOUND"
        gone = topology.DeletePermissionRequest(user="gone", vhost="/")
        assert not (await client.call("DeletePermission", gone)).deleted

    serve(scenario)


def test_what_somebody_may_not_change_is_in_the_audit_log(serve: Any, caplog: Any) -> None:
    async def scenario(client: Any) -> None:
        caplog.set_level("INFO", "headrace.audit")
        await client.refusal("ListUsers", topology.ListUsersRequest(), user="mon")
        await client.refusal("DeclareUser", topology.DeclareUserRequest(name="x"), user="mon")
        lines = [each.getMessage() for each in caplog.records if each.name == "headrace.audit"]
        [line] = lines
        assert line.startswith("user=mon peer=")
        assert "action=request target=headrace.broker.v1.Topology/DeclareUser outcome=" in line

    serve(scenario)


def test_a_topic_permission_is_given_and_taken(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        ends = {"user": "app", "vhost": "/", "exchange": "amq.topic"}
        permission = topology.TopicPermission(**ends, write="^a", read="")
        request = topology.DeclareTopicPermissionRequest(permission=permission)
        assert (await client.call("DeclareTopicPermission", request)).created
        assert not (await client.call("DeclareTopicPermission", request)).created
        describe = topology.DescribeTopicPermissionRequest(**ends)
        assert await client.call("DescribeTopicPermission", describe) == permission
        listing = topology.ListTopicPermissionsRequest(user="app", vhost="/")
        listed = await client.call("ListTopicPermissions", listing)
        assert list(listed.permissions) == [permission]
        delete = topology.DeleteTopicPermissionRequest(**ends)
        assert (await client.call("DeleteTopicPermission", delete)).deleted
        delete.exchange = ""
        assert not (await client.call("DeleteTopicPermission", delete)).deleted
        error = await client.refusal("DescribeTopicPermission", describe)
        assert error.code == "NOT_FOUND"
        delete.user = "gone"
        assert not (await client.call("DeleteTopicPermission", delete)).deleted
        request.permission.write = "("
        error = await client.refusal("DeclareTopicPermission", request)
        assert (error.code, error.fields[0][0]) == ("INVALID_ARGUMENT", "permission.write")
        for method, denied in (
            ("DeclareTopicPermission", request),
            ("DeleteTopicPermission", delete),
            ("DescribeTopicPermission", describe),
            ("ListTopicPermissions", listing),
        ):
            error = await client.refusal(method, denied, user="mon")
            assert error.code == "PERMISSION_DENIED"

    serve(scenario)


@pytest.mark.parametrize("operator", [False, True])
def test_a_policy_is_declared_changed_and_deleted(serve: Any, operator: bool) -> None:
    async def scenario(client: Any) -> None:
        wanted = policy(operator=operator, priority=3)
        request = topology.DeclarePolicyRequest(policy=wanted)
        assert (await client.call("DeclarePolicy", request)).created
        request.policy.pattern = "^z"
        assert not (await client.call("DeclarePolicy", request)).created
        ends: Any = {"vhost": "/", "name": "p", "operator": operator}
        described = await client.call("DescribePolicy", topology.DescribePolicyRequest(**ends))
        assert (described.pattern, described.priority, described.apply_to) == ("^z", 3, "all")
        assert described.definition == wanted.definition
        listed = await client.call("ListPolicies", topology.ListPoliciesRequest(operator=operator))
        assert list(listed.policies) == [described]
        other = topology.ListPoliciesRequest(operator=not operator)
        assert not (await client.call("ListPolicies", other)).policies
        delete = topology.DeletePolicyRequest(**ends)
        assert (await client.call("DeletePolicy", delete)).deleted
        assert not (await client.call("DeletePolicy", delete)).deleted
        error = await client.refusal("DescribePolicy", topology.DescribePolicyRequest(**ends))
        assert error.code == "NOT_FOUND"

    serve(scenario)


BAD: list[tuple[str, Any, str, str]] = [
    ("DeclareVhost", topology.DeclareVhostRequest(), "name", "1 to 255 bytes"),
    ("DeclareVhost", topology.DeclareVhostRequest(name="v" * 256), "name", "1 to 255 bytes"),
    (
        "DeclareVhost",
        topology.DeclareVhostRequest(name="v", limits={"warp": 1}),
        "limits",
        "is not recognised",
    ),
    (
        "DeclareVhost",
        topology.DeclareVhostRequest(name="v", limits={"channel-flow": 101}),
        'limits["channel-flow"]',
        "must be an integer",
    ),
    (
        "DeclareVhost",
        topology.DeclareVhostRequest(name="v", default_queue_type="stream"),
        "default_queue_type",
        "'stream' is not",
    ),
    (
        "DeclareVhost",
        topology.DeclareVhostRequest(name="v", tags=Tags(tags=["a", ""])),
        "tags.tags[1]",
        "1 to 255 bytes",
    ),
    (
        "DeclareUser",
        topology.DeclareUserRequest(name="u", tags=Tags(tags=["a, b"])),
        "tags.tags[0]",
        "no comma",
    ),
    ("DeclareUser", topology.DeclareUserRequest(), "name", "1 to 255 bytes"),
    ("DeclareUser", topology.DeclareUserRequest(name="u", password=""), "password", "not be empty"),
    (
        "DeclareUser",
        topology.DeclareUserRequest(name="u", limits={"publish-weight": 0}),
        'limits["publish-weight"]',
        "must not be 0",
    ),
    (
        "DeclarePermission",
        topology.DeclarePermissionRequest(
            permission=topology.Permission(user="app", vhost="/", configure="(")
        ),
        "permission.configure",
        "",
    ),
    ("DeclarePolicy", topology.DeclarePolicyRequest(policy=policy(name="")), "policy.name", "1 to"),
    (
        "DeclarePolicy",
        topology.DeclarePolicyRequest(policy=policy(pattern="[")),
        "policy.pattern",
        "",
    ),
    (
        "DeclarePolicy",
        topology.DeclarePolicyRequest(policy=policy(apply_to="streams")),
        "policy.apply_to",
        "'streams' is not one of",
    ),
    (
        "DeclarePolicy",
        topology.DeclarePolicyRequest(policy=policy(definition=Table())),
        "policy.definition",
        "must not be empty",
    ),
    (
        "DeclarePolicy",
        topology.DeclarePolicyRequest(
            policy=policy(definition=Table(fields={"warp": Value(int64=1)}))
        ),
        "policy.definition",
        "not recognised",
    ),
    (
        "DeclarePolicy",
        topology.DeclarePolicyRequest(policy=policy(priority=-(1 << 31))),
        "policy.priority",
        "is not within",
    ),
]


@pytest.mark.parametrize(("method", "request_", "field", "rule"), BAD)
def test_a_bad_value_is_refused_by_field_and_rule(
    serve: Any, method: str, request_: Any, field: str, rule: str
) -> None:
    async def scenario(client: Any) -> None:
        before = client.node.view.applied_index
        error = await client.refusal(method, request_)
        assert error.code == "INVALID_ARGUMENT"
        assert error.fields[0][0] == field
        assert rule in error.fields[0][1]
        assert client.node.view.applied_index == before

    serve(scenario)


MISSING: list[tuple[str, Any, str]] = [
    ("DescribeVhost", topology.DescribeVhostRequest(name="v"), "name"),
    ("DescribeUser", topology.DescribeUserRequest(name="v"), "name"),
    (
        "DeclarePermission",
        topology.DeclarePermissionRequest(permission=topology.Permission(user="app", vhost="v")),
        "permission.vhost",
    ),
    (
        "DeclarePermission",
        topology.DeclarePermissionRequest(permission=topology.Permission(user="v", vhost="/")),
        "permission.user",
    ),
    ("DescribePermission", topology.DescribePermissionRequest(user="app", vhost="v"), "vhost"),
    ("ListPermissions", topology.ListPermissionsRequest(vhost="v"), "vhost"),
    ("DeclarePolicy", topology.DeclarePolicyRequest(policy=policy(vhost="v")), "policy.vhost"),
    ("DeletePolicy", topology.DeletePolicyRequest(vhost="v", name="p"), "vhost"),
    ("ListPolicies", topology.ListPoliciesRequest(vhost="v"), "vhost"),
]


@pytest.mark.parametrize(("method", "request_", "field"), MISSING)
def test_what_is_not_there_is_named(refused: Any, method: str, request_: Any, field: str) -> None:
    error = refused(method, request_)
    assert (error.code, error.fields[0][0]) == ("NOT_FOUND", field)


ADMINISTRATORS_ONLY = [
    ("DeclareVhost", topology.DeclareVhostRequest(name="v")),
    ("DeleteVhost", topology.DeleteVhostRequest(name="/")),
    ("DeclareUser", topology.DeclareUserRequest(name="u", password="p")),
    ("DeleteUser", topology.DeleteUserRequest(name="guest")),
    ("DescribeUser", topology.DescribeUserRequest(name="guest")),
    ("ListUsers", topology.ListUsersRequest()),
    (
        "DeclarePermission",
        topology.DeclarePermissionRequest(permission=topology.Permission(user="app", vhost="/")),
    ),
    ("DeletePermission", topology.DeletePermissionRequest(user="guest", vhost="/")),
    ("DescribePermission", topology.DescribePermissionRequest(user="guest", vhost="/")),
    ("ListPermissions", topology.ListPermissionsRequest()),
    ("DeclarePolicy", topology.DeclarePolicyRequest(policy=policy(operator=True))),
    ("DeletePolicy", topology.DeletePolicyRequest(vhost="/", name="p", operator=True)),
]


@pytest.mark.parametrize("user", ["alice", "pol", "mon", "app"])
@pytest.mark.parametrize(("method", "request_"), ADMINISTRATORS_ONLY)
def test_what_administrators_do_nobody_else_does(
    serve: Any, method: str, request_: Any, user: str
) -> None:
    async def scenario(client: Any) -> None:
        client.node.do(commands.PutPermission(Permission(user, "/", ".*", ".*", ".*")))
        before = client.node.view.applied_index
        error = await client.refusal(method, request_, user=user)
        assert (error.code, error.reason) == ("PERMISSION_DENIED", "ACCESS_REFUSED")
        assert "administrator" in error.text
        assert client.node.view.applied_index == before

    serve(scenario)


def test_policies_are_made_by_policymakers_where_they_may_enter(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        request = topology.DeclarePolicyRequest(policy=policy())
        error = await client.refusal("DeclarePolicy", request, user="alice")
        assert "policymaker" in error.text
        error = await client.refusal("DeclarePolicy", request, user="pol")
        assert error.text == "access to vhost '/' refused for user 'pol'"
        client.node.do(commands.PutPermission(Permission("pol", "/", "", "", "")))
        assert (await client.call("DeclarePolicy", request, user="pol")).created
        table = Table(fields={"dead-letter-exchange": Value(string="others")})
        request = topology.DeclarePolicyRequest(policy=policy(name="on", definition=table))
        error = await client.refusal("DeclarePolicy", request, user="pol")
        assert error.text == (
            "write access to exchange 'others' in vhost '/' refused for user 'pol'"
        )

    serve(scenario)


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("ListVhosts", topology.ListVhostsRequest()),
        ("DescribeVhost", topology.DescribeVhostRequest(name="/")),
        ("ListPolicies", topology.ListPoliciesRequest()),
        ("DescribePolicy", topology.DescribePolicyRequest(vhost="/", name="p")),
        ("ListQueues", topology.ListQueuesRequest()),
        ("ListExchanges", topology.ListExchangesRequest()),
        ("ListBindings", topology.ListBindingsRequest()),
    ],
)
def test_listings_take_a_tag(refused: Any, method: str, request_: Any) -> None:
    assert "must have one of" in refused(method, request_, user="app").text


def test_a_page_ends_early_where_rows_are_large(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        definition = {"message-ttl": "x" * (200 << 10)}
        for number in range(12):
            client.node.do(commands.PutPolicy(Policy("/", f"p{number:02}", ".*", definition)))
        found: list[str] = []
        token, pages = "", 0
        while True:
            page = topology.PageRequest(token=token)
            answer = await client.call("ListPolicies", topology.ListPoliciesRequest(page=page))
            assert answer.ByteSize() <= (1 << 20) + 4096
            found += [each.name for each in answer.policies]
            token, pages = answer.next_token, pages + 1
            if not token:
                break
        assert (found, pages) == ([f"p{number:02}" for number in range(12)], 3)

    serve(scenario)
