"""Values of a fairness key as people see them."""

from __future__ import annotations

import pytest
from tests.broker.core.conftest import NOBODY, A, QueueLog, of

from headrace_broker.core.queue.state.fair_lanes import FairValue, fair_key
from headrace_broker.model.flow_status import FairnessStatus
from headrace_broker.model.limits import FAIRNESS_SHOWN_MAX
from headrace_broker.runtime.replica.fairness_report import fairness_rows, shown_value


@pytest.mark.parametrize(
    ("header", "shown"),
    [
        (b"Sred", "red"),
        (b"S", ""),
        (b"S\xff", "�"),
        (b"l" + (2**64 - 5).to_bytes(8, "big"), "-5"),
        (b"t\x01", "0x7401"),
        (b"S" + b"x" * 70, "x" * 39 + "..."),
    ],
)
def test_a_value_is_shown_for_people(header: bytes, shown: str) -> None:
    assert shown_value(FairValue(fair_key(header)[1:], shared=False)) == shown


def test_no_value_and_a_shared_lane_are_shown() -> None:
    assert shown_value(FairValue(b"", shared=False)) == ""
    assert shown_value(FairValue(b"\x00\x11", shared=True)) == "(shared lane 17)"


def test_the_values_of_which_most_waits_are_listed() -> None:
    queue = QueueLog()
    assert fairness_rows(queue.machine) == ()
    queue.configure(fairness_key=b"tenant")
    queue.publish(NOBODY, of(A, b"12"), of(A, b"3"), *[of(10 + n) for n in range(20)])
    found = fairness_rows(queue.machine)
    assert found[0] == FairnessStatus("1", 2, 3)
    assert found[1] == FairnessStatus("", 1, 0)
    assert len(found) == FAIRNESS_SHOWN_MAX
