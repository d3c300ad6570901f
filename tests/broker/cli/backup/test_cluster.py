"""Calls to any node that answers: retries, and giving up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_status import rpc_status

from headrace_broker.cli.backup import cluster as module
from headrace_broker.cli.backup.cluster import (
    PAUSE_S,
    SILENT_S_MAX,
    UNAVAILABLE_S_MAX,
    Cluster,
    PointLostError,
    QueueGoneError,
)
from headrace_broker.cli.session.client_tls import ClientTls
from headrace_broker.cli.session.session import (
    EXIT_NOT_ALLOWED,
    EXIT_REFUSED,
    EXIT_UNAVAILABLE,
    CommandError,
)
from headrace_broker.gateways.grpc.server.errors import CallError
from headrace_protos.broker.v1 import backup_pb2 as pb

CODE = grpc.StatusCode


class FailureError(grpc.RpcError):
    """A call that failed, as gRPC tells it."""

    def __init__(self, code: grpc.StatusCode, reason: str) -> None:
        self._status: Any = rpc_status.to_status(
            CallError(code, reason, f"because {reason}").status()
        )

    def code(self) -> grpc.StatusCode:
        return self._status.code  # type: ignore[no-any-return]

    def details(self) -> str:
        return self._status.details  # type: ignore[no-any-return]

    def trailing_metadata(self) -> Any:
        return self._status.trailing_metadata


class Call:
    """A stream of chunks, which may end in a failure."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            if isinstance(item, Exception):
                raise item
            yield item

    def cancel(self) -> None:
        pass


class Stub:
    """A node."""

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.world = world

    def Open(self, request: Any, **_: Any) -> Any:  # noqa: N802
        return self.world.answer(self.name, request)

    Keep = Close = Open

    def Read(self, request: Any, **_: Any) -> Any:  # noqa: N802
        found = self.world.next(self.name, request)
        return found if isinstance(found, Call) else Call([found])


class World:
    """Two nodes, their clock, and what they answer in turn."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked: list[tuple[str, Any]] = []
        self.answers: list[Any] = []
        self.cluster = Cluster(["a:1", "b:2"], ("u", "p"), lambda: self.now, self.sleep)
        self.cluster.close()
        self.cluster._stubs = [Stub("a", self), Stub("b", self)]  # type: ignore[list-item]

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def next(self, name: str, request: Any) -> Any:
        self.asked.append((name, request))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def answer(self, name: str, request: Any) -> Any:
        found = self.next(name, request)
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize(
    "failure",
    [
        FailureError(CODE.UNAVAILABLE, "NO_REPLICA"),
        FailureError(CODE.UNAVAILABLE, "NODE_SILENT"),
        FailureError(CODE.DEADLINE_EXCEEDED, "LATE"),
        FailureError(CODE.RESOURCE_EXHAUSTED, "TOO_MANY_POINTS"),
    ],
)
def test_what_may_pass_is_tried_again_at_the_next_node(world, failure) -> None:
    world.answers = [failure, failure, pb.OpenPointResponse(point="1-1")]
    assert world.cluster.open_point("/", "q", 1000).point == "1-1"
    assert [name for name, _ in world.asked] == ["a", "b", "a"]


@pytest.mark.parametrize(
    ("code", "reason", "exit_code"),
    [
        (CODE.UNAVAILABLE, "NO_REPLICA", EXIT_UNAVAILABLE),
        (CODE.PERMISSION_DENIED, "ACCESS_REFUSED", EXIT_NOT_ALLOWED),
        (CODE.UNAUTHENTICATED, "ACCESS_REFUSED", EXIT_NOT_ALLOWED),
        (CODE.FAILED_PRECONDITION, "RESOURCE_LOCKED", EXIT_REFUSED),
    ],
)
def test_what_does_not_pass_ends_with_its_exit_code(world, code, reason, exit_code) -> None:
    world.answers = [FailureError(code, reason)]
    with pytest.raises(CommandError, match=f"because {reason}") as failure:
        world.cluster.open_point("/", "q", 1000)
    assert failure.value.exit_code == exit_code
    waited = UNAVAILABLE_S_MAX if exit_code == EXIT_UNAVAILABLE else 0
    assert world.now == waited


@pytest.mark.parametrize("reason", ["POINT_LOST", "UNKNOWN_POINT"])
def test_point_that_is_over_is_lost_at_once(world, reason) -> None:
    world.answers = [FailureError(CODE.NOT_FOUND, reason)]
    with pytest.raises(PointLostError, match=reason):
        world.cluster.keep_point("1-1", 0, 0)
    with pytest.raises(PointLostError, match=reason):
        list(world.cluster.read_point("1-1", 0, 1))
    world.cluster.close_point("1-1")
    assert world.now == 0


def test_point_whose_node_stays_silent_is_lost_in_the_end(world) -> None:
    silent = FailureError(CODE.UNAVAILABLE, "NODE_SILENT")
    refused = FailureError(CODE.UNAVAILABLE, "")  # the node itself cannot be reached
    world.answers = [silent, refused] * 100
    for read in (
        lambda: list(world.cluster.read_point("1-1", 0, 1)),
        lambda: world.cluster.keep_point("1-1", 0, 0),
    ):
        begin = world.now
        with pytest.raises(PointLostError, match="its node has not answered for 15 s"):
            read()
        assert world.now - begin == pytest.approx(SILENT_S_MAX, abs=PAUSE_S)


def test_point_whose_node_answers_again_goes_on(world) -> None:
    silent = FailureError(CODE.UNAVAILABLE, "NODE_SILENT")
    cut = FailureError(CODE.UNAVAILABLE, "GONE")
    some = [Call([pb.ReadPointResponse(last_id=number), cut]) for number in (1, 2)]
    most = int(SILENT_S_MAX / PAUSE_S) - 1
    world.answers = [*[silent] * most, some[0], *[silent] * most, some[1], Call([])]
    assert [each.last_id for each in world.cluster.read_point("1-1", 0, 1)] == [1, 2]


def test_queue_that_is_gone_is_told_as_that(world) -> None:
    world.answers = [FailureError(CODE.NOT_FOUND, "NOT_FOUND")]
    with pytest.raises(QueueGoneError):
        world.cluster.open_point("/", "q", 1000)


def test_reading_goes_on_where_it_was_cut_off(world) -> None:
    chunks = [pb.ReadPointResponse(last_id=number) for number in (3, 5, 9)]
    cut = FailureError(CODE.UNAVAILABLE, "GONE")
    world.answers = [Call([*chunks[:2], cut]), Call([cut]), Call(chunks[2:])]
    found = [chunk.last_id for chunk in world.cluster.read_point("1-1", 0, 100)]
    assert found == [3, 5, 9]
    assert [(name, each.after_id) for name, each in world.asked] == [("a", 0), ("b", 5), ("a", 5)]


def test_listeners_that_the_api_tells_of() -> None:
    class Session:
        address = "10.0.0.9:15672"
        login = ("u", "p")
        tls: ClientTls | None = None

        def get(self, path: str) -> Any:
            assert path == "/api/overview"
            return {
                "listeners": [
                    {"protocol": "amqp", "ip_address": "10.0.0.1", "port": 5672},
                    {"protocol": "grpc", "ip_address": "10.0.0.1", "port": 7672},
                    {"protocol": "grpc", "ip_address": "0.0.0.0", "port": 7673},
                    {"protocol": "grpc", "ip_address": "fd00::1", "port": 7672},
                    {"protocol": "grpc/ssl", "ip_address": "10.0.0.1", "port": 7671},
                ]
            }

    found = module._listeners(Session())  # type: ignore[arg-type]
    assert found == ["10.0.0.1:7672", "10.0.0.9:7673", "[fd00::1]:7672"]
    Session.address = "http://10.0.0.8:15672/"
    assert module._listeners(Session())[1] == "10.0.0.8:7673"  # type: ignore[arg-type]
    Session.tls = ClientTls()
    assert module._listeners(Session()) == ["10.0.0.1:7671"]  # type: ignore[arg-type]
    Session.get = lambda self, path: {}  # type: ignore[method-assign]
    with pytest.raises(CommandError, match="name one with --grpc"):
        module._listeners(Session())  # type: ignore[arg-type]
