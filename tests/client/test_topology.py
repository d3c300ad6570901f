"""Declaring, deleting, describing and listing; and questions about flow control."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace_client
from headrace_client import Properties
from headrace_client.definition import Binding, Permission, Policy, TopicPermission
from headrace_client.value import decode_table, encode_table
from headrace_protos.broker.v1 import flow_pb2 as flow
from headrace_protos.broker.v1 import message_pb2 as message
from headrace_protos.broker.v1 import messaging_pb2 as messaging
from headrace_protos.broker.v1 import topology_pb2 as topology
from headrace_protos.broker.v1.value_pb2 import Table, Value


def test_a_queue_is_declared_described_and_deleted(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        counts = topology.QueueCounts(messages_ready=3, consumers=1)
        broker.answers = {
            "DeclareQueue": topology.DeclareQueueResponse(name="q", created=True, type="quorum"),
            "DescribeQueue": topology.QueueDescription(
                vhost="/",
                name="q",
                arguments=encode_table({"x-max-length": 5}),
                members=["n1", "n2"],
                counts=counts,
                flow=topology.QueueFlowState(saturated=True, arrived=2.5),
            ),
            "DeleteQueue": topology.DeleteQueueResponse(deleted=True, messages=3),
            "PurgeQueue": topology.PurgeQueueResponse(messages=4),
        }
        declared = await client.topology.declare_queue("q", arguments={"x-max-length": 5})
        assert (declared.name, declared.created, declared.counts) == ("q", True, None)
        request = broker.calls[-1][1]
        assert (request.vhost, request.durable) == ("/", True)
        assert request.arguments.fields["x-max-length"].int64 == 5
        queue = await client.topology.queue("q", vhost="v")
        assert broker.calls[-1][1].vhost == "v"
        assert (queue.arguments, queue.members) == ({"x-max-length": 5}, ("n1", "n2"))
        assert queue.counts is not None
        assert queue.flow is not None
        assert (queue.counts.messages_ready, queue.flow.arrived) == (3, 2.5)
        deleted = await client.topology.delete_queue("q", if_empty=True)
        assert (deleted.deleted, deleted.messages) == (True, 3)
        assert await client.topology.purge_queue("q") == 4

    play(scenario)


def test_a_listing_goes_through_all_pages(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        def pages(request: Any) -> Any:
            number = int(request.page.token or "0")
            queues = [topology.QueueDescription(name=f"q{number}{each}") for each in "ab"]
            token = str(number + 1) if number < 2 else ""
            return topology.ListQueuesResponse(queues=queues, next_token=token)

        broker.answers["ListQueues"] = pages
        names = [queue.name async for queue in client.topology.queues(name_prefix="q")]
        assert names == ["q0a", "q0b", "q1a", "q1b", "q2a", "q2b"]

    play(scenario)


def test_exchanges_and_bindings(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        to_queue = topology.Binding(vhost="/", source="x", queue="q", routing_key="k")
        broker.answers = {
            "DeclareExchange": topology.DeclareExchangeResponse(created=True),
            "DeleteExchange": topology.DeleteResponse(deleted=True),
            "DescribeExchange": topology.ExchangeDescription(name="x", type="topic"),
            "ListExchanges": topology.ListExchangesResponse(
                exchanges=[topology.ExchangeDescription(name="x")]
            ),
            "Bind": topology.BindResponse(created=True),
            "Unbind": topology.DeleteResponse(),
            "ListBindings": topology.ListBindingsResponse(bindings=[to_queue]),
        }
        calls = client.topology
        assert await calls.declare_exchange("x", "topic", internal=True)
        assert (broker.calls[-1][1].type, broker.calls[-1][1].internal) == ("topic", True)
        assert (await calls.exchange("x")).type == "topic"
        assert [each.name async for each in calls.exchanges()] == ["x"]
        assert await calls.bind("x", queue="q", routing_key="k")
        assert broker.calls[-1][1].binding.queue == "q"
        assert not await calls.unbind("x", exchange="y", arguments={"a": 1})
        assert broker.calls[-1][1].binding.exchange == "y"
        assert [each async for each in calls.bindings(source="", queue="q")] == [
            Binding("/", "x", "q", routing_key="k")
        ]
        assert broker.calls[-1][1].HasField("source")
        assert await calls.delete_exchange("x", if_unused=True)
        for ends in ({}, {"queue": "q", "exchange": "x"}):
            with pytest.raises(ValueError, match="leads to one of them"):
                await calls.bind("x", **ends)

    play(scenario)


def test_topic_permissions(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        given = {"user": "u", "vhost": "/", "exchange": "x", "write": "^a", "read": "^b"}
        permission = topology.TopicPermission(**given)
        listed = topology.ListTopicPermissionsResponse(permissions=[permission])
        broker.answers = {
            "DeclareTopicPermission": topology.DeclareTopicPermissionResponse(created=True),
            "DeleteTopicPermission": topology.DeleteResponse(deleted=True),
            "DescribeTopicPermission": permission,
            "ListTopicPermissions": listed,
        }
        calls = client.topology
        assert await calls.declare_topic_permission("u", "x", write="^a", read="^b")
        assert broker.calls[-1][1].permission == permission
        expected = TopicPermission(**given)
        assert await calls.topic_permission("u", "x") == expected
        assert [each async for each in calls.topic_permissions(vhost="/")] == [expected]
        assert await calls.delete_topic_permission("u")
        assert broker.calls[-1][1].exchange == ""

    play(scenario)


@pytest.mark.parametrize(
    "method",
    [
        method.name
        for service in (topology.DESCRIPTOR, flow.DESCRIPTOR, messaging.DESCRIPTOR)
        for each in service.services_by_name.values()
        for method in each.methods
    ],
)
def test_every_method_has_its_call_in_the_client(method: str) -> None:
    folder = Path(str(headrace_client.__file__)).parent
    texts = [path.read_text(encoding="utf-8") for path in folder.glob("*.py")]
    call = re.compile(rf"(stub|Stub\(channel\))\.{method}\b|full_name}}/{method}\"")
    assert any(call.search(text) for text in texts)


def test_vhosts_users_permissions_and_policies(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        policy = topology.Policy(vhost="/", name="p", pattern="^q", apply_to="all")
        policy.definition.CopyFrom(encode_table({"max-length": 5}))
        permission = topology.Permission(user="u", vhost="/", configure="c", write="w", read="r")
        created = {"created": True}
        broker.answers = {
            "DeclareVhost": topology.DeclareVhostResponse(**created),
            "DescribeVhost": topology.VhostDescription(name="v", limits={"max-queues": 5}),
            "ListVhosts": topology.ListVhostsResponse(vhosts=[topology.VhostDescription(name="v")]),
            "DeclareUser": topology.DeclareUserResponse(**created),
            "DeleteUser": topology.DeleteResponse(deleted=True),
            "DescribeUser": topology.UserDescription(name="u", tags=["management"]),
            "ListUsers": topology.ListUsersResponse(users=[topology.UserDescription(name="u")]),
            "DeclarePermission": topology.DeclarePermissionResponse(**created),
            "DeletePermission": topology.DeleteResponse(deleted=True),
            "DescribePermission": permission,
            "ListPermissions": topology.ListPermissionsResponse(permissions=[permission]),
            "DeclarePolicy": topology.DeclarePolicyResponse(**created),
            "DeletePolicy": topology.DeleteResponse(deleted=True),
            "DescribePolicy": policy,
            "ListPolicies": topology.ListPoliciesResponse(policies=[policy]),
        }
        calls = client.topology
        assert await calls.declare_vhost("v", description="d", limits={"max-queues": 5})
        request = broker.calls[-1][1]
        assert (request.description, request.HasField("tags")) == ("d", False)
        assert (await calls.vhost("v")).limits == {"max-queues": 5}
        assert [each.name async for each in calls.vhosts()] == ["v"]
        assert await calls.declare_user("u", password="secret", tags=[])
        request = broker.calls[-1][1]
        assert (request.password, request.HasField("tags")) == ("secret", True)
        await calls.declare_user("u", no_password=True)
        assert broker.calls[-1][1].no_password
        with pytest.raises(ValueError, match="no_password"):
            await calls.declare_user("u", password="x", no_password=True)
        assert (await calls.user("u")).tags == ("management",)
        assert [each.name async for each in calls.users()] == ["u"]
        assert await calls.delete_user("u")
        assert await calls.declare_permission("u", configure="c", write="w", read="r")
        assert broker.calls[-1][1].permission == permission
        expected = Permission("u", "/", "c", "w", "r")
        assert await calls.permission("u") == expected
        assert [each async for each in calls.permissions(user="u")] == [expected]
        assert await calls.delete_permission("u")
        assert await calls.declare_policy("p", "^q", {"max-length": 5})
        assert broker.calls[-1][1].policy == policy
        wanted = Policy("/", "p", "^q", {"max-length": 5})
        assert await calls.policy("p") == wanted
        assert [each async for each in calls.policies()] == [wanted]
        assert await calls.delete_policy("p", operator=True)
        assert broker.calls[-1][1].operator

    play(scenario)


def test_why_top_and_limits(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        why = flow.WhyResponse(sentence="it is slow", kind="queue", name="q")
        why.stopped_by_limit["watermark"].last_10s = 0.5
        why.causes.add(name="culprit")
        why.held.add(id="c1")
        limit = flow.Limit(name="credit", value=flow.LimitValue(number=5))
        fraction = flow.Limit(name="m", value=flow.LimitValue(fraction=0.5))
        broker.answers = {
            "Why": why,
            "Top": flow.TopResponse(connections=[flow.StoppedConnection(id="c1")], left_out=2),
            "ListLimits": flow.ListLimitsResponse(limits=[limit, fraction]),
            "GetLimit": limit,
            "SetLimit": fraction,
            "ResetLimit": limit,
        }
        found = await client.why(queue="q")
        assert (broker.calls[-1][1].queue, broker.calls[-1][1].vhost) == ("q", "/")
        assert (found.sentence, found.causes[0].name, found.held[0].id) == (
            "it is slow",
            "culprit",
            "c1",
        )
        assert found.stopped_by_limit["watermark"].last_10s == 0.5
        await client.why(connection="c")
        assert broker.calls[-1][1].WhichOneof("subject") == "connection"
        with pytest.raises(ValueError, match="exactly one"):
            await client.why("a", queue="b")
        top = await client.flow.top(connections=1)
        assert (top.connections[0].id, top.left_out) == ("c1", 2)
        limits = await client.flow.limits()
        assert {name: each.value for name, each in limits.items()} == {"credit": 5, "m": 0.5}
        assert (await client.flow.limit("credit")).value == 5
        await client.flow.set_limit("m", 0.5)
        assert broker.calls[-1][1].value.fraction == 0.5
        await client.flow.set_limit("credit", 5)
        assert broker.calls[-1][1].value.number == 5
        await client.flow.reset_limit("credit")

    play(scenario)


# Values and properties

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.decimals(-1000, 1000, places=3)
    | st.integers(0, 1 << 32).map(lambda seconds: datetime.fromtimestamp(seconds, UTC))
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), _VALUES, max_size=4))
def test_what_is_written_is_read_again(table: dict[str, Any]) -> None:
    assert decode_table(Table.FromString(encode_table(table).SerializeToString())) == table


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (1 << 63, ValueError, r"headers\['a'\]: .* more than 64 bits"),
        (object(), TypeError, r"headers\['a'\]: a object cannot be sent"),
        ([1, object()], TypeError, r"headers\['a'\]\[1\]: a object cannot be sent"),
        ({1: 2}, TypeError, r"headers\['a'\]: a name must be a str, not int"),
        (Decimal("NaN"), ValueError, "is not a number"),
        (Decimal("1e400"), ValueError, "more than 32 bits"),
        (Decimal("1e-300"), ValueError, "more than 32 bits"),
        (datetime(1960, 1, 1, tzinfo=UTC), ValueError, "is before 1970"),
    ],
)
def test_a_value_that_cannot_be_sent_says_where(
    value: Any, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        encode_table({"a": value})


def test_values_of_other_clients_are_read() -> None:
    fields = {
        "int8": Value(int8=-5),
        "uint16": Value(uint16=5),
        "float": Value(float=0.5),
        "byte_count": Value(octets=b"\xff"),
        "far": Value(timestamp=1 << 62),
        "nothing": Value(),
    }
    assert decode_table(Table(fields=fields)) == {
        "int8": -5,
        "uint16": 5,
        "float": 0.5,
        "byte_count": b"\xff",
        "far": 1 << 62,
        "nothing": None,
    }


def test_properties_go_there_and_back() -> None:
    properties = Properties(
        content_type="t",
        content_encoding="e",
        headers={"a": [1, {"b": "c"}]},
        delivery_mode=2,
        priority=0,
        correlation_id="",
        reply_to="r",
        expiration=timedelta(seconds=1.5),
        message_id="m",
        timestamp=datetime(2020, 1, 1, tzinfo=UTC),
        type="k",
        user_id="u",
        app_id="p",
        cluster_id="c",
    )
    found = properties.to_pb()
    assert (found.expiration, found.HasField("correlation_id")) == ("1500", True)
    assert Properties.from_pb(found) == properties
    assert Properties.from_pb(message.Properties()) == Properties()
    assert Properties.from_pb(Properties(encoded=b"\x00").to_pb()).encoded == b"\x00"
    assert Properties(timestamp=5).to_pb().timestamp == 5
    for text in ("soon", "9" * 20, "-"):
        assert Properties.from_pb(message.Properties(expiration=text)).expiration is None
    with pytest.raises(ValueError, match=r"expiration: .* is negative"):
        Properties(expiration=timedelta(seconds=-1)).to_pb()
