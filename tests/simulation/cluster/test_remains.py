"""The census of the objects that a node holds."""

from __future__ import annotations

from headrace_broker.flow.account import Ledger
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.model.flow import Cause
from headrace_simulation.cluster.remains import REMAINS_MAX, remains, too_many


def ledger(accounts: int) -> Ledger:
    """Return a ledger with open accounts; its attributes are slots when it is compiled."""
    made = Ledger(FlowLimits())
    for number in range(accounts):
        made.open(Cause(f"account {number}", "connection", "", ""))
    return made


def test_elements_of_containers_and_objects_are_counted() -> None:
    counts = remains([ledger(3), ledger(4)])
    assert counts["Ledger"] == 2
    assert counts["Ledger.accounts"] == counts["Account"] == 7


def test_an_object_that_is_held_twice_counts_once() -> None:
    held = ledger(2)
    assert remains([held, {1: held}])["Ledger.accounts"] == 2


def test_what_grows_is_named() -> None:
    assert too_many(remains(ledger(REMAINS_MAX))) == {}
    assert too_many(remains(ledger(REMAINS_MAX + 1))) == {"Ledger.accounts": REMAINS_MAX + 1}
