"""Which routing keys users may use at topic exchanges, as RabbitMQ reads their permissions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog import permission as permission_module
from headrace_broker.catalog.difference import difference
from headrace_broker.catalog.event import TopicPermissionChanged
from headrace_broker.catalog.machine import Catalog
from headrace_broker.catalog.permission import READ, WRITE, Permissions, Rights
from headrace_broker.catalog.proposal import command_problem
from headrace_broker.catalog.result import Exists, NotFound, Ok, Refused
from headrace_broker.catalog.store import SNAPSHOT_VERSION_FORGOTTEN, SNAPSHOT_VERSION_UNADVISED
from headrace_broker.model.definition import Exchange, TopicPermission, User


@pytest.fixture
def bob(driver: Any) -> Any:
    driver.do(commands.PutUser(User("bob", b"salt", b"hash")))
    return driver


def told(write: str = "^a", read: str = "", **more: str) -> TopicPermission:
    ends = {"user": "bob", "vhost": "/", "exchange": "amq.topic", **more}
    return TopicPermission(**ends, write=write, read=read)


def put(driver: Any, *args: str, **more: str) -> TopicPermission:
    permission = told(*args, **more)
    assert driver.do(commands.PutTopicPermission(permission)) == Ok(permission)
    return permission


def may(view: Any, operation: str, key: str, exchange: str = "amq.topic") -> bool:
    return Rights(view).may_route("bob", "/", operation, exchange, key)


@pytest.mark.parametrize(
    ("pattern", "key", "answer"),
    [
        ("^a", "a.b", True),
        ("^a", "b.a", False),
        ("a", "b.a", True),
        ("", "", True),
        ("", "\n", False),
        ("", "a", False),
        (".*", "", True),
        ("^{username}\\.", "bob.x", True),
        ("^{username}\\.", "bobby.x", False),
        ("^{username}-{vhost}$", "bob-/", True),
        ("^{client_id}$", "{client_id}", True),
        ("(", "(", False),
        (".*", "a" * 255, True),
        (".*", "a" * 256, False),
        ("^a", "a\udcff", True),
    ],
)
def test_routing_keys_are_searched_through(bob: Any, pattern: str, key: str, answer: bool) -> None:
    put(bob, pattern, "^r")
    assert may(bob.catalog, WRITE, key) is answer
    permissions = Permissions(bob.catalog)
    for _ in range(2):
        assert permissions.may_route("bob", "/", WRITE, "amq.topic", key) is answer
    assert may(bob.catalog, READ, "r")
    assert not may(bob.catalog, READ, "w")


def test_a_name_means_nothing_but_itself_in_an_expression(driver: Any) -> None:
    driver.do(commands.PutUser(User(".*", b"", b"")))
    permission = told("^{username}$", user=".*")
    assert command_problem(commands.PutTopicPermission(permission)) == ""
    driver.do(commands.PutTopicPermission(permission))
    assert Rights(driver.catalog).may_route(".*", "/", WRITE, "amq.topic", ".*")
    assert not Rights(driver.catalog).may_route(".*", "/", WRITE, "amq.topic", "abc")


def test_without_one_any_routing_key_may_be_used(bob: Any) -> None:
    put(bob, "", "")
    bob.exchange("other", "topic")
    assert not may(bob.catalog, WRITE, "k")
    assert may(bob.catalog, WRITE, "k", "other")
    assert Rights(bob.catalog).may_route("guest", "/", WRITE, "amq.topic", "k")


def test_only_exchanges_that_route_by_topics_are_asked_about(bob: Any) -> None:
    delayed = {"x-delayed-type": "topic"}
    bob.exchange("t", "topic")
    bob.exchange("d", "direct")
    bob.exchange("later", "x-delayed-message", arguments=delayed)
    for name in ("t", "d", "later", "none"):
        put(bob, "", "", exchange=name)
    permissions = Permissions(bob.catalog)
    found = {
        name: permissions.may_route("bob", "/", WRITE, name, "k")
        for name in ("t", "d", "later", "none")
    }
    assert found == {"t": False, "d": True, "later": False, "none": True}
    # One of another type takes the name.
    bob.do(commands.DeleteExchange("/", "d"))
    bob.do(commands.DeclareExchange(Exchange("/", "d", "topic")))
    assert not permissions.may_route("bob", "/", WRITE, "d", "k")


def test_remembered_answers_follow_the_catalog_and_are_bounded(
    bob: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permission_module, "TOPIC_ANSWERS_CACHED_MAX", 3)
    permissions = Permissions(bob.catalog)
    assert not permissions.narrows("bob", "/", "amq.topic")
    put(bob)
    permissions.on_events(bob.events)
    assert permissions.version == 1
    assert permissions.narrows("bob", "/", "amq.topic")
    for number in range(10):
        assert permissions.may_route("bob", "/", WRITE, "amq.topic", f"a{number}")
        assert len(permissions._topic_answers) <= 3
    put(bob, "^b")
    permissions.on_events(bob.events)
    assert permissions.version == 2
    assert not permissions.may_route("bob", "/", WRITE, "amq.topic", "a1")
    bob.do(commands.DeleteTopicPermissions("bob", "/"))
    permissions.on_events(bob.events)
    assert permissions.version == 3
    assert permissions.may_route("bob", "/", WRITE, "amq.topic", "a1")


def test_what_cannot_be_set_is_refused(bob: Any) -> None:
    def answer(**more: str) -> Any:
        return bob.do(commands.PutTopicPermission(told(**more)))

    assert answer(exchange="") == Refused("the exchange's name has 0 bytes, not 1 to 255")
    assert answer(vhost="none") == NotFound("vhost 'none'")
    assert answer(user="eve") == NotFound("user 'eve'")
    for field in ("write", "read"):
        problem = command_problem(commands.PutTopicPermission(told(**{field: "("})))
        assert problem.startswith(f"{field}: not a regular expression")
    longer = told("{username}" * 90, user="u" * 250)
    problem = command_problem(commands.PutTopicPermission(longer))
    assert problem.startswith("write: the expression has 22500 bytes")
    first = put(bob)
    assert bob.do(commands.PutTopicPermission(first)) == Exists(first)


def test_they_are_deleted_at_one_exchange_or_all_and_with_user_and_vhost(bob: Any) -> None:
    def left() -> list[str]:
        return [each.exchange for each in bob.catalog.topic_permissions()]

    bob.do(commands.DeclareVhost("v"))
    for exchange in ("x", "y", "z"):
        put(bob, exchange=exchange)
    put(bob, exchange="w", vhost="v")
    assert bob.do(commands.DeleteTopicPermissions("bob", "/", "x")) == Ok((told(exchange="x"),))
    assert left() == ["y", "z", "w"]
    assert bob.do(commands.DeleteTopicPermissions("bob", "/", "x")) == Ok(())
    bob.do(commands.DeleteTopicPermissions("bob", "/"))
    assert left() == ["w"]
    bob.do(commands.DeleteVhost("v"))
    assert left() == []
    put(bob)
    bob.do(commands.DeleteUser("bob"))
    gone = [each for each in bob.events if isinstance(each, TopicPermissionChanged)]
    assert gone == [TopicPermissionChanged("bob", "/", "amq.topic", None)]
    assert left() == []
    for command in (
        commands.DeleteTopicPermissions("bob", "/"),
        commands.DeleteTopicPermissions("guest", "none"),
    ):
        assert isinstance(bob.do(command), NotFound)


def test_snapshots_hold_them_and_are_as_before_without_any(bob: Any) -> None:
    def version() -> int:
        found: int = msgspec.msgpack.decode(bob.catalog.snapshot())["version"]
        return found

    before = Catalog.restore(bob.catalog.snapshot())
    assert version() <= SNAPSHOT_VERSION_FORGOTTEN
    permission = put(bob)
    assert version() == SNAPSHOT_VERSION_UNADVISED
    again = Catalog.restore(bob.catalog.snapshot())
    assert again.topic_permissions("/") == [permission]
    changed = TopicPermissionChanged("bob", "/", "amq.topic", permission)
    assert difference(before, again) == [changed]
    assert difference(again, before) == [changed.__class__("bob", "/", "amq.topic", None)]
    assert changed in again.contents()
    bob.do(commands.DeleteTopicPermissions("bob", "/"))
    assert version() <= SNAPSHOT_VERSION_FORGOTTEN
