"""/api/queues/V/Q/get and /api/queues/V/Q/messages: single messages."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from aiohttp import web

from headrace_broker.catalog.permission import READ, WRITE
from headrace_broker.management.http.access import (
    caller,
    check_allowed,
    check_enters,
    check_not_exclusive,
    check_topic,
)
from headrace_broker.management.http.answer import bad_request, done, json_answer, not_found
from headrace_broker.management.http.body import decode
from headrace_broker.management.http.endpoints import Endpoints, exchange_name
from headrace_broker.management.http.query import checked_number, number
from headrace_broker.management.http.route import Parameter, deleted, got, posted
from headrace_broker.management.view.message_rendering import (
    ENCODING_AUTO,
    ENCODING_BASE64,
    render_fetched,
    render_moved,
    render_page,
)
from headrace_broker.management.view.view import FetchedView, MovedView, WaitingPageView
from headrace_broker.model.definition import Queue
from headrace_broker.model.limits import (
    BROWSED_BODY_BYTES,
    BROWSED_MESSAGES_MAX,
    FETCHED_MESSAGES_MAX,
    MESSAGE_BYTES_WHOLE,
    MOVED_MESSAGES_MAX,
    NAME_BYTES_MAX,
)
from headrace_broker.runtime.contract.port import ACCEPT, MODIFY_FAILED, REJECT, RELEASE

MESSAGE_ID_MAX: Final = (1 << 62) - 1
PAGE_MESSAGES: Final = 50

# What becomes of messages that were fetched, by RabbitMQ's names: what basic.ack, basic.nack and
# basic.reject do, the last of which counts as a failed delivery.
ACK_MODES: Final = {
    "ack_requeue_true": RELEASE,
    "ack_requeue_false": ACCEPT,
    "reject_requeue_true": MODIFY_FAILED,
    "reject_requeue_false": REJECT,
}

MessageId = Annotated[int, msgspec.Meta(ge=1, le=MESSAGE_ID_MAX)]


class GetBody(msgspec.Struct):
    """Body of POST /api/queues/V/Q/get."""

    count: Annotated[int, msgspec.Meta(ge=1, le=FETCHED_MESSAGES_MAX)]
    ackmode: Literal[
        "ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false"
    ] = "ack_requeue_true"
    encoding: Literal["auto", "base64"] = "auto"
    truncate: Annotated[int, msgspec.Meta(ge=0)] | None = None


class MoveBody(msgspec.Struct):
    """Body of POST /api/queues/V/Q/messages/move: to a queue, or to an exchange."""

    ids: Annotated[list[MessageId], msgspec.Meta(min_length=1, max_length=MOVED_MESSAGES_MAX)]
    queue: str | None = None
    exchange: str | None = None
    routing_key: str = ""


PAGE: Final = (
    Parameter("after", "Only messages behind this one; that of the last page."),
    Parameter("limit", "How many messages.", {"type": "integer"}),
    Parameter("truncate", "Bytes of a body that are shown.", {"type": "integer"}),
    Parameter("encoding", "Of bodies.", {"enum": [ENCODING_AUTO, ENCODING_BASE64]}),
)


class MessageEndpoints(Endpoints):
    """Answers requests about messages."""

    @posted(
        "/api/queues/{vhost}/{queue}/get",
        "Take messages, and say what becomes of them.",
        GetBody,
        answer=list[FetchedView],
    )
    async def _get(self, request: web.Request) -> web.Response:
        queue = await self._queue(request)
        body = await decode(request, GetBody)
        operation = ACK_MODES[body.ackmode]
        fetched = await self._node.message_service.fetch(queue, body.count, operation)
        return json_answer(render_fetched(fetched, body.encoding, body.truncate))

    @got(
        "/api/queues/{vhost}/{queue}/messages",
        "Look at messages that wait.",
        WaitingPageView,
        query=PAGE,
    )
    async def _browse(self, request: web.Request) -> web.Response:
        queue = await self._queue(request)
        after = number(request, "after", 0, 0, MESSAGE_ID_MAX)
        limit = number(request, "limit", PAGE_MESSAGES, 1, BROWSED_MESSAGES_MAX)
        byte_count = number(request, "truncate", BROWSED_BODY_BYTES, 0, MESSAGE_BYTES_WHOLE)
        encoding = request.query.get("encoding", ENCODING_AUTO)
        if encoding not in (ENCODING_AUTO, ENCODING_BASE64):
            raise bad_request(f"encoding: must be auto or base64, not '{encoding}'")
        page = await self._node.message_service.browse(queue, after, limit, byte_count)
        return json_answer(render_page(page, encoding, int(self._node.clock.queue_ms())))

    @deleted("/api/queues/{vhost}/{queue}/messages/{id}", "Remove a waiting message.")
    async def _delete(self, request: web.Request) -> web.Response:
        queue = await self._queue(request)
        message_id = checked_number("id", request.match_info["id"], 1, MESSAGE_ID_MAX)
        if not await self._node.message_service.remove(queue, [message_id]):
            where = f"queue '{queue.name}' in vhost '{queue.vhost}'"
            raise not_found(f"message {message_id} waits in {where}")
        return done()

    @posted(
        "/api/queues/{vhost}/{queue}/messages/move",
        "Move waiting messages to another queue or an exchange.",
        MoveBody,
        answer=MovedView,
    )
    async def _move(self, request: web.Request) -> web.Response:
        vhost, name = await self._readable(request)
        body = await decode(request, MoveBody)
        exchange, routing_key = _target(body)
        who = caller()
        check_allowed(who, self._node.view, vhost, WRITE, "exchange", exchange)
        check_topic(who, self._node.view, vhost, exchange, routing_key)
        queue = await self._found(vhost, name)
        if body.queue is not None:
            await self._known_queue(vhost, body.queue)
        else:
            await self._known_exchange(vhost, exchange)
        route = short_string("exchange", exchange) + short_string("routing_key", routing_key)
        moved = await self._node.message_service.move(queue, body.ids, route, who.name)
        return json_answer(render_moved(moved))

    async def _queue(self, request: web.Request) -> Queue:
        """Return the queue that a path names, if the caller may read it."""
        return await self._found(*await self._readable(request))

    async def _readable(self, request: web.Request) -> tuple[str, str]:
        """Return vhost and queue that a path names, if the caller may read it, existing or not."""
        vhost = await self._known_vhost(request)
        who = caller()
        name = request.match_info["queue"]
        check_enters(who, self._node.view, vhost)
        check_allowed(who, self._node.view, vhost, READ, "queue", name)
        return vhost, name

    async def _found(self, vhost: str, name: str) -> Queue:
        queue = await self._known_queue(vhost, name)
        check_not_exclusive(queue)
        return queue


def _target(body: MoveBody) -> tuple[str, str]:
    """Return exchange and routing key, there or not; ApiError 400 where it is not said where to."""
    if (body.queue is None) == (body.exchange is None):
        raise bad_request("body: must have either queue or exchange")
    if body.queue is not None:
        if body.routing_key:
            raise bad_request("routing_key: belongs to an exchange, not to a queue")
        return "", body.queue
    assert body.exchange is not None
    return exchange_name(body.exchange), body.routing_key


def short_string(name: str, text: str) -> bytes:
    """Return a short string of AMQP; ApiError 400 where it is too long."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > NAME_BYTES_MAX:
        raise bad_request(f"{name}: has {len(data)} bytes, at most {NAME_BYTES_MAX}")
    return bytes((len(data),)) + data
