"""Operations of the tables of access, asked as a user over gRPC, HTTP and AMQP.

An answer is a status and a text. `refused` says whether it is for want of a permission or tag;
what is not there, or what is wrong with a request, is another answer.
"""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import grpc
import pika
from e2e.harness.access_table import AMQP, GRPC, HTTP
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass

from headrace_protos.broker.v1 import (
    advice_pb2,
    backup_pb2,
    export_pb2,
    flow_pb2,
    lease_pb2,
    messaging_pb2,
    topology_pb2,
)

SECONDS: Final = 30.0
FILES: Final = (
    *(advice_pb2, backup_pb2, export_pb2, flow_pb2, lease_pb2, messaging_pb2, topology_pb2),
)
SERVICES: Final = {
    name: service for file in FILES for name, service in file.DESCRIPTOR.services_by_name.items()
}
EVENTS, ARCHIVE = "EXPORT_LOG_QUEUE_EVENTS", "EXPORT_LOG_ARCHIVE"
HOUR_MS: Final = 3_600_000
POINT: Final = "1-77"  # of no backup
Build = Callable[[str, str], dict[str, Any]]


class Answer(NamedTuple):
    """Answer to an operation."""

    refused: bool
    status: str
    text: str


def grpc_methods() -> set[str]:
    """Return all methods that the protocol buffers have, as SERVICE.METHOD."""
    return {
        f"{name}.{method.name}" for name, service in SERVICES.items() for method in service.methods
    }


def _lease(**more: Any) -> Build:
    return lambda vhost, name: {"name": {"vhost": vhost, "queue": name, "group": "g"}, **more}


def _export(log: str, **more: Any) -> Build:
    return lambda vhost, name: {"log": log, "shard": name, **more}


def _group(log: str, **more: Any) -> Build:
    return lambda vhost, name: {"name": {"log": log, "shard": name, "group": "g"}, **more}


def _queue(**more: Any) -> Build:
    return lambda vhost, name: {"vhost": vhost, "queue": name, **more}


def _named(**more: Any) -> Build:
    return lambda vhost, name: {"vhost": vhost, "name": name, **more}


def _in_vhost(vhost: str, name: str) -> dict[str, Any]:
    return {"vhost": vhost}


def _nothing(vhost: str, name: str) -> dict[str, Any]:
    return {}


def _is_name(vhost: str, name: str) -> dict[str, Any]:
    return {"name": name}


def _is_vhost(vhost: str, name: str) -> dict[str, Any]:
    return {"name": vhost}


def _point(vhost: str, name: str) -> dict[str, Any]:
    return {"point": POINT}


def _advice(vhost: str, name: str) -> dict[str, Any]:
    item = {"vhost": vhost, "queue": name, "kind": "ADVICE_KIND_CONSUMERS", "value": 1}
    until = int(time.time() * 1000) + HOUR_MS
    return {"items": [{**item, "current": 1, "reason": "r", "validUntilMs": until}]}


def _binding(vhost: str, name: str) -> dict[str, Any]:
    return {"binding": {"vhost": vhost, "source": name, "queue": name, "routingKey": "k"}}


def _policy(**more: Any) -> Build:
    return lambda vhost, name: {
        "policy": {"vhost": vhost, "name": name, "pattern": "^no$", "definition": {
            "fields": {"max-length": {"int64": "5"}}}, **more}
    }  # fmt: skip


def _permission(wrapped: bool, **more: Any) -> Build:
    def build(vhost: str, name: str) -> dict[str, Any]:
        given = {"vhost": vhost, "user": name, **more}
        return {"permission": given} if wrapped else given

    return build


def _restore(vhost: str, name: str) -> dict[str, Any]:
    return {"open": {"vhost": vhost, "queue": name, "restoreId": "r"}}


def _consume(vhost: str, name: str) -> dict[str, Any]:
    return {"open": {"vhost": vhost, "queue": name}}


def _publish(vhost: str, name: str) -> dict[str, Any]:
    return {"open": {"vhost": vhost, "exchange": name, "routingKey": "k", "confirms": True}}


_CLASSIC: Final = {"fields": {"x-queue-type": {"string": "classic"}}}
_TTL: Final = 10_000

GRPC_REQUESTS: Final[dict[str, Build]] = {
    "Advice.Put": _advice,
    "Advice.List": _in_vhost,
    "Advice.Delete": _queue(),
    "Backup.Open": _queue(ttlMs=_TTL),
    "Backup.Read": _point,
    "Backup.Keep": _point,
    "Backup.Close": _point,
    "Backup.Restore": _restore,
    "Export.ListShards": lambda vhost, name: {"log": EVENTS},
    "Export.ListShards?archive": lambda vhost, name: {
        "log": ARCHIVE,
        "vhost": vhost,
        "queue": name,
    },
    "Export.Read": _export(EVENTS, incarnation=1),
    "Export.OpenGroup": _group(EVENTS, requestId="r"),
    "Export.Commit": _group(EVENTS, epoch=1, incarnation=1),
    "Export.DescribeGroups": _group(EVENTS),
    "Export.DescribeGroups?archive": lambda vhost, name: {"name": {"log": ARCHIVE}},
    "Export.CloseGroup": _group(EVENTS),
    "Flow.Why": _queue(),
    "Flow.Why?name": _named(),
    "Flow.Why?connection": lambda vhost, name: {"connection": name},
    "Flow.Top": _nothing,
    "Flow.WatchFlow": _queue(),
    "Flow.WatchAlarms": _nothing,
    "Flow.ListLimits": _nothing,
    "Flow.GetLimit": _is_name,
    "Flow.SetLimit": lambda vhost, name: {"name": name, "value": {"number": 400}},
    "Flow.ResetLimit": _is_name,
    "Lease.OpenGroup": _lease(requestId="r", ttlMs=_TTL),
    "Lease.Lease": _lease(epoch=1, lease=1, ttlMs=_TTL),
    "Lease.Describe": _lease(),
    "Lease.Fetch": _lease(epoch=1, lease=1),
    "Lease.Renew": _lease(epoch=1, ttlMs=_TTL),
    "Lease.Settle": _lease(epoch=1),
    "Lease.Release": _lease(epoch=1),
    "Lease.CloseGroup": _lease(),
    "Messaging.Publish": _publish,
    "Messaging.Consume": _consume,
    "Messaging.Get": _queue(),
    "Topology.DeclareQueue": _named(arguments=_CLASSIC),
    "Topology.DeclareQueue?passive": _named(passive=True),
    "Topology.DeleteQueue": _named(),
    "Topology.PurgeQueue": _named(),
    "Topology.DescribeQueue": _named(),
    "Topology.ListQueues": _in_vhost,
    "Topology.DeclareExchange": _named(type="fanout"),
    "Topology.DeclareExchange?passive": _named(passive=True),
    "Topology.DeleteExchange": _named(),
    "Topology.DescribeExchange": _named(),
    "Topology.ListExchanges": _in_vhost,
    "Topology.Bind": _binding,
    "Topology.Unbind": _binding,
    "Topology.ListBindings": _queue(),
    "Topology.DeclareVhost": _is_vhost,
    "Topology.DeleteVhost": _is_vhost,
    "Topology.DescribeVhost": _is_vhost,
    "Topology.ListVhosts": _nothing,
    "Topology.DeclareUser": _is_name,
    "Topology.DeleteUser": _is_name,
    "Topology.DescribeUser": _is_name,
    "Topology.ListUsers": _nothing,
    "Topology.DeclarePermission": _permission(True),
    "Topology.DeletePermission": _permission(False),
    "Topology.DescribePermission": _permission(False),
    "Topology.ListPermissions": _permission(False),
    "Topology.DeclareTopicPermission": _permission(True, exchange="x"),
    "Topology.DeleteTopicPermission": _permission(False, exchange="x"),
    "Topology.DescribeTopicPermission": _permission(False, exchange="x"),
    "Topology.ListTopicPermissions": _permission(False),
    "Topology.DeclarePolicy": _policy(),
    "Topology.DeclarePolicy?operator": _policy(operator=True),
    "Topology.DeletePolicy": _named(),
    "Topology.DeletePolicy?operator": _named(operator=True),
    "Topology.DescribePolicy": _named(),
    "Topology.ListPolicies": _in_vhost,
}


class GrpcAsker:
    """Asks over gRPC."""

    protocol = GRPC

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)

    def close(self) -> None:
        self._channel.close()

    def form(self, name: str, vhost: str, thing: str) -> str:
        """Return what tells requests apart."""
        return f"{name} {GRPC_REQUESTS[name](vhost, thing)}"

    def ask(self, user: str, name: str, vhost: str, thing: str) -> Answer:
        service, method = name.partition("?")[0].split(".")
        found = SERVICES[service].methods_by_name[method]
        request = ParseDict(GRPC_REQUESTS[name](vhost, thing), GetMessageClass(found.input_type)())
        return self.send(user, found, request)

    def send(self, user: str, method: Any, request: Any) -> Answer:
        """Send a request; of streams, the first answer counts that is more than an opening."""
        try:
            for answer in self._answers(user, method, request):
                refused = getattr(answer, "refused", None)
                if refused is not None and answer.WhichOneof("kind") == "refused":
                    denied = refused.reason == "ACCESS_REFUSED"
                    return Answer(denied, refused.reason, refused.text)
                if getattr(answer, "opened", None) is None or not answer.HasField("opened"):
                    break
        except grpc.RpcError as error:
            denied = error.code() is grpc.StatusCode.PERMISSION_DENIED
            return Answer(denied, error.code().name, error.details() or "")
        return Answer(False, "OK", "")

    def _answers(self, user: str, method: Any, request: Any) -> Iterator[Any]:
        kind = "stream" if method.client_streaming else "unary"
        make = getattr(self._channel, f"{kind}_{'stream' if method.server_streaming else 'unary'}")
        call = make(
            f"/{method.containing_service.full_name}/{method.name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        login = base64.b64encode(f"{user}:{user}".encode()).decode()
        given: Any = iter(_opened(request)) if method.client_streaming else request
        metadata = (("authorization", f"Basic {login}"),)
        answer = call(given, metadata=metadata, timeout=SECONDS)
        if not method.server_streaming:
            yield answer
            return
        try:
            yield from answer
        finally:
            answer.cancel()


def _opened(request: Any) -> list[Any]:
    """Return the requests of a stream: a publisher sends a message, too."""
    if not isinstance(request, messaging_pb2.PublishRequest):
        return [request]
    batch = {"firstSequence": 1, "messages": [{"body": base64.b64encode(b"m").decode()}]}
    return [request, ParseDict({"batch": batch}, messaging_pb2.PublishRequest())]


_BODIES: Final[dict[str, Any]] = {
    "PUT /api/exchanges/{vhost}/{exchange}": {"type": "fanout"},
    "PUT /api/queues/{vhost}/{queue}": {"arguments": {"x-queue-type": "classic"}},
    "PUT /api/policies/{vhost}/{name}": {"pattern": "^no$", "definition": {"max-length": 5}},
    "PUT /api/operator-policies/{vhost}/{name}": {
        "pattern": "^no$",
        "definition": {"max-length": 5},
    },
    "POST /api/queues/{vhost}/{queue}/get": {
        "count": 1,
        "ackmode": "ack_requeue_true",
        "encoding": "auto",
    },
    "POST /api/exchanges/{vhost}/{exchange}/publish": {
        "routing_key": "k",
        "payload": "m",
        "properties": {},
    },
    "POST /api/queues/{vhost}/{queue}/actions": {"action": "sync"},
    "POST /api/rebalance/queues": {"vhost_pattern": "^none$"},
}
_FIXED: Final = {
    "node": "nx",
    "key": "k",
    "kind:[qe]": "q",
    "id": "1",
    "group": "g",
    "channel": "c",
    "port": "5672",
    "protocol": "amqp",
    "within": "1",
    "unit": "days",
    "pattern": "q",
    "component": "operator_policy",
    "limit": "max-none",
}
_THINGS: Final = ("queue", "exchange", "source", "destination", "name", "user")


class HttpAsker:
    """Asks over HTTP."""

    protocol = HTTP

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._connection = http.client.HTTPConnection(host, int(port), timeout=SECONDS)

    def close(self) -> None:
        self._connection.close()

    def form(self, name: str, vhost: str, thing: str) -> str:
        """Return what tells requests apart."""
        return " ".join(map(str, self._request(name, vhost, thing)))

    def ask(self, user: str, name: str, vhost: str, thing: str) -> Answer:
        return self.send(user, *self._request(name, vhost, thing))

    def _request(self, name: str, vhost: str, thing: str) -> tuple[str, str, Any]:
        method, path = name.split(" ", 1)
        body = _BODIES.get(name, {})
        if name.endswith("/messages/move"):
            body = {"ids": [1], "queue": thing}
        things = dict.fromkeys(_THINGS, thing)
        for word, value in {**_FIXED, **things, "vhost": vhost}.items():
            path = path.replace("{" + word + "}", quote(value, safe=""))
        if path == "/api/flow/why":
            path += f"?queue={thing}&vhost={vhost}"
        if path == "/api/flow/advice":
            path += f"?vhost={vhost}"
        if path == "/metrics/detailed":
            path += "?family=queue_coarse_metrics"
        assert "{" not in path, path
        return method, path, body if method in ("PUT", "POST") else None

    def send(self, user: str, method: str, path: str, body: Any = None) -> Answer:
        login = base64.b64encode(f"{user}:{user}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
        data = json.dumps(body) if body is not None else None
        self._connection.request(method, path, data, headers)
        response = self._connection.getresponse()
        text = response.read().decode()
        assert response.status < 500 or response.status == 503, (method, path, text)
        return Answer(response.status in (401, 403), str(response.status), text)


class AmqpAsker:
    """Asks over AMQP; a user without access gets the same answer to everything."""

    protocol = AMQP

    def __init__(self, address: str) -> None:
        self._port = int(address.rpartition(":")[2])
        self._open: dict[tuple[str, str], Any] = {}

    def close(self) -> None:
        for connection in self._open.values():
            if not isinstance(connection, Answer):
                connection.close()

    def form(self, name: str, vhost: str, thing: str) -> str:
        """Return what tells requests apart."""
        return f"{name} {vhost} {thing}"

    def ask(self, user: str, name: str, vhost: str, thing: str) -> Answer:
        connection = self._connected(user, vhost)
        if isinstance(connection, Answer):
            return connection
        if name == "Connection.Open":
            return Answer(False, "OK", "")
        channel = connection.channel()
        try:
            channel.confirm_delivery()
            AMQP_CALLS[name](channel, thing)
        except pika.exceptions.ChannelClosedByBroker as closed:
            refused = closed.reply_code == 403
            return Answer(refused, str(closed.reply_code), closed.reply_text)
        channel.close()
        return Answer(False, "OK", "")

    def _connected(self, user: str, vhost: str) -> Any:
        key = (user, vhost)
        if key not in self._open:
            login = pika.PlainCredentials(user, user)
            parameters = pika.ConnectionParameters("127.0.0.1", self._port, vhost, login)
            try:
                self._open[key] = pika.BlockingConnection(parameters)
            except pika.exceptions.ConnectionClosedByBroker as closed:
                text = closed.reply_text
                self._open[key] = Answer(" refused for user " in text, "530", text)
            except pika.exceptions.ProbableAccessDeniedError as denied:
                text = str(denied)
                self._open[key] = Answer(" refused for user " in text, "530", text)
        return self._open[key]


_TAGS: Final = itertools.count(1)

AMQP_CALLS: Final[dict[str, Callable[[Any, str], object]]] = {
    "Queue.Declare": lambda channel, name: channel.queue_declare(name),
    "Queue.Declare?passive": lambda channel, name: channel.queue_declare(name, passive=True),
    "Queue.Bind": lambda channel, name: channel.queue_bind(name, name, "k"),
    "Queue.Unbind": lambda channel, name: channel.queue_unbind(name, name, "k"),
    "Queue.Purge": lambda channel, name: channel.queue_purge(name),
    "Queue.Delete": lambda channel, name: channel.queue_delete(name),
    "Exchange.Declare": lambda channel, name: channel.exchange_declare(name, "fanout"),
    "Exchange.Declare?passive": lambda channel, name: channel.exchange_declare(name, passive=True),
    "Exchange.Delete": lambda channel, name: channel.exchange_delete(name),
    "Exchange.Bind": lambda channel, name: channel.exchange_bind(name, name, "k"),
    "Exchange.Unbind": lambda channel, name: channel.exchange_unbind(name, name, "k"),
    "Basic.Publish": lambda channel, name: channel.basic_publish(name, "k", b"m"),
    "Basic.Get": lambda channel, name: channel.basic_get(name, auto_ack=True),
    "Basic.Consume": lambda channel, name: channel.basic_cancel(
        channel.basic_consume(name, lambda *_: None, consumer_tag=f"c{next(_TAGS)}")
    ),
}
