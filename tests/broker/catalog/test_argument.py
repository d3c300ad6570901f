"""Declaration of queues: every argument, kinds of queues, conflicts, refusals."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.catalog.argument import ArgumentError, asked_queue, unknown_queue_arguments
from headrace_broker.catalog.setting import QUEUE_ARGUMENTS
from headrace_broker.model.limits import (
    ARCHIVE_MESSAGES_MAX,
    DEDUPLICATION_SIZE_MAX,
    DURATION_MS_MAX,
    QUANTITY_MAX,
    REPLICAS_DEFAULT,
    REPLICAS_MAX,
    TTL_MS_MAX,
    UNKNOWN_ARGUMENTS_BYTES_MAX,
)

NAME = "n" * 255


def ask(
    arguments: dict[str, Any] | None = None,
    kind: str = "",
    name: str = "q",
    durable: bool = True,
    exclusive: bool = False,
    auto_delete: bool = False,
    default: str = "",
) -> tuple[str, int]:
    table = dict(arguments or {})
    if kind:
        table["x-queue-type"] = kind
    return asked_queue("/", name, durable, exclusive, auto_delete, table, default)


def refusal(*positional: Any, **named: Any) -> str:
    with pytest.raises(ArgumentError) as caught:
        ask(*positional, **named)
    return str(caught.value)


# Argument, kinds of queues that take it, values that fit, values that do not.
BOTH, QUORUM, CLASSIC = ("quorum", "classic"), ("quorum",), ("classic",)
DURATION = ([0, 5, DURATION_MS_MAX], [-1, DURATION_MS_MAX + 1, "5", True, None, 1.0, b"5", [5]])
DURATION_SOME = ([1, DURATION_MS_MAX], [0, -1, "5", False, {}])
QUANTITY = ([0, 5, QUANTITY_MAX], [-1, QUANTITY_MAX + 1, "5", True, None])
FLAG = ([True, False], [1, 0, "true", None])
LOCATOR = ["client-local", "balanced", "random", "least-leaders"]
TABLE: list[tuple[str, tuple[str, ...], list[Any], list[Any]]] = [
    ("x-expires", BOTH, [1, TTL_MS_MAX], [0, -1, TTL_MS_MAX + 1, "5", True]),
    ("x-message-ttl", BOTH, [0, 134_217_728_000, TTL_MS_MAX], [-1, TTL_MS_MAX + 1, "5", None]),
    ("x-max-length", BOTH, *QUANTITY),
    ("x-max-length-bytes", BOTH, *QUANTITY),
    (
        "x-overflow",
        BOTH,
        ["drop-head", "reject-publish", "reject-publish-dlx"],
        ["drop-tail", "", 1, None],
    ),
    ("x-delivery-limit", QUORUM, [-1, 0, 5], ["5", True, None, 1 << 40]),
    ("x-dead-letter-exchange", BOTH, ["", "x", NAME], [1, None, NAME + "n", b"x"]),
    ("x-dead-letter-strategy", QUORUM, ["at-most-once", "at-least-once"], ["exactly-once", "", 1]),
    ("x-single-active-consumer", BOTH, *FLAG),
    ("x-max-priority", CLASSIC, [0, 10, 255], [-1, 256, "10", None]),
    ("x-quorum-initial-group-size", QUORUM, [1, REPLICAS_MAX], [0, REPLICAS_MAX + 1, True, "3"]),
    ("x-quorum-target-group-size", QUORUM, [1, REPLICAS_MAX], [0, "3"]),
    ("x-queue-leader-locator", BOTH, LOCATOR, ["here", "", 1]),
    ("x-queue-master-locator", CLASSIC, ["client-local", "min-masters"], ["balanced", 1]),
    ("x-queue-mode", CLASSIC, ["lazy", "default"], ["eager", 1]),
    ("x-queue-version", CLASSIC, [1, 2], [0, 3, "2"]),
    ("x-max-in-memory-length", QUORUM, *QUANTITY),
    ("x-max-in-memory-bytes", QUORUM, *QUANTITY),
    ("x-consumer-timeout", BOTH, *DURATION),
    ("x-delayed-retry-min", QUORUM, *DURATION_SOME),
    ("x-delayed-retry-max", QUORUM, *DURATION_SOME),
    ("x-last-value-key", BOTH, ["k", NAME], ["", 1, NAME + "n"]),
    ("x-group-key", BOTH, ["k"], ["", 1]),
    ("x-fairness-key", BOTH, ["tenant", NAME], ["", 1, NAME + "n"]),
    ("x-high-watermark", BOTH, *QUANTITY),
    ("x-low-watermark", BOTH, *QUANTITY),
    ("x-high-watermark-bytes", BOTH, *QUANTITY),
    ("x-low-watermark-bytes", BOTH, *QUANTITY),
    ("x-message-deduplication", BOTH, *FLAG),
    ("x-deduplication-size", BOTH, [1, DEDUPLICATION_SIZE_MAX], [0, DEDUPLICATION_SIZE_MAX + 1]),
    ("x-deduplication-ttl", BOTH, *DURATION_SOME),
    ("x-publisher-retention", BOTH, *DURATION),
    ("x-archive", QUORUM, ["none", "headers", "full"], ["", "all", True, None]),
    ("x-archive-max-messages", QUORUM, [0, ARCHIVE_MESSAGES_MAX], [-1, ARCHIVE_MESSAGES_MAX + 1]),
    ("x-archive-max-bytes", QUORUM, *QUANTITY),
    ("x-archive-max-age", QUORUM, *DURATION),
]


def test_table_of_the_tests_has_every_argument() -> None:
    with_others = {"x-dead-letter-routing-key", "x-delayed-retry-type"}
    assert {row[0] for row in TABLE} | with_others == set(QUEUE_ARGUMENTS)


@pytest.mark.parametrize(
    ("argument", "kind", "value"),
    [(row[0], kind, value) for row in TABLE for kind in row[1] for value in row[2]],
)
def test_argument_is_taken(argument: str, kind: str, value: Any) -> None:
    assert ask({argument: value}, kind)[0] == kind


@pytest.mark.parametrize(
    ("argument", "kind", "value"),
    [(row[0], kind, value) for row in TABLE for kind in row[1] for value in row[3]],
)
def test_argument_with_a_wrong_value_is_refused(argument: str, kind: str, value: Any) -> None:
    text = refusal({argument: value}, kind)
    assert text.startswith(f"invalid arg '{argument}' for queue 'q' in vhost '/': must be ")


@pytest.mark.parametrize(
    ("argument", "kind", "value"),
    [
        (row[0], kind, value)
        for row in TABLE
        for kind in BOTH
        if kind not in row[1]
        for value in row[2] + row[3]
    ],
)
def test_argument_of_another_kind_of_queue_is_refused(argument: str, kind: str, value: Any) -> None:
    where = f"for queue 'q' in vhost '/' of queue type {kind}"
    assert refusal({argument: value}, kind) == f"invalid arg '{argument}' {where}"


@pytest.mark.parametrize("kind", ["", "quorum", "classic"])
@pytest.mark.parametrize(
    "argument", ["x-foo", "foo", "x-ha-policy", "message-ttl", "x-allow-immediate", ""]
)
def test_unknown_argument_is_taken_and_named(kind: str, argument: str) -> None:
    arguments = {argument: 1, **({"x-queue-type": kind} if kind else {})}
    found, _ = asked_queue("/", "q", True, False, False, arguments)
    assert found == (kind or "quorum")
    assert unknown_queue_arguments(arguments) == [argument]


@pytest.mark.parametrize("kind", ["quorum", "classic"])
@pytest.mark.parametrize("argument", ["x-max-age", "x-stream-filter-size-bytes"])
def test_argument_of_a_stream_is_refused(kind: str, argument: str) -> None:
    where = f"for queue 'q' in vhost '/' of queue type {kind}"
    assert refusal({argument: 1}, kind) == f"invalid arg '{argument}' {where}"


def test_unknown_arguments_may_be_so_large_together() -> None:
    fits = UNKNOWN_ARGUMENTS_BYTES_MAX // 2 - 20
    small = {"x-a": "v" * fits, "x-b": "v" * fits, "x-max-length": 3}
    assert asked_queue("/", "q", True, False, False, small) == ("quorum", 3)
    text = refusal({**small, "x-c": "v" * 40})
    assert text.startswith("invalid arguments for queue 'q' in vhost '/': arguments that mean")
    assert "('x-a', 'x-b', 'x-c')" in text
    assert text.endswith(f"more than {UNKNOWN_ARGUMENTS_BYTES_MAX}")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1 << 70, "cannot be kept"),
        ({"a": datetime(2024, 1, 1, tzinfo=UTC)}, "unknown type datetime"),
        ({"\udc80": 1}, "cannot be kept"),
    ],
)
def test_unknown_argument_that_cannot_be_kept_is_refused(value: Any, text: str) -> None:
    assert text in refusal({"x-foo": value})


def test_first_refused_is_the_first_by_name() -> None:
    assert "'x-expires'" in refusal({"x-max-length": -1, "x-expires": 0, "x-a": 1})


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (
            {"x-dead-letter-routing-key": "k"},
            "'x-dead-letter-routing-key' for queue 'q' in vhost '/': "
            "x-dead-letter-exchange is not given",
        ),
        (
            {"x-last-value-key": "k", "x-max-priority": 5},
            "'x-last-value-key' for queue 'q' in vhost '/': cannot stand beside x-max-priority",
        ),
        (
            {"x-last-value-key": "k", "x-group-key": "g"},
            "'x-last-value-key' for queue 'q' in vhost '/': cannot stand beside x-group-key",
        ),
        (
            {"x-high-watermark": 5, "x-low-watermark": 6},
            "'x-low-watermark' (6) must not be larger than 'x-high-watermark' (5)",
        ),
        (
            {"x-high-watermark-bytes": 5, "x-low-watermark-bytes": 6},
            "'x-low-watermark-bytes' (6) must not be larger than 'x-high-watermark-bytes' (5)",
        ),
        (
            {"x-last-value-key": "k", "x-fairness-key": "f"},
            "'x-fairness-key' for queue 'q' in vhost '/': cannot stand beside x-last-value-key",
        ),
        (
            {"x-group-key": "g", "x-fairness-key": "f"},
            "'x-fairness-key' for queue 'q' in vhost '/': cannot stand beside x-group-key",
        ),
        (
            {"x-delayed-retry-type": "all"},
            "'x-delayed-retry-type' for queue 'q' in vhost '/': x-delayed-retry-min is not given",
        ),
        (
            {"x-delayed-retry-min": 5, "x-delayed-retry-max": 4},
            "'x-delayed-retry-max' for queue 'q' in vhost '/': 4 is smaller",
        ),
        ({"x-delayed-retry-type": "some", "x-delayed-retry-min": 5}, "must be one of 'disabled'"),
        ({"x-dead-letter-exchange": "x", "x-dead-letter-routing-key": 5}, "must be a string"),
    ],
)
def test_arguments_in_conflict_are_refused(arguments: dict[str, Any], what: str) -> None:
    assert what in refusal(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "k"},
        {"x-dead-letter-exchange": "x", "x-dead-letter-strategy": "at-least-once"},
        {"x-delayed-retry-type": "disabled"},
        {"x-high-watermark": 5, "x-low-watermark": 5, "x-low-watermark-bytes": 7},
        {"x-high-watermark": 0, "x-low-watermark": 5},
        {"x-delayed-retry-type": "failed", "x-delayed-retry-min": 5, "x-delayed-retry-max": 5},
        {"x-message-deduplication": True, "x-deduplication-size": 5, "x-deduplication-ttl": 5},
    ],
)
def test_arguments_that_go_together_are_taken(arguments: dict[str, Any]) -> None:
    assert ask(arguments) == ("quorum", REPLICAS_DEFAULT)


# What clients and frameworks are known to send.
FRAMEWORKS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"x-expires": 10000, "x-message-ttl": 300000}, {"auto_delete": True, "durable": False}),
    ({"x-max-priority": 10}, {}),
    ({"x-queue-mode": "lazy"}, {}),
    ({"x-queue-type": "quorum", "x-delivery-limit": 20}, {}),
    ({"x-queue-master-locator": "client-local"}, {"exclusive": True, "auto_delete": True}),
    ({"x-queue-leader-locator": "client-local"}, {"exclusive": True, "auto_delete": True}),
    (
        {
            "x-queue-type": "quorum",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
            "x-message-ttl": 2**27 * 1000,
            "x-dead-letter-exchange": "celery_delayed_26",
        },
        {},
    ),
    ({"x-queue-type": "classic", "x-queue-version": 2}, {}),
    ({"x-queue-type": ""}, {}),
    ({"x-queue-type": "undefined"}, {}),
]


@pytest.mark.parametrize(("arguments", "flags"), FRAMEWORKS)
def test_what_frameworks_send_is_taken(arguments: dict[str, Any], flags: dict[str, Any]) -> None:
    ask(arguments, **flags)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ("quorum", REPLICAS_DEFAULT)),
        ({"kind": "classic"}, ("classic", 1)),
        ({"kind": "quorum"}, ("quorum", REPLICAS_DEFAULT)),
        ({"arguments": {"x-quorum-initial-group-size": 1}}, ("quorum", 1)),
        ({"arguments": {"x-quorum-initial-group-size": REPLICAS_MAX}}, ("quorum", REPLICAS_MAX)),
        ({"durable": False}, ("classic", 1)),
        ({"exclusive": True}, ("classic", 1)),
        ({"auto_delete": True}, ("classic", 1)),
        ({"name": "amq.gen-x"}, ("classic", 1)),
        ({"default": "classic"}, ("classic", 1)),
        ({"default": "quorum"}, ("quorum", REPLICAS_DEFAULT)),
        ({"default": "classic", "kind": "quorum"}, ("quorum", REPLICAS_DEFAULT)),
        ({"default": "quorum", "exclusive": True}, ("classic", 1)),
        ({"default": "quorum", "name": "amq.gen-x"}, ("classic", 1)),
    ],
)
def test_kind_and_replicas(fields: dict[str, Any], expected: tuple[str, int]) -> None:
    assert ask(**fields) == expected


def test_size_of_a_group_is_not_for_a_queue_that_is_classic_by_its_flags() -> None:
    text = refusal({"x-quorum-initial-group-size": 3}, auto_delete=True)
    assert text.endswith("for queue 'q' in vhost '/' of queue type classic")


@pytest.mark.parametrize("kind", ["stream", "Quorum", 1, True, None, ["quorum"], {}])
def test_type_that_is_not_there_is_refused(kind: Any) -> None:
    text = refusal({"x-queue-type": kind})
    what = "invalid arg 'x-queue-type' for queue 'q' in vhost '/': must be 'quorum' or 'classic'"
    assert text.startswith(what)


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        ({"exclusive": True}, "exclusive-owner"),
        ({"auto_delete": True}, "auto-delete"),
        ({"durable": False}, "non-durable"),
    ],
)
def test_quorum_queue_that_would_be_transient_is_refused(flags: Any, field: str) -> None:
    text = refusal(kind="quorum", **flags)
    assert text.startswith(f"invalid property '{field}' for queue 'q' in vhost '/'")


def test_quorum_queue_needs_a_name() -> None:
    text = refusal(kind="quorum", name="amq.gen-x")
    assert text == "cannot declare a server-named queue for type quorum"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=4,
)


@given(
    st.dictionaries(
        st.sampled_from([*QUEUE_ARGUMENTS, "x-queue-type"]) | st.text(), VALUES, max_size=4
    ),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_any_arguments_have_an_answer(
    arguments: dict[str, Any], durable: bool, exclusive: bool, auto_delete: bool
) -> None:
    try:
        kind, replicas = asked_queue("/", "q", durable, exclusive, auto_delete, arguments)
    except ArgumentError:
        return
    assert kind in BOTH
    assert 1 <= replicas <= REPLICAS_MAX
