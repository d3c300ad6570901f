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
from headrace_broker.management.http.administration import (
    Administration,
    exchange_name,
    known_exchange,
    known_queue,
    known_vhost,
)
from headrace_broker.management.http.answer import bad_request, done, json_answer, not_found
from headrace_broker.management.http.body import decode
from headrace_broker.management.http.query import checked_number, number
from headrace_broker.management.http.route import Parameter, Route, deleted, got, posted
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
    BROWSED_BODY_OCTETS,
    BROWSED_MESSAGES_MAX,
    FETCHED_MESSAGES_MAX,
    MESSAGE_BYTES_WHOLE,
    MOVED_MESSAGES_MAX,
    NAME_OCTETS_MAX,
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
    Parameter("truncate", "Octets of a body that are shown.", {"type": "integer"}),
    Parameter("encoding", "Of bodies.", {"enum": [ENCODING_AUTO, ENCODING_BASE64]}),
)


class MessageEndpoints:
    """Answers requests about messages.

    Args:
        node: what is asked.
    """

    def __init__(self, node: Administration) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        """Return the route table."""
        messages = "/api/queues/{vhost}/{queue}/messages"
        return [
            posted(
                "/api/queues/{vhost}/{queue}/get",
                self._get,
                "Take messages, and say what becomes of them.",
                GetBody,
                answer=list[FetchedView],
            ),
            got(messages, self._browse, "Look at messages that wait.", WaitingPageView, query=PAGE),
            posted(
                messages + "/move",
                self._move,
                "Move waiting messages to another queue or an exchange.",
                MoveBody,
                answer=MovedView,
            ),
            deleted(messages + "/{id}", self._delete, "Remove a waiting message."),
        ]

    async def _get(self, request: web.Request) -> web.Response:
        queue = await self._queue(request)
        body = await decode(request, GetBody)
        operation = ACK_MODES[body.ackmode]
        fetched = await self._node.message_service.fetch(queue, body.count, operation)
        return json_answer(render_fetched(fetched, body.encoding, body.truncate))

    async def _browse(self, request: web.Request) -> web.Response:
        queue = await self._queue(request)
        after = number(request, "after", 0, 0, MESSAGE_ID_MAX)
        limit = number(request, "limit", PAGE_MESSAGES, 1, BROWSED_MESSAGES_MAX)
        octets = number(request, "truncate", BROWSED_BODY_OCTETS, 0, MESSAGE_BYTES_WHOLE)
        encoding = request.query.get("encoding", ENCODING_AUTO)
        if encoding not in (ENCODING_AUTO, ENCODING_BASE64):
            raise bad_request(f"encoding: must be auto or base64, not '{encoding}'")
        page = await self._node.message_service.browse(queue, after, limit, octets)
        return json_answer(render_page(page, encoding, int(self._node.clock.queue_ms())))

    async def _delete(self, request: web.Request) -> web.Response:
        queue = await self._queue(request)
        message_id = checked_number("id", request.match_info["id"], 1, MESSAGE_ID_MAX)
        if not await self._node.message_service.remove(queue, [message_id]):
            where = f"queue '{queue.name}' in vhost '{queue.vhost}'"
            raise not_found(f"message {message_id} waits in {where}")
        return done()

    async def _move(self, request: web.Request) -> web.Response:
        vhost, name = await self._readable(request)
        body = await decode(request, MoveBody)
        exchange, routing_key = _target(body)
        who = caller()
        check_allowed(who, self._node.view, vhost, WRITE, "exchange", exchange)
        check_topic(who, self._node.view, vhost, exchange, routing_key)
        queue = await self._found(vhost, name)
        if body.queue is not None:
            await known_queue(self._node, vhost, body.queue)
        else:
            await known_exchange(self._node, vhost, exchange)
        route = short_string("exchange", exchange) + short_string("routing_key", routing_key)
        moved = await self._node.message_service.move(queue, body.ids, route, who.name)
        return json_answer(render_moved(moved))

    async def _queue(self, request: web.Request) -> Queue:
        """Return the queue that a path names, if the caller may read it."""
        return await self._found(*await self._readable(request))

    async def _readable(self, request: web.Request) -> tuple[str, str]:
        """Return vhost and queue that a path names, if the caller may read it, existing or not."""
        vhost = await known_vhost(self._node, request)
        who = caller()
        name = request.match_info["queue"]
        check_enters(who, self._node.view, vhost)
        check_allowed(who, self._node.view, vhost, READ, "queue", name)
        return vhost, name

    async def _found(self, vhost: str, name: str) -> Queue:
        queue = await known_queue(self._node, vhost, name)
        check_not_exclusive(queue)
        return queue


def _target(body: MoveBody) -> tuple[str, str]:
    """Return exchange and routing key, whether they are there or not.

    Raises:
        ApiError: 400, it is not said where to.
    """
    if (body.queue is None) == (body.exchange is None):
        raise bad_request("body: must have either queue or exchange")
    if body.queue is not None:
        if body.routing_key:
            raise bad_request("routing_key: belongs to an exchange, not to a queue")
        return "", body.queue
    assert body.exchange is not None
    return exchange_name(body.exchange), body.routing_key


def short_string(name: str, text: str) -> bytes:
    """Return a short string of AMQP.

    Raises:
        ApiError: 400, it is too long.
    """
    octets = text.encode("utf-8", "surrogatepass")
    if len(octets) > NAME_OCTETS_MAX:
        raise bad_request(f"{name}: has {len(octets)} octets, at most {NAME_OCTETS_MAX}")
    return bytes((len(octets),)) + octets
