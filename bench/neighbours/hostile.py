"""Clients that do one thing as often as a node lets them, each in a process of its own."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from pamqp import base, commands, frame, header

from neighbours import calls
from neighbours.calls import QUEUES as MANY
from neighbours.calls import declare_many, http_requests
from neighbours.wire import HEADER, Wire, empty_body, heartbeat, method, publish

BYTES_AT_ONCE: Final = 64 << 10
LARGE_BYTES: Final = 16 << 20
QUEUE: Final = "hostile"
WILD_BINDINGS: Final = 300
LEAVING_CHANNELS: Final = 2000

Chunks = Iterator[bytes]


class Case(NamedTuple):
    """Hostile clients and their loads.

    Attributes:
        name: for `--case`.
        title: for the table.
        run: does it on one connection to a port until it ends or the process is killed.
        connections: how many do so at once.
    """

    name: str
    title: str
    run: Callable[[int], None]
    connections: int = 1


def _pour(wire: Wire, chunks: Chunks) -> None:
    """Send chunks without end while another thread drops what comes back."""
    threading.Thread(target=lambda: [None for _ in wire.drain()], daemon=True).start()
    for chunk in chunks:
        wire.send(chunk)


def _opened(port: int) -> Wire:
    wire = Wire(port)
    wire.ask(1, commands.Channel.Open())
    arguments: Any = {"x-queue-type": "quorum"}
    wire.ask(1, commands.Queue.Declare(0, QUEUE, durable=True, arguments=arguments))
    return wire


def _again(*methods: base.Frame, channel: int = 1) -> Chunks:
    """Return chunks that repeat some methods."""
    once = b"".join(method(each, channel) for each in methods)
    return itertools.repeat(once * max(1, BYTES_AT_ONCE // len(once)))


def _repeat(*methods: base.Frame) -> Callable[[int], None]:
    return lambda port: _pour(_opened(port), _again(*methods))


def _compute(port: int) -> None:
    """Take processor time without a connection, for comparison."""
    del port
    while True:
        pass


def _channels(port: int) -> None:
    methods = (commands.Channel.Open(), commands.Channel.Close(200, "", 0, 0))
    _pour(Wire(port), _again(*methods))


def _used_channels(port: int) -> None:
    """Open a channel, have a consumer and publish there, and close it."""
    wire = _opened(port)
    once = method(commands.Channel.Open(), 2) + method(commands.Basic.Consume(0, QUEUE), 2)
    once += publish(2, "", QUEUE, b"x") + method(commands.Channel.Close(200, "", 0, 0), 2)
    _pour(wire, itertools.repeat(once * 100))


def _unknown_acks(port: int) -> None:
    methods = (commands.Channel.Open(), commands.Basic.Ack(77))
    once = b"".join(method(each, 1) for each in methods) + method(commands.Channel.CloseOk(), 1)
    _pour(Wire(port), itertools.repeat(once * 100))


def _heartbeats(port: int) -> None:
    _pour(Wire(port), itertools.repeat(heartbeat() * (BYTES_AT_ONCE // 8)))


def _empty_frames(port: int) -> None:
    wire = _opened(port)
    wire.send(method(commands.Basic.Publish(exchange="", routing_key=QUEUE), 1))
    wire.send(frame.marshal(header.ContentHeader(0, 1), 1))
    _pour(wire, itertools.repeat(empty_body(1) * (BYTES_AT_ONCE // 8)))


def _wild_topics(port: int) -> None:
    wire = _opened(port)
    chosen = random.Random(1)
    for _ in range(WILD_BINDINGS):
        pattern = ".".join(chosen.choice("#a") for _ in range(120)) + ".z"
        wire.ask(1, commands.Queue.Bind(0, QUEUE, "amq.topic", pattern))
    keys = (".".join([*("a" * 120), f"{number:x}"]) for number in itertools.count())
    _pour(wire, (publish(1, "amq.topic", key, b"") for key in keys))


def _large(port: int) -> None:
    wire = Wire(port)
    wire.ask(1, commands.Channel.Open())
    arguments: Any = {"x-queue-type": "quorum", "x-max-length": 4}
    name = "hostile-large"
    wire.ask(1, commands.Queue.Declare(0, name, durable=True, arguments=arguments))
    _pour(wire, itertools.repeat(publish(1, "", name, bytes(LARGE_BYTES))))


def _guess(port: int) -> None:
    for number in itertools.count():
        with contextlib.suppress(OSError):
            Wire(port, f"wrong {number}")


def _knock(port: int) -> None:
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as knock:
            knock.sendall(HEADER)


def _slow_reader(port: int) -> None:
    """Ask for far more than is read."""
    wire = _opened(port)
    for _ in range(200):
        wire.send(publish(1, "", QUEUE, bytes(100_000)))
    wire.ask(1, commands.Basic.Consume(0, QUEUE))
    while True:
        wire.socket.recv(1000)
        time.sleep(0.01)


def _declares(port: int) -> None:
    wire = _opened(port)
    declare = commands.Queue.Declare(0, "hostile-memory", arguments={"x-queue-type": "classic"})
    _pour(wire, _again(declare, commands.Queue.Delete(0, "hostile-memory")))


def _connections(port: int) -> None:
    """Log in, open a channel and go without a word."""
    while True:
        wire = Wire(port)
        wire.ask(1, commands.Channel.Open())
        wire.close()


def _leave(port: int) -> None:
    """Open channels with a consumer each, and go without a word."""
    while True:
        wire = _opened(port)
        once = [
            method(commands.Channel.Open(), number)
            + method(commands.Basic.Consume(0, QUEUE, "t"), number)
            for number in range(2, LEAVING_CHANNELS)
        ]
        wire.send(b"".join(once))
        for _ in range(2 * len(once)):
            wire.read()
        wire.close()


def _unroutable(port: int) -> None:
    wire = Wire(port)
    wire.ask(1, commands.Channel.Open())
    data = publish(1, "", "nowhere", b"x", mandatory=True)
    _pour(wire, itertools.repeat(data * (BYTES_AT_ONCE // len(data))))


def _headers(port: int) -> None:
    """Publish messages whose headers fill a frame to an exchange that looks at them."""
    wire = _opened(port)
    match: Any = {"x-match": "any", "no": "such"}
    wire.ask(1, commands.Queue.Bind(0, QUEUE, "amq.headers", "", arguments=match))
    headers = {f"h{number}": "x" * 100 for number in range(1000)}
    _pour(wire, itertools.repeat(publish(1, "amq.headers", "", b"", headers=headers)))


def _fanout(port: int) -> None:
    """Publish to as many queues as there are many."""
    declare_many(port)
    wire = Wire(port)
    wire.ask(1, commands.Channel.Open())
    names = [f"many-{number}" for number in range(MANY)]
    for start in range(0, MANY, 100):
        binds = [
            method(commands.Queue.Bind(0, name, "amq.fanout", ""), 1)
            for name in names[start : start + 100]
        ]
        wire.send(b"".join(binds))
        for _ in binds:
            wire.read()
    _pour(wire, itertools.repeat(publish(1, "amq.fanout", "", b"")))


_PASSIVE: Final = commands.Queue.Declare(0, QUEUE, passive=True)
_BIND: Final = commands.Queue.Bind(0, QUEUE, "amq.topic", "a.#.b")
_UNBIND: Final = commands.Queue.Unbind(0, QUEUE, "amq.topic", "a.#.b")
_CONSUME: Final = commands.Basic.Consume(0, QUEUE, "t")
_CANCEL: Final = commands.Basic.Cancel("t")

_REGEX: Final = "/api/queues?page=1&use_regex=true&name=(m|a|n|y|-)*99$"
_PUBLISH_PATH: Final = "/api/exchanges/%2F/amq.fanout/publish"
_PUBLISH: Final = {"properties": {}, "routing_key": "", "payload": "", "payload_encoding": "string"}

CASES: Final = (
    Case("compute", "a process that only computes", _compute),
    Case("channels", "channels opened and closed", _channels),
    Case("used", "channels opened, used and closed", _used_channels),
    Case("qos", "basic.qos", _repeat(commands.Basic.Qos(0, 10))),
    Case("recover", "basic.recover", _repeat(commands.Basic.Recover(True))),
    Case("get", "basic.get", _repeat(commands.Basic.Get(0, QUEUE, True))),
    Case("consume", "basic.consume and basic.cancel", _repeat(_CONSUME, _CANCEL)),
    Case("tx", "tx.commit", _repeat(commands.Tx.Select(), commands.Tx.Commit())),
    Case("rollback", "tx.rollback", _repeat(commands.Tx.Select(), commands.Tx.Rollback())),
    Case("passive", "passive queue.declare", _repeat(_PASSIVE)),
    Case("unroutable", "mandatory publishes to no queue", _unroutable),
    Case("headers", "headers of 100 KiB at a headers exchange", _headers),
    Case("declare", "queues declared and deleted", _declares),
    Case("bind", "bindings made and removed", _repeat(_BIND, _UNBIND)),
    Case("acks", "acknowledgements of unknown tags", _unknown_acks),
    Case("heartbeats", "heartbeats", _heartbeats),
    Case("empty", "body frames without bytes", _empty_frames),
    Case("topics", f"{WILD_BINDINGS} wild topic bindings, new keys", _wild_topics),
    Case("large", "messages of 16 MiB", _large),
    Case("guess", "wrong passwords", _guess, 4),
    Case("knock", "connections that come and go", _knock, 2),
    Case("connections", "connections opened and lost", _connections, 2),
    Case("leave", f"connections of {LEAVING_CHANNELS} consumers lost", _leave),
    Case("fanout", f"publishes to {MANY} queues", _fanout),
    Case("slow", "consumers that hardly read", _slow_reader, 4),
    Case("channels8", "channels opened and closed, eight connections", _channels, 8),
    Case("qos8", "basic.qos, eight connections", _repeat(commands.Basic.Qos(0, 10)), 8),
    Case("large4", "messages of 16 MiB, four connections", _large, 4),
    Case("grpc-describe", "gRPC: DescribeQueue", calls.describe, 4),
    Case("grpc-list", f"gRPC: ListQueues of {MANY} queues", calls.list_queues, 2),
    Case("grpc-why", "gRPC: Why", calls.why, 2),
    Case("grpc-get", "gRPC: Get", calls.get, 2),
    Case("grpc-large", "gRPC: requests of 16 MiB", calls.large, 2),
    Case("grpc-streams", "gRPC: streams opened and ended", calls.streams, 2),
    Case("grpc-publish", "gRPC: publishes of no bytes", calls.publish, 2),
    Case("grpc-credit", "gRPC: credit of 1", calls.credit, 2),
    Case("http-who", "HTTP: /api/whoami", http_requests("/api/whoami"), 8),
    Case("http-queues", f"HTTP: {MANY} queues", http_requests("/api/queues", many=True), 2),
    Case("http-regex", "HTTP: queues by a regular expression", http_requests(_REGEX, many=True), 2),
    Case("http-export", "HTTP: definitions", http_requests("/api/definitions", many=True), 2),
    Case(
        "http-metrics",
        "HTTP: metrics by object",
        http_requests("/metrics/per-object", many=True),
        2,
    ),
    Case("http-publish", "HTTP: publishes", http_requests(_PUBLISH_PATH, "POST", _PUBLISH), 8),
)


def serve(case: Case, port: int, equal: bool) -> None:
    """Run a case on all its connections; a connection that is lost begins again.

    Args:
        case: the load.
        port: AMQP port of the node.
        equal: compete with the nodes for processors; otherwise use only what they leave idle, as
            if the hostile clients had a machine of their own.
    """
    if not equal:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))

    def on() -> None:
        while True:
            with contextlib.suppress(OSError):
                case.run(port)
            time.sleep(0.1)

    threads = [threading.Thread(target=on, daemon=True) for _ in range(case.connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
