"""Bindings of the catalog, and what goes with them."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.event import BindingAdded, BindingRemoved, ExchangeRemoved
from headrace_broker.catalog.result import Exists, NotFound, Ok, Refused
from headrace_broker.model.definition import Binding


def test_bound_twice_is_one_binding(driver: Any) -> None:
    driver.queue("q")
    binding = driver.bind("amq.topic", "q", "a.*", arguments={"b": 1, "a": 2})
    assert driver.events == [BindingAdded(binding)]
    same = Binding("/", "amq.topic", "queue", "q", "a.*", {"a": 2, "b": 1})
    assert driver.do(commands.Bind(same)) == Exists(same)
    assert driver.catalog.bindings() == [binding]


@pytest.mark.parametrize(
    ("key", "arguments"), [("k", {}), ("", {"a": 1.0}), ("", {"a": True}), ("", {"a": "1"})]
)
def test_other_key_or_arguments_make_another_binding(
    driver: Any, key: str, arguments: dict[str, Any]
) -> None:
    driver.queue("q")
    first = driver.bind("amq.topic", "q", "", arguments={"a": 1})
    second = driver.bind("amq.topic", "q", key, arguments=arguments)
    assert driver.catalog.bindings_of_queue("/", "q") == [first, second]
    assert driver.do(commands.Unbind(second)) == Ok(second)
    assert driver.catalog.bindings_of_source("/", "amq.topic") == [first]


def test_queue_and_exchange_of_one_name_are_different_destinations(driver: Any) -> None:
    driver.queue("same")
    driver.exchange("same")
    to_queue = driver.bind("amq.direct", "same")
    to_exchange = driver.bind("amq.direct", "same", kind="exchange")
    assert driver.catalog.bindings_of_queue("/", "same") == [to_queue]
    assert driver.catalog.bindings_of_exchange("/", "same") == [to_exchange]


@pytest.mark.parametrize(
    ("binding", "what"),
    [
        (Binding("w", "amq.direct", "queue", "q", ""), "vhost 'w'"),
        (Binding("/", "none", "queue", "none", ""), "exchange 'none' in vhost '/'"),
        (Binding("/", "amq.direct", "queue", "none", ""), "queue 'none' in vhost '/'"),
        (Binding("/", "amq.direct", "exchange", "q", ""), "exchange 'q' in vhost '/'"),
    ],
)
def test_missing_end_is_named(driver: Any, binding: Binding, what: str) -> None:
    driver.queue("q")
    result = driver.do(commands.Bind(binding))
    assert result == NotFound(what)
    assert result.text == f"no {what}"


@pytest.mark.parametrize(
    "binding",
    [
        Binding("/", "", "queue", "q", "q"),
        Binding("/", "amq.direct", "exchange", "", ""),
        Binding("/", "amq.direct", "other", "q", ""),
        Binding("/", "amq.direct", "queue", "q", "k" * 256),
        Binding("/", "amq.headers", "queue", "q", "", {"x-match": "some"}),
        Binding("/", "amq.headers", "queue", "q", "", {"x-match": 1}),
        Binding("/", "amq.headers", "queue", "q", "", {"x-match": ["all"]}),
    ],
)
def test_invalid_binding_is_refused(driver: Any, binding: Binding) -> None:
    driver.queue("q")
    assert isinstance(driver.do(commands.Bind(binding)), Refused)
    assert driver.catalog.bindings() == []


def test_unbinding_what_is_not_bound_is_not_found(driver: Any) -> None:
    driver.queue("q")
    driver.bind("amq.direct", "q", "k")
    other = Binding("/", "amq.direct", "queue", "q", "other")
    result = driver.do(commands.Unbind(other))
    assert result == NotFound("binding from exchange 'amq.direct' to queue 'q' in vhost '/'")


def test_deleted_queue_takes_its_bindings_along_before_itself(driver: Any) -> None:
    queue = driver.queue("q")
    first = driver.bind("amq.direct", "q", "a")
    second = driver.bind("amq.fanout", "q")
    driver.do(commands.DeleteQueue("/", "q", queue.group))
    assert driver.events[:2] == [BindingRemoved(first), BindingRemoved(second)]
    assert driver.catalog.bindings() == []


def test_deleted_exchange_takes_bindings_of_both_sides_along(driver: Any) -> None:
    driver.queue("q")
    middle = driver.exchange("m")
    leaving = driver.bind("m", "q")
    arriving = driver.bind("amq.direct", "m", kind="exchange")
    itself = driver.bind("m", "m", kind="exchange")
    driver.do(commands.DeleteExchange("/", "m"))
    assert driver.events == [
        BindingRemoved(leaving),
        BindingRemoved(itself),
        BindingRemoved(arriving),
        ExchangeRemoved(middle),
    ]
    assert driver.catalog.bindings() == []


class TestAutoDelete:
    def test_exchange_goes_with_its_last_binding(self, driver: Any) -> None:
        driver.queue("q")
        exchange = driver.exchange("x", auto_delete=True)
        first = driver.bind("x", "q", "a")
        second = driver.bind("x", "q", "b")
        driver.do(commands.Unbind(first))
        assert driver.events == [BindingRemoved(first)]
        driver.do(commands.Unbind(second))
        assert driver.events == [BindingRemoved(second), ExchangeRemoved(exchange)]

    def test_exchange_that_was_never_bound_stays(self, driver: Any) -> None:
        driver.queue("q")
        driver.exchange("x", auto_delete=True)
        driver.do(commands.DeleteQueue("/", "q"))
        assert driver.catalog.exchange("/", "x") is not None

    def test_binding_that_arrives_does_not_keep_it(self, driver: Any) -> None:
        driver.queue("q")
        driver.exchange("x", auto_delete=True)
        driver.bind("amq.direct", "x", kind="exchange")
        last = driver.bind("x", "q")
        driver.do(commands.Unbind(last))
        assert driver.catalog.exchange("/", "x") is None
        assert driver.catalog.bindings() == []

    def test_deleted_queue_pulls_a_chain_of_exchanges_along(self, driver: Any) -> None:
        driver.queue("q")
        chain = [driver.exchange(f"x{number}", auto_delete=True) for number in range(300)]
        driver.bind("x0", "q")
        for number in range(1, 300):
            driver.bind(f"x{number}", f"x{number - 1}", kind="exchange")
        driver.do(commands.DeleteQueue("/", "q"))
        removed = [e.exchange for e in driver.events if isinstance(e, ExchangeRemoved)]
        assert removed == chain

    def test_ring_of_exchanges_goes_once(self, driver: Any) -> None:
        driver.queue("q")
        for name in ("x", "y"):
            driver.exchange(name, auto_delete=True)
        driver.bind("x", "y", kind="exchange")
        driver.bind("y", "x", kind="exchange")
        driver.do(commands.DeleteExchange("/", "x"))
        removed = [e.exchange.name for e in driver.events if isinstance(e, ExchangeRemoved)]
        assert removed == ["x", "y"]
        assert driver.catalog.bindings() == []
