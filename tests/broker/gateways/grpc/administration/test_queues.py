"""Queues over gRPC."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.model.definition import Permission, Policy, Vhost
from headrace_broker.model.flow_status import QueueFlow
from headrace_protos.broker.v1 import topology_pb2 as topology
from headrace_protos.broker.v1.value_pb2 import Table, Value

Declare = topology.DeclareQueueRequest


def arguments(**fields: Any) -> Table:
    """Arguments with text and integer values."""
    values = {
        name.replace("_", "-"): Value(string=value)
        if isinstance(value, str)
        else Value(int64=value)
        for name, value in fields.items()
    }
    return Table(fields=values)


def queue(name: str = "q", **fields: Any) -> Any:
    return commands.DeclareQueue("/", name, "quorum", **fields)


def test_a_queue_is_declared_described_listed_and_deleted(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        client.node.messages["q"] = 7
        request = Declare(vhost="/", name="q", arguments=arguments(x_max_length=5))
        answer = await client.call("DeclareQueue", request)
        assert (answer.name, answer.created, answer.type) == ("q", True, "quorum")
        assert answer.counts.messages_ready == 7
        assert not (await client.call("DeclareQueue", request)).created
        found = client.node.view.queue("/", "q")
        assert (found.durable, found.arguments) == (True, {"x-max-length": 5})
        described = await client.call(
            "DescribeQueue", topology.DescribeQueueRequest(vhost="/", name="q")
        )
        assert (described.name, described.durable, described.leader) == ("q", True, "n1")
        assert described.arguments.fields["x-max-length"].int64 == 5
        assert described.counts.messages_ready == 7
        assert not described.HasField("flow")
        listed = await client.call("ListQueues", topology.ListQueuesRequest(vhost="/"))
        assert [each.name for each in listed.queues] == ["q"]
        deleted = await client.call("DeleteQueue", topology.DeleteQueueRequest(vhost="/", name="q"))
        assert (deleted.deleted, deleted.messages) == (True, 7)
        assert client.node.view.queue("/", "q") is None
        again = await client.call("DeleteQueue", topology.DeleteQueueRequest(vhost="/", name="q"))
        assert not again.deleted

    serve(scenario)


def test_a_queue_without_a_name_gets_one(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        answer = await client.call("DeclareQueue", Declare(vhost="/", auto_delete=True))
        assert answer.name.startswith("amq.gen-")
        assert (answer.created, answer.type) == (True, "classic")
        assert not answer.HasField("counts")  # nobody who leads it answers
        assert client.node.view.queue("/", answer.name).auto_delete

    serve(scenario)


def test_a_passive_declare_declares_nothing(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        error = await client.refusal("DeclareQueue", Declare(vhost="/", name="q", passive=True))
        assert (error.code, error.text) == ("NOT_FOUND", "no queue 'q' in vhost '/'")
        assert error.fields[0][0] == "name"
        assert client.node.view.queue("/", "q") is None
        client.node.behind.append(queue())  # declared through another node a moment ago
        answer = await client.call("DeclareQueue", Declare(vhost="/", name="q", passive=True))
        assert (answer.name, answer.created) == ("q", False)

    serve(scenario)


@pytest.mark.parametrize(
    ("request_", "code", "field", "text"),
    [
        (Declare(vhost="v", name="q"), "NOT_FOUND", "vhost", "no vhost 'v'"),
        (Declare(name="q"), "INVALID_ARGUMENT", "vhost", "must have 1 to 255 bytes, not 0"),
        (
            Declare(vhost="/", name="é" * 128),
            "INVALID_ARGUMENT",
            "name",
            "must have 0 to 255 bytes, not 256",
        ),
        (Declare(vhost="/", name="amq.q"), "PERMISSION_DENIED", "", "reserved prefix 'amq.*'"),
        (
            Declare(vhost="/", name="q", arguments=arguments(x_max_length="long")),
            "INVALID_ARGUMENT",
            "arguments.x-max-length",
            "must be an integer",
        ),
        (
            Declare(vhost="/", name="q", arguments=arguments(x_max_length=-1)),
            "INVALID_ARGUMENT",
            "arguments.x-max-length",
            "must be an integer from 0",
        ),
        (
            Declare(vhost="/", name="q", durable=False, arguments=arguments(x_queue_type="quorum")),
            "INVALID_ARGUMENT",
            "durable",
            "a quorum queue is durable",
        ),
        (
            Declare(vhost="/", name="q", arguments=Table(fields={"n" * 256: Value(int64=1)})),
            "INVALID_ARGUMENT",
            "arguments.fields",
            "at most 255 bytes",
        ),
    ],
)
def test_a_declaration_that_cannot_be_names_field_and_rule(
    refused: Any, request_: Any, code: str, field: str, text: str
) -> None:
    error = refused("DeclareQueue", request_)
    assert error.code == code
    assert text in error.text
    if field:
        assert error.fields[0][0].startswith(field)
        assert text in error.fields[0][1]


def test_a_declaration_that_differs_names_the_difference(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        client.node.do(queue(arguments={"x-max-length": 5}))
        differs = Declare(vhost="/", name="q", arguments=arguments(x_max_length=6))
        error = await client.refusal("DeclareQueue", differs)
        assert (error.code, error.reason) == ("FAILED_PRECONDITION", "PRECONDITION_FAILED")
        assert error.fields[0][0] == "arguments.x-max-length"
        assert "received '6' but current is '5'" in error.text
        client.node.do(commands.DeclareQueue("/", "c", "classic", durable=False))
        error = await client.refusal(
            "DeclareQueue",
            Declare(vhost="/", name="c", arguments=arguments(x_queue_type="classic")),
        )
        assert error.fields[0][0] == "durable"

    serve(scenario)


def test_tables_that_nest_too_deeply_are_refused(refused: Any) -> None:
    table = Table(fields={"x": Value(int64=1)})
    for _ in range(20):
        table = Table(fields={"x": Value(table=table)})
    error = refused("DeclareQueue", Declare(vhost="/", name="q", arguments=table))
    assert error.code == "INVALID_ARGUMENT"
    assert "nest at most 16 deep" in error.text


def test_a_request_that_is_too_large_is_refused_unread(refused: Any) -> None:
    table = arguments(x_dead_letter_exchange="x" * (256 << 10))
    error = refused("DeclareQueue", Declare(vhost="/", name="q", arguments=table))
    assert (error.code, error.reason) == ("RESOURCE_EXHAUSTED", "REQUEST_TOO_LARGE")
    assert "at most 262144" in error.text


def test_conditions_keep_a_queue(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        client.node.do(queue())
        client.node.messages["q"] = 1
        request = topology.DeleteQueueRequest(vhost="/", name="q", if_empty=True)
        error = await client.refusal("DeleteQueue", request)
        assert (error.code, error.text) == (
            "FAILED_PRECONDITION",
            "queue 'q' in vhost '/' not empty",
        )
        del client.node.messages["q"]  # no leader: nobody knows
        error = await client.refusal("DeleteQueue", request)
        assert error.code == "UNAVAILABLE"
        assert client.node.view.queue("/", "q") is not None

    serve(scenario)


def test_an_exclusive_queue_is_left_to_its_connection(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        client.node.do(
            commands.DeclareQueue("/", "q", "classic", durable=False, exclusive=True, owner="c1")
        )
        for method, request in (
            ("DeleteQueue", topology.DeleteQueueRequest(vhost="/", name="q")),
            ("PurgeQueue", topology.PurgeQueueRequest(vhost="/", name="q")),
            ("DeclareQueue", Declare(vhost="/", name="q", durable=False)),
        ):
            error = await client.refusal(method, request)
            assert (error.code, error.reason) == ("FAILED_PRECONDITION", "RESOURCE_LOCKED")
        assert client.node.purged == []

    serve(scenario)


def test_a_queue_is_purged(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        request = topology.PurgeQueueRequest(vhost="/", name="q")
        assert (await client.refusal("PurgeQueue", request)).code == "NOT_FOUND"
        client.node.do(queue())
        assert (await client.call("PurgeQueue", request)).messages == 0
        assert client.node.purged == ["q"]

    serve(scenario)


@pytest.mark.parametrize(
    ("method", "request_", "operation"),
    [
        ("DeclareQueue", Declare(vhost="/", name="q"), "configure"),
        ("DeleteQueue", topology.DeleteQueueRequest(vhost="/", name="q"), "configure"),
        ("PurgeQueue", topology.PurgeQueueRequest(vhost="/", name="q"), "read"),
    ],
)
def test_each_method_takes_its_permission(
    serve: Any, method: str, request_: Any, operation: str
) -> None:
    async def scenario(client: Any) -> None:
        node = client.node
        node.do(queue())
        error = await client.refusal(method, request_, user="app")
        assert (error.code, error.text) == (
            "PERMISSION_DENIED",
            "access to vhost '/' refused for user 'app'",
        )
        patterns = dict.fromkeys(("configure", "write", "read"), "^q$") | {operation: "^z$"}
        node.do(commands.PutPermission(Permission("app", "/", **patterns)))
        error = await client.refusal(method, request_, user="app")
        assert error.code == "PERMISSION_DENIED"
        assert error.text == f"{operation} access to queue 'q' in vhost '/' refused for user 'app'"
        patterns = dict.fromkeys(("configure", "write", "read"), "^z$") | {operation: "^q$"}
        node.do(commands.PutPermission(Permission("app", "/", **patterns)))
        await client.call(method, request_, user="app")

    serve(scenario)


def test_dead_letters_take_a_permission_at_their_exchange(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        client.node.do(commands.PutPermission(Permission("app", "/", "^q$", "", "^q$")))
        table = arguments(x_dead_letter_exchange="amq.fanout")
        request = Declare(vhost="/", name="q", arguments=table)
        error = await client.refusal("DeclareQueue", request, user="app")
        assert error.text.startswith("write access to exchange 'amq.fanout'")

    serve(scenario)


def test_who_is_no_manager_describes_what_they_may_use(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        client.node.do(queue())
        client.node.do(queue("other"))
        client.node.do(commands.PutPermission(Permission("app", "/", "", "", "^q$")))
        request = topology.DescribeQueueRequest(vhost="/", name="q")
        assert (await client.call("DescribeQueue", request, user="app")).name == "q"
        request.name = "other"
        assert (await client.refusal("DescribeQueue", request, "app")).code == "PERMISSION_DENIED"
        assert (await client.call("DescribeQueue", request, user="mon")).name == "other"
        error = await client.refusal("ListQueues", topology.ListQueuesRequest(vhost="/"), "app")
        assert (error.code, "tags: must have one of" in error.text) == ("PERMISSION_DENIED", True)

    serve(scenario)


def test_a_description_has_policy_and_flow(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        client.node.do(queue())
        group = client.node.view.queue("/", "q").group
        client.node.flow_report.flows[group] = QueueFlow(
            "/", "q", group, "n1", saturated=True, deferred=3, arrived=(1.0, 2.5, 3.0)
        )
        client.node.do(commands.PutPolicy(Policy("/", "p", ".*", {"max-length": 9})))
        described = await client.call(
            "DescribeQueue", topology.DescribeQueueRequest(vhost="/", name="q")
        )
        assert described.flow.saturated
        assert (described.flow.messages_withheld, described.flow.arrived) == (3, 2.5)
        assert not described.HasField("counts")

    serve(scenario)


def test_pages_hold_each_queue_once_in_the_order_of_names(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        node = client.node
        node.do(commands.PutVhost(Vhost("a"), "guest"))
        names = [f"q{number:03}" for number in range(25)]
        for name in reversed(names):
            node.do(queue(name))
        node.do(commands.DeclareQueue("a", "z", "quorum"))
        found: list[tuple[str, str]] = []
        token = ""
        while True:
            page = topology.PageRequest(size=10, token=token)
            answer = await client.call("ListQueues", topology.ListQueuesRequest(page=page))
            assert len(answer.queues) <= 10
            found += [(each.vhost, each.name) for each in answer.queues]
            node.do(queue("q0005"))  # behind what was told: not told any more
            token = answer.next_token
            if not token:
                break
        assert found == [*(("/", name) for name in names), ("a", "z")]
        prefixed = topology.ListQueuesRequest(vhost="/", name_prefix="q01")
        answer = await client.call("ListQueues", prefixed)
        assert [each.name for each in answer.queues] == names[10:20]

    serve(scenario)


@pytest.mark.parametrize(
    "token", ["?", "x", "AAAA", "kqZxdWV1ZXM", "é", "A" * 5000, "lKV1c2Vyc5Ghcw"]
)
def test_a_token_of_nobody_is_refused(refused: Any, token: str) -> None:
    page = topology.PageRequest(token=token)
    error = refused("ListQueues", topology.ListQueuesRequest(page=page))
    assert (error.code, error.fields[0][0]) == ("INVALID_ARGUMENT", "page.token")


def test_a_page_has_a_largest_size(refused: Any) -> None:
    page = topology.PageRequest(size=1001)
    error = refused("ListQueues", topology.ListQueuesRequest(page=page))
    assert error.fields == [("page.size", "must be at most 1000, not 1001")]


def test_without_a_quorum_calls_say_so_and_when_to_come_again(serve: Any) -> None:
    async def scenario(client: Any) -> None:
        client.node.lost = True
        error = await client.refusal("DeclareQueue", Declare(vhost="/", name="q"))
        assert (error.code, error.text) == ("UNAVAILABLE", "no quorum")
        error = await client.refusal(
            "DescribeQueue", topology.DescribeQueueRequest(vhost="/", name="q")
        )
        assert error.code == "UNAVAILABLE"

    serve(scenario)
