"""Consistent-hash exchanges: one destination a message, fair shares, and few moves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pamqp import commands

from headrace_broker.core.routing.matcher import Subject
from headrace_broker.core.routing.routing import Routing
from headrace_broker.model.definition import Binding, Exchange

KEYS = [f"order-{number}" for number in range(4000)]


def weighted(weights: dict[str, int], **arguments: Any) -> Routing:
    table = {name.replace("_", "-"): value for name, value in arguments.items()}
    routing = Routing()
    routing.add_exchange(Exchange("/", "x", "x-consistent-hash", arguments=table))
    for queue, weight in weights.items():
        routing.add_queue("/", queue)
        routing.add_binding(binding(queue, weight))
    return routing


def binding(queue: str, weight: int, **arguments: Any) -> Binding:
    return Binding("/", "x", "queue", queue, str(weight), arguments)


def route(routing: Routing, key: str) -> str:
    [queue] = routing.route("/", "x", key)
    return queue


def block(**properties: Any) -> bytes:
    data: bytes = commands.Basic.Properties(**properties).marshal()
    return data


def route_block(routing: Routing, key: str, properties: bytes) -> str:
    [queue] = routing.resolve("/", "x", Subject([key], {}, properties)).queues
    return queue


WEIGHTS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 9), min_size=2)


class TestShares:
    @pytest.mark.parametrize("weights", [{"a": 1}, {"a": 1, "b": 1, "c": 1}, {"a": 3, "b": 1}])
    def test_follow_the_weights(self, weights: dict[str, int]) -> None:
        counts = Counter(route(weighted(weights), key) for key in KEYS)
        for queue, weight in weights.items():
            share = weight / sum(weights.values())
            assert abs(counts[queue] / len(KEYS) - share) < 0.03

    @settings(max_examples=30)
    @given(WEIGHTS)
    @example(dict.fromkeys("abcdefgh", 1))
    @example({"a": 9, "b": 1, "c": 1})
    def test_are_even_for_any_weights(self, weights: dict[str, int]) -> None:
        routing = weighted(weights)
        counts = Counter(route(routing, key) for key in KEYS[:1500])
        for queue, weight in weights.items():
            share = weight / sum(weights.values())
            deviation = (share * (1 - share) / 1500) ** 0.5
            assert abs(counts[queue] / 1500 - share) < 6 * deviation

    def test_weight_of_0_takes_nothing(self) -> None:
        routing = weighted({"a": 0, "b": 1})
        assert {route(routing, key) for key in KEYS[:200]} == {"b"}
        assert weighted({"a": 0}).route("/", "x", "k") == ()

    def test_bindings_to_one_queue_add_up(self) -> None:
        routing = weighted({"a": 1, "b": 1})
        routing.add_binding(binding("a", 1, note=1))
        twice = weighted({"a": 2, "b": 1})
        assert [route(routing, key) for key in KEYS] == [route(twice, key) for key in KEYS]

    def test_no_bindings_take_nothing(self) -> None:
        assert weighted({}).route("/", "x", "k") == ()


class TestMoves:
    @settings(max_examples=30)
    @given(WEIGHTS, st.data())
    def test_only_the_messages_of_a_queue_that_goes_move(
        self, weights: dict[str, int], data: Any
    ) -> None:
        routing = weighted(weights)
        before = {key: route(routing, key) for key in KEYS[:300]}
        gone = data.draw(st.sampled_from(sorted(weights)))
        routing.remove_binding(binding(gone, weights[gone]))
        for key, queue in before.items():
            if queue == gone:
                assert route(routing, key) != gone
            else:
                assert route(routing, key) == queue
        routing.add_binding(binding(gone, weights[gone]))
        assert {key: route(routing, key) for key in before} == before

    @settings(max_examples=30)
    @given(WEIGHTS, st.sampled_from("abcdefgh"))
    def test_more_weight_only_draws_messages(self, weights: dict[str, int], more: str) -> None:
        before = weighted(weights)
        heavier = weighted({**weights, more: weights.get(more, 0) + 3})
        for key in KEYS[:300]:
            assert route(heavier, key) in (route(before, key), more)

    @given(st.permutations("abcdef"))
    def test_order_of_bindings_does_not_matter(self, order: list[str]) -> None:
        usual, other = weighted(dict.fromkeys("abcdef", 2)), weighted(dict.fromkeys(order, 2))
        for key in KEYS[:50]:
            assert route(usual, key) == route(other, key)

    def test_contradicting_removal_raises_and_changes_nothing(self) -> None:
        routing = weighted({"a": 1, "b": 1})
        before = [route(routing, key) for key in KEYS[:50]]
        for wrong in (binding("a", 2), binding("a", 1, note=1)):
            with pytest.raises(KeyError):
                routing.remove_binding(wrong)
        assert [route(routing, key) for key in KEYS[:50]] == before


# What nodes of all versions have to agree on: changing it moves messages while nodes are upgraded.
PINNED = "cabaabccabaacaacbcbb"

OTHER_PROCESS = """
from headrace_broker.core.routing.routing import Routing
from headrace_broker.model.definition import Binding, Exchange
routing = Routing()
routing.add_exchange(Exchange("/", "x", "x-consistent-hash"))
for queue in "abc":
    routing.add_queue("/", queue)
    routing.add_binding(Binding("/", "x", "queue", queue, "1"))
print("".join(routing.route("/", "x", f"order-{n}")[0] for n in range(20)), end="")
"""


class TestAgreement:
    def test_places_are_pinned(self) -> None:
        routing = weighted(dict.fromkeys("abc", 1))
        assert "".join(route(routing, key) for key in KEYS[:20]) == PINNED

    @pytest.mark.parametrize("seed", ["0", "1"])
    def test_processes_with_other_hash_seeds_agree(self, seed: str) -> None:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", OTHER_PROCESS],
            env=environment,
            capture_output=True,
            check=True,
            text=True,
        )
        assert done.stdout == PINNED


class TestWhatIsHashed:
    def test_routing_key_needs_no_look_at_the_message(self) -> None:
        resolution = weighted({"a": 1, "b": 1}).resolve("/", "x", Subject(["k"]))
        assert not resolution.needs_message

    def test_of_several_routing_keys_the_first_decides(self) -> None:
        routing = weighted(dict.fromkeys("abcd", 1))
        for key in KEYS[:20]:
            found = routing.resolve("/", "x", Subject([key, "other"])).queues
            assert found == (route(routing, key),)

    @pytest.mark.parametrize(
        ("arguments", "alike", "unlike"),
        [
            (
                {"hash_header": "h"},
                [{"headers": {"h": 7, "i": 1}}, {"headers": {"h": 7}}],
                lambda n: {"headers": {"h": f"v{n}"}},
            ),
            (
                {"hash_property": "message_id"},
                [{"message_id": "m"}, {"message_id": "m", "priority": 3}],
                lambda n: {"message_id": f"v{n}"},
            ),
            (
                {"hash_property": "correlation_id"},
                [{"correlation_id": "c"}, {"correlation_id": "c", "message_id": "m"}],
                lambda n: {"correlation_id": f"v{n}"},
            ),
            ({"hash_property": "timestamp"}, [{}, {"message_id": "m"}], None),
        ],
    )
    def test_is_the_header_or_property_and_not_the_key(
        self, arguments: dict[str, str], alike: list[dict[str, Any]], unlike: Any
    ) -> None:
        routing = weighted(dict.fromkeys("abcd", 1), **arguments)
        resolution = routing.resolve("/", "x", Subject(["k"]))
        assert resolution.needs_message
        assert not resolution.needs_headers
        same = {
            route_block(routing, key, block(**properties))
            for key in KEYS[:20]
            for properties in alike
        }
        assert len(same) == 1
        if unlike is not None:
            found = {route_block(routing, "k", block(**unlike(n))) for n in range(100)}
            assert found == set("abcd")

    def test_timestamp_decides_by_its_value(self) -> None:
        routing = weighted(dict.fromkeys("abcd", 1), hash_property="timestamp")
        moments = [datetime.fromtimestamp(second, UTC) for second in range(100)]
        found = {route_block(routing, "k", block(timestamp=moment)) for moment in moments}
        assert found == set("abcd")

    def test_without_the_header_all_go_to_one_queue(self) -> None:
        routing = weighted(dict.fromkeys("abcd", 1), hash_header="h")
        without = [block(), block(headers={"other": 1}), block(headers={}), b""]
        found = {route_block(routing, key, each) for key in KEYS[:20] for each in without}
        assert len(found) == 1

    def test_integers_are_alike_in_any_width(self) -> None:
        routing = weighted(dict.fromkeys("abcdefgh", 1), hash_header="h")
        byte_counts = [b"\x01hB\x07", b"\x01hI\x00\x00\x00\x07", b"\x01hl" + bytes(7) + b"\x07"]
        found = {
            route_block(routing, "k", b"\x20\x00" + len(each).to_bytes(4, "big") + each)
            for each in byte_counts
        }
        assert len(found) == 1

    def test_headers_matter_when_one_of_the_destinations_reads_them(self) -> None:
        routing = weighted({"a": 1}, hash_header="h")
        routing.add_exchange(Exchange("/", "h", "headers"))
        routing.add_binding(Binding("/", "x", "exchange", "h", "1"))
        assert routing.resolve("/", "x", Subject(["k"])).needs_headers
