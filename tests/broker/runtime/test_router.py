"""Routes follow the catalog, and what is remembered never outlives a change."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.command import AnyCommand, encode_request
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.request import Request
from headrace_broker.catalog.result import Ok
from headrace_broker.model.definition import Binding, Exchange, Node, Queue, User
from headrace_broker.model.limits import ROUTES_CACHED_MAX
from headrace_broker.runtime.plain_table import plain_table
from headrace_broker.runtime.router import Route, Router, split_route

NODE = Node(1, "n1", "h:1")


def raw(exchange: str | bytes, routing_key: str | bytes = b"") -> bytes:
    parts = [p.encode() if isinstance(p, str) else p for p in (exchange, routing_key)]
    return b"".join(bytes([len(part)]) + part for part in parts)


class Followed:
    """A catalog and the router that follows it."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.router = Router()
        self.index = 0
        self.do(commands.Bootstrap((NODE,), "/", User("guest", b"", b"")))

    def do(self, command: AnyCommand) -> Any:
        self.index += 1
        data = encode_request(Request(1, 1, self.index), command)
        result, events = self.catalog.apply(self.index, data)
        self.router.on_events(events)
        return result.value if isinstance(result, Ok) else None

    def queue(self, name: str) -> Queue:
        queue: Queue = self.do(commands.DeclareQueue("/", name, "classic"))
        return queue

    def bind(self, source: str, queue: str, key: str = "", **arguments: Any) -> None:
        self.do(commands.Bind(Binding("/", source, "queue", queue, key, arguments)))


@pytest.fixture
def followed() -> Followed:
    return Followed()


def test_route_names_exchange_key_and_queues(followed: Followed) -> None:
    queues = (followed.queue("a"), followed.queue("b"))
    for name in ("b", "a"):
        followed.bind("amq.topic", name, "k.#")
    route = followed.router.route("/", raw("amq.topic", "k.1"))
    assert (route.exchange, route.routing_key) == ("amq.topic", "k.1")
    assert route.known
    assert not route.internal
    assert not route.needs_headers
    assert route.queues == queues


def test_unknown_and_internal_exchanges_are_told(followed: Followed) -> None:
    assert not followed.router.route("/", raw("none")).known
    assert not followed.router.route("none", raw("amq.direct")).known
    assert followed.router.route("/", raw("amq.rabbitmq.trace")).internal
    assert followed.router.route("/", raw("", "none")).known


def test_octets_that_are_no_text_are_routed_and_fit_wildcards_only(followed: Followed) -> None:
    queue = followed.queue("q")
    followed.bind("amq.topic", "q", "a.*")
    assert split_route(raw("x", b"a.\xff")) == ("x", "a.\udcff")
    assert followed.router.route("/", raw("amq.topic", b"a.\xff")).queues == (queue,)
    assert followed.router.route("/", raw("amq.topic", b"\xff.a")).queues == ()
    assert not followed.router.route("/", raw(b"\xff")).known


def test_remembered_route_is_the_same_until_something_changes(followed: Followed) -> None:
    first = followed.queue("q")
    ask = raw("", "q")
    route = followed.router.route("/", ask)
    version = followed.router.version
    assert followed.router.route("/", ask) is route
    assert route.queues == (first,)
    followed.do(commands.DeleteQueue("/", "q"))
    assert followed.router.version > version
    assert followed.router.route("/", ask).queues == ()
    second = followed.queue("q")
    assert followed.router.route("/", ask).queues == (second,)
    assert second.group != first.group


def test_headers_decide_where_a_headers_exchange_is_met(followed: Followed) -> None:
    queue = followed.queue("q")
    followed.bind("amq.headers", "q", "", time=0, price=1.5)
    ask = raw("amq.headers", "k")
    route = followed.router.route("/", ask)
    assert route.needs_headers
    assert route.queues == ()
    decoded = {"time": datetime(1970, 1, 1, tzinfo=UTC), "price": Decimal("1.5")}
    assert followed.router.route_with_headers("/", ask, decoded).queues == (queue,)
    assert followed.router.route_with_headers("/", ask, {"time": 0}).queues == ()
    assert followed.router.route("/", ask) is route


def test_memory_is_bounded(followed: Followed) -> None:
    queue = followed.queue("q")
    followed.bind("amq.fanout", "q")
    for number in range(ROUTES_CACHED_MAX + 10):
        route = followed.router.route("/", raw("amq.fanout", str(number)))
        assert route.queues == (queue,)
    assert followed.router.cached_count == 10
    assert followed.router.route("none", raw("x")) is followed.router.route("none", raw("x"))
    assert followed.router.cached_count == 11


def test_deleted_vhost_leaves_nothing(followed: Followed) -> None:
    followed.do(commands.DeclareVhost("v"))
    followed.do(commands.DeclareQueue("v", "q", "classic"))
    assert followed.router.route("v", raw("", "q")).queues != ()
    followed.do(commands.DeleteVhost("v"))
    assert followed.router.route("v", raw("", "q")).queues == ()
    assert not followed.router.route("v", raw("amq.direct")).known


def random_command(pick: random.Random) -> AnyCommand:
    exchange = pick.choice(["x", "y", "z"])
    queue = pick.choice("abc")
    key = pick.choice(["", "k", "*", "#"])
    kind = pick.choice(["queue", "queue", "exchange"])
    target = queue if kind == "queue" else pick.choice(["x", "y", "z"])
    binding = Binding("/", exchange, kind, target, key, pick.choice([{}, {"h": 1}]))
    types = ["direct", "fanout", "topic", "headers"]
    auto_delete = pick.random() < 0.3
    makers: list[Callable[[], AnyCommand]] = [
        lambda: commands.DeclareQueue("/", queue, "classic"),
        lambda: commands.DeclareExchange(
            Exchange("/", exchange, pick.choice(types), auto_delete=auto_delete)
        ),
        lambda: commands.Bind(binding),
        lambda: commands.Bind(binding),
        lambda: commands.Bind(binding),
        lambda: commands.Unbind(binding),
        lambda: commands.DeleteQueue("/", queue),
        lambda: commands.DeleteExchange("/", exchange),
    ]
    return pick.choices(makers, [4, 4, 4, 4, 4, 2, 1, 1])[0]()


def answer(route: Route) -> tuple[bool, bool, tuple[Queue, ...]]:
    return (route.known, route.needs_headers, route.queues)


@pytest.mark.parametrize("seed", range(5))
def test_follower_equals_one_that_starts_from_the_contents(followed: Followed, seed: int) -> None:
    pick = random.Random(seed)
    asks = [raw(exchange, key) for exchange in ("", "x", "y", "z") for key in ("", "k", "a")]
    delivered = 0
    for _ in range(200):
        followed.do(random_command(pick))
        fresh = Router()
        fresh.on_events(followed.catalog.contents())
        for ask in asks:
            route = followed.router.route("/", ask)
            assert answer(route) == answer(fresh.route("/", ask))
            delivered += len(route.queues)
    assert delivered > 100


def test_plain_table_has_plain_values_and_leaves_the_original_alone() -> None:
    table: dict[str, Any] = {
        "naive": datetime(1970, 1, 1, 0, 0, 7),  # noqa: DTZ001 - that is the point
        "bytes": bytearray(b"\xff"),
        "nested": [Decimal(2), {"deep": (None, True)}],
    }
    plain = plain_table(table)
    assert plain == {"naive": 7, "bytes": b"\xff", "nested": [2.0, {"deep": [None, True]}]}
    assert type(plain["bytes"]) is bytes
    assert isinstance(table["bytes"], bytearray)
