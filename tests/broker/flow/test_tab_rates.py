from __future__ import annotations

import pytest

from headrace_broker.flow.account import RECENT_S, Ledger
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.model.flow import CONNECTION, Cause


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(FlowLimits())


def test_a_steady_publishers_rate_is_found_whatever_the_pace_of_samples(ledger: Ledger) -> None:
    balance = ledger.open(Cause("n1/1/1", CONNECTION, "c", "n1")).balance(7)
    for pace in (1.0, 0.5, 2.0, 30.0):
        for _ in range(int(100 / pace)):
            balance.borrow(int(20 * pace), int(4000 * pace))
            balance.repay(int(20 * pace), int(4000 * pace))
            ledger.sample(pace)
        assert balance.message_rate == pytest.approx(20, rel=0.01)
        assert balance.byte_rate == pytest.approx(4000, rel=0.01)


def test_what_was_published_fades_and_is_forgotten(ledger: Ledger) -> None:
    balance = ledger.open(Cause("n1/1/1", CONNECTION, "c", "n1")).balance(7)
    balance.borrow(1000, 0)
    ledger.sample(1.0)
    assert balance.message_rate == pytest.approx(1000 / RECENT_S)
    for _ in range(10):
        ledger.sample(1.0)
    assert 1000 / RECENT_S / 3 < balance.message_rate < 1000 / RECENT_S / 2
    for _ in range(200):
        ledger.sample(1.0)
    assert balance.message_rate == 0.0
