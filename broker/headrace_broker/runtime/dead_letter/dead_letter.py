"""Target of a dead letter, and the headers about its past.

Source: RabbitMQ's guide on dead letter exchanges; `rabbit_dead_letter` of RabbitMQ 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from headrace_broker.codecs.header_edit import Death, dead_letter
from headrace_broker.core.queue.messages.effect import REASON_NAMES
from headrace_broker.model.definition import Queue
from headrace_broker.model.message import Publish
from headrace_broker.runtime.contract.dead_letter import DeadLetter
from headrace_broker.runtime.replica.queue_settings import (
    DEAD_LETTER_EXCHANGE,
    DEAD_LETTER_ROUTING_KEY,
    text,
)
from headrace_broker.runtime.routing.router import Router, split_route

REJECTED: Final = b"rejected"

OFF: Final = "its queue has no dead letter exchange any more"
NO_EXCHANGE: Final = "its dead letter exchange does not exist"
NO_ROUTE: Final = "its dead letter exchange routes it to no queue"
TOO_COSTLY: Final = (
    "its route at its dead letter exchange takes more steps than that of a message may: "
    "too many keys in CC and BCC, bindings with wildcards or headers, or exchanges on the way"
)
CYCLE: Final = "it would go round in a cycle of queues from which nobody rejected it"


class Addressed(NamedTuple):
    """A dead letter in the form in which it is published."""

    publish: Publish  # with the routing key and the headers that it gets
    queues: tuple[Queue, ...]  # to which it goes
    problem: str  # why to none: OFF, NO_EXCHANGE, NO_ROUTE, TOO_COSTLY or CYCLE; else ""
    work: int = 0  # steps that it took to find its route; see `Route.work`


def address(
    letter: DeadLetter, source: Queue, arguments: Mapping[str, Any], router: Router, time_s: int
) -> Addressed:
    """Return where a letter of a queue goes, by the queue's effective arguments; Unix time."""
    exchange = text(arguments, DEAD_LETTER_EXCHANGE)
    new_key = text(arguments, DEAD_LETTER_ROUTING_KEY)
    was_exchange, was_key = split_route(letter.route)
    death = Death(
        source.name.encode(),
        REASON_NAMES[int(letter.reason)].encode(),
        _data(was_exchange),
        _data(was_key),
        time_s,
    )
    after = dead_letter(letter.properties, death, letter.trusted, new_key is None)
    key = _data(was_key) if new_key is None else new_key.encode()
    raw_route = _short((exchange or "").encode()) + _short(key)
    publish = Publish(0, raw_route, False, False, after.data, letter.body)
    if exchange is None:
        return Addressed(publish, (), OFF)
    route = router.route_stored(source.vhost, raw_route, after.data)
    if not route.known:
        return Addressed(publish, (), NO_EXCHANGE)
    work = int(route.work)
    route.work = 0  # a route that is remembered costs nothing again
    if route.problem:
        return Addressed(publish, (), TOO_COSTLY, work)
    queues = tuple(q for q in route.queues if not is_cycle(q.name.encode(), after.deaths))
    problem = "" if queues else CYCLE if route.queues else NO_ROUTE
    return Addressed(publish, queues, problem, work)


def is_cycle(queue: bytes, deaths: Sequence[tuple[bytes, bytes]]) -> bool:
    """Return whether a message comes back to a queue though nobody rejected it since.

    Its deaths are queue and reason, the newest first.
    """
    for name, reason in deaths:
        if reason == REJECTED:
            return False
        if name == queue:
            return True
    return False


def _data(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _short(data: bytes) -> bytes:
    return bytes((len(data),)) + data
