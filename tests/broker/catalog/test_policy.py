"""Which policy counts, how policies and arguments meet, and which queues a change concerns."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.pattern import matches
from headrace_broker.catalog.policy import (
    EffectiveArguments,
    applied,
    applies,
    effective,
    exchange_arguments,
    in_order,
    merged,
    policy_of,
    queue_arguments,
)
from headrace_broker.catalog.setting import QUEUE_SETTINGS, argument_name
from headrace_broker.model.definition import Exchange, Policy, Queue


def queue(name: str = "q", kind: str = "quorum", **arguments: Any) -> Queue:
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    return Queue("/", name, kind, 1, (1,), arguments=named)


def policy(definition: dict[str, Any], pattern: str = ".*", **fields: Any) -> Policy:
    return Policy(**{"vhost": "/", "name": "p", **fields}, pattern=pattern, definition=definition)


def told(
    target: Queue,
    definition: dict[str, Any] | None = None,
    operator: dict[str, Any] | None = None,
    limits: dict[str, int] | None = None,
) -> dict[str, Any]:
    return effective(
        target,
        policy(definition) if definition is not None else None,
        policy(operator, operator=True) if operator is not None else None,
        limits or {},
    )


SOME = {"max-length": 5}
EXCHANGE = Exchange("/", "q", "direct")


@pytest.mark.parametrize(
    ("apply_to", "quorum", "classic", "exchange"),
    [
        ("all", True, True, True),
        ("queues", True, True, False),
        ("exchanges", False, False, True),
        ("quorum_queues", True, False, False),
        ("classic_queues", False, True, False),
    ],
)
def test_policy_is_for_what_it_applies_to(
    apply_to: str, quorum: bool, classic: bool, exchange: bool
) -> None:
    for_all = policy(SOME, apply_to=apply_to)
    assert applies(for_all, queue()) == quorum
    assert applies(for_all, queue(kind="classic")) == classic
    assert applies(for_all, EXCHANGE) == exchange


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("", "q", True),
        ("q", "a.q.b", True),
        ("^q", "a.q", False),
        ("^q$", "q", True),
        ("^(?!amq\\.).*", "amq.gen-1", False),
        ("^(?!amq\\.).*", "orders", True),
        ("(?i)ORDERS", "my.orders", True),
    ],
)
def test_pattern_is_searched_for_in_the_name(pattern: str, name: str, fits: bool) -> None:
    assert applies(policy(SOME, pattern), queue(name)) == fits


def test_policy_of_another_vhost_does_not_apply() -> None:
    assert not applies(policy(SOME, vhost="v"), queue())


@pytest.mark.parametrize(
    ("definition", "quorum", "classic"),
    [
        ({"delivery-limit": 3}, True, False),
        ({"dead-letter-strategy": "at-least-once"}, True, False),
        ({"max-in-memory-length": 3}, True, False),
        ({"target-group-size": 3}, True, False),
        ({"queue-mode": "lazy", "max-length": 3}, False, True),
        ({"delayed-retry-type": "all", "delayed-retry-min": 3}, True, True),
        ({"consumer-timeout": 3, "overflow": "reject-publish"}, True, True),
    ],
)
def test_policy_with_a_setting_of_another_kind_of_queue_does_not_apply_at_all(
    definition: dict[str, Any], quorum: bool, classic: bool
) -> None:
    assert applies(policy(definition), queue()) == quorum
    assert applies(policy(definition), queue(kind="classic")) == classic
    assert applies(policy(definition), EXCHANGE)


def test_highest_priority_that_applies_counts_and_then_the_first_name() -> None:
    low = policy(SOME, name="a")
    high = policy(SOME, name="z", priority=7)
    higher_elsewhere = policy(SOME, "^other", name="b", priority=9)
    higher_for_others = policy({"queue-mode": "lazy"}, name="c", priority=8)
    everything = [low, high, higher_elsewhere, higher_for_others]
    assert applied(in_order(everything), queue()) is high
    assert applied(in_order(reversed(everything)), queue()) is high
    twin = policy(SOME, name="y", priority=7)
    assert applied(in_order([high, twin]), queue()) is twin
    assert applied(in_order([twin, high]), queue()) is twin
    assert applied([higher_elsewhere], queue()) is None


@pytest.mark.parametrize(
    ("name", "of_policy", "of_operator", "result"),
    [
        ("max-length", 10, 20, 10),
        ("max-length", 20, 10, 10),
        ("max-length-bytes", 20, 0, 0),
        ("message-ttl", 5, 6, 5),
        ("expires", 9, 3, 3),
        ("max-in-memory-length", 9, 3, 3),
        ("max-in-memory-bytes", 2, 3, 2),
        ("delivery-limit", 5, 3, 3),
        ("delivery-limit", -1, 3, 3),
        ("delivery-limit", 3, -1, 3),
        ("delivery-limit", -1, -2, -1),
        ("overflow", "drop-head", "reject-publish", "reject-publish"),
        ("queue-version", 1, 2, 2),
        ("target-group-size", 3, 5, 5),
        ("target-group-size", 5, 3, 5),
        ("delayed-retry-type", "all", "failed", "failed"),
        ("delayed-retry-min", 10, 5, 10),
        ("delayed-retry-max", 10, 5, 5),
        ("high-watermark", 10, 5, 5),
        ("high-watermark-bytes", 0, 5, 5),
        ("high-watermark-bytes", 10, 0, 10),
        ("low-watermark", 10, 0, 0),
    ],
)
def test_operator_policy_bounds_the_policy(
    name: str, of_policy: Any, of_operator: Any, result: Any
) -> None:
    both = merged(policy({name: of_policy}), policy({name: of_operator}, operator=True))
    assert both == {name: result}
    assert merged(None, policy({name: of_operator})) == {name: of_operator}
    assert merged(policy({name: of_policy}), None) == {name: of_policy}


def test_operator_policy_adds_to_the_policy() -> None:
    """The example of RabbitMQ's documentation on operator policies."""
    theirs = policy({"max-length": 50000, "dead-letter-exchange": "dlx"})
    operators = policy({"expires": 3600000, "max-length": 10000}, operator=True)
    assert merged(theirs, operators) == {
        "max-length": 10000,
        "dead-letter-exchange": "dlx",
        "expires": 3600000,
    }
    assert merged(None, None) == {}


@pytest.mark.parametrize(
    ("name", "argument", "of_policy", "quorum", "classic"),
    [
        ("message-ttl", 5, 6, 5, 5),
        ("message-ttl", 6, 5, 5, 5),
        ("expires", 7, 6, 6, 6),
        ("max-length", 0, 6, 0, 0),
        ("max-length-bytes", 9, 8, 8, 8),
        ("consumer-timeout", 9, 8, 8, 8),
        ("delivery-limit", 9, 8, 8, None),
        ("delivery-limit", -1, 8, 8, None),
        ("overflow", "drop-head", "reject-publish", "reject-publish", "drop-head"),
        ("dead-letter-exchange", "a", "p", "a", "a"),
        ("message-deduplication", False, True, False, False),
        ("queue-leader-locator", "balanced", "client-local", "balanced", "balanced"),
        ("target-group-size", 3, 5, 3, None),
    ],
)
def test_argument_and_policy_meet_as_in_rabbitmq(
    name: str, argument: Any, of_policy: Any, quorum: Any, classic: Any
) -> None:
    for kind, result in (("quorum", quorum), ("classic", classic)):
        arguments = {argument_name(name): argument}
        target = Queue("/", "q", kind, 1, (1,), arguments=arguments)
        assert told(target, {name: of_policy}).get(name) == result
        alone = told(target).get(name)
        assert alone == (argument if result is not None else None)
        bare = told(queue(kind=kind), {name: of_policy}).get(name)
        assert bare == (of_policy if result is not None else None)


def test_operator_policy_bounds_arguments_too() -> None:
    assert told(queue(x_max_length=100), None, {"max-length": 10}) == {"max-length": 10}
    assert told(queue(x_max_length=5), {"max-length": 7}, {"max-length": 10}) == {"max-length": 5}


def test_settings_that_only_arguments_have_are_taken_over() -> None:
    arguments = queue(
        kind="classic",
        x_single_active_consumer=True,
        x_max_priority=5,
        x_last_value_key="k",
        x_queue_type="classic",
    )
    assert told(arguments) == {
        "single-active-consumer": True,
        "max-priority": 5,
        "last-value-key": "k",
    }


def test_classic_argument_counts_for_a_queue_that_is_quorum_by_default() -> None:
    assert told(queue(x_max_priority=5, x_queue_mode="lazy")) == {
        "max-priority": 5,
        "queue-mode": "lazy",
    }
    assert told(queue(), {"queue-version": 2, "max-length": 3}) == {"max-length": 3}


def test_argument_with_a_value_of_no_use_is_passed_over() -> None:
    assert told(queue(x_max_length="many", x_unknown=3), {"max-length": 7}) == {"max-length": 7}


def test_vhost_gives_a_length_to_queues_that_have_none() -> None:
    limits = {"default-queue-max-length": 9, "default-queue-max-length-bytes": 99, "max-queues": 1}
    assert told(queue(), None, None, limits) == {"max-length": 9, "max-length-bytes": 99}
    assert told(queue(x_max_length=50), None, None, limits) == {
        "max-length": 50,
        "max-length-bytes": 99,
    }
    assert told(queue(), {"max-length-bytes": 500}, None, limits) == {
        "max-length": 9,
        "max-length-bytes": 500,
    }


@pytest.mark.parametrize(
    ("definition", "result"),
    [
        ({"dead-letter-routing-key": "k"}, {}),
        ({"dead-letter-strategy": "at-least-once"}, {}),
        (
            {"dead-letter-exchange": "", "dead-letter-routing-key": "k"},
            {"dead-letter-exchange": "", "dead-letter-routing-key": "k"},
        ),
        (
            {
                "dead-letter-exchange": "x",
                "dead-letter-strategy": "at-least-once",
                "overflow": "reject-publish",
            },
            {
                "dead-letter-exchange": "x",
                "dead-letter-strategy": "at-least-once",
                "overflow": "reject-publish",
            },
        ),
        (
            {"dead-letter-exchange": "x", "dead-letter-strategy": "at-least-once"},
            {"dead-letter-exchange": "x", "dead-letter-strategy": "at-most-once"},
        ),
        ({"delayed-retry-type": "all"}, {}),
        ({"delayed-retry-type": "disabled", "delayed-retry-min": 5}, {}),
        ({"delayed-retry-min": 5}, {}),
        (
            {"delayed-retry-type": "all", "delayed-retry-min": 5},
            {"delayed-retry-type": "all", "delayed-retry-min": 5, "delayed-retry-max": 5},
        ),
        (
            {"delayed-retry-type": "all", "delayed-retry-min": 5, "delayed-retry-max": 9},
            {"delayed-retry-type": "all", "delayed-retry-min": 5, "delayed-retry-max": 9},
        ),
    ],
)
def test_settings_that_need_others_fall_back_as_in_rabbitmq(
    definition: dict[str, Any], result: dict[str, Any]
) -> None:
    assert told(queue(), definition) == result


def test_exchange_has_its_alternate_by_argument_or_policy(driver: Any) -> None:
    plain = driver.exchange("plain")
    own = driver.exchange("own", arguments={"alternate-exchange": "mine"})
    driver.do(commands.PutPolicy(policy({"alternate-exchange": "theirs"}, "^(plain|own)$")))
    assert exchange_arguments(driver.catalog, plain) == {"alternate-exchange": "theirs"}
    assert exchange_arguments(driver.catalog, own) == {"alternate-exchange": "mine"}
    other = driver.exchange("other")
    assert exchange_arguments(driver.catalog, other) == {}
    assert policy_of(driver.catalog, other) is None


def test_queues_whose_settings_may_change_are_told(driver: Any) -> None:
    known = EffectiveArguments(driver.catalog)
    a, b, c = (driver.queue(name, "quorum") for name in "abc")
    assert [known.of(each) for each in (a, b)] == [{}, {}]
    driver.do(commands.PutPolicy(policy({"max-length": 5}, "^[ac]")))
    assert known.changed(driver.events) == [a, b]
    assert known.of(a) == {"max-length": 5}
    assert known.of(b) == {}
    assert known.of(c) == queue_arguments(driver.catalog, c) == {"max-length": 5}
    driver.do(commands.SetVhostLimits("/", {"default-queue-max-length-bytes": 7}))
    assert known.changed(driver.events) == [a, b, c]
    assert known.of(b) == {"max-length-bytes": 7}
    driver.do(commands.DeleteQueue("/", "b"))
    assert known.changed(driver.events) == []
    known.forget(c)
    driver.do(commands.DeletePolicy("/", "p"))
    assert known.changed(driver.events) == [a]
    assert known.of(a) == {"max-length-bytes": 7}


def test_no_name_is_searched_before_its_settings_are_asked_for(
    driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[str] = []

    def searching(pattern: str, name: str) -> bool:
        searched.append(name)
        return matches(pattern, name)

    known = EffectiveArguments(driver.catalog)
    a, b = (driver.queue(name, "quorum") for name in "ab")
    assert [known.of(each) for each in (a, b)] == [{}, {}]
    monkeypatch.setattr("headrace_broker.catalog.policy.matches", searching)
    driver.do(commands.PutPolicy(policy({"max-length": 5})))
    known.changed(driver.events)
    assert searched == []
    assert known.of(a) == known.of(a) == {"max-length": 5}
    assert searched == ["a"]


def test_settings_follow_a_jump_to_a_snapshot(driver: Any) -> None:
    catalog = driver.catalog
    target = driver.queue("a", "quorum")
    before = catalog.snapshot()
    driver.do(commands.PutPolicy(policy({"max-length": 5})))
    after = catalog.snapshot()
    catalog.load(before)
    known = EffectiveArguments(catalog)
    assert known.of(target) == {}
    assert known.changed(catalog.load(after)) == [target]
    assert known.of(target) == {"max-length": 5}


NAMES = st.sampled_from(sorted(QUEUE_SETTINGS))
NUMBERS = st.integers(1, 7) | st.sampled_from(["reject-publish", "all", "x", True])


def definitions(operator: bool) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(NAMES, NUMBERS, max_size=8).map(
        lambda values: {
            name: value
            for name, value in values.items()
            if QUEUE_SETTINGS[name].check.allows(value)
            and (QUEUE_SETTINGS[name].operator or not operator)
        }
    )


@given(
    kind=st.sampled_from(["quorum", "classic"]),
    arguments=definitions(operator=False),
    definition=definitions(operator=False),
    operator=definitions(operator=True),
)
def test_what_is_effective_is_always_a_value_that_is_allowed_and_within_the_operators_bounds(
    kind: str, arguments: dict[str, Any], definition: dict[str, Any], operator: dict[str, Any]
) -> None:
    named = {argument_name(name): value for name, value in arguments.items()}
    settings = told(Queue("/", "q", kind, 1, (1,), arguments=named), definition, operator)
    for name, value in settings.items():
        assert QUEUE_SETTINGS[name].check.allows(value)
        assert kind in QUEUE_SETTINGS[name].kinds or (kind == "quorum" and name in arguments)
    for name in ("max-length", "max-length-bytes", "message-ttl", "expires"):
        bounds = [each[name] for each in (arguments, definition, operator) if name in each]
        assert settings.get(name) == (min(bounds) if bounds else None)


def test_vhost_gives_watermarks_to_queues_that_have_none() -> None:
    limits = {"default-queue-high-watermark": 9, "default-queue-low-watermark-bytes": 5}
    assert told(queue(), None, None, limits) == {"high-watermark": 9, "low-watermark-bytes": 5}
    assert told(queue(x_high_watermark=7), None, None, limits)["high-watermark"] == 7


def test_low_watermark_above_a_high_one_from_elsewhere_gives_way() -> None:
    assert told(queue(x_low_watermark=7), {"high-watermark": 5}) == {"high-watermark": 5}
    assert told(queue(x_low_watermark=7), {"high-watermark": 7}) == {
        "high-watermark": 7,
        "low-watermark": 7,
    }
    operator = {"high-watermark-bytes": 5}
    both = {"high-watermark-bytes": 50, "low-watermark-bytes": 40}
    assert told(queue(), both, operator) == {"high-watermark-bytes": 5}
