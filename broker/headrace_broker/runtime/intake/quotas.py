"""The publish rates of users and vhosts, on this node."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final, final

from mypy_extensions import i64

from headrace_broker.catalog.event import Event, UserLimitsChanged, VhostLimitsChanged
from headrace_broker.flow.quota import Quota, Rate
from headrace_broker.model.message import Publish

PUBLISH_RATE_MESSAGES: Final = "publish-rate-messages"
PUBLISH_RATE_BYTES: Final = "publish-rate-bytes"


def _now_us() -> int:
    return time.monotonic_ns() // 1000


@final
class Quotas:
    """Publish rates from the catalog's limits, and who has to wait for them.

    A user's and a vhost's publishes through this node count together, whatever their connections;
    what goes through other nodes counts there.
    """

    def __init__(self, now_us: Callable[[], int] = _now_us) -> None:
        self.limited = False  # whether there is any quota at all
        self._now_us = now_us
        self._users: dict[str, Quota] = {}
        self._vhosts: dict[str, Quota] = {}

    def on_events(self, events: Iterable[Event]) -> None:
        """Follow changes of the catalog."""
        for event in events:
            if isinstance(event, UserLimitsChanged):
                _change(self._users, event.user, event.limits)
            elif isinstance(event, VhostLimitsChanged):
                _change(self._vhosts, event.vhost, event.limits)
        self.limited = bool(self._users or self._vhosts)

    def take(self, user: str, vhost: str, publishes: list[Publish]) -> bool:
        """Take note of publishes; return whether their connection has to wait (`wait_seconds`)."""
        quotas = self._of(user, vhost)
        if not quotas:
            return False
        byte_count: i64 = 0
        for publish in publishes:
            byte_count += len(publish.body)
        now = self._now_us()
        for quota in quotas:
            quota.take(len(publishes), byte_count, now)
        return self.wait_seconds(user, vhost) > 0

    def wait_seconds(self, user: str, vhost: str) -> float:
        """Return for how long a connection of a user in a vhost should not publish; 0 for now."""
        now = self._now_us()
        wait: i64 = 0
        for quota in self._of(user, vhost):
            wait = max(wait, quota.wait_us(now))
        return int(wait) / 1e6

    def _of(self, user: str, vhost: str) -> list[Quota]:
        found = [self._users.get(user), self._vhosts.get(vhost)]
        return [quota for quota in found if quota is not None]


def _change(quotas: dict[str, Quota], name: str, limits: dict[str, int]) -> None:
    """Put new limits in force, at once and for all connections."""
    messages = limits.get(PUBLISH_RATE_MESSAGES)
    byte_count = limits.get(PUBLISH_RATE_BYTES)
    if messages is None and byte_count is None:
        quotas.pop(name, None)
        return
    quotas[name] = Quota(
        None if messages is None else Rate(messages),
        None if byte_count is None else Rate(byte_count),
    )
