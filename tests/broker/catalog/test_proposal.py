"""Commands that a node does not propose."""

from __future__ import annotations

import pytest

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.proposal import administrator_problem
from headrace_broker.model.definition import User


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (commands.DeleteUser("ann"), "name: 'ann' is the last user with the tag administrator"),
        (commands.PutUser(User("ann", b"", b"", ("management",))), "tags: 'ann' is the last user"),
        (commands.PutUser(User("ann", b"", b"", ("administrator",))), ""),
        (commands.PutUser(User("bob", b"", b"")), ""),
        (commands.DeleteUser("bob"), ""),
    ],
)
def test_last_administrator_stays(command, problem):
    users = [User("ann", b"", b"", ("administrator",)), User("bob", b"", b"", ("monitoring",))]
    assert administrator_problem(command, users).startswith(problem)
    assert bool(administrator_problem(command, users)) == bool(problem)
    both = [*users, User("eve", b"", b"", ("administrator",))]
    assert administrator_problem(command, both) == ""
    assert administrator_problem(command, users[1:]) == ""
