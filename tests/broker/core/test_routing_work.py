"""The work of finding a route is bounded, whatever is bound and published."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_broker.core.routing.header_match import HEADER_STEPS
from headrace_broker.core.routing.matcher import Subject
from headrace_broker.core.routing.routing import EXCHANGE_STEPS, Alternates, Resolution, Routing
from headrace_broker.core.routing.topic_block import BLOCK_STEPS, PATTERN_PLACES_MAX
from headrace_broker.core.routing.topic_matcher import NODE_STEPS
from headrace_broker.core.routing.topic_pattern import TopicPattern
from headrace_broker.model.definition import Binding, Exchange
from headrace_broker.model.limits import (
    ROUTING_LOAD_MAX,
    ROUTING_WORK_MAX,
    TOPIC_BLOCK_PLACES,
    TOPIC_TREE_WORDS_MAX,
)


def world(kind: str) -> Routing:
    routing = Routing()
    routing.add_exchange(Exchange("/", "x", kind))
    for queue in "abcd":
        routing.add_queue("/", queue)
    return routing


def bound(queue: str, key: str) -> Binding:
    return Binding("/", "x", "queue", queue, key)


def bits(number: int) -> list[str]:
    """Return 20 words, `*` or empty, as the bits of a number say."""
    return ["*" if number >> bit & 1 else "" for bit in range(20)]


class TestTopic:
    @pytest.mark.parametrize(
        ("patterns", "key"),
        [
            (["#.a" * 63 + f".z{n}" for n in range(300)], ".".join("a" * 127)),
            ([".".join(bits(n)) + ".#.z" for n in range(10_000)], "." * 253),
        ],
        ids=["many any-words", "many ways to the same place"],
    )
    def test_hostile_patterns_cost_words_times_blocks(self, patterns: list[str], key: str) -> None:
        routing = world("topic")
        places = 0
        for pattern in patterns:
            places += len(TopicPattern(pattern).words) + 1
            routing.add_binding(bound("a", pattern))
        subject = Subject([key])
        assert routing.resolve("/", "x", subject).queues == ()
        blocks = places // (TOPIC_BLOCK_PLACES - PATTERN_PLACES_MAX) + 1
        most = (key.count(".") + 2) * (blocks + 1) * BLOCK_STEPS + EXCHANGE_STEPS
        assert 0 < subject.work <= most

    def test_plain_patterns_cost_a_walk(self) -> None:
        routing = world("topic")
        for number in range(5_000):
            routing.add_binding(bound("a", f"*.user{number}.*.#"))
        subject = Subject(["a.user7.b.c"])
        assert routing.resolve("/", "x", subject).queues == ("a",)
        assert subject.work <= NODE_STEPS * 2 ** (TOPIC_TREE_WORDS_MAX + 1)

    def test_removed_wild_patterns_leave_no_blocks(self) -> None:
        routing = world("topic")
        bindings = [bound("a", f"#.{number}.*.b") for number in range(3_000)]
        for binding in bindings:
            routing.add_binding(binding)
        matcher: Any = routing._vhosts["/"].exchanges["x"].matcher
        assert matcher.load == 4 * len(bindings)
        for number, binding in enumerate(bindings):
            if number % 7 != 0:
                routing.remove_binding(binding)
        assert routing.route("/", "x", "k.14.k.b") == ("a",)
        assert routing.route("/", "x", "k.15.k.b") == ()
        for binding in bindings[::7]:
            routing.remove_binding(binding)
        assert matcher.load == 0
        assert not matcher._blocks
        assert not matcher._roomy
        assert not matcher._rows

    def test_load_of_an_exchange_is_bounded(self) -> None:
        routing = world("topic")
        words = ".".join(["a"] * 100)
        count = ROUTING_LOAD_MAX // 102
        for number in range(count):
            binding = bound("a", f"#.{words}.{number}")
            assert routing.load_problem(binding) == ""
            routing.add_binding(binding)
        assert routing.load_problem(bound("a", f"#.{words}.more")) != ""
        assert routing.load_problem(bound("b", f"#.{words}.0")) == ""  # is there already
        assert routing.load_problem(bound("a", f"{words}.#")) == ""  # costs nothing
        assert routing.load_problem(Binding("/", "none", "queue", "a", f"#.{words}.more")) == ""


class TestHeaders:
    def test_rules_for_other_headers_cost_nothing(self) -> None:
        routing = world("headers")
        for number in range(5_000):
            routing.add_binding(Binding("/", "x", "queue", "a", "", {"user": number, "n": 1}))
        subject = Subject([""], {"user": 17, "n": 1, "other": "x"})
        assert routing.resolve("/", "x", subject).queues == ("a",)
        assert subject.work < EXCHANGE_STEPS + 6 * HEADER_STEPS + 20

    def test_work_is_bounded_by_the_load(self) -> None:
        routing = world("headers")
        for number in range(1_000):
            arguments = {"x-match": "any", "a": 1, "b": [1] * 5, "c": number}
            routing.add_binding(Binding("/", "x", "queue", "abcd"[number % 4], "", arguments))
        matcher: Any = routing._vhosts["/"].exchanges["x"].matcher
        assert matcher.load == 1_000 * 9
        subject = Subject([""], {"b": [1] * 4 + [2], "z": 1})
        assert routing.resolve("/", "x", subject).queues == ()
        assert subject.work <= 2 * matcher.load

    def test_load_of_an_exchange_is_bounded(self) -> None:
        routing = world("headers")
        much = {str(name): 1 for name in range(1_000)}
        for number in range(ROUTING_LOAD_MAX // 1_002):
            routing.add_binding(Binding("/", "x", "queue", "a", "", {**much, "n": number}))
        more = Binding("/", "x", "queue", "a", "", {**much, "n": -1})
        assert routing.load_problem(more) != ""


def test_each_queue_of_a_fan_out_counts() -> None:
    routing = world("fanout")
    for queue in "abcd":
        routing.add_binding(bound(queue, ""))
    subject = Subject([""])
    assert len(routing.resolve("/", "x", subject).queues) == 4
    assert subject.work >= 4


class Told(Alternates):
    """Tells all exchanges the same alternate."""

    def __init__(self) -> None:
        self.alternate: str | None = None

    def of(self, vhost: str, exchange: str) -> str | None:
        return self.alternate


def topic_chain(exchanges: int, patterns: int, alternates: Alternates | None = None) -> Routing:
    """Return topic exchanges x0, x1, ... in a chain, each with patterns full of wildcards."""
    routing = Routing(alternates=alternates)
    routing.add_queue("/", "a")
    for number in range(exchanges):
        routing.add_exchange(Exchange("/", f"x{number}", "topic"))
        for last in range(patterns):
            key = "#.a." * 62 + f"w{last}"
            routing.add_binding(Binding("/", f"x{number}", "queue", "a", key))
        if number > 0:
            routing.add_binding(Binding("/", f"x{number - 1}", "exchange", f"x{number}", "#"))
    return routing


class TestOneMessage:
    """A bound on the steps for one message, over all its keys and all exchanges on its way."""

    def test_one_key_at_a_full_exchange_is_routed(self) -> None:
        routing = topic_chain(1, ROUTING_LOAD_MAX // 64)
        assert routing.load_problem(Binding("/", "x0", "queue", "a", "#.a.#.b.c")) != ""
        resolution = routing.resolve("/", "x0", Subject([".".join("a" * 127)]))
        assert resolution.problem == ""
        assert resolution.work < ROUTING_WORK_MAX // 2

    def test_full_headers_exchange_is_routed(self) -> None:
        routing = world("headers")
        for number in range(ROUTING_LOAD_MAX // 3):
            arguments = {"type": "x", "user": number}
            routing.add_binding(Binding("/", "x", "queue", "a", "", arguments))
        subject = Subject([""], {"type": "x", "user": -1})
        assert routing.resolve("/", "x", subject).problem == ""

    def test_many_keys_are_refused_where_they_cost_too_much(self) -> None:
        routing = topic_chain(1, 1_000)
        keys = [".".join("a" * 126) + f".{number}" for number in range(32)]
        assert routing.resolve("/", "x0", Subject(keys[:2])).problem == ""
        resolution = routing.resolve("/", "x0", Subject(keys))
        assert resolution.known
        assert resolution.queues == ()
        assert "32 routing keys at exchange 'x0' in vhost '/'" in resolution.problem
        assert resolution.work < ROUTING_WORK_MAX + 10_000

    def test_chained_exchanges_share_one_bound(self) -> None:
        routing = topic_chain(40, 250)

        def resolved(exchange: str) -> Resolution:
            subject = Subject([".".join("a" * 126)])
            subject.work_max = ROUTING_WORK_MAX // 4
            return routing.resolve("/", exchange, subject)

        assert resolved("x25").problem == ""
        resolution = resolved("x0")
        assert "1 routing key at exchange 'x0'" in resolution.problem
        assert resolution.work < ROUTING_WORK_MAX // 4 + 10_000
        routing.remove_binding(Binding("/", "x9", "exchange", "x10", "#"))
        assert resolved("x0").problem == ""

    def test_keys_that_are_the_same_cost_once(self) -> None:
        routing = topic_chain(1, 1_000)
        key = ".".join("a" * 127)
        once, often = Subject([key]), Subject([key] * 33)
        routing.resolve("/", "x0", once)
        routing.resolve("/", "x0", often)
        assert once.work == often.work

    @pytest.mark.parametrize("kind", ["fanout", "direct", "topic"])
    def test_places_that_a_message_goes_to_are_beside_the_bound(self, kind: str) -> None:
        routing = Routing()
        routing.add_exchange(Exchange("/", "x", kind))
        count = 2_000
        for number in range(count):
            routing.add_queue("/", f"q{number}")
            routing.add_binding(Binding("/", "x", "queue", f"q{number}", "k"))
        subject = Subject(["k"])
        subject.work_max = 100
        resolution = routing.resolve("/", "x", subject)
        assert resolution.problem == ""
        assert len(resolution.queues) == count

    @pytest.mark.parametrize("kind", ["direct", "topic"])
    def test_the_same_places_again_and_again_are_not(self, kind: str) -> None:
        routing = Routing()
        routing.add_exchange(Exchange("/", "x", kind))
        for queue in range(20):
            routing.add_queue("/", f"q{queue}")
        routing.add_queue("/", "never")
        routing.add_binding(Binding("/", "x", "queue", "never", "never"))
        keys = [f"k{number}" for number in range(200)]
        for key in keys:
            for queue in range(20):
                routing.add_binding(Binding("/", "x", "queue", f"q{queue}", key))
        subject = Subject(keys)
        subject.work_max = 1_000
        resolution = routing.resolve("/", "x", subject)
        assert resolution.problem != ""
        assert resolution.work < 1_100

    def test_headers_on_the_way_are_looked_for_once_in_a_version(self) -> None:
        told = Told()
        routing = topic_chain(3, 1, told)
        assert not routing.needs_headers("/", "x0")
        routing.add_exchange(Exchange("/", "h", "headers"))
        assert not routing.needs_headers("/", "x0")
        more = Binding("/", "x2", "exchange", "h", "#")
        routing.add_binding(more)
        assert routing.needs_headers("/", "x0")
        told.alternate = "h"
        routing.forget_alternate("/", "x1")
        routing.remove_binding(more)
        assert routing.needs_headers("/", "x0")
        told.alternate = None
        routing.forget_alternate("/", "x1")
        assert not routing.needs_headers("/", "x0")


def test_blocks_with_gaps_are_filled_before_another_begins() -> None:
    routing = world("topic")
    bindings = [bound("a", "#.a." * 62 + f"w{number}") for number in range(600)]
    for binding in bindings:
        routing.add_binding(binding)
    matcher: Any = routing._vhosts["/"].exchanges["x"].matcher
    blocks = len(matcher._blocks)
    for round_number in range(5):
        for place in range(0, 600, 3):
            routing.remove_binding(bindings[place])
            bindings[place] = bound("a", "#.a." * 62 + f"w{place}-{round_number}")
        for place in range(0, 600, 3):
            routing.add_binding(bindings[place])
        assert len(matcher._blocks) == blocks
    key = "a." * 62
    assert routing.route("/", "x", key + "w3-4") == ("a",)
    assert routing.route("/", "x", key + "w4") == ("a",)
    assert routing.route("/", "x", key + "w3-3") == ()
