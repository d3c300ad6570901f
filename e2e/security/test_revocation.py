"""Revocation takes effect on every node, also for clients that only wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import grpc
import pika
import pytest
from e2e.harness.bystander import (
    Bystander,
    PageSession,
    amqp_consumer,
    grpc_consumer,
    grpc_stream,
    log_in,
)
from e2e.harness.cluster import Cluster, wait_for

from headrace_broker.cli.session.api_client import path_of
from headrace_protos.broker.v1 import backup_pb2, export_pb2, flow_pb2, lease_pb2
from headrace_protos.broker.v1.backup_pb2_grpc import BackupStub
from headrace_protos.broker.v1.export_pb2_grpc import ExportStub
from headrace_protos.broker.v1.flow_pb2_grpc import FlowStub
from headrace_protos.broker.v1.lease_pb2_grpc import LeaseStub

VHOST: Final = "revocation"
QUEUE: Final = "q"
STORE: Final = "store"  # with an archive and messages in it
BODY: Final = bytes(64 << 10)
BODIES: Final = 320  # 20 MiB, more than what stands between a node and a client that does not read
NODES: Final = ("n1", "n2", "n3")
ALL: Final = {"configure": ".*", "write": ".*", "read": ".*"}
SECONDS: Final = 20.0  # until something counts as going on; a loaded machine takes its time


class World(NamedTuple):
    """A cluster with a vhost of its own, and users made for each test."""

    cluster: Cluster

    def ask(self, method: str, path: str, body: Any = None, node: str = "n1") -> None:
        answer = self.cluster.node(node).api.request(method, path, body)
        assert answer.status in (200, 201, 204), (path, answer)

    def user(self, name: str, tags: str = "", password: str = "old", **more: Any) -> None:
        body = {"password": password, "tags": tags, **more}
        self.ask("PUT", path_of("users", name), body)
        self.ask("PUT", path_of("permissions", VHOST, name), ALL)

    def permit(self, user: str, **rights: str) -> None:
        self.ask("PUT", path_of("permissions", VHOST, user), {**ALL, **rights})

    def publish(self, body: bytes, queue: str = QUEUE) -> None:
        connection = self.cluster.connect("n1", virtual_host=VHOST)
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))
        connection.close()

    def consumers(self, user: str) -> list[Bystander]:
        """Begin a consumer over AMQP and one over gRPC on each node."""
        nodes = [self.cluster.node(name) for name in NODES]
        return [
            begin(node, VHOST, user, "old", QUEUE)
            for node in nodes
            for begin in (amqp_consumer, grpc_consumer)
        ]

    def watchers(self, user: str) -> list[Bystander]:
        """Begin to watch flow control and alarms on each node."""
        login = log_in(user, "old")

        def flow(channel: grpc.Channel) -> Iterator[Any]:
            stub: Any = FlowStub(channel)
            answers: Iterator[Any] = stub.WatchFlow(flow_pb2.WatchFlowRequest(), metadata=login)
            return answers

        def alarms(channel: grpc.Channel) -> Iterator[Any]:
            stub: Any = FlowStub(channel)
            request = flow_pb2.WatchAlarmsRequest()
            answers: Iterator[Any] = stub.WatchAlarms(request, metadata=login)
            return answers

        nodes = [self.cluster.node(name) for name in NODES]
        found = [grpc_stream(node, "flow", flow) for node in nodes]
        return found + [grpc_stream(node, "alarms", alarms) for node in nodes]


@pytest.fixture(scope="module")
def world(session_cluster: Cluster) -> Iterator[World]:
    world = World(session_cluster)
    world.ask("PUT", path_of("vhosts", VHOST), {})
    world.permit("guest")
    for queue in (QUEUE, STORE):
        told = {"x-queue-type": "quorum", "x-archive": "full"}
        world.ask("PUT", path_of("queues", VHOST, queue), {"durable": True, "arguments": told})
    connection = session_cluster.connect("n1", virtual_host=VHOST)
    channel = connection.channel()
    channel.confirm_delivery()
    for _ in range(BODIES):
        channel.basic_publish("", STORE, BODY, pika.BasicProperties(delivery_mode=2))
    connection.close()
    yield world
    world.ask("DELETE", path_of("vhosts", VHOST))
    session_cluster.close_connections()


def ends(bystanders: list[Bystander]) -> dict[str, str]:
    """Wait until all have ended, and return how."""

    def over() -> bool:
        return all(each.ended is not None for each in bystanders)

    try:
        wait_for("all to end", over, SECONDS)
    except AssertionError:
        running = [each.name for each in bystanders if each.ended is None]
        raise AssertionError(f"still running: {running}") from None
    return {each.name: str(each.ended) for each in bystanders}


def is_denied(call: Any, request: Any, login: Any) -> bool:
    """Return whether a call is refused for want of a permission."""
    try:
        call(request, metadata=login)
    except grpc.RpcError as error:
        return error.code() is grpc.StatusCode.PERMISSION_DENIED
    return False


def read_to_the_end(call: Iterator[Any], take: Callable[[Any], object]) -> str:
    """Read the rest of a stream, and return its status."""
    try:
        for answer in call:
            take(answer)
    except grpc.RpcError as error:
        return f"{error.code().name} {error.details()}"
    return "over"


class TestPermissions:
    def test_consumers_on_all_nodes_end_with_a_text_that_says_why(self, world: World) -> None:
        world.user("ann")
        consumers = world.consumers("ann")
        world.ask("PUT", path_of("permissions", VHOST, "ann"), {**ALL, "read": "^other$"}, "n2")
        text = f"read access to queue '{QUEUE}' in vhost '{VHOST}' refused for user 'ann': "
        text += "the permission was taken away"
        for name, ended in ends(consumers).items():
            how = "channel 403 ACCESS_REFUSED - " if "AMQP" in name else "PERMISSION_DENIED "
            assert ended == how + text
        world.publish(b"late")
        assert not any(b"late" in body for each in consumers for body in each.got)
        world.ask("DELETE", path_of("queues", VHOST, QUEUE, "contents"))

    def test_what_a_consumer_held_goes_back_to_the_queue(self, world: World) -> None:
        world.user("bea")
        consumer = amqp_consumer(world.cluster.node("n3"), VHOST, "bea", "old", QUEUE)
        world.publish(b"held")
        wait_for("a delivery", lambda: consumer.got == [b"held"])
        world.ask("DELETE", path_of("permissions", VHOST, "bea"))
        assert "the permission was taken away" in ends([consumer])[consumer.name]
        channel = world.cluster.connect("n1", virtual_host=VHOST).channel()

        def given_back() -> bool:
            method, _, body = channel.basic_get(QUEUE, auto_ack=True)
            return method is not None and method.redelivered and body == b"held"

        wait_for("the message in the queue", given_back)

    def test_permission_that_still_covers_a_consumer_ends_nothing(self, world: World) -> None:
        world.user("cid")
        consumers = world.consumers("cid")
        world.permit("cid", read=f"^{QUEUE}$", write="", configure="")
        world.ask("PUT", path_of("users", "cid"), {"password": "new", "tags": "management"})
        connection = world.cluster.connect("n1", virtual_host=VHOST)
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(len(consumers)):
            channel.basic_publish("", QUEUE, b"to each %d" % number)
        wait_for(
            "a delivery to each",
            lambda: all(any(b"to each" in body for body in each.got) for each in consumers),
        )
        assert [each.ended for each in consumers] == [None] * len(consumers)
        world.ask("DELETE", path_of("users", "cid"))
        ends(consumers)
        world.ask("DELETE", path_of("queues", VHOST, QUEUE, "contents"))


class TestStreams:
    def test_leases_and_their_reading_end(self, world: World) -> None:
        world.user("dan")
        login = log_in("dan", "old")
        node = world.cluster.node("n2")
        name = lease_pb2.GroupName(vhost=VHOST, queue=STORE, group="job")
        with grpc.insecure_channel(node.grpc) as channel:
            stub: Any = LeaseStub(channel)
            opening = lease_pb2.OpenGroupRequest(name=name, request_id="r", ttl_ms=1_000)
            epoch = stub.OpenGroup(opening, metadata=login).group.epoch
            asked = lease_pb2.LeaseRequest(name=name, epoch=epoch, lease=1, ttl_ms=5_000)
            assert stub.Lease(asked, metadata=login).messages == BODIES
            request = lease_pb2.FetchLeaseRequest(
                name=name, epoch=epoch, lease=1, chunk_octets=64 << 10
            )
            call = stub.Fetch(request, metadata=login)
            count = next(call).messages
            world.permit("dan", read="^other$")
            renewing = lease_pb2.RenewLeasesRequest(name=name, epoch=epoch, ttl_ms=1_000)
            wait_for("no renewal", lambda: is_denied(stub.Renew, renewing, login))
            chunks: list[int] = []
            ended = read_to_the_end(call, lambda answer: chunks.append(answer.messages))
            count += sum(chunks)
            assert ended.startswith("PERMISSION_DENIED read access to queue")
            assert ended.endswith("the permission was taken away")
            assert count < BODIES

    def test_reading_of_an_archive_ends(self, world: World) -> None:
        world.user("eve")
        connection = world.cluster.connect("n1", virtual_host=VHOST)
        channel = connection.channel()
        wait_for("the messages", lambda: channel.basic_get(STORE)[0] is not None)
        connection.close()  # leases of a test before have run out by now
        channel = world.cluster.connect("n1", virtual_host=VHOST).channel()
        settled = 0
        while settled < BODIES:
            method = channel.basic_get(STORE, auto_ack=True)[0]
            settled += method is not None
        login = log_in("eve", "old")
        log = export_pb2.EXPORT_LOG_ARCHIVE
        with grpc.insecure_channel(world.cluster.node("n3").grpc) as link:
            stub: Any = ExportStub(link)
            listing = export_pb2.ListShardsRequest(log=log, vhost=VHOST, queue=STORE)

            def filled() -> Any:
                shards = stub.ListShards(listing, metadata=login).shards
                return shards[0] if shards and shards[0].next_index >= BODIES else None

            shard = wait_for("the archive", filled)
            request = export_pb2.ReadExportRequest(
                log=log, shard=shard.shard, incarnation=shard.incarnation, end=shard.next_index
            )
            call = stub.Read(request, metadata=login)
            rows = sum(block.rows for block in next(call).blocks)
            world.permit("eve", read="^other$")
            wait_for("it to be known", lambda: not stub.ListShards(listing, metadata=login).shards)
            chunks: list[int] = []
            ended = read_to_the_end(
                call, lambda answer: chunks.extend(block.rows for block in answer.blocks)
            )
            rows += sum(chunks)
            assert ended.startswith("PERMISSION_DENIED ")
            assert ended.endswith("the permission was taken away")
            assert rows < BODIES

    def test_watches_end_with_their_tag(self, world: World) -> None:
        world.user("flo", "monitoring")
        watchers = world.watchers("flo")
        world.ask("PUT", path_of("users", "flo"), {"password": "old", "tags": ""})
        for ended in ends(watchers).values():
            assert ended.startswith("PERMISSION_DENIED tags: ")
            assert ended.endswith("the tag was taken away")

    def test_point_of_a_backup_is_given_up(self, world: World) -> None:
        world.user("gil", "administrator")
        login = log_in("gil", "old")
        with grpc.insecure_channel(world.cluster.node("n1").grpc) as channel:
            stub: Any = BackupStub(channel)
            opening = backup_pb2.OpenPointRequest(vhost=VHOST, queue=QUEUE, ttl_ms=60_000)
            point = stub.Open(opening, metadata=login).point
            world.permit("gil", read="^other$")
            keeping = backup_pb2.KeepPointRequest(point=point)
            wait_for("no use of it", lambda: is_denied(stub.Keep, keeping, login))
        text = "read access to queue 'q' in vhost 'revocation' refused for user 'gil': "
        text = f"is given up: {text}the permission was taken away"
        wait_for(
            "the point to be given up",
            lambda: any(text in world.cluster.log(name) for name in NODES),
            SECONDS,
        )


class TestUsers:
    def test_deleted_user_has_nothing_left(self, world: World) -> None:
        world.user("hal", "monitoring")
        page = PageSession(world.cluster.node("n1"), "hal", "old")
        nodes = [world.cluster.node(name) for name in NODES]
        events = [page.events(node) for node in nodes]
        running = world.consumers("hal") + world.watchers("hal")
        world.ask("DELETE", path_of("users", "hal"), node="n3")
        for name, ended in ends(running).items():
            how = "connection 320 CONNECTION_FORCED - " if "AMQP" in name else "UNAUTHENTICATED "
            assert ended == f"{how}user 'hal' was deleted"
        assert set(ends(events).values()) == {"over"}
        assert {page.status(node) for node in nodes} == {401}

    def test_sessions_of_an_old_password_end_when_that_is_asked_for(self, world: World) -> None:
        world.user("ida", "monitoring")
        page = PageSession(world.cluster.node("n2"), "ida", "old")
        nodes = [world.cluster.node(name) for name in NODES]
        events = [page.events(node) for node in nodes]
        running = world.consumers("ida") + world.watchers("ida")
        body = {"password": "new", "tags": "monitoring", "end_sessions": True}
        world.ask("PUT", path_of("users", "ida"), body)
        text = "sessions of user 'ida' from before were ended by a change of the user: log in again"
        for name, ended in ends(running).items():
            how = "connection 320 CONNECTION_FORCED - " if "AMQP" in name else "UNAUTHENTICATED "
            assert ended == how + text
        assert set(ends(events).values()) == {"over"}
        assert {page.status(node) for node in nodes} == {401}
        renewed = amqp_consumer(nodes[0], VHOST, "ida", "new", QUEUE)
        world.ask("PUT", path_of("users", "ida"), {**body, "end_sessions": False})
        world.publish(b"still here")
        wait_for("a delivery", lambda: b"still here" in renewed.got)
        world.ask("DELETE", path_of("users", "ida"))
        ends([renewed])
        world.ask("DELETE", path_of("queues", VHOST, QUEUE, "contents"))

    def test_log_out_ends_a_page_on_every_node(self, world: World) -> None:
        world.user("joy", "monitoring")
        nodes = [world.cluster.node(name) for name in NODES]
        page = PageSession(nodes[0], "joy", "old")
        events = [page.events(node) for node in nodes]
        assert {page.status(node) for node in nodes} == {200}
        page.log_out(nodes[1])
        assert [page.status(node) for node in nodes] == [401] * 3
        assert set(ends(events).values()) == {"over"}
