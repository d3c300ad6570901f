"""Clients that begin something as a user and then only wait, and note how it was ended."""

from __future__ import annotations

import base64
import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import msgspec
import pika

from headrace_broker.cli.local_cluster import LocalNode
from headrace_broker.config.configuration import split_address
from headrace_protos.broker.v1.messaging_pb2 import ConsumeOpen, ConsumeRequest, Credit
from headrace_protos.broker.v1.messaging_pb2_grpc import MessagingStub

SECONDS = 30.0


def log_in(user: str, password: str) -> Any:
    """Return the metadata of a gRPC call by a user."""
    login = base64.b64encode(f"{user}:{password}".encode()).decode()
    return (("authorization", f"Basic {login}"),)


class Bystander:
    """Something that runs in a thread of its own until the broker ends it.

    Args:
        name: for messages of failures.
        work: called with this; returns how it ended.

    Attributes:
        got: what it received, in order.
        running: set once it has begun.
    """

    def __init__(self, name: str, work: Callable[[Bystander], str]) -> None:
        self.name = name
        self.got: list[bytes] = []
        self.running = threading.Event()
        self.ended: str | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        if not self.running.wait(SECONDS):
            raise AssertionError(f"{name} has not begun")

    def _run(self) -> None:
        self.ended = self._work(self)
        self.running.set()


def amqp_consumer(node: LocalNode, vhost: str, user: str, password: str, queue: str) -> Bystander:
    """Begin a consumer over AMQP that acknowledges nothing."""

    def work(self: Bystander) -> str:
        login = pika.PlainCredentials(user, password)
        place = pika.ConnectionParameters("127.0.0.1", split_address(node.amqp)[1], vhost, login)
        connection = pika.BlockingConnection(place)
        channel = connection.channel()
        channel.basic_consume(queue, lambda _c, _m, _p, body: self.got.append(body))
        self.running.set()
        try:
            channel.start_consuming()
        except (pika.exceptions.ChannelClosedByBroker, pika.exceptions.ConnectionClosed) as closed:
            what = "channel" if isinstance(closed, pika.exceptions.ChannelClosed) else "connection"
            return f"{what} {closed.reply_code} {closed.reply_text}"
        finally:
            if connection.is_open:
                connection.close()
        return "cancelled"

    return Bystander(f"AMQP consumer at {node.name}", work)


def grpc_stream(
    node: LocalNode, name: str, open_stream: Callable[[grpc.Channel], Iterator[Any]]
) -> Bystander:
    """Begin a stream over gRPC; it has begun with its first answer."""

    def work(self: Bystander) -> str:
        with grpc.insecure_channel(node.grpc) as channel:
            try:
                for answer in open_stream(channel):
                    self.got.append(answer.SerializeToString())
                    self.running.set()
            except grpc.RpcError as error:
                return f"{error.code().name} {error.details()}"
        return "over"

    return Bystander(f"{name} at {node.name}", work)


def grpc_consumer(node: LocalNode, vhost: str, user: str, password: str, queue: str) -> Bystander:
    """Begin a consumer over gRPC that has credit and settles nothing."""
    never = threading.Event()

    def requests() -> Iterator[ConsumeRequest]:
        opening = ConsumeOpen(vhost=vhost, queue=queue, credit=Credit(messages=100))
        yield ConsumeRequest(open=opening)
        never.wait(SECONDS * 10)

    def begin(channel: grpc.Channel) -> Iterator[Any]:
        stub: Any = MessagingStub(channel)
        answers: Iterator[Any] = stub.Consume(requests(), metadata=log_in(user, password))
        return answers

    return grpc_stream(node, "gRPC consumer", begin)


class PageSession:
    """A log-in at the web page of a node; any node knows it."""

    def __init__(self, node: LocalNode, user: str, password: str) -> None:
        body = msgspec.json.encode({"user": user, "password": password})
        headers = {"Content-Type": "application/json"}
        status, answer, told = _ask(node, "POST", "/page/login", headers, body)
        assert status == 200, answer
        self.cookie = told.split(";")[0]
        self._token = msgspec.json.decode(answer)["change_token"]

    def status(self, node: LocalNode) -> int:
        """Return what a node answers to a request of the page."""
        return _ask(node, "GET", "/api/whoami", {"Cookie": self.cookie})[0]

    def log_out(self, node: LocalNode) -> None:
        """Log out at a node."""
        headers = {"Cookie": self.cookie, "X-Headrace-Change": self._token}
        status, answer, _ = _ask(node, "POST", "/page/logout", headers)
        assert status in (200, 204), answer

    def events(self, node: LocalNode) -> Bystander:
        """Begin to listen to a node's events, and note by which event they end."""

        def work(self_: Bystander) -> str:
            connection = http.client.HTTPConnection(*split_address(node.http), timeout=SECONDS)
            last, path = "", "/page/events?view=quiet"
            with contextlib.closing(connection):
                connection.request("GET", path, headers={"Cookie": self.cookie})
                with connection.getresponse() as answer:
                    while line := answer.readline():
                        self_.running.set()
                        if line.startswith(b"event:"):
                            last = line.decode().split()[1]
            return last

        return Bystander(f"page events at {node.name}", work)


def _ask(
    node: LocalNode, method: str, path: str, headers: dict[str, str], body: bytes | None = None
) -> tuple[int, bytes, str]:
    connection = http.client.HTTPConnection(*split_address(node.http), timeout=SECONDS)
    with contextlib.closing(connection):
        connection.request(method, path, body, headers)
        with connection.getresponse() as answer:
            return answer.status, answer.read(), answer.headers.get("Set-Cookie", "")
