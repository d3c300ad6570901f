from __future__ import annotations

from typing import Any

from headrace_broker.flow.account import Ledger
from headrace_broker.flow.activity import SECOND_US
from headrace_broker.flow.flow_limits import FlowLimits
from headrace_broker.flow.rate_history import Moves
from headrace_broker.runtime.contract.recently_applied import RecentlyApplied
from headrace_broker.runtime.hosting.queue_rates import QueueRates

QUEUES = 1000


class Host:
    """A replica that counts the looks at it."""

    def __init__(self) -> None:
        self.looks = 0
        self._moves = Moves()

    @property
    def moves(self) -> Moves:
        self.looks += 1
        return self._moves


def test_sample_looks_at_queues_in_which_something_moved_within_a_minute_only() -> None:
    now = 0
    hosts: dict[int, Any] = {group: Host() for group in range(QUEUES)}
    recent = RecentlyApplied(hosts)
    rates = QueueRates(hosts, recent, Ledger(FlowLimits()), lambda: now)
    seen = []
    for second in range(120):
        now += SECOND_US
        if second < 10:
            hosts[7].moves.arrived += 100
            recent.note(7, 0)
        before = sum(host.looks for host in hosts.values())
        rates.sample()
        seen.append(sum(host.looks for host in hosts.values()) - before)
        if second == 9:
            assert round(rates.rates(7)[0][0]) == 100
    assert seen[:60] == [1] * 60
    assert seen[-1] == 0
    assert not rates.moves(7)
    now += SECOND_US
    hosts[7].moves.arrived += 100
    recent.note(7, 0)
    rates.sample()
    assert round(rates.rates(7)[0][0]) == 100, "not those of the former minute once more"
