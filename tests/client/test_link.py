"""Which node is asked, and what a call fails with."""

from __future__ import annotations

import asyncio
import pickle
from collections import deque
from typing import Any

import grpc
import pytest

from headrace_client import (
    Client,
    ClosedError,
    ConnectFailedError,
    HeadraceError,
    InvalidArgumentError,
    NotAuthenticatedError,
    NotFoundError,
    Tls,
    TooLateError,
    UnavailableError,
)
from headrace_client.backoff import Backoff
from headrace_client.endpoint import parse_endpoints
from headrace_client.error import BrokerFaultError, FencedError, from_call, from_code
from headrace_client.link import Attempts, Link, is_passing
from headrace_protos.broker.v1 import topology_pb2 as topology
from headrace_protos.broker.v1.topology_pb2_grpc import TopologyStub


def unavailable(**more: Any) -> tuple[Any, ...]:
    return (grpc.StatusCode.UNAVAILABLE, "no quorum", "NO_QUORUM", [], more)


def test_a_call_goes_to_another_node_when_one_cannot_do_it(play_two: Any) -> None:
    async def scenario(first: Any, second: Any, client: Any) -> None:
        first.answers["DeleteVhost"] = unavailable()
        second.answers["DeleteVhost"] = topology.DeleteResponse(deleted=True)
        assert await client.topology.delete_vhost("v")
        assert client.endpoint == second.endpoint
        second.answers["DeleteVhost"] = unavailable()
        first.answers["DeleteVhost"] = topology.DeleteResponse(deleted=True)
        assert await client.topology.delete_vhost("v")
        await first.stop()
        second.answers["DeleteVhost"] = topology.DeleteResponse(deleted=True)
        assert await client.topology.delete_vhost("v")

    play_two(scenario)


def test_an_endpoint_that_failed_gives_way_to_the_next_and_its_node_is_forgotten() -> None:
    link = Link(["a:1", "b:1", "c:1"])
    link.nodes = {"a:1": "n1", "b:1": "n2"}
    link.failed("a:1")
    assert (link.current, link.endpoint_of("n1"), link.endpoint_of("n2")) == ("b:1", None, "b:1")
    link.failed("a:1")  # which is not preferred any more
    assert link.current == "b:1"
    link.failed("b:1")
    link.failed("c:1")
    assert link.current == "a:1"


def test_what_may_be_done_once_only_is_not_repeated(play_two: Any) -> None:
    async def scenario(first: Any, second: Any, client: Any) -> None:
        first.answers["Get"] = unavailable()
        with pytest.raises(UnavailableError, match="no quorum"):
            await client.get("q")
        assert not [name for name, _ in second.calls if name == "Get"]
        second.answers["Get"] = (grpc.StatusCode.UNAVAILABLE, "starting", "NOT_READY")
        first.answers.clear()
        assert await client.get("q") == []  # the other one had not begun

    play_two(scenario)


def test_a_call_that_nobody_answers_ends_in_time(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.answers["DeleteVhost"] = asyncio.Event()
        request = topology.DeleteVhostRequest(name="v")

        def method(channel: Any) -> Any:
            return TopologyStub(channel).DeleteVhost

        with pytest.raises(TooLateError):
            await client.link.call(method, request, timeout_s=0.05)
        broker.answers["DeleteVhost"] = unavailable()
        with pytest.raises(UnavailableError):
            await client.link.call(method, request, timeout_s=0.5)
        assert len(broker.calls) > 3

    play(scenario)


def test_errors_carry_what_the_broker_says(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        fields = [("name", "must not be empty"), ("tags", "too many")]
        broker.answers["DeleteVhost"] = (
            grpc.StatusCode.INVALID_ARGUMENT,
            "name: must not be empty",
            "INVALID_FIELD",
            fields,
            {"a": "b"},
            3,
        )
        with pytest.raises(InvalidArgumentError) as caught:
            await client.topology.delete_vhost("")
        error = caught.value
        assert (error.text, error.code, error.reason) == (
            "name: must not be empty",
            "INVALID_ARGUMENT",
            "INVALID_FIELD",
        )
        assert list(error.fields) == fields
        assert (error.metadata, error.retry_after_s) == ({"a": "b"}, 3.0)
        copy = pickle.loads(pickle.dumps(error))
        assert (copy.fields, copy.metadata) == (error.fields, error.metadata)

    play(scenario)


class Failed(grpc.aio.AioRpcError):
    """A failure with details of any kind."""

    def __init__(self, code: grpc.StatusCode, details: bytes | None) -> None:
        trailing = grpc.aio.Metadata()
        if details is not None:
            trailing.add("grpc-status-details-bin", details)
        super().__init__(code, grpc.aio.Metadata(), trailing, "text", "")


@pytest.mark.parametrize("details", [None, b"", b"\xff\xff\xff", b"\x1a\x03\x0a\x01x", b"\x08"])
@pytest.mark.parametrize("code", list(grpc.StatusCode))
def test_every_status_is_an_error_whatever_its_details(
    code: grpc.StatusCode, details: bytes | None
) -> None:
    error = from_call(Failed(code, details))
    assert isinstance(error, HeadraceError)
    assert (error.text, error.code, error.fields) == ("text", code.name, ())
    assert type(from_code(code.value[0], "text")) is type(error)


def test_write_to_a_call_that_had_ended_may_be_tried_again() -> None:
    """The status that tells why comes too late for gRPC's own code: "Internal error from Core"."""
    none = grpc.aio.Metadata()
    failed = grpc.aio.AioRpcError(
        grpc.StatusCode.INTERNAL, none, none, "Internal error from Core", ""
    )
    assert type(from_call(failed)) is UnavailableError


def test_which_failures_pass() -> None:
    assert is_passing(UnavailableError(""))
    assert is_passing(BrokerFaultError(""))
    assert not is_passing(FencedError(""))
    assert not is_passing(NotFoundError(""))
    assert isinstance(from_code(999, ""), BrokerFaultError)


# Connecting


def test_a_wrong_log_in_is_refused_at_once(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        with pytest.raises(NotAuthenticatedError):
            await Client.connect(broker.endpoint, password="wrong")
        with pytest.raises(NotAuthenticatedError):
            await Client.connect(broker.endpoint, user=None)
        denied = (grpc.StatusCode.PERMISSION_DENIED, "no", "ACCESS_REFUSED")
        broker.answers["DescribeExchange"] = denied
        async with await Client.connect(broker.endpoint):
            pass  # who may not look may still publish
        missing = (grpc.StatusCode.NOT_FOUND, "no vhost 'v'", "NOT_FOUND")
        broker.answers["DescribeExchange"] = missing
        with pytest.raises(NotFoundError, match="no vhost 'v'"):
            await Client.connect(broker.endpoint, vhost="v")

    play(scenario)


def test_the_first_node_that_answers_is_taken(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        async with await Client.connect(["127.0.0.1:1", broker.endpoint]) as other:
            assert other.endpoint == broker.endpoint

    play(scenario)


def test_without_any_node_to_connect_to_all_are_named() -> None:
    async def scenario() -> None:
        with pytest.raises(ConnectFailedError, match=r"127.0.0.1:1: .*; 127.0.0.1:2: "):
            await Client.connect("127.0.0.1:1,127.0.0.1:2", timeout_s=0.2)

    asyncio.run(scenario())


def test_who_waits_hears_that_the_client_is_closed(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        broker.queues["q"] = deque()
        broker.confirms = False
        consumer = await client.consumer("q").open()
        publisher = await client.publisher(routing_key="q").open()
        confirm = await publisher.publish(b"x")
        watch = client.watch_alarms()
        await watch.snapshot()

        async def outcome(work: Any) -> Any:
            return await work

        waits = [consumer.next(), publisher.flush(), confirm, anext(watch)]
        waiting = [asyncio.create_task(outcome(each)) for each in waits]
        await broker.until(lambda: bool(broker.taken))
        await client.close()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(each) for each in found] == [ClosedError, type(None), ClosedError, ClosedError]
        await publisher.close()
        await consumer.close()

    play(scenario)


def test_a_watch_that_is_closed_meanwhile_ends(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        watch = client.watch_alarms()
        await watch.snapshot()

        async def states() -> list[Any]:
            return [each async for each in watch]

        waiting = asyncio.create_task(states())
        await asyncio.sleep(0)
        watch.close()
        assert await waiting == []

    play(scenario)


def test_a_closed_client_does_nothing_and_no_client_is_pickled(play: Any) -> None:
    async def scenario(broker: Any, client: Any) -> None:
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(client)
        await client.close()
        with pytest.raises(ClosedError):
            await client.topology.delete_vhost("v")
        with pytest.raises(ClosedError):
            await client.publisher().open()

    play(scenario)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("host", ("host:7672",)),
        ("a:1, b:2,a:1", ("a:1", "b:2")),
        (["a", "b:02"], ("a:7672", "b:2")),
        ("[::1]", ("[::1]:7672",)),
        ("[::1]:5", ("[::1]:5",)),
    ],
)
def test_endpoints_are_read(given: Any, expected: tuple[str, ...]) -> None:
    assert parse_endpoints(given) == expected


@pytest.mark.parametrize(
    "given",
    ["", [], "a:0", "a:65536", "a:x", ":5", "::1", "[::1]5", "[]:5", "a b", "http://a", "a:1:2"],
)
def test_what_is_no_endpoint_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="endpoints: "):
        parse_endpoints(given)
    with pytest.raises(ValueError, match="1 to 64 addresses, not 65"):
        parse_endpoints([f"h{number}" for number in range(65)])


def test_a_certificate_takes_a_key_and_files_that_are_there(tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="cert_file and key_file must be given together"):
        Tls(cert_file=tmp_path / "c").credentials()
    with pytest.raises(FileNotFoundError):
        Tls(ca_file=tmp_path / "ca").credentials()


# Pauses


def test_pauses_grow_within_bounds_and_begin_anew() -> None:
    backoff = Backoff(lambda: 1.0, low=1.0, high=5.0)
    assert [backoff.failed() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert backoff.failed(hint_s=60) == 5.0
    backoff.succeeded()
    assert backoff.failed(hint_s=3) == 3.0
    assert Backoff(lambda: 0.0, low=1.0).failed() == 0.5


def test_there_is_a_pause_once_all_endpoints_were_tried() -> None:
    link = Link(["a:1", "b:1", "c:1"])
    attempts = Attempts(link, lambda: 1.0)
    down = UnavailableError("down")
    pauses = [attempts.failed(link.current, down) > 0 for _ in range(7)]
    assert pauses == [False, False, True, False, False, True, False]
