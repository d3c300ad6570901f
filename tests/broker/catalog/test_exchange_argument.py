"""Arguments of exchanges and weights of bindings: refusals that name the cause."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.exchange_argument import (
    arguments_problem,
    inner_type,
    unknown_exchange_arguments,
)
from headrace_broker.catalog.result import Refused
from headrace_broker.model.definition import Binding, Exchange

HASH = "x-consistent-hash"
DELAYED = "x-delayed-message"


def exchange(kind: str, **arguments: Any) -> Exchange:
    table = {name.replace("_", "-"): value for name, value in arguments.items()}
    return Exchange("/", "e", kind, arguments=table)


@pytest.mark.parametrize(
    "wanted",
    [
        exchange("direct"),
        exchange("direct", alternate_exchange="other"),
        exchange("topic", alternate_exchange=""),
        exchange(HASH),
        exchange(HASH, hash_header="customer"),
        exchange(HASH, hash_property="message_id"),
        exchange(HASH, hash_property="timestamp", alternate_exchange="other"),
        exchange(DELAYED, x_delayed_type="topic"),
        exchange(DELAYED, x_delayed_type=HASH, hash_header="customer"),
    ],
)
def test_valid_arguments_pass(driver: Any, wanted: Exchange) -> None:
    assert arguments_problem(wanted) == ""
    driver.exchange("e", wanted.type, arguments=wanted.arguments)


# What the catalog refuses as well, for nothing could route by it.
UNUSABLE = [
    (exchange("x-none"), "unknown exchange type 'x-none'"),
    (exchange(DELAYED), "'x-delayed-type' must be an existing exchange type"),
    (exchange(DELAYED, x_delayed_type="none"), "'x-delayed-type' must be an existing"),
    (exchange(DELAYED, x_delayed_type=1), "'x-delayed-type' must be an existing"),
    (exchange(DELAYED, x_delayed_type=["direct"]), "'x-delayed-type' must be an existing"),
    (
        exchange(DELAYED, x_delayed_type=DELAYED),
        "'x-delayed-message' can't be used for 'x-delayed-type'",
    ),
    (exchange(HASH, hash_header="a", hash_property="message_id"), "are mutually exclusive"),
    (exchange(HASH, hash_header=7), "invalid arg 'hash-header': must be a string"),
    (exchange(HASH, hash_header=""), "invalid arg 'hash-header'"),
    (exchange(HASH, hash_header="n" * 256), "invalid arg 'hash-header'"),
    (exchange(HASH, hash_property=True), "invalid arg 'hash-property': must be a string"),
    (exchange(HASH, hash_property="app_id"), "Unsupported property: app_id"),
    (
        exchange(DELAYED, x_delayed_type=HASH, hash_property="app_id"),
        "Unsupported property: app_id",
    ),
]


@pytest.mark.parametrize(("wanted", "text"), UNUSABLE)
def test_unusable_arguments_are_named(driver: Any, wanted: Exchange, text: str) -> None:
    assert text in arguments_problem(wanted)
    answer = driver.do(commands.DeclareExchange(wanted))
    assert isinstance(answer, Refused)
    assert text in answer.text
    assert driver.catalog.exchange("/", "e") is None


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (exchange("direct", x_unknown="v" * 5000), "invalid arguments for exchange 'e' in vhost"),
        (exchange("direct", x_delayed_type="topic"), "invalid arg 'x-delayed-type'"),
        (exchange("fanout", hash_header="h"), "invalid arg 'hash-header'"),
        (exchange(DELAYED, x_delayed_type="direct", hash_header="h"), "invalid arg 'hash-header'"),
        (exchange("direct", alternate_exchange=1), "invalid type 'signedint' for arg 'alternate-"),
    ],
)
def test_arguments_of_another_type_are_named(wanted: Exchange, text: str) -> None:
    assert text in arguments_problem(wanted)


def test_unknown_arguments_are_taken_and_listed() -> None:
    wanted = exchange("direct", x_unknown=1, unknown=[1], alternate_exchange="a")
    assert arguments_problem(wanted) == ""
    assert unknown_exchange_arguments(wanted.arguments) == ["unknown", "x-unknown"]


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        (exchange("topic"), "topic"),
        (exchange("x-none"), ""),
        (exchange(DELAYED, x_delayed_type="fanout"), "fanout"),
        (exchange(DELAYED, x_delayed_type=DELAYED), ""),
    ],
)
def test_inner_type(wanted: Exchange, kind: str) -> None:
    assert inner_type(wanted) == kind


HASHING = [(HASH, {}), (DELAYED, {"x-delayed-type": HASH})]


@pytest.mark.parametrize(("kind", "arguments"), HASHING)
@pytest.mark.parametrize("weight", ["0", "1", "20", "+3", "007", "1000000"])
def test_weight_is_a_whole_number(
    driver: Any, kind: str, arguments: dict[str, Any], weight: str
) -> None:
    driver.exchange("e", kind, arguments=arguments)
    driver.queue("q")
    driver.bind("e", "q", weight)


@pytest.mark.parametrize(("kind", "arguments"), HASHING)
@pytest.mark.parametrize(
    "weight", ["", "a", "1.5", "-1", "1000001", "9" * 30, " 1", "1 ", "\u0661", "1_0", "0x1"]
)
def test_other_weight_is_refused(
    driver: Any, kind: str, arguments: dict[str, Any], weight: str
) -> None:
    driver.exchange("e", kind, arguments=arguments)
    driver.queue("q")
    answer = driver.do(commands.Bind(Binding("/", "e", "queue", "q", weight)))
    assert isinstance(answer, Refused)
    assert answer.text.startswith("The binding key must be")
    assert driver.catalog.bindings() == []


def test_match_of_a_delayed_headers_exchange_is_checked(driver: Any) -> None:
    driver.exchange("e", DELAYED, arguments={"x-delayed-type": "headers"})
    driver.queue("q")
    wrong = Binding("/", "e", "queue", "q", "", {"x-match": "some"})
    assert isinstance(driver.do(commands.Bind(wrong)), Refused)


@pytest.mark.parametrize(
    ("destination", "key", "text"),
    [
        (("queue", "q"), "k", "Non empty binding 'k' key not permitted"),
        (("exchange", "amq.fanout"), "", "Destination not found"),
    ],
)
def test_local_random_exchange_takes_queues_without_keys(
    driver: Any, destination: tuple[str, str], key: str, text: str
) -> None:
    driver.exchange("e", "x-local-random")
    driver.queue("q")
    answer = driver.do(commands.Bind(Binding("/", "e", *destination, key)))
    assert isinstance(answer, Refused)
    assert answer.text.startswith(text)
    driver.bind("e", "q", "")
