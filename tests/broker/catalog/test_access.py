"""Authorization, as every gateway uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace_broker.catalog import access
from headrace_broker.catalog import command as commands
from headrace_broker.catalog.access import EXCHANGE, QUEUE, Caller
from headrace_broker.catalog.permission import CONFIGURE, READ, WRITE, Rights
from headrace_broker.model.definition import Binding, Permission, TopicPermission, User
from headrace_broker.model.reply_code import (
    ACCESS_REFUSED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    AmqpError,
)

ROOT = Caller("root", ("administrator",))
WATCHER = Caller("watcher", ("monitoring",))
MAKER = Caller("maker", ("policymaker",))
CLERK = Caller("clerk", ("management",))
NOBODY = Caller("nobody", ())


@pytest.fixture
def view(driver: Any) -> Any:
    """`clerk` may do in / what their three patterns say, and nothing in v."""
    driver.do(commands.PutUser(User("clerk", b"", b"", ("management",))))
    driver.do(commands.DeclareVhost("v"))
    driver.do(commands.PutPermission(Permission("clerk", "/", "^q", "^x", "^r|^q")))
    driver.do(commands.DeletePermission("clerk", "v"))
    return driver.catalog


def refusal(check: Callable[..., object], *args: Any) -> str:
    with pytest.raises(AmqpError) as caught:
        check(*args)
    assert caught.value.code == ACCESS_REFUSED
    return caught.value.text


@pytest.mark.parametrize(
    ("check", "tag", "allowed"),
    [
        (access.check_administers, "administrator", {ROOT}),
        (access.check_monitors, "monitoring", {ROOT, WATCHER}),
        (access.check_makes_policies, "policymaker", {ROOT, MAKER}),
        (access.check_manages, "management", {ROOT, WATCHER, MAKER, CLERK}),
    ],
)
def test_each_tag_opens_its_doors_and_no_other(
    check: Callable[[Caller], None], tag: str, allowed: set[Caller]
) -> None:
    for caller in (ROOT, WATCHER, MAKER, CLERK, NOBODY):
        if caller in allowed:
            check(caller)
        else:
            assert tag in refusal(check, caller)


def test_a_vhost_is_seen_by_monitors_and_entered_by_who_has_a_permission(view: Any) -> None:
    access.check_sees(WATCHER, view, "v")
    access.check_sees(CLERK, view, "/")
    access.check_enters(view, "clerk", "/")
    text = "access to vhost 'v' refused for user 'clerk'"
    assert refusal(access.check_sees, CLERK, view, "v") == text
    assert refusal(access.check_enters, view, "clerk", "v") == text


@pytest.mark.parametrize(
    ("operation", "name"), [(CONFIGURE, "q1"), (WRITE, "x1"), (READ, "r1"), (READ, "q1")]
)
def test_a_name_takes_the_permission_of_its_operation(view: Any, operation: str, name: str) -> None:
    rights = Rights(view)
    access.check_allowed(rights, "clerk", "/", operation, QUEUE, name)
    text = refusal(access.check_allowed, rights, "clerk", "/", operation, QUEUE, "other")
    assert text == f"{operation} access to queue 'other' in vhost '/' refused for user 'clerk'"
    assert refusal(access.check_allowed, rights, "clerk", "v", operation, QUEUE, name)


def test_the_default_exchange_is_named_in_refusals(view: Any) -> None:
    text = refusal(access.check_allowed, Rights(view), "clerk", "/", WRITE, EXCHANGE, "")
    assert text.startswith("write access to exchange 'amq.default' in vhost '/'")


def test_any_permission_at_all_lets_one_hear_of_a_name(view: Any) -> None:
    for name in ("q", "x", "r"):
        access.check_any(Rights(view), "clerk", "/", QUEUE, name)
    assert refusal(access.check_any, Rights(view), "clerk", "/", QUEUE, "z")


def test_a_binding_takes_write_at_its_end_and_read_at_its_source(view: Any) -> None:
    rights = Rights(view)
    access.check_binding(rights, "clerk", Binding("/", "r", QUEUE, "x", "k"))
    assert "write access to queue 'r'" in refusal(
        access.check_binding, rights, "clerk", Binding("/", "r", QUEUE, "r", "k")
    )
    assert "read access to exchange 'x'" in refusal(
        access.check_binding, rights, "clerk", Binding("/", "x", EXCHANGE, "x", "k")
    )


def test_a_binding_at_a_topic_exchange_takes_a_routing_key_that_may_be_read(
    driver: Any, view: Any
) -> None:
    driver.exchange("r", "topic")
    driver.do(commands.PutTopicPermission(TopicPermission("clerk", "/", "r", "", "^a")))
    rights = Rights(view)
    access.check_binding(rights, "clerk", Binding("/", "r", QUEUE, "x", "a.b"))
    text = refusal(access.check_binding, rights, "clerk", Binding("/", "r", QUEUE, "x", "b"))
    assert text == (
        "read access to topic 'b' in exchange 'r' in vhost '/' refused for user 'clerk'"
    )
    key = "b" * 300 + "\udcff"
    text = refusal(access.check_topic, rights, "clerk", "/", WRITE, "r", key)
    assert text.startswith("write access to topic 'bbb")
    assert "\udcff" not in text
    assert len(text) < 400


@pytest.mark.parametrize(
    ("kind", "argument"), [(QUEUE, "x-dead-letter-exchange"), (EXCHANGE, "alternate-exchange")]
)
def test_what_is_new_and_sends_on_takes_more_than_configure(
    view: Any, kind: str, argument: str
) -> None:
    rights = Rights(view)
    access.check_declares(rights, "clerk", "/", kind, "q", {argument: "x"}, False)
    access.check_declares(rights, "clerk", "/", kind, "q", {argument: "z"}, True)
    access.check_declares(
        rights, "clerk", "/", kind, "q", {argument: 5}, False
    )  # refused elsewhere
    text = refusal(access.check_declares, rights, "clerk", "/", kind, "q", {argument: "z"}, False)
    assert text.startswith("write access to exchange 'z'")
    assert refusal(access.check_declares, rights, "clerk", "/", kind, "z", {}, True)


def declares(view: Any, arguments: dict[str, Any], kind: str = QUEUE) -> str:
    """Return why the clerk may not declare something new with these arguments, "" if so."""
    rights = Rights(view)
    try:
        access.check_declares(rights, "clerk", "/", kind, "q", arguments, False)
    except AmqpError as error:
        return error.text
    return ""


@pytest.mark.parametrize(
    ("write", "key", "allowed"),
    [
        ("^a", "a.b", True),
        ("^a", "b", False),
        ("^a", None, False),  # its own key, which may be any
        ("^a", 5, False),  # refused elsewhere
        ("", "", True),
        ("", None, False),
        (".*", None, True),
        (".*", "b", True),
    ],
)
def test_dead_letters_get_no_key_that_their_owner_may_not_publish_with(
    driver: Any, view: Any, write: str, key: Any, allowed: bool
) -> None:
    driver.do(commands.PutTopicPermission(TopicPermission("clerk", "/", "x", write, ".*")))
    arguments = {"x-dead-letter-exchange": "x"}
    if key is not None:
        arguments["x-dead-letter-routing-key"] = key
    before = declares(view, arguments)  # the exchange may come to be
    driver.exchange("x", "topic")
    text = declares(view, arguments)
    assert before == text
    assert (text == "") is allowed
    if text:
        assert text == (
            "sending messages on to exchange 'x' in vhost '/' refused for user 'clerk', whose "
            "topic permission there does not allow all keys that they may have"
        )


def test_an_alternate_exchange_gets_any_key(driver: Any, view: Any) -> None:
    driver.exchange("x", "topic")
    alternate = {"alternate-exchange": "x", "x-dead-letter-routing-key": "a"}
    assert not declares(view, alternate, EXCHANGE)
    driver.do(commands.PutTopicPermission(TopicPermission("clerk", "/", "x", "^a", "")))
    assert "sending messages on to exchange 'x'" in declares(view, alternate, EXCHANGE)


def test_an_exchange_that_routes_otherwise_asks_for_no_topics(driver: Any, view: Any) -> None:
    driver.exchange("x", "direct")
    driver.do(commands.PutTopicPermission(TopicPermission("clerk", "/", "x", "^a", "")))
    assert not declares(view, {"x-dead-letter-exchange": "x"})


@pytest.mark.parametrize(
    ("source", "key", "allowed"),
    [
        ("direct", "a.b", True),
        ("direct", "b", False),
        ("direct", "a.#", True),  # there it is a key like others
        ("topic", "a.b", True),
        ("topic", "b", False),
        ("topic", "a.#", False),
        ("topic", "*.b", False),
        ("fanout", "a.b", False),
        ("headers", "a.b", False),
        ("", "a.b", False),  # it is not there, and nobody knows what it will be
    ],
)
def test_a_chain_of_exchanges_carries_no_key_that_may_not_be_published(
    driver: Any, view: Any, source: str, key: str, allowed: bool
) -> None:
    rights = Rights(view)
    if source:
        driver.exchange("r", source)
    driver.exchange("x", "topic")
    binding = Binding("/", "r", EXCHANGE, "x", key)
    access.check_binding(rights, "clerk", binding)
    driver.do(commands.PutTopicPermission(TopicPermission("clerk", "/", "x", "^a", "")))
    if allowed:
        access.check_binding(rights, "clerk", binding)
    else:
        text = refusal(access.check_binding, rights, "clerk", binding)
        assert text.startswith("sending messages on to exchange 'x'")


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ({"max-length": 5}, ""),
        ({"dead-letter-exchange": "x"}, ""),
        ({"dead-letter-exchange": "z"}, "write access to exchange 'z'"),
        ({"dead-letter-exchange": ""}, "write access to exchange 'amq.default'"),
        ({"alternate-exchange": "z"}, "write access to exchange 'z'"),
        ({"dead-letter-exchange": "x", "alternate-exchange": "z"}, "write access to exchange 'z'"),
        ({"dead-letter-exchange": "xt", "dead-letter-routing-key": "a"}, ""),
        ({"dead-letter-exchange": "xt", "dead-letter-routing-key": "b"}, "sending messages on"),
        ({"dead-letter-exchange": "xt"}, "sending messages on"),
        ({"alternate-exchange": "xt", "dead-letter-routing-key": "a"}, "sending messages on"),
        ({"dead-letter-exchange": 5}, ""),  # refused elsewhere
    ],
)
def test_a_policy_sends_on_to_where_its_author_may_publish(
    driver: Any, view: Any, definition: dict[str, Any], reason: str
) -> None:
    driver.exchange("xt", "topic")
    driver.do(commands.PutTopicPermission(TopicPermission("clerk", "/", "xt", "^a", "")))
    rights = Rights(view)
    author = Caller("clerk", ("policymaker",))
    if reason:
        text = refusal(access.check_policy, rights, author, "/", definition)
        assert text.startswith(reason)
    else:
        access.check_policy(rights, author, "/", definition)
    access.check_policy(rights, Caller("clerk", ("administrator",)), "/", definition)


def test_some_names_and_exchanges_are_the_brokers() -> None:
    access.check_new_name(QUEUE, "amqp")
    access.check_not_system("/", "mine")
    access.check_not_default("x")
    access.check_exchange_type("topic")
    assert refusal(access.check_new_name, EXCHANGE, "amq.x") == (
        "exchange name 'amq.x' contains reserved prefix 'amq.*'"
    )
    assert "not allowed" in refusal(access.check_not_system, "/", "amq.topic")
    assert "default exchange" in refusal(access.check_not_default, "")
    with pytest.raises(AmqpError, match="unknown exchange type 'queue'") as caught:
        access.check_exchange_type("queue")
    assert caught.value.code == PRECONDITION_FAILED


@pytest.mark.parametrize(
    ("caller", "there", "enters", "code"),
    [
        (CLERK, True, True, 0),
        (CLERK, True, False, ACCESS_REFUSED),
        (CLERK, False, False, ACCESS_REFUSED),
        (CLERK, False, True, NOT_FOUND),  # of a catalog without permissions, where all may enter
        (WATCHER, False, False, NOT_FOUND),
        (ROOT, True, False, ACCESS_REFUSED),
    ],
)
def test_only_who_sees_all_vhosts_is_told_that_there_is_none(
    caller: Caller, there: bool, enters: bool, code: int
) -> None:
    found = access.entrance_refusal(caller, "v", there, enters)
    assert (found.code if found is not None else 0) == code
    if code == ACCESS_REFUSED:
        assert found is not None
        assert found.text == f"access to vhost 'v' refused for user '{caller.name}'"


def test_advice_is_taken_back_by_its_author_or_an_administrator() -> None:
    assert access.taken_back_by(MAKER, "") == "maker"
    assert access.taken_back_by(MAKER, "maker") == "maker"
    assert access.taken_back_by(ROOT, "") == ""
    assert access.taken_back_by(ROOT, "maker") == "maker"
    text = "advice of author 'clerk' refused for user 'maker'"
    assert refusal(access.taken_back_by, MAKER, "clerk") == text
    assert refusal(access.check_author, ROOT, "clerk").endswith("refused for user 'root'")
