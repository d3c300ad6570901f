"""Who has to wait after failed log-ins, and for how long."""

from __future__ import annotations

import pytest

from headrace_broker.model.limits import (
    LOGIN_FAILURES_OF_ADDRESS,
    LOGIN_FAILURES_OF_USER,
    LOGIN_FORGET_SECONDS,
    LOGIN_PLACES_MAX,
    LOGIN_WAIT_SECONDS_MAX,
)
from headrace_broker.runtime.login_limit import LoginLimit, site

HOST = "192.0.2.1"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limit(clock) -> LoginLimit:
    return LoginLimit(clock)


def fail(limit: LoginLimit, count: int, user: str = "ann", host: str = HOST) -> list[float]:
    return [limit.failed(user, host) for _ in range(count)]


def test_the_first_failures_cost_nothing_and_each_later_one_twice_the_wait(limit):
    assert fail(limit, LOGIN_FAILURES_OF_USER) == [0.0] * LOGIN_FAILURES_OF_USER
    assert limit.wait_s("ann", HOST) == 0.0
    assert fail(limit, 4) == [1.0, 2.0, 4.0, 8.0]
    assert limit.wait_s("ann", HOST) == 8.0


def test_the_wait_has_a_bound_however_many_fail(limit):
    assert fail(limit, 2000)[-1] == LOGIN_WAIT_SECONDS_MAX


def test_a_wait_ends_with_time_and_the_next_failure_is_longer(limit, clock):
    fail(limit, LOGIN_FAILURES_OF_USER + 1)
    clock.now = 0.75
    assert limit.wait_s("ann", HOST) == 0.25
    clock.now = 1.0
    assert limit.wait_s("ann", HOST) == 0.0
    assert limit.failed("ann", HOST) == 2.0


def test_a_success_forgets_what_the_user_did_wrong_there(limit):
    fail(limit, LOGIN_FAILURES_OF_USER + 3)
    limit.succeeded("ann", HOST)
    assert limit.wait_s("ann", HOST) == 0.0
    assert limit.failed("ann", HOST) == 0.0


def test_others_elsewhere_and_other_users_there_do_not_wait(limit):
    fail(limit, LOGIN_FAILURES_OF_USER + 1)
    assert limit.wait_s("ann", "192.0.2.2") == 0.0
    assert limit.wait_s("bob", HOST) == 0.0


def test_an_address_that_tries_many_users_waits_with_each(limit):
    for number in range(LOGIN_FAILURES_OF_ADDRESS + 1):
        limit.failed(f"user {number}", HOST)
    assert limit.wait_s("never named before", HOST) == 1.0
    assert limit.wait_s("never named before", "192.0.2.2") == 0.0


def test_who_has_logged_in_from_an_address_is_not_stopped_by_others_there(limit):
    limit.succeeded("ann", HOST)
    for number in range(LOGIN_FAILURES_OF_ADDRESS + 5):
        limit.failed(f"user {number}", HOST)
    assert limit.wait_s("ann", HOST) == 0.0
    assert limit.wait_s("bob", HOST) > 0.0
    fail(limit, LOGIN_FAILURES_OF_USER + 1)
    assert limit.wait_s("ann", HOST) > 0.0  # her own failures count all the same


def test_a_success_of_one_user_does_not_let_an_address_guess_on(limit):
    for number in range(LOGIN_FAILURES_OF_ADDRESS + 1):
        limit.failed(f"user {number}", HOST)
    limit.succeeded("mallory", HOST)
    assert limit.wait_s("ann", HOST) > 0.0


def test_failures_are_forgotten_after_a_while(limit, clock):
    fail(limit, 1000)
    clock.now = LOGIN_FORGET_SECONDS + 0.5
    assert limit.wait_s("ann", HOST) == 0.0
    assert limit.failed("ann", HOST) == 0.0


def test_the_memory_is_bounded_and_keeps_who_came_last(limit):
    fail(limit, LOGIN_FAILURES_OF_USER + 1, user="old")
    for number in range(LOGIN_PLACES_MAX):
        limit.failed("ann", f"host {number}")
    assert limit.wait_s("old", HOST) == 0.0
    for table in (limit._users, limit._addresses):
        assert len(table._records) == LOGIN_PLACES_MAX
    fail(limit, LOGIN_FAILURES_OF_USER, host=f"host {LOGIN_PLACES_MAX - 1}")
    assert limit.wait_s("ann", f"host {LOGIN_PLACES_MAX - 1}") == 1.0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("::1", "::2", False),
        ("somewhere", "elsewhere", False),
        ("", "", True),
    ],
)
def test_what_counts_as_one_address(one, other, same):
    assert (site(one) == site(other)) is same
