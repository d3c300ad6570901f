"""Permission to copy the messages of a queue."""

from __future__ import annotations

from typing import Any

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.access_backup import backup_refusal
from headrace_broker.model.definition import Permission, User


def test_a_backup_takes_an_administrator_with_a_permission_to_read_the_queue(driver: Any) -> None:
    queue = driver.do(commands.DeclareQueue("/", "q1", "classic")).value
    for name, tags, read, told in (
        ("clerk", ("management",), "^q", "tags: this is for users with the tag 'administrator'"),
        ("clerk", ("administrator",), "^r", "read access to queue 'q1' in vhost '/' refused for"),
        ("clerk", ("administrator",), "^q", ""),
    ):
        driver.do(commands.PutUser(User(name, b"", b"", tags)))
        driver.do(commands.PutPermission(Permission(name, "/", "", "", read)))
        found = backup_refusal(driver.catalog, name, queue)
        assert found.startswith(told)
        assert bool(found) is bool(told)
    driver.do(commands.DeletePermission("clerk", "/"))
    assert backup_refusal(driver.catalog, "clerk", queue).startswith("access to vhost '/' refused")
    driver.do(commands.DeleteUser("clerk"))
    assert backup_refusal(driver.catalog, "clerk", queue).startswith("tags:")
