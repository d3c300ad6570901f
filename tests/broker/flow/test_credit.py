"""Credit: no more is handed over than was granted, and none is lost."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace_broker.flow.credit import Credit
from headrace_broker.flow.flow_limits import FlowLimits


def limited(credit: int, more: int) -> FlowLimits:
    limits = FlowLimits()
    limits.credit, limits.credit_more = credit, more
    return limits


def test_credit_is_granted_by_portions() -> None:
    credit = Credit(limited(400, 200))
    credit.spend(300)
    credit.passed_on(199)
    assert credit.left == 100
    credit.passed_on(1)
    assert credit.left == 300


def test_credit_that_is_deferred_is_granted_at_once_afterwards() -> None:
    credit = Credit(limited(400, 200))
    credit.defer(True)
    credit.spend(400)
    credit.passed_on(400)
    assert not credit.is_left()
    credit.defer(False)
    assert credit.left == 400


def test_a_portion_larger_than_the_credit_stops_nobody_for_ever() -> None:
    limits = limited(10, 5)
    credit = Credit(limits)
    limits.credit_more = 1000
    for _ in range(3):
        credit.spend(10)
        credit.passed_on(10)
        assert credit.is_left()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("spend"), st.integers(1, 30)),
        st.tuples(st.just("pass"), st.integers(1, 30)),
        st.tuples(st.just("defer"), st.booleans()),
        st.tuples(st.just("credit"), st.integers(1, 60)),
        st.tuples(st.just("more"), st.integers(1, 60)),
        st.tuples(st.just("share"), st.integers(1, 100)),
    ),
    max_size=60,
)


@given(STEPS)
def test_what_is_outstanding_and_what_is_left_are_the_credit(
    steps: list[tuple[str, int | bool]],
) -> None:
    limits = limited(40, 20)
    credit = Credit(limits)
    spent, passed, granted = 0, 0, 0
    for what, value in steps:
        if what == "spend":
            if credit.is_left():
                credit.spend(value)
                spent += value
        elif what == "pass":
            some = min(value, spent - passed)
            passed += some
            credit.passed_on(some)
        elif what == "defer":
            credit.defer(bool(value))
        else:
            setattr(limits, {"more": "credit_more"}.get(what, what), value)
        before, granted = granted, credit.left - limits.scaled(limits.credit) + spent
        assert before <= granted <= passed <= spent
        if credit.deferred and what != "defer":
            assert granted == before
    credit.defer(False)
    credit.passed_on(spent - passed)
    assert credit.is_left(), "all was passed on, so nothing keeps it from going on"
