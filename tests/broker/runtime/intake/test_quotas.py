from __future__ import annotations

from headrace_broker.catalog.event import UserLimitsChanged, VhostLimitsChanged
from headrace_broker.model.message import Publish
from headrace_broker.runtime.intake.quotas import Quotas


class Clock:
    def __init__(self) -> None:
        self.now = 10**9

    def __call__(self) -> int:
        return self.now


def publishes(count: int, byte_count: int = 0) -> list[Publish]:
    return [Publish(1, b"\x00\x01q", False, False, b"\x00\x00", bytes(byte_count))] * count


def test_nobody_waits_without_a_limit() -> None:
    quotas = Quotas(Clock())
    assert not quotas.limited
    assert not quotas.take("anna", "/", publishes(10**5))


def test_users_and_vhosts_wait_for_their_own_rates() -> None:
    clock = Clock()
    quotas = Quotas(clock)
    quotas.on_events([UserLimitsChanged("anna", {"publish-rate-messages": 100})])
    quotas.on_events([VhostLimitsChanged("v", {"publish-rate-bytes": 1000, "max-queues": 1})])
    assert quotas.limited
    assert not quotas.take("anna", "/", publishes(25))
    assert quotas.take("anna", "/", publishes(100))
    assert quotas.wait_seconds("anna", "/") == 1.0
    assert quotas.wait_seconds("bert", "/") == 0
    assert quotas.take("bert", "v", publishes(1, 2250))
    assert quotas.wait_seconds("anna", "v") == 2.0
    clock.now += 1_500_000
    assert quotas.wait_seconds("anna", "v") == 0.5
    assert quotas.wait_seconds("anna", "/") == 0


def test_a_limit_that_is_changed_or_taken_away_counts_at_once() -> None:
    quotas = Quotas(Clock())
    quotas.on_events([UserLimitsChanged("anna", {"publish-rate-messages": 1})])
    assert quotas.take("anna", "/", publishes(100))
    quotas.on_events([UserLimitsChanged("anna", {"max-channels": 1})])
    assert not quotas.limited
    assert quotas.wait_seconds("anna", "/") == 0
