"""Permissions of users, as RabbitMQ reads them."""

from __future__ import annotations

from typing import Any

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog import permission as permission_module
from headrace_broker.catalog.permission import (
    CONFIGURE,
    READ,
    WRITE,
    Permissions,
    Rights,
    may_enter,
)
from headrace_broker.model.definition import Permission, User


@pytest.fixture
def bob(driver: Any) -> Any:
    driver.do(commands.PutUser(User("bob", b"salt", b"hash")))
    return driver


def test_catalog_from_before_permissions_lets_everybody_do_everything(driver: Any) -> None:
    assert may_enter(driver.catalog, "guest", "/")
    assert Rights(driver.catalog).may("guest", "/", CONFIGURE, "q")


@pytest.mark.parametrize(
    ("configure", "write", "read", "name", "answers"),
    [
        (".*", ".*", ".*", "q", (True, True, True)),
        (".*", ".*", ".*", "", (True, True, True)),
        ("", "", "", "q", (False, False, False)),
        ("", "", "", "", (False, False, False)),
        ("^$", "^amq\\.default$", "default", "", (False, True, True)),
        ("^q$", "q", "^Q", "a.q", (False, True, False)),
        ("(a+)+\\1b", "^(?!(a+)+\\1b)", ".*", "aaaab", (False, False, True)),
        ("^(amq\\.gen.*|mine)$", ".*", "x", "amq.gen-5", (True, True, False)),
    ],
)
def test_patterns_are_searched_for_in_names(
    bob: Any, configure: str, write: str, read: str, name: str, answers: tuple[bool, ...]
) -> None:
    bob.do(commands.PutPermission(Permission("bob", "/", configure, write, read)))
    found = [Rights(bob.catalog).may("bob", "/", each, name) for each in (CONFIGURE, WRITE, READ)]
    assert tuple(found) == answers
    assert may_enter(bob.catalog, "bob", "/")


def test_without_a_permission_the_vhost_is_closed(bob: Any) -> None:
    bob.do(commands.DeletePermission("bob", "/"))
    assert not may_enter(bob.catalog, "bob", "/")
    assert not Rights(bob.catalog).may("bob", "/", READ, "q")
    assert may_enter(bob.catalog, "guest", "/")
    assert not may_enter(bob.catalog, "guest", "v")
    assert not may_enter(bob.catalog, "nobody", "/")


def test_remembered_answers_follow_the_catalog(bob: Any) -> None:
    permissions = Permissions(bob.catalog)
    assert permissions.may("bob", "/", WRITE, "x")
    bob.do(commands.PutPermission(Permission("bob", "/", "", "", "")))
    permissions.on_events(bob.events)
    assert permissions.version == 1
    assert not permissions.may("bob", "/", WRITE, "x")
    assert permissions.may_enter("bob", "/")
    bob.do(commands.PutUser(User("eve", b"salt", b"hash")))
    permissions.on_events(bob.events)
    assert permissions.version == 1
    bob.do(commands.DeleteUser("bob"))
    permissions.on_events(bob.events)
    assert permissions.version == 2
    assert not permissions.may_enter("bob", "/")


def test_answers_remembered_are_bounded(bob: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permission_module, "PERMISSIONS_CACHED_MAX", 3)
    permissions = Permissions(bob.catalog)
    for number in range(10):
        assert permissions.may("bob", "/", READ, f"q{number}")
        assert len(permissions._answers) <= 3
