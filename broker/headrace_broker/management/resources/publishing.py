"""/api/exchanges/V/X/publish and /api/aliveness-test/V: a message in, and out again."""

from __future__ import annotations

import asyncio
import base64
import binascii
import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from aiohttp import web
from pamqp import commands
from typing_extensions import TypedDict

from headrace_broker.catalog.permission import CONFIGURE, READ, WRITE
from headrace_broker.codecs.method import decode_properties
from headrace_broker.core.routing.distribution import DistributionError, distribution_keys
from headrace_broker.management.http.access import caller, check_allowed, check_enters, check_topic
from headrace_broker.management.http.answer import bad_request, json_answer, unavailable
from headrace_broker.management.http.body import LargeBodies, decoded
from headrace_broker.management.http.endpoints import Endpoints, exchange_name
from headrace_broker.management.http.route import got, posted
from headrace_broker.management.resources.health import State
from headrace_broker.management.resources.messages import short_string
from headrace_broker.model import limits
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.runtime.administration.administration import NodeAdministration
from headrace_broker.runtime.administration.status import NodeStatusSource
from headrace_broker.runtime.contract.port import ACCEPT

ALIVENESS_QUEUE: Final = "aliveness-test"  # RabbitMQ's name for it; it stays
_ALIVE: Final = b"test_message"
FIELD_NAME_MAX: Final = 128  # bytes of a header's name; AMQP 0-9-1, section 4.2.5.5

ShortText = Annotated[str, msgspec.Meta(max_length=255)]


class MessageProperties(msgspec.Struct, omit_defaults=True):
    """Properties of a message; those that are not given are not set."""

    content_type: ShortText | None = None
    content_encoding: ShortText | None = None
    headers: dict[str, Any] | None = None
    delivery_mode: Annotated[int, msgspec.Meta(ge=1, le=2)] | None = None
    priority: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None
    correlation_id: ShortText | None = None
    reply_to: ShortText | None = None
    expiration: ShortText | None = None
    message_id: ShortText | None = None
    timestamp: Annotated[int, msgspec.Meta(ge=0, le=(1 << 37) - 1)] | None = None
    type: ShortText | None = None
    user_id: ShortText | None = None
    app_id: ShortText | None = None
    cluster_id: ShortText | None = None


class PublishBody(msgspec.Struct):
    """Body of POST /api/exchanges/V/X/publish."""

    payload: str
    routing_key: ShortText = ""
    payload_encoding: Literal["string", "base64"] = "string"
    properties: MessageProperties = msgspec.field(default_factory=MessageProperties)


class ReceivedBody(msgspec.Struct):
    """The same as received: properties are read once they are known to be few enough."""

    payload: str
    routing_key: ShortText = ""
    payload_encoding: Literal["string", "base64"] = "string"
    properties: msgspec.Raw = msgspec.Raw(b"{}")


class RoutedView(TypedDict):
    """Result of a publish: true if the message has reached a queue."""

    routed: bool


class PublishEndpoints(Endpoints):
    """Answers requests to publish."""

    def __init__(
        self, node: NodeAdministration, source: NodeStatusSource, bodies: LargeBodies
    ) -> None:
        super().__init__(node, source)
        self._bodies = bodies

    @posted(
        "/api/exchanges/{vhost}/{exchange}/publish",
        "Publish a message.",
        PublishBody,
        answer=RoutedView,
    )
    async def _publish(self, request: web.Request) -> web.Response:
        vhost = await self._known_vhost(request)
        who = caller()
        check_enters(who, self._node.view, vhost)
        name = exchange_name(request.match_info["exchange"])
        check_allowed(who, self._node.view, vhost, WRITE, "exchange", name)
        exchange = await self._known_exchange(vhost, name)
        async with self._bodies.decoded(request, ReceivedBody) as body:
            payload = _payload(body)
            properties = await _encoded(body, who.name)
            for key in (body.routing_key, *copy_keys(properties)):
                check_topic(who, self._node.view, vhost, exchange.name, key)
            route = short_string("exchange", exchange.name)
            route += short_string("routing_key", body.routing_key)
            routed = await self._node.publisher.publish(vhost, route, properties, payload, who.name)
        return json_answer({"routed": routed})

    @got("/api/aliveness-test/{vhost}", "A message goes through a queue of a vhost.", State)
    async def _alive(self, request: web.Request) -> web.Response:
        vhost = await self._known_vhost(request)
        who, view = caller(), self._node.view
        check_enters(who, view, vhost)
        for operation in (CONFIGURE, READ):
            check_allowed(who, view, vhost, operation, "queue", ALIVENESS_QUEUE)
        check_allowed(who, view, vhost, WRITE, "exchange", "")
        queue = await self._node.topology.declare_queue(
            vhost, ALIVENESS_QUEUE, True, False, False, {}, ""
        )
        route = short_string("exchange", "") + short_string("routing_key", ALIVENESS_QUEUE)
        await self._node.publisher.publish(vhost, route, b"\0\0", _ALIVE, who.name)
        if not await self._node.message_service.fetch(queue, 1, ACCEPT):
            raise unavailable(f"queue '{ALIVENESS_QUEUE}' in vhost '{vhost}' gives no message")
        return json_answer({"status": "ok"})


async def _encoded(body: ReceivedBody, user: str) -> bytes:
    """Return property flags and list, in turns of the loop; ApiError 400 if they are wrong."""
    text = bytes(body.properties)
    if len(text) > limits.PUBLISHED_PROPERTIES_BYTES_MAX:
        rule = f"have {len(text)} bytes, at most {limits.PUBLISHED_PROPERTIES_BYTES_MAX}"
        raise bad_request(f"properties: {rule}")

    def work() -> bytes:
        return encoded_properties(decoded(text, MessageProperties, "properties"), user)

    is_large = len(text) > limits.REQUEST_BODY_BYTES_MAX
    return await asyncio.to_thread(work) if is_large else work()


def _payload(body: ReceivedBody) -> bytes:
    if body.payload_encoding == "string":
        payload = body.payload.encode("utf-8")
    else:
        try:
            payload = base64.b64decode(body.payload, validate=True)
        except (binascii.Error, ValueError):
            raise bad_request("payload: is not base64") from None
    if len(payload) > limits.MESSAGE_BYTES_MAX:
        raise bad_request(f"payload: has {len(payload)} bytes, at most {limits.MESSAGE_BYTES_MAX}")
    return payload


def encoded_properties(given: MessageProperties, user: str) -> bytes:
    """Return property flags and list; ApiError 400 where a property breaks a rule."""
    if given.user_id is not None and given.user_id != user:
        raise bad_request(f"properties.user_id: must be '{user}', who publishes")
    expiration = given.expiration
    if expiration is not None and not _is_expiration(expiration):
        raise bad_request(f"properties.expiration: must be 0 to {limits.TTL_MS_MAX} in digits")
    if not _named_shortly(given.headers):
        raise bad_request(f"properties.headers: names must have at most {FIELD_NAME_MAX} letters")
    values = msgspec.structs.asdict(given)
    values["message_type"] = values.pop("type")
    if given.timestamp is not None:
        values["timestamp"] = datetime.datetime.fromtimestamp(given.timestamp, datetime.UTC)
    present = {name: value for name, value in values.items() if value is not None}
    try:
        encoded = bytes(commands.Basic.Properties(**present).marshal())
        decode_properties(encoded)
    except (TypeError, ValueError, OverflowError, RecursionError, AmqpError) as error:
        raise bad_request(f"properties: cannot be sent: {error}") from None
    if len(encoded) > limits.PROPERTIES_BYTES_MAX:
        rule = f"have {len(encoded)} bytes, at most {limits.PROPERTIES_BYTES_MAX}"
        raise bad_request(f"properties: {rule}")
    return encoded


def copy_keys(properties: bytes) -> list[str]:
    """Return the routing keys in the headers CC and BCC; ApiError 400 where one cannot be."""
    try:
        return distribution_keys(properties)
    except DistributionError as error:
        raise bad_request(f"properties.headers: {error}") from None


def _named_shortly(value: Any) -> bool:
    """Return whether no name in a table is cut short on its way."""
    if isinstance(value, dict):
        if any(len(name.encode("utf-8", "replace")) > FIELD_NAME_MAX for name in value):
            return False
        return all(map(_named_shortly, value.values()))
    return all(map(_named_shortly, value)) if isinstance(value, list) else True


def _is_expiration(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16 and int(text) <= limits.TTL_MS_MAX
