"""Alternate exchanges, several routing keys at once, direct replies and delayed exchanges."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.core.routing.matcher import Subject
from headrace_broker.core.routing.routing import Alternates, Routing
from headrace_broker.model.definition import Binding, Exchange
from headrace_broker.model.reply_queue import REPLY_PREFIX, REPLY_QUEUE


def exchange(name: str, kind: str = "direct", alternate: str | None = None) -> Exchange:
    arguments = {} if alternate is None else {"alternate-exchange": alternate}
    return Exchange("/", name, kind, arguments=arguments)


def world(*exchanges: Exchange) -> Routing:
    routing = Routing()
    for each in exchanges:
        routing.add_exchange(each)
    for queue in "abcd":
        routing.add_queue("/", queue)
    return routing


def bind(routing: Routing, source: str, target: str, key: str = "", **arguments: Any) -> None:
    kind = "queue" if target in "abcd" else "exchange"
    routing.add_binding(Binding("/", source, kind, target, key, arguments))


class Told(Alternates):
    """Tells a policy's alternate, and keeps who was asked about."""

    def __init__(self) -> None:
        self.alternate: str | None = None
        self.asked: list[str] = []

    def of(self, vhost: str, exchange: str) -> str | None:
        self.asked.append(exchange)
        return self.alternate


class TestAlternate:
    def test_takes_what_no_binding_takes_and_nothing_else(self) -> None:
        routing = world(exchange("x", alternate="y"), exchange("y", "fanout"))
        bind(routing, "x", "a", "k")
        bind(routing, "y", "b")
        assert routing.route("/", "x", "k") == ("a",)
        assert routing.route("/", "x", "other") == ("b",)

    def test_is_asked_for_its_own_alternate_in_turn(self) -> None:
        routing = world(exchange("x", alternate="y"), exchange("y", alternate="z"), exchange("z"))
        bind(routing, "z", "c", "k")
        assert routing.route("/", "x", "k") == ("c",)
        assert routing.route("/", "x", "none") == ()

    @pytest.mark.parametrize("names", ["xx", "xyx", "xyzx"])
    def test_ring_of_alternates_ends(self, names: str) -> None:
        routing = world(*(exchange(name, alternate=other) for name, other in pairwise(names)))
        assert routing.route("/", "x", "k") == ()
        bind(routing, names[-2], "a", "k")
        assert routing.route("/", "x", "k") == ("a",)

    def test_binding_to_an_exchange_that_takes_nothing_counts_as_taken(self) -> None:
        routing = world(exchange("x", "fanout", "y"), exchange("inner"), exchange("y", "fanout"))
        bind(routing, "x", "inner")
        bind(routing, "y", "a")
        assert routing.route("/", "x", "k") == ()

    def test_of_an_exchange_on_the_way_takes_what_that_one_does_not(self) -> None:
        routing = world(exchange("x", "fanout"), exchange("inner", alternate="y"), exchange("y"))
        bind(routing, "x", "inner")
        bind(routing, "x", "a")
        bind(routing, "y", "b", "k")
        assert routing.route("/", "x", "k") == ("a", "b")

    def test_missing_one_takes_nothing_until_it_is_declared(self) -> None:
        routing = world(exchange("x", alternate="late"))
        assert routing.route("/", "x", "k") == ()
        routing.add_exchange(exchange("late", "fanout"))
        bind(routing, "late", "a")
        assert routing.route("/", "x", "k") == ("a",)

    def test_default_exchange_leads_to_the_queue_of_the_routing_key(self) -> None:
        routing = world(exchange("x", alternate=""))
        assert routing.route("/", "x", "a") == ("a",)
        assert routing.route("/", "x", "none") == ()

    def test_internal_one_may_be_an_alternate(self) -> None:
        routing = world(exchange("x", alternate="in"))
        routing.add_exchange(Exchange("/", "in", "fanout", internal=True))
        bind(routing, "in", "a")
        resolution = routing.resolve("/", "x", Subject(["k"]))
        assert not resolution.internal
        assert resolution.queues == ("a",)

    def test_of_a_policy_is_asked_for_when_it_matters_first(self) -> None:
        told = Told()
        routing = Routing(alternates=told)
        for each in (exchange("x"), exchange("y", "fanout"), exchange("z", alternate="y")):
            routing.add_exchange(each)
        routing.add_queue("/", "a")
        bind(routing, "y", "a")
        bind(routing, "x", "a", "bound")
        assert routing.route("/", "x", "bound") == routing.route("/", "z", "k") == ("a",)
        assert told.asked == []
        told.alternate = "y"
        assert routing.route("/", "x", "k") == ("a",)
        told.alternate = None
        assert routing.route("/", "x", "k") == ("a",)
        version = routing.version
        routing.forget_alternate("/", "x")
        assert routing.version == version + 1
        assert routing.route("/", "x", "k") == ()
        assert told.asked == ["x", "x"]
        with pytest.raises(KeyError):
            routing.forget_alternate("/", "none")

    def test_headers_matter_where_an_alternate_looks_at_them(self) -> None:
        routing = world(exchange("x", alternate="h"), exchange("h", "headers"))
        bind(routing, "x", "a", "k")
        bind(routing, "h", "b", h=1)
        assert not routing.resolve("/", "x", Subject(["k"])).needs_message
        missed = routing.resolve("/", "x", Subject(["other"]))
        assert missed.needs_message
        assert missed.needs_headers
        assert routing.route("/", "x", "other", {"h": 1}) == ("b",)

    @given(
        st.lists(
            st.tuples(st.sampled_from("xyz"), st.sampled_from("abxyz"), st.sampled_from("kl")),
            max_size=8,
            unique=True,
        ),
        st.dictionaries(st.sampled_from("xyz"), st.sampled_from(["x", "y", "z", "none"])),
        st.sampled_from("xyz"),
        st.sampled_from("klm"),
    )
    def test_equals_a_naive_walk(
        self, bindings: list[tuple[str, str, str]], alternates: dict[str, str], start: str, key: str
    ) -> None:
        routing = world(*(exchange(name, alternate=alternates.get(name)) for name in "xyz"))
        for source, target, bound in bindings:
            bind(routing, source, target, bound)
        seen: set[str] = set()
        left = [start]
        while left:
            name = left.pop()
            if name in seen or name == "none":
                continue
            seen.add(name)
            if name not in "xyz":
                continue
            taken = [target for source, target, bound in bindings if (source, bound) == (name, key)]
            left += taken or [alternates.get(name, "none")]
        assert routing.route("/", start, key) == tuple(sorted(seen & set("ab")))


class TestSeveralKeys:
    @pytest.mark.parametrize("kind", ["direct", "topic"])
    def test_lead_to_each_queue_once(self, kind: str) -> None:
        routing = world(exchange("x", kind))
        for queue, key in (("a", "k"), ("b", "l"), ("c", "m"), ("b", "k")):
            bind(routing, "x", queue, key)
        resolution = routing.resolve("/", "x", Subject(["k", "l", "none"]))
        assert resolution.queues == ("a", "b")

    def test_name_queues_at_the_default_exchange(self) -> None:
        resolution = world().resolve("/", "", Subject(["none", "b", "a", "b"]))
        assert resolution.queues == ("a", "b")

    def test_alternate_is_asked_only_when_none_of_them_is_bound(self) -> None:
        routing = world(exchange("x", alternate="y"), exchange("y", "fanout"))
        bind(routing, "x", "a", "k")
        bind(routing, "y", "b")
        assert routing.resolve("/", "x", Subject(["none", "k"])).queues == ("a",)
        assert routing.resolve("/", "x", Subject(["none", "no"])).queues == ("b",)


class TestReplies:
    def test_are_told_apart_from_queues(self) -> None:
        key = REPLY_PREFIX + "1.token"
        resolution = world().resolve("/", "", Subject(["a", key, key]))
        assert resolution.queues == ("a",)
        assert resolution.replies == (key,)

    def test_pseudo_queue_itself_takes_nothing(self) -> None:
        resolution = world().resolve("/", "", Subject([REPLY_QUEUE]))
        assert resolution.queues == resolution.replies == ()

    def test_reach_nobody_through_an_exchange(self) -> None:
        routing = world(exchange("x", "fanout", ""))
        assert routing.resolve("/", "x", Subject([REPLY_PREFIX + "1.t"])).replies == ()


class TestDelayed:
    @pytest.mark.parametrize(
        ("inner", "key", "takes"),
        [
            ("direct", "a.b", True),
            ("direct", "a.c", False),
            ("topic", "a.b", True),
            ("fanout", "any", True),
        ],
    )
    def test_routes_as_its_inner_type(self, inner: str, key: str, takes: bool) -> None:
        arguments = {"x-delayed-type": inner}
        routing = world(Exchange("/", "x", "x-delayed-message", arguments=arguments))
        bind(routing, "x", "a", "a.b")
        assert (routing.route("/", "x", key) == ("a",)) == takes

    @pytest.mark.parametrize("arguments", [{}, {"x-delayed-type": "x-delayed-message"}])
    def test_without_a_usable_inner_type_is_an_error(self, arguments: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="x-delayed-message"):
            world(Exchange("/", "x", "x-delayed-message", arguments=arguments))
