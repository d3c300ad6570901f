"""Routes follow the catalog, and no cached route outlives a change."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pamqp.commands import Basic as frame_properties  # noqa: N813 - a namespace of classes

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.command import AnyCommand, encode_request
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.request import Request
from headrace_broker.catalog.result import Ok
from headrace_broker.core.routing.distribution import DistributionError
from headrace_broker.core.routing.matcher import Subject
from headrace_broker.model.definition import Binding, Exchange, Node, Policy, Queue, User
from headrace_broker.model.limits import ROUTES_CACHED_MAX, ROUTES_CACHED_OF_EXCHANGE_MAX
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.model.reply_queue import REPLY_PREFIX
from headrace_broker.runtime.contract.plain_table import plain_table
from headrace_broker.runtime.routing.router import Route, Router, split_route

NODE = Node(1, "n1", "h:1")


def raw(exchange: str | bytes, routing_key: str | bytes = b"") -> bytes:
    parts = [p.encode() if isinstance(p, str) else p for p in (exchange, routing_key)]
    return b"".join(bytes([len(part)]) + part for part in parts)


def block(**properties: Any) -> bytes:
    data: bytes = frame_properties.Properties(**properties).marshal()
    return data


class Followed:
    """A catalog and the router that follows it."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.router = Router(self.catalog)
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


def test_bytes_that_are_no_text_are_routed_and_fit_wildcards_only(followed: Followed) -> None:
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
    assert route.needs_message
    assert route.needs_headers
    assert route.queues == ()
    wanted = block(headers={"time": datetime(1970, 1, 1, tzinfo=UTC), "price": Decimal("1.5")})
    assert followed.router.route_message("/", ask, wanted).queues == (queue,)
    assert followed.router.route_message("/", ask, block(headers={"time": 0})).queues == ()
    assert followed.router.route_message("/", ask, block()).queues == ()
    assert followed.router.route("/", ask) is route


def test_memory_is_bounded(followed: Followed) -> None:
    queue = followed.queue("q")
    followed.bind("amq.fanout", "q")
    for number in range(ROUTES_CACHED_MAX + 10):
        route = followed.router.route("/", raw("amq.fanout", str(number)))
        assert route.queues == (queue,)
        assert followed.router._cached_count <= ROUTES_CACHED_OF_EXCHANGE_MAX
    followed.router.route("none", raw("x"))
    assert followed.router._cached_count == (ROUTES_CACHED_MAX + 10) % ROUTES_CACHED_OF_EXCHANGE_MAX


def test_keys_of_one_exchange_do_not_drive_out_those_of_others(followed: Followed) -> None:
    followed.queue("q")
    followed.bind("amq.fanout", "q")
    route = followed.router.route("/", raw("", "q"))
    for number in range(ROUTES_CACHED_MAX + 10):
        followed.router.route("/", raw("amq.fanout", str(number)))
    assert followed.router.route("/", raw("", "q")) is route


def test_bindings_of_one_exchange_leave_the_routes_of_others(followed: Followed) -> None:
    queue = followed.queue("q")
    followed.bind("amq.fanout", "q")
    followed.bind("amq.topic", "q", "a.*")
    fanout = followed.router.route("/", raw("amq.fanout", "k"))
    assert followed.router.route("/", raw("amq.topic", "b.c")).queues == ()
    count = followed.router._cached_count
    followed.bind("amq.topic", "q", "b.#")
    assert followed.router.route("/", raw("amq.fanout", "k")) is fanout
    assert followed.router.route("/", raw("amq.topic", "b.c")).queues == (queue,)
    assert followed.router._cached_count == count


def test_routes_through_several_exchanges_follow_all_of_them(followed: Followed) -> None:
    queue = followed.queue("q")
    followed.do(commands.Bind(Binding("/", "amq.direct", "exchange", "amq.fanout", "k")))
    ask = raw("amq.direct", "k")
    assert followed.router.route("/", ask).queues == ()
    followed.bind("amq.fanout", "q")
    assert followed.router.route("/", ask).queues == (queue,)


def test_costly_routes_say_so_once(followed: Followed) -> None:
    followed.queue("q")
    for number in range(500):
        followed.bind("amq.topic", "q", f"#.a.#.{number}")
    route = followed.router.route("/", raw("amq.topic", "a." * 50))
    assert route.work > 50
    route.work = 0  # who published has paid
    assert followed.router.route("/", raw("amq.topic", "a." * 50)).work == 0


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
    key = pick.choice(["", "k", "*", "#", "2"])
    kind = pick.choice(["queue", "queue", "exchange"])
    target = queue if kind == "queue" else pick.choice(["x", "y", "z"])
    binding = Binding("/", exchange, kind, target, key, pick.choice([{}, {"h": 1}]))
    types = ["direct", "fanout", "topic", "headers", "x-consistent-hash"]
    arguments = pick.choice([{}, {}, {"alternate-exchange": pick.choice("xyz")}])
    policy = Policy("/", "p", pick.choice(["^x", "."]), {"alternate-exchange": pick.choice("xyz")})
    auto_delete = pick.random() < 0.3
    makers: list[Callable[[], AnyCommand]] = [
        lambda: commands.DeclareQueue("/", queue, "classic"),
        lambda: commands.DeclareExchange(
            Exchange(
                "/", exchange, pick.choice(types), auto_delete=auto_delete, arguments=arguments
            )
        ),
        lambda: commands.Bind(binding),
        lambda: commands.Bind(binding),
        lambda: commands.Bind(binding),
        lambda: commands.Unbind(binding),
        lambda: commands.DeleteQueue("/", queue),
        lambda: commands.DeleteExchange("/", exchange),
        lambda: commands.PutPolicy(policy),
        lambda: commands.DeletePolicy("/", "p"),
    ]
    return pick.choices(makers, [4, 4, 4, 4, 4, 2, 1, 1, 1, 1])[0]()


def answer(route: Route) -> tuple[bool, bool, tuple[Queue, ...]]:
    return (route.known, route.needs_message, route.queues)


@pytest.mark.parametrize("seed", range(5))
def test_follower_equals_one_that_starts_from_the_contents(followed: Followed, seed: int) -> None:
    pick = random.Random(seed)
    asks = [raw(exchange, key) for exchange in ("", "x", "y", "z") for key in ("", "k", "a")]
    delivered = 0
    for _ in range(200):
        followed.do(random_command(pick))
        fresh = Router(followed.catalog)
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


# Single messages


def test_copies_count_beside_the_routing_key(followed: Followed) -> None:
    queues = (followed.queue("a"), followed.queue("b"))
    followed.bind("amq.direct", "a", "k")
    followed.bind("amq.direct", "b", "l")
    ask = raw("amq.direct", "k")
    copied = block(headers={"CC": ["l"], "BCC": ["none"]})
    assert followed.router.route_message("/", ask, copied).queues == queues
    assert followed.router.route_message(
        "/", raw("", "a"), block(headers={"CC": ["b"]})
    ).queues == (queues)


def test_message_without_copies_has_the_remembered_route(followed: Followed) -> None:
    followed.queue("q")
    ask = raw("", "q")
    for properties in (block(), block(headers={"h": 1})):
        assert followed.router.route_message("/", ask, properties) is followed.router.route(
            "/", ask
        )


def test_copies_of_a_wrong_type_raise(followed: Followed) -> None:
    with pytest.raises(DistributionError):
        followed.router.route_message("/", raw("", "q"), block(headers={"CC": "q"}))


def test_what_cannot_be_read_of_a_stored_message_counts_as_absent(followed: Followed) -> None:
    queue = followed.queue("q")
    wrong = block(headers={"CC": "a"})
    assert followed.router.route_stored("/", raw("", "q"), wrong).queues == (queue,)
    followed.bind("amq.headers", "q", "", **{"x-match": "all"})
    far = b"\x20\x00\x00\x00\x00\x0b\x01tT\x7f" + b"\xff" * 7  # no datetime holds that time
    with pytest.raises(AmqpError):
        followed.router.route_message("/", raw("amq.headers"), far)
    assert followed.router.route_stored("/", raw("amq.headers"), far).queues == (queue,)
    copied = block(headers={"CC": ["q"]})
    assert followed.router.route_stored("/", raw("", "none"), copied).queues == (queue,)


def test_copies_that_lead_to_a_headers_exchange_have_its_headers_read(followed: Followed) -> None:
    queue = followed.queue("q")
    followed.bind("amq.headers", "q", "", h=1)
    followed.do(commands.Bind(Binding("/", "amq.direct", "exchange", "amq.headers", "l")))
    ask = raw("amq.direct", "k")
    assert not followed.router.route("/", ask).needs_message
    fitting = block(headers={"CC": ["l"], "h": 1})
    assert followed.router.route_message("/", ask, fitting).queues == (queue,)
    assert followed.router.route_message("/", ask, block(headers={"CC": ["l"]})).queues == ()


def test_reply_name_is_told(followed: Followed) -> None:
    route = followed.router.route("/", raw("", REPLY_PREFIX + "1.t"))
    assert (route.queues, route.replies) == ((), (REPLY_PREFIX + "1.t",))


# Policies


def put_policy(followed: Followed, pattern: str, priority: int = 0, **definition: Any) -> None:
    table = {name.replace("_", "-"): value for name, value in definition.items()}
    policy = Policy("/", f"{pattern}-{priority}", pattern, table, priority)
    assert followed.do(commands.PutPolicy(policy)) == policy


def test_policy_names_the_alternate_exchange_and_takes_it_away(followed: Followed) -> None:
    queue = followed.queue("q")
    followed.bind("amq.fanout", "q")
    ask = raw("x", "none")
    put_policy(followed, "^x$", alternate_exchange="amq.fanout")
    followed.do(commands.DeclareExchange(Exchange("/", "x", "direct")))
    assert followed.router.route("/", ask).queues == (queue,)
    put_policy(followed, "^x$", 1, alternate_exchange="amq.topic")
    assert followed.router.route("/", ask).queues == ()
    followed.do(commands.DeletePolicy("/", "^x$-1"))
    assert followed.router.route("/", ask).queues == (queue,)
    followed.do(commands.DeletePolicy("/", "^x$-0"))
    assert followed.router.route("/", ask).queues == ()


def test_argument_counts_before_the_policy(followed: Followed) -> None:
    queue = followed.queue("q")
    followed.bind("amq.fanout", "q")
    arguments = {"alternate-exchange": "amq.fanout"}
    followed.do(commands.DeclareExchange(Exchange("/", "x", "direct", arguments=arguments)))
    put_policy(followed, "^x$", alternate_exchange="amq.topic")
    assert followed.router.route("/", raw("x")).queues == (queue,)


def test_policy_allows_immediate_to_queues_that_it_is_for(followed: Followed) -> None:
    router = followed.router
    one, other = followed.queue("now-1"), followed.queue("later")
    assert not router.allows_immediate("/", (one,))
    assert not router.allows_immediate("/", ())
    put_policy(followed, "^now-", allow_immediate=True)
    assert router.allows_immediate("/", (one,))
    assert not router.allows_immediate("/", (one, other))
    assert router.allows_immediate("/", ())
    put_policy(followed, "^now-1", 1, allow_immediate=False)
    assert not router.allows_immediate("/", (one,))
    for name in ("^now--0", "^now-1-1"):
        followed.do(commands.DeletePolicy("/", name))
    assert not router.allows_immediate("/", ())


def test_without_policies_nothing_is_immediate(followed: Followed) -> None:
    assert not Router().allows_immediate("/", (followed.queue("q"),))


# Local random exchanges


def drawn(followed: Followed, count: int = 1, exchange: str = "local") -> list[tuple[str, ...]]:
    ask = raw(exchange, "any key")
    assert followed.router.route("/", ask).needs_message
    routes = [followed.router.route_message("/", ask, block()) for _ in range(count)]
    return [tuple(queue.name for queue in route.queues) for route in routes]


def local_random(followed: Followed, names: list[str], **arguments: Any) -> list[Queue]:
    """Declare an exchange with queues of these names, each bound to it."""
    followed.router = Router(followed.catalog, random.Random(7).randrange)
    followed.router.on_events(followed.catalog.contents())
    declared = Exchange("/", "local", "x-local-random", arguments=arguments)
    assert followed.do(commands.DeclareExchange(declared)) is not None
    queues = [followed.queue(name) for name in names]
    for queue in queues:
        followed.bind("local", queue.name)
    return queues


@dataclass
class Led:
    """A replica, as far as routing wants to know."""

    leading: bool = True


def lead(followed: Followed, queues: list[Queue]) -> None:
    """Lead these queues on this node, which has replicas of others as well."""
    hosts = {queue.group: Led(False) for queue in followed.catalog.queues("/")}
    followed.router.led.hosts = hosts | {queue.group: Led() for queue in queues}


def test_local_random_exchange_draws_among_the_queues_led_here(followed: Followed) -> None:
    queues = local_random(followed, [f"q{number}" for number in range(9)])
    lead(followed, queues[:3])
    found = Counter(drawn(followed, 3_000))
    assert set(found) == {("q0",), ("q1",), ("q2",)}
    assert all(900 < times < 1_100 for times in found.values())
    lead(followed, [queues[8]])  # leaders move without a change of the catalog
    assert set(drawn(followed, 50)) == {("q8",)}


def test_local_random_exchange_draws_among_the_queues_of_all_shards_of_the_node(
    followed: Followed,
) -> None:
    queues = local_random(followed, [f"q{number}" for number in range(9)])
    lead(followed, queues[:1])
    siblings = {queues[4].group, queues[5].group}
    followed.router.led.siblings_lead = siblings.__contains__
    found = Counter(drawn(followed, 3_000))
    assert set(found) == {("q0",), ("q4",), ("q5",)}
    assert all(900 < times < 1_100 for times in found.values())
    siblings.clear()
    assert set(drawn(followed, 50)) == {("q0",)}


def test_local_random_exchange_finds_the_one_of_many_that_is_here(followed: Followed) -> None:
    queues = local_random(followed, [f"q{number}" for number in range(300)])
    lead(followed, queues[7:9])
    found = Counter(drawn(followed, 400))
    assert set(found) == {("q7",), ("q8",)}
    assert min(found.values()) > 150


def test_local_random_exchange_without_a_queue_here_routes_nowhere(followed: Followed) -> None:
    local_random(followed, ["q1", "q2"])
    assert drawn(followed) == [()]
    assert Router().routing.resolve("/", "none", Subject([""])).queues == ()


def test_local_random_exchange_has_an_alternate(followed: Followed) -> None:
    local_random(followed, ["q1"], **{"alternate-exchange": "amq.fanout"})
    followed.queue("other")
    followed.bind("amq.fanout", "other")
    assert drawn(followed) == [("other",)]


def test_local_random_exchange_forgets_what_is_unbound(followed: Followed) -> None:
    lead(followed, local_random(followed, ["q1", "q2", "q3"]))
    followed.bind("local", "q1", "", label=1)  # a second binding
    followed.do(commands.Unbind(Binding("/", "local", "queue", "q1", "", {"label": 1})))
    assert set(drawn(followed, 60)) == {("q1",), ("q2",), ("q3",)}
    followed.do(commands.Unbind(Binding("/", "local", "queue", "q1", "", {})))
    assert set(drawn(followed, 60)) == {("q2",), ("q3",)}
    followed.do(commands.DeleteQueue("/", "q3"))
    assert set(drawn(followed, 10)) == {("q2",)}
    followed.do(commands.DeleteQueue("/", "q2"))
    assert drawn(followed) == [()]


def test_delayed_exchange_may_be_local_random_inside(followed: Followed) -> None:
    lead(followed, local_random(followed, ["q1"]))
    arguments = {"x-delayed-type": "x-local-random"}
    outer = Exchange("/", "later", "x-delayed-message", arguments=arguments)
    followed.do(commands.DeclareExchange(outer))
    followed.bind("later", "q1")
    assert drawn(followed, exchange="later") == [("q1",)]
