"""Delay after failed log-ins, and who has to wait."""

from __future__ import annotations

import pytest

from headrace_broker.model.limits import (
    LOGIN_FAILURES_OF_ADDRESS,
    LOGIN_FAILURES_OF_USER,
    LOGIN_FORGET_SECONDS,
    LOGIN_GLANCES_MAX,
    LOGIN_GLANCES_PER_SECOND,
    LOGIN_PLACES_MAX,
    LOGIN_WAIT_SECONDS_MAX,
)
from headrace_broker.runtime.security.login_limit import LoginLimit, network, site

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


def test_an_address_that_tries_many_users_is_suspect_and_locks_nobody_there(limit, clock):
    for number in range(LOGIN_FAILURES_OF_ADDRESS):
        limit.failed(f"user {number}", HOST)
    assert not limit.is_suspect(HOST)
    limit.failed("one more", HOST)
    assert limit.is_suspect(HOST)
    assert not limit.is_suspect("192.0.2.2")
    assert limit.wait_s("never named before", HOST) == 0.0
    limit.succeeded("mallory", HOST)
    assert limit.is_suspect(HOST)  # a right log-in of its own does not clear an address
    clock.now = LOGIN_FORGET_SECONDS + 0.5
    assert not limit.is_suspect(HOST)


def test_who_was_right_at_an_address_is_known_there_alone_and_for_long(limit, clock):
    limit.succeeded("ann", HOST)
    clock.now = 10 * LOGIN_FORGET_SECONDS
    assert limit.was_right("ann", HOST)
    assert not limit.was_right("ann", "192.0.2.2")
    assert not limit.was_right("bob", HOST)
    fail(limit, LOGIN_FAILURES_OF_USER + 1)
    assert limit.wait_s("ann", HOST) > 0.0
    assert limit.was_right("ann", HOST)


def test_remembered_passwords_are_glanced_at_so_often_and_no_more(limit, clock):
    assert not limit.may_glance("ann", HOST)  # she was never there
    limit.succeeded("ann", HOST)
    assert [limit.may_glance("ann", HOST) for _ in range(1000)].count(True) == LOGIN_GLANCES_MAX
    clock.now = 1 / LOGIN_GLANCES_PER_SECOND
    assert [limit.may_glance("ann", HOST) for _ in range(10)].count(True) == 1
    fail(limit, LOGIN_FAILURES_OF_USER + 1)
    limit.glanced("ann", HOST)  # a right one does not count
    assert limit.may_glance("ann", HOST)
    assert not limit.may_glance("ann", HOST)
    assert limit.wait_s("ann", HOST) == 1.0


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
        assert len(table) == LOGIN_PLACES_MAX
    for number in range(LOGIN_PLACES_MAX + 1):
        limit.succeeded("bob", f"host {number}")
    assert len(limit._right) == LOGIN_PLACES_MAX
    assert not limit.was_right("bob", "host 0")
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


def test_turns_are_given_to_larger_networks_of_ipv6():
    assert network("2001:db8:1:1::1") == network("2001:db8:1:ffff::1")
    assert network("2001:db8:1::1") != network("2001:db8:2::1")
    assert network("192.0.2.1") != network("192.0.2.2")
    assert network("::1") == site("::1")
