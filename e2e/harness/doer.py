"""Users who do things over AMQP, gRPC and HTTP, and tell whether they were allowed to."""

from __future__ import annotations

import base64
from typing import Any, Final

import grpc
import pika

from headrace_broker.cli.session.api_client import ApiClient, path_of
from headrace_protos.broker.v1 import flow_pb2, topology_pb2
from headrace_protos.broker.v1.flow_pb2_grpc import FlowStub
from headrace_protos.broker.v1.message_pb2 import Message
from headrace_protos.broker.v1.messaging_pb2 import (
    ConsumeOpen,
    ConsumeRequest,
    GetRequest,
    PublishBatch,
    PublishOpen,
    PublishRequest,
)
from headrace_protos.broker.v1.messaging_pb2_grpc import MessagingStub
from headrace_protos.broker.v1.topology_pb2_grpc import TopologyStub
from headrace_protos.broker.v1.value_pb2 import Table, Value

VHOST: Final = "permissions"
RIGHTS: Final = ("configure", "write", "read")
AMQP, GRPC, HTTP = "amqp", "grpc", "http"
LIMIT, LIMIT_VALUE = "credit", 400
SECONDS: Final = 30.0


class AmqpUser:
    """Does operations over AMQP."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connections: dict[str, pika.BlockingConnection | None] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            if connection is not None:
                connection.close()

    def do(self, name: str, operation: str) -> bool:
        connection = self._connect(name)
        if connection is None:
            return False
        channel = connection.channel()
        try:
            channel.confirm_delivery()
            getattr(self, operation)(channel, f"{name}-{AMQP}", name)
        except pika.exceptions.ChannelClosedByBroker as closed:
            if closed.reply_code not in (403, 404):
                raise
            return bool(closed.reply_code == 404)
        channel.close()
        return True

    def _connect(self, name: str) -> pika.BlockingConnection | None:
        """Return a user's connection, None for one that may not enter the vhost."""
        if name not in self._connections:
            login = pika.PlainCredentials(name, name)
            parameters = pika.ConnectionParameters("127.0.0.1", self._port, VHOST, login)
            try:
                self._connections[name] = pika.BlockingConnection(parameters)
            except pika.exceptions.ProbableAccessDeniedError:
                self._connections[name] = None
        return self._connections[name]

    def declare_queue(self, channel: Any, own: str, name: str) -> None:
        channel.queue_declare(own, auto_delete=True)

    def declare_queue_with_letters(self, channel: Any, own: str, name: str) -> None:
        arguments = {"x-dead-letter-exchange": "direct"}
        channel.queue_declare(f"{own}-dlx", auto_delete=True, arguments=arguments)

    def purge_queue(self, channel: Any, own: str, name: str) -> None:
        channel.queue_purge("queue")

    def delete_queue(self, channel: Any, own: str, name: str) -> None:
        channel.queue_delete(f"{own}-gone")

    def declare_exchange(self, channel: Any, own: str, name: str) -> None:
        channel.exchange_declare(own, "fanout")

    def declare_exchange_with_alternate(self, channel: Any, own: str, name: str) -> None:
        arguments = {"alternate-exchange": "direct"}
        channel.exchange_declare(f"{own}-alternate", "fanout", arguments=arguments)

    def delete_exchange(self, channel: Any, own: str, name: str) -> None:
        channel.exchange_delete(f"{own}-gone")

    def bind(self, channel: Any, own: str, name: str, key: str = "k") -> None:
        channel.queue_bind("queue", "direct", f"{key}-{own}")

    def unbind(self, channel: Any, own: str, name: str) -> None:
        channel.queue_unbind("queue", "direct", f"none-{own}")

    def bind_exchange(self, channel: Any, own: str, name: str) -> None:
        channel.exchange_bind("direct", "amq.direct", own)

    def bind_own_key(self, channel: Any, own: str, name: str) -> None:
        channel.queue_bind("queue", "topic", f"{name}.{own}")

    def bind_key(self, channel: Any, own: str, name: str) -> None:
        channel.queue_bind("queue", "topic", f"other.{own}")

    def publish(self, channel: Any, own: str, name: str) -> None:
        channel.basic_publish("direct", "nowhere", b"m")

    def publish_to_queue(self, channel: Any, own: str, name: str) -> None:
        channel.basic_publish("", "nowhere", b"m")

    def publish_own_key(self, channel: Any, own: str, name: str) -> None:
        channel.basic_publish("topic", f"{name}.x", b"m")

    def publish_key(self, channel: Any, own: str, name: str) -> None:
        channel.basic_publish("topic", "other.x", b"m")

    def publish_copy(self, channel: Any, own: str, name: str) -> None:
        properties = pika.BasicProperties(headers={"CC": ["other.x"]})
        channel.basic_publish("topic", f"{name}.x", b"m", properties)

    def get(self, channel: Any, own: str, name: str) -> None:
        channel.basic_get("queue", auto_ack=True)

    def consume(self, channel: Any, own: str, name: str) -> None:
        channel.basic_cancel(channel.basic_consume("queue", lambda *_: None))


class GrpcUser:
    """Does operations over gRPC."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self._topology: Any = TopologyStub(self._channel)
        self._messaging: Any = MessagingStub(self._channel)
        self._flow: Any = FlowStub(self._channel)
        self._metadata: Any = ()

    def close(self) -> None:
        self._channel.close()

    def log_in(self, name: str) -> None:
        login = base64.b64encode(f"{name}:{name}".encode()).decode()
        self._metadata = (("authorization", f"Basic {login}"),)

    def do(self, name: str, operation: str) -> bool:
        self.log_in(name)
        try:
            return getattr(self, operation)(f"{name}-{GRPC}", name) is not False
        except grpc.RpcError as error:
            code = error.code()
            if code not in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.NOT_FOUND):
                raise
            return code is grpc.StatusCode.NOT_FOUND

    def ask(self, method: str, request: Any) -> Any:
        call = getattr(self._topology, method)
        return call(request, metadata=self._metadata, timeout=SECONDS)

    def _declare(self, queue: str, **arguments: str) -> None:
        arguments["x-queue-type"] = "classic"
        given = {key: Value(string=value) for key, value in arguments.items()}
        request = topology_pb2.DeclareQueueRequest(vhost=VHOST, name=queue)
        request.arguments.CopyFrom(Table(fields=given))
        self.ask("DeclareQueue", request)

    def declare_queue(self, own: str, name: str) -> None:
        self._declare(own)

    def declare_queue_with_letters(self, own: str, name: str) -> None:
        self._declare(f"{own}-dlx", **{"x-dead-letter-exchange": "direct"})

    def purge_queue(self, own: str, name: str) -> None:
        self.ask("PurgeQueue", topology_pb2.PurgeQueueRequest(vhost=VHOST, name="queue"))

    def delete_queue(self, own: str, name: str) -> None:
        self.ask("DeleteQueue", topology_pb2.DeleteQueueRequest(vhost=VHOST, name=f"{own}-gone"))

    def declare_exchange(self, own: str, name: str) -> None:
        self.ask(
            "DeclareExchange",
            topology_pb2.DeclareExchangeRequest(vhost=VHOST, name=own, type="fanout"),
        )

    def declare_exchange_with_alternate(self, own: str, name: str) -> None:
        request = topology_pb2.DeclareExchangeRequest(vhost=VHOST, name=f"{own}-alternate")
        request.type = "fanout"
        request.arguments.CopyFrom(Table(fields={"alternate-exchange": Value(string="direct")}))
        self.ask("DeclareExchange", request)

    def delete_exchange(self, own: str, name: str) -> None:
        request = topology_pb2.DeleteExchangeRequest(vhost=VHOST, name=f"{own}-gone")
        self.ask("DeleteExchange", request)

    def _bind(self, method: str, source: str, key: str, **end: Any) -> None:
        binding = topology_pb2.Binding(vhost=VHOST, source=source, routing_key=key, **end)
        kind = {"Bind": topology_pb2.BindRequest, "Unbind": topology_pb2.UnbindRequest}[method]
        self.ask(method, kind(binding=binding))

    def bind(self, own: str, name: str) -> None:
        self._bind("Bind", "direct", own, queue="queue")

    def unbind(self, own: str, name: str) -> None:
        self._bind("Unbind", "direct", f"none-{own}", queue="queue")

    def bind_exchange(self, own: str, name: str) -> None:
        self._bind("Bind", "amq.direct", own, exchange="direct")

    def bind_own_key(self, own: str, name: str) -> None:
        self._bind("Bind", "topic", f"{name}.{own}", queue="queue")

    def bind_key(self, own: str, name: str) -> None:
        self._bind("Bind", "topic", f"other.{own}", queue="queue")

    def _publish(self, exchange: str, key: str, message: Message | None = None) -> bool:
        opening = PublishOpen(vhost=VHOST, exchange=exchange, routing_key=key, confirms=True)
        batch = PublishBatch(first_sequence=1, messages=[message or Message(body=b"m")])
        requests = [PublishRequest(open=opening), PublishRequest(batch=batch)]
        answers = self._messaging.Publish(iter(requests), metadata=self._metadata, timeout=SECONDS)
        kinds = {answer.WhichOneof("kind"): answer for answer in answers}
        if "refused" not in kinds:
            assert "confirmed" in kinds
            return True
        assert kinds["refused"].refused.reason == "ACCESS_REFUSED"
        assert "confirmed" not in kinds
        return False

    def publish(self, own: str, name: str) -> bool:
        return self._publish("direct", "nowhere")

    def publish_to_queue(self, own: str, name: str) -> bool:
        return self._publish("", "nowhere")

    def publish_own_key(self, own: str, name: str) -> bool:
        return self._publish("topic", f"{name}.x")

    def publish_key(self, own: str, name: str) -> bool:
        return self._publish("topic", "other.x")

    def publish_copy(self, own: str, name: str) -> bool:
        message = Message(body=b"m")
        message.properties.headers.fields["CC"].array.values.add().string = "other.x"
        return self._publish("topic", f"{name}.x", message)

    def get(self, own: str, name: str) -> None:
        request = GetRequest(vhost=VHOST, queue="queue")
        self._messaging.Get(request, metadata=self._metadata, timeout=SECONDS)

    # What takes tags

    def list_users(self, own: str, name: str) -> None:
        self.ask("ListUsers", topology_pb2.ListUsersRequest())

    def declare_user(self, own: str, name: str) -> None:
        self.ask("DeclareUser", topology_pb2.DeclareUserRequest(name="made"))

    def list_permissions(self, own: str, name: str) -> None:
        self.ask("ListPermissions", topology_pb2.ListPermissionsRequest())

    def declare_permission(self, own: str, name: str) -> None:
        given = topology_pb2.Permission(user="made", vhost=VHOST)
        request = topology_pb2.DeclarePermissionRequest(permission=given)
        self.ask("DeclarePermission", request)

    def declare_topic_permission(self, own: str, name: str) -> None:
        given = topology_pb2.TopicPermission(user="made", vhost=VHOST, exchange="x")
        request = topology_pb2.DeclareTopicPermissionRequest(permission=given)
        self.ask("DeclareTopicPermission", request)

    def declare_vhost(self, own: str, name: str) -> None:
        self.ask("DeclareVhost", topology_pb2.DeclareVhostRequest(name=f"{VHOST}-made"))

    def declare_policy(self, own: str, name: str, operator: bool = False) -> None:
        policy = topology_pb2.Policy(vhost=VHOST, name="p", pattern="^none$", operator=operator)
        policy.definition.fields["max-length"].int64 = 5
        self.ask("DeclarePolicy", topology_pb2.DeclarePolicyRequest(policy=policy))

    def declare_operator_policy(self, own: str, name: str) -> None:
        self.declare_policy(own, name, True)

    def list_policies(self, own: str, name: str) -> None:
        self.ask("ListPolicies", topology_pb2.ListPoliciesRequest(vhost=VHOST))

    def list_queues(self, own: str, name: str) -> None:
        self.ask("ListQueues", topology_pb2.ListQueuesRequest(vhost=VHOST))

    def list_exchanges(self, own: str, name: str) -> None:
        self.ask("ListExchanges", topology_pb2.ListExchangesRequest(vhost=VHOST))

    def list_bindings(self, own: str, name: str) -> None:
        self.ask("ListBindings", topology_pb2.ListBindingsRequest(vhost=VHOST))

    def list_limits(self, own: str, name: str) -> None:
        request = flow_pb2.ListLimitsRequest()
        self._flow.ListLimits(request, metadata=self._metadata, timeout=SECONDS)

    def set_limit(self, own: str, name: str) -> None:
        value = flow_pb2.LimitValue(number=LIMIT_VALUE)
        request = flow_pb2.SetLimitRequest(name=LIMIT, value=value)
        self._flow.SetLimit(request, metadata=self._metadata, timeout=SECONDS)

    def consume(self, own: str, name: str) -> None:
        opening = ConsumeRequest(open=ConsumeOpen(vhost=VHOST, queue="queue"))
        call = self._messaging.Consume(iter([opening]), metadata=self._metadata, timeout=SECONDS)
        assert next(call).HasField("opened")
        call.cancel()


class HttpUser:
    """Does operations over HTTP."""

    def __init__(self, address: str) -> None:
        self._address = address

    def close(self) -> None:
        """Each request has a connection of its own."""

    def do(self, name: str, operation: str) -> bool:
        method, path, body = getattr(self, operation)(f"{name}-{HTTP}", name)
        return self.ask(name, method, path, body)

    def ask(self, name: str, method: str, path: str, body: Any = None) -> bool:
        client = ApiClient(self._address, name, name)
        answer = client.request(method, path, body, seconds=SECONDS)
        if answer.status in (401, 403):
            return False
        assert answer.status in (200, 201, 204, 404), answer
        return True

    def declare_queue(self, own: str, name: str) -> Any:
        return "PUT", path_of("queues", VHOST, own), {"arguments": {"x-queue-type": "classic"}}

    def declare_queue_with_letters(self, own: str, name: str) -> Any:
        arguments = {"x-queue-type": "classic", "x-dead-letter-exchange": "direct"}
        return "PUT", path_of("queues", VHOST, f"{own}-dlx"), {"arguments": arguments}

    def purge_queue(self, own: str, name: str) -> Any:
        return "DELETE", path_of("queues", VHOST, "queue", "contents"), None

    def delete_queue(self, own: str, name: str) -> Any:
        return "DELETE", path_of("queues", VHOST, f"{own}-gone"), None

    def declare_exchange(self, own: str, name: str) -> Any:
        return "PUT", path_of("exchanges", VHOST, own), {"type": "fanout"}

    def declare_exchange_with_alternate(self, own: str, name: str) -> Any:
        body = {"type": "fanout", "arguments": {"alternate-exchange": "direct"}}
        return "PUT", path_of("exchanges", VHOST, f"{own}-alternate"), body

    def delete_exchange(self, own: str, name: str) -> Any:
        return "DELETE", path_of("exchanges", VHOST, f"{own}-gone"), None

    def _bind(self, source: str, key: str, kind: str = "q", end: str = "queue") -> Any:
        path = path_of("bindings", VHOST, "e", source, kind, end)
        return "POST", path, {"routing_key": key}

    def bind(self, own: str, name: str) -> Any:
        return self._bind("direct", own)

    def unbind(self, own: str, name: str) -> Any:
        return (
            "DELETE",
            path_of("bindings", VHOST, "e", "direct", "q", "queue", f"none-{own}"),
            None,
        )

    def bind_exchange(self, own: str, name: str) -> Any:
        return self._bind("amq.direct", own, "e", "direct")

    def bind_own_key(self, own: str, name: str) -> Any:
        return self._bind("topic", f"{name}.{own}")

    def bind_key(self, own: str, name: str) -> Any:
        return self._bind("topic", f"other.{own}")

    def _publish(self, exchange: str, key: str, **properties: Any) -> Any:
        body = {"routing_key": key, "payload": "m", "properties": properties}
        return "POST", path_of("exchanges", VHOST, exchange, "publish"), body

    def publish(self, own: str, name: str) -> Any:
        return self._publish("direct", "nowhere")

    def publish_to_queue(self, own: str, name: str) -> Any:
        return self._publish("amq.default", "nowhere")

    def publish_own_key(self, own: str, name: str) -> Any:
        return self._publish("topic", f"{name}.x")

    def publish_key(self, own: str, name: str) -> Any:
        return self._publish("topic", "other.x")

    def publish_copy(self, own: str, name: str) -> Any:
        return self._publish("topic", f"{name}.x", headers={"CC": ["other.x"]})

    def get(self, own: str, name: str) -> Any:
        body = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
        return "POST", path_of("queues", VHOST, "queue", "get"), body

    def consume(self, own: str, name: str) -> Any:
        return "GET", path_of("queues", VHOST, "queue", "messages"), None

    # What takes tags

    def list_users(self, own: str, name: str) -> Any:
        return "GET", path_of("users"), None

    def declare_user(self, own: str, name: str) -> Any:
        return "PUT", path_of("users", "made"), {"tags": "", "password_hash": ""}

    def list_permissions(self, own: str, name: str) -> Any:
        return "GET", path_of("permissions"), None

    def declare_permission(self, own: str, name: str) -> Any:
        return "PUT", path_of("permissions", VHOST, "made"), dict.fromkeys(RIGHTS, "")

    def declare_topic_permission(self, own: str, name: str) -> Any:
        body = {"exchange": "x", "write": "", "read": ""}
        return "PUT", path_of("topic-permissions", VHOST, "made"), body

    def declare_vhost(self, own: str, name: str) -> Any:
        return "PUT", path_of("vhosts", f"{VHOST}-made"), {}

    def declare_policy(self, own: str, name: str, kind: str = "policies") -> Any:
        body = {"pattern": "^none$", "definition": {"max-length": 5}}
        return "PUT", path_of(kind, VHOST, "p"), body

    def declare_operator_policy(self, own: str, name: str) -> Any:
        return self.declare_policy(own, name, "operator-policies")

    def list_policies(self, own: str, name: str) -> Any:
        return "GET", path_of("policies", VHOST), None

    def list_queues(self, own: str, name: str) -> Any:
        return "GET", path_of("queues", VHOST), None

    def list_exchanges(self, own: str, name: str) -> Any:
        return "GET", path_of("exchanges", VHOST), None

    def list_bindings(self, own: str, name: str) -> Any:
        return "GET", path_of("bindings", VHOST), None

    def list_limits(self, own: str, name: str) -> Any:
        return "GET", path_of("flow", "limits"), None

    def set_limit(self, own: str, name: str) -> Any:
        return "PUT", path_of("flow", "limits", LIMIT), {"value": LIMIT_VALUE}
