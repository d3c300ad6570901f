"""`Why`, `Top` and limits over gRPC."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.runtime.flow_world import bring

from headrace_broker.catalog.command import PutPermission
from headrace_broker.model.definition import Permission
from headrace_broker.model.flow import LIMIT_COMMANDS, LIMIT_WATERMARK
from headrace_broker.model.flow_parameter import PARAMETERS
from headrace_protos.broker.v1 import flow_pb2 as flow


@pytest.fixture
def slow(world: Any) -> Any:
    """`app` is stopped by a queue that `alice` has filled."""
    host = world.lead(2, "orders")
    host.machine.saturated, host.machine.deferred_count = True, 40
    victim, culprit = world.connect(1, 5, "app"), world.connect(3, 9, "alice")
    bring(victim, host, 1, 100)
    bring(culprit, host, 9, 900)
    world.pass_time(1)
    victim.flow.stop(LIMIT_WATERMARK, host.queue.group, world.now)
    return victim


def test_a_slow_connection_is_explained_with_its_causes(slow: Any, serve: Any) -> None:
    async def scenario(client: Any) -> None:
        for subject in ({"connection": slow.id}, {"name": "10.0.0.5"}):
            why = await client.call("Why", flow.WhyRequest(**subject))
            assert (why.kind, why.name, why.node) == ("connection", slow.name, "n1")
            assert (why.state, why.limit, why.queue) == ("flow", "watermark", "orders")
            assert why.sentence.startswith("conn 10.0.0.5:4711 (user app, vhost /)")
            assert [cause.user for cause in why.causes] == ["alice", "app"]
            assert why.causes[0].share == pytest.approx(0.9)
        why = await client.call("Why", flow.WhyRequest(queue="orders", vhost="/"))
        assert (why.kind, why.leader) == ("queue", "n2")
        assert [row.id for row in why.held] == [slow.id]

    serve(scenario)


def test_who_filled_a_queue_and_left_is_a_cause_and_has_a_name_for_who_may_know(
    world: Any, slow: Any, serve: Any
) -> None:
    culprit = world.nodes[3].connections.pop("n3/1/9")
    world.nodes[3].ledger.close(culprit.account)
    host = next(iter(world.nodes[2].hosts.values()))
    host.machine.ready_count, host.machine.ready_bytes = 10, 1000

    async def scenario(client: Any) -> None:
        client.node.do(PutPermission(Permission("pol", "/", "", "", "")))
        for user, name in (("guest", culprit.name), ("pol", "")):
            request = flow.WhyRequest(queue="orders", vhost="/")
            why = await client.call("Why", request, user=user)
            top = why.causes[0]
            assert (why.shares_of, top.gone, top.name) == ("backlog", True, name)
            assert (top.messages_queued, top.octets_queued, top.share) == (9, 900, 0.9)
            assert ("10.0.0.9" in why.sentence) == bool(name)
        assert "another user's connection, which is gone" in why.sentence

    serve(scenario)


def test_others_have_no_name_for_who_may_not_monitor(slow: Any, serve: Any) -> None:
    async def scenario(client: Any) -> None:
        client.node.do(PutPermission(Permission("alice", "/", "", "", "")))
        why = await client.call("Why", flow.WhyRequest(queue="orders", vhost="/"), user="alice")
        assert [(cause.user, cause.name, cause.account) for cause in why.causes[1:]] == [("",) * 3]
        assert why.causes[0].user == "alice"
        assert not why.held
        request = flow.WhyRequest(connection=slow.id)
        assert (await client.refusal("Why", request, user="alice")).code == "NOT_FOUND"
        error = await client.refusal("Why", flow.WhyRequest(queue="orders", vhost="/"), user="pol")
        assert error.text == "access to vhost '/' refused for user 'pol'"
        top = await client.call("Top", flow.TopRequest(), user="alice")
        assert [row.user for row in top.connections] == ["alice"]
        assert [row.name for row in top.queues] == ["orders"]
        top = await client.call("Top", flow.TopRequest(), user="pol")
        assert not top.connections
        assert not top.queues

    serve(scenario)


@pytest.mark.parametrize(
    ("request_", "code", "field", "text"),
    [
        (flow.WhyRequest(), "INVALID_ARGUMENT", "subject", "must be a connection, a queue or"),
        (flow.WhyRequest(connection=""), "INVALID_ARGUMENT", "connection", "1 to 1024 bytes"),
        (flow.WhyRequest(name="x" * 1025), "INVALID_ARGUMENT", "name", "1 to 1024 bytes"),
        (flow.WhyRequest(queue="q", vhost="v"), "NOT_FOUND", "vhost", "no vhost 'v'"),
        (flow.WhyRequest(queue="q"), "INVALID_ARGUMENT", "vhost", "1 to 255 bytes"),
        (flow.WhyRequest(queue="q", vhost="/"), "NOT_FOUND", "queue", "no queue 'q'"),
        (flow.WhyRequest(connection="10.9"), "NOT_FOUND", "connection", "begins with '10.9'"),
        (flow.WhyRequest(name="gone"), "NOT_FOUND", "name", "begins with 'gone'"),
        (flow.WhyRequest(name="10.0"), "FAILED_PRECONDITION", "name", "say more of the name"),
    ],
)
def test_a_question_that_cannot_be_answered_says_why(
    slow: Any, refused: Any, request_: Any, code: str, field: str, text: str
) -> None:
    error = refused("Why", request_)
    assert (error.code, text in error.text) == (code, True), error.text
    assert error.fields[0][0] == field


def test_top_lists_the_stopped_and_what_stops_them(slow: Any, serve: Any, world: Any) -> None:
    async def scenario(client: Any) -> None:
        top = await client.call("Top", flow.TopRequest(connections=1))
        [row] = top.connections
        assert (row.id, row.state, row.limit, row.queue) == (slow.id, "flow", "watermark", "orders")
        [queue] = top.queues
        assert (queue.name, queue.node, queue.saturated) == ("orders", "n2", True)
        assert queue.messages_withheld == 40
        world.links.down = {3}
        assert list((await client.call("Top", flow.TopRequest())).missing_nodes) == ["n3"]

    serve(scenario)


@pytest.mark.parametrize("field", ["connections", "queues"])
def test_a_listing_has_a_largest_size(refused: Any, field: str) -> None:
    error = refused("Top", flow.TopRequest(**{field: 501}))
    assert error.fields == [(field, "must be at most 500, not 501")]


def test_everything_takes_a_tag(serve: Any, world: Any) -> None:
    async def scenario(client: Any) -> None:
        world.connect(1, 5, "app").flow.stop(LIMIT_COMMANDS, 0, world.now)
        for method, request in (
            ("Why", flow.WhyRequest(name="10.0.0.5")),
            ("Top", flow.TopRequest()),
            ("ListLimits", flow.ListLimitsRequest()),
            ("GetLimit", flow.GetLimitRequest(name="credit")),
            ("SetLimit", flow.SetLimitRequest(name="credit")),
            ("ResetLimit", flow.ResetLimitRequest(name="credit")),
        ):
            error = await client.refusal(method, request, user="app")
            assert (error.code, "tag" in error.text) == ("PERMISSION_DENIED", True)

    serve(scenario)


# Limits


def test_a_limit_is_listed_set_and_reset(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        listed = await client.call("ListLimits", flow.ListLimitsRequest(), user="mon")
        assert [limit.name for limit in listed.limits] == list(PARAMETERS)
        request = flow.SetLimitRequest(name="account_messages", value=flow.LimitValue(number=50))
        limit = await client.call("SetLimit", request)
        assert (limit.name, limit.value.number, limit.source) == ("account-messages", 50, "cluster")
        assert limit.otherwise.number == PARAMETERS["account-messages"].default
        get = flow.GetLimitRequest(name="account-messages")
        assert await client.call("GetLimit", get, user="mon") == limit
        reset = flow.ResetLimitRequest(name="account-messages")
        limit = await client.call("ResetLimit", reset)
        assert (limit.value, limit.source) == (limit.otherwise, "default")
        request = flow.SetLimitRequest(
            name="memory-high-watermark", value=flow.LimitValue(fraction=0.25)
        )
        assert (await client.call("SetLimit", request)).value.fraction == 0.25

    serve(scenario)


@pytest.mark.parametrize(
    ("name", "value", "field", "rule"),
    [
        ("credit", flow.LimitValue(), "value", "must be an integer from 1"),
        ("credit", flow.LimitValue(number=0), "value", "is not an integer from 1"),
        ("credit", flow.LimitValue(number=(1 << 64) - 1), "value", "is not an integer from 1"),
        ("credit", flow.LimitValue(fraction=0.5), "value", "is not an integer from 1"),
        ("disk-free-limit", flow.LimitValue(fraction=10.5), "value", "from 0.0 to 10.0"),
        ("disk-free-limit", flow.LimitValue(fraction=float("nan")), "value", "is not an integer"),
        ("disk-free-limit", flow.LimitValue(fraction=float("inf")), "value", "is not an integer"),
        ("disk-free-limit", flow.LimitValue(fraction=-1), "value", "is not an integer"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_its_rule(
    refused: Any, name: str, value: Any, field: str, rule: str
) -> None:
    error = refused("SetLimit", flow.SetLimitRequest(name=name, value=value))
    assert (error.code, error.fields[0][0]) == ("INVALID_ARGUMENT", field)
    assert rule in error.fields[0][1]


@pytest.mark.parametrize("method", ["GetLimit", "SetLimit", "ResetLimit"])
@pytest.mark.parametrize(
    ("name", "code"),
    [("warp", "NOT_FOUND"), ("", "INVALID_ARGUMENT"), ("x" * 999, "INVALID_ARGUMENT")],
)
def test_a_limit_that_is_not_there_is_named(
    refused: Any, method: str, name: str, code: str
) -> None:
    request = getattr(flow, f"{method}Request")(name=name)
    error = refused(method, request)
    assert (error.code, error.fields[0][0]) == (code, "name")


@pytest.mark.parametrize("method", ["SetLimit", "ResetLimit"])
def test_limits_are_changed_by_administrators(refused: Any, method: str) -> None:
    request = getattr(flow, f"{method}Request")(name="credit")
    for user in ("mon", "pol", "alice"):
        assert "administrator" in refused(method, request, user=user).text
