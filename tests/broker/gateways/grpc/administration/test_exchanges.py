"""Exchanges and bindings over gRPC."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.model import definition
from headrace_broker.model.definition import Permission
from headrace_protos.broker.v1 import topology_pb2 as topology
from headrace_protos.broker.v1.value_pb2 import Table, Value

GUEST = (("authorization", "Basic Z3Vlc3Q6Z3Vlc3Q="),)
Declare = topology.DeclareExchangeRequest
Binding = topology.Binding


def text_table(**fields: str) -> Table:
    return Table(
        fields={name.replace("_", "-"): Value(string=text) for name, text in fields.items()}
    )


def exchange(name: str, kind: str = "direct", **fields: Any) -> Any:
    return commands.DeclareExchange(definition.Exchange("/", name, kind, **fields))


def queue(name: str = "q", **fields: Any) -> Any:
    return commands.DeclareQueue("/", name, "quorum", **fields)


def test_an_exchange_is_declared_described_and_deleted(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        table = text_table(alternate_exchange="amq.fanout")
        request = Declare(vhost="/", name="x", type="topic", internal=True, arguments=table)
        assert (await client.call("DeclareExchange", request)).created
        assert not (await client.call("DeclareExchange", request)).created
        passive = Declare(vhost="/", name="x", passive=True)
        assert not (await client.call("DeclareExchange", passive)).created
        described = await client.call(
            "DescribeExchange", topology.DescribeExchangeRequest(vhost="/", name="x")
        )
        assert (described.type, described.durable, described.internal) == ("topic", True, True)
        assert described.arguments == table
        default = topology.DescribeExchangeRequest(vhost="/")
        assert (await client.call("DescribeExchange", default)).type == "direct"
        delete = topology.DeleteExchangeRequest(vhost="/", name="x")
        assert (await client.call("DeleteExchange", delete)).deleted
        assert not (await client.call("DeleteExchange", delete)).deleted

    serve(scenario)


@pytest.mark.parametrize(
    ("request_", "code", "field", "text"),
    [
        (
            Declare(vhost="/", type="direct"),
            "PERMISSION_DENIED",
            "",
            "operation not permitted on the default exchange",
        ),
        (Declare(vhost="/", name="x"), "INVALID_ARGUMENT", "type", "must not be empty"),
        (
            Declare(vhost="/", name="x", type="ring"),
            "FAILED_PRECONDITION",
            "type",
            "unknown exchange type 'ring'",
        ),
        (
            Declare(vhost="/", name="amq.x", type="topic"),
            "PERMISSION_DENIED",
            "",
            "reserved prefix 'amq.*'",
        ),
        (
            Declare(vhost="/", name="x", type="topic", arguments=text_table(hash_header="1")),
            "INVALID_ARGUMENT",
            "arguments",
            "invalid arg 'hash-header'",
        ),
        (
            Declare(vhost="/", name="amq.topic", type="direct"),
            "FAILED_PRECONDITION",
            "type",
            "received 'direct' but current is 'topic'",
        ),
        (Declare(vhost="/", name="x", passive=True), "NOT_FOUND", "name", "no exchange 'x'"),
        (Declare(vhost="v", name="x", type="topic"), "NOT_FOUND", "vhost", "no vhost 'v'"),
    ],
)
def test_an_exchange_that_cannot_be_is_refused(
    refused: Any, request_: Any, code: str, field: str, text: str
) -> None:
    error = refused("DeclareExchange", request_)
    assert (error.code, text in error.text) == (code, True), error.text
    assert [each[0] for each in error.fields] == ([field] if field else [])


@pytest.mark.parametrize("name", ["", "amq.direct"])
def test_exchanges_of_the_broker_stay(refused: Any, name: str) -> None:
    error = refused("DeleteExchange", topology.DeleteExchangeRequest(vhost="/", name=name))
    assert error.code == "PERMISSION_DENIED"


def test_an_exchange_in_use_stays_where_that_is_asked(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        client.node.do(exchange("x"))
        client.node.do(queue())
        client.node.do(commands.Bind(definition.Binding("/", "x", "queue", "q", "k")))
        request = topology.DeleteExchangeRequest(vhost="/", name="x", if_unused=True)
        error = await client.refusal("DeleteExchange", request)
        assert (error.code, error.text) == (
            "FAILED_PRECONDITION",
            "exchange 'x' in vhost '/' in use",
        )

    serve(scenario)


def test_exchanges_are_listed(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        listed = await client.call("ListExchanges", topology.ListExchangesRequest(vhost="/"))
        names = [each.name for each in listed.exchanges]
        assert names[:2] == ["", "amq.direct"]
        assert names == sorted(names)
        prefixed = topology.ListExchangesRequest(name_prefix="amq.t")
        listed = await client.call("ListExchanges", prefixed)
        assert [each.name for each in listed.exchanges] == ["amq.topic"]
        error = await client.refusal("ListExchanges", prefixed, user="app")
        assert error.code == "PERMISSION_DENIED"

    serve(scenario)


def test_bindings_are_added_listed_and_removed(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        client.node.do(queue())
        client.node.do(exchange("x"))
        to_queue = Binding(vhost="/", source="amq.topic", queue="q", routing_key="a.*")
        to_exchange = Binding(
            vhost="/",
            source="amq.headers",
            exchange="x",
            arguments=text_table(x_match="any", a="b"),
        )
        for binding in (to_queue, to_exchange):
            request = topology.BindRequest(binding=binding)
            assert (await client.call("Bind", request)).created
            assert not (await client.call("Bind", request)).created
        implicit = Binding(vhost="/", queue="q", routing_key="q", arguments=Table())
        to_queue.arguments.SetInParent()

        async def listed(**filters: Any) -> list[Any]:
            answer = await client.call("ListBindings", topology.ListBindingsRequest(**filters))
            return list(answer.bindings)

        assert await listed() == [implicit, to_exchange, to_queue]
        assert await listed(vhost="/", queue="q") == [implicit, to_queue]
        assert await listed(exchange="x") == [to_exchange]
        assert await listed(source="") == [implicit]
        assert await listed(source="amq.topic", queue="q") == [to_queue]
        assert await listed(queue="gone") == []
        for binding in (to_queue, to_exchange):
            unbind = topology.UnbindRequest(binding=binding)
            assert (await client.call("Unbind", unbind)).deleted
            assert not (await client.call("Unbind", unbind)).deleted
        assert await listed() == [implicit]

    serve(scenario)


def test_pages_of_bindings_hold_each_once(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        node = client.node
        node.do(queue())
        for key in ("a", "b"):
            for number in range(4):
                arguments = {"x": number} if number else {}
                binding = definition.Binding("/", "amq.topic", "queue", "q", key, arguments)
                node.do(commands.Bind(binding))
        found, token = [], ""
        while True:
            page = topology.PageRequest(size=2, token=token)
            request = topology.ListBindingsRequest(source="amq.topic", page=page)
            answer = await client.call("ListBindings", request)
            found += [
                (each.routing_key, each.arguments.fields["x"].int64) for each in answer.bindings
            ]
            token = answer.next_token
            if not token:
                break
        assert sorted(found) == [(key, number) for key in "ab" for number in range(4)]

    serve(scenario)


@pytest.mark.parametrize(
    ("binding", "code", "field", "text"),
    [
        (Binding(vhost="/", source="amq.topic"), "INVALID_ARGUMENT", "binding.destination", "must"),
        (
            Binding(vhost="/", queue="q"),
            "PERMISSION_DENIED",
            "",
            "operation not permitted on the default exchange",
        ),
        (
            Binding(vhost="/", source="amq.topic", exchange=""),
            "PERMISSION_DENIED",
            "",
            "operation not permitted on the default exchange",
        ),
        (
            Binding(vhost="/", source="gone", queue="q"),
            "NOT_FOUND",
            "binding.source",
            "no exchange 'gone' in vhost '/'",
        ),
        (
            Binding(vhost="/", source="amq.topic", queue="gone"),
            "NOT_FOUND",
            "binding.queue",
            "no queue 'gone' in vhost '/'",
        ),
        (
            Binding(vhost="/", source="amq.topic", exchange="gone"),
            "NOT_FOUND",
            "binding.exchange",
            "no exchange 'gone' in vhost '/'",
        ),
        (
            Binding(vhost="/", source="hash", queue="q", routing_key="much"),
            "INVALID_ARGUMENT",
            "binding.routing_key",
            "must be an integer",
        ),
        (
            Binding(vhost="/", source="local", queue="q", routing_key="k"),
            "INVALID_ARGUMENT",
            "binding.routing_key",
            "Non empty binding 'k' key not permitted",
        ),
        (
            Binding(vhost="/", source="local", exchange="amq.fanout"),
            "INVALID_ARGUMENT",
            "binding.destination",
            "Destination not found",
        ),
        (
            Binding(
                vhost="/", source="amq.headers", queue="q", arguments=text_table(x_match="some")
            ),
            "INVALID_ARGUMENT",
            "binding.arguments",
            "x-match",
        ),
        (
            Binding(vhost="/", source="amq.topic", queue="q", routing_key="k" * 256),
            "INVALID_ARGUMENT",
            "binding.routing_key",
            "0 to 255 bytes",
        ),
        (Binding(vhost="v", source="x", queue="q"), "NOT_FOUND", "binding.vhost", "no vhost 'v'"),
    ],
)
def test_a_binding_that_cannot_be_is_refused(
    serve: Any, binding: Any, code: str, field: str, text: str
) -> None:
    async def scenario(client: Any) -> None:
        client.node.do(queue())
        client.node.do(exchange("hash", "x-consistent-hash"))
        client.node.do(exchange("local", "x-local-random"))
        error = await client.refusal("Bind", topology.BindRequest(binding=binding))
        assert (error.code, text in error.text) == (code, True), error.text
        assert [each[0] for each in error.fields] == ([field] if field else [])

    serve(scenario)


@pytest.mark.parametrize(
    ("read", "write", "missing"),
    [
        ("^amq.topic$", "^z$", "write access to queue 'q'"),
        ("^z$", "^q$", "read access to exchange 'amq.topic'"),
    ],
)
def test_binding_takes_write_at_its_end_and_read_at_its_source(
    serve: Any, read: str, write: str, missing: str
) -> None:
    async def scenario(client: Any) -> None:
        client.node.do(queue())
        client.node.do(commands.PutPermission(Permission("app", "/", "", write, read)))
        binding = Binding(vhost="/", source="amq.topic", queue="q")
        for method, request in (
            ("Bind", topology.BindRequest(binding=binding)),
            ("Unbind", topology.UnbindRequest(binding=binding)),
        ):
            error = await client.refusal(method, request, user="app")
            assert error.code == "PERMISSION_DENIED"
            assert error.text.startswith(missing)
        client.node.do(commands.PutPermission(Permission("app", "/", "", "^q$", "^amq.topic$")))
        await client.call("Bind", topology.BindRequest(binding=binding), user="app")

    serve(scenario)


def test_an_answer_names_the_node_to_those_who_have_logged_in(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        request = topology.DescribeExchangeRequest(vhost="/", name="amq.topic")
        call = client.stub("DescribeExchange")(request, metadata=GUEST)
        assert (await call).type == "topic"
        assert ("headrace-node", "n1") in tuple(await call.trailing_metadata())
        call = client.stub("DescribeExchange")(request, metadata=())
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await call
        assert "headrace-node" not in str(failure.value.trailing_metadata())

    serve(scenario)
