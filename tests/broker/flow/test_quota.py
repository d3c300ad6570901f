from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.flow.quota import BURST_US, SECOND_US, Quota, Rate

NOW = 50 * SECOND_US


def test_an_idle_account_may_take_a_burst_at_once() -> None:
    rate = Rate(1000)
    rate.take(250, NOW)
    assert rate.wait_us(NOW) == 0
    rate.take(1, NOW)
    assert rate.wait_us(NOW) == 1000


def test_what_was_taken_too_early_is_waited_for() -> None:
    rate = Rate(10)
    rate.take(100, NOW)
    assert rate.wait_us(NOW) == 10 * SECOND_US - BURST_US
    assert rate.wait_us(NOW + 10 * SECOND_US) == 0


def test_nothing_is_saved_up_beyond_a_burst() -> None:
    rate = Rate(4)
    rate.take(1, NOW)
    rate.take(2, NOW + 1000 * SECOND_US)
    assert rate.wait_us(NOW + 1000 * SECOND_US) == SECOND_US // 4


def test_a_rate_of_nothing_lets_pass_next_to_nothing() -> None:
    rate = Rate(0)
    rate.take(1, NOW)
    assert rate.wait_us(NOW) > 3000 * SECOND_US


@given(st.integers(1, 10**6), st.lists(st.integers(0, 5000), min_size=1, max_size=50))
def test_who_waits_as_told_keeps_the_rate(per_second: int, amounts: list[int]) -> None:
    rate = Rate(per_second)
    now = NOW
    for amount in amounts:
        rate.take(amount, now)
        now += rate.wait_us(now)
    taken_us = sum(amount * SECOND_US // per_second for amount in amounts)
    assert now - NOW == max(taken_us - BURST_US, 0) or now - NOW >= taken_us - BURST_US
    assert now - NOW <= taken_us


def test_the_slower_of_two_rates_decides() -> None:
    quota = Quota(Rate(10), Rate(1000))
    quota.take(10, 10, NOW)
    assert quota.wait_us(NOW) == SECOND_US - BURST_US
    quota.take(0, 5000, NOW)
    assert quota.wait_us(NOW) == 5_010_000 - BURST_US
    assert Quota(None, None).wait_us(NOW) == 0
