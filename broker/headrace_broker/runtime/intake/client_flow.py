"""Flow control towards clients: notifications, and weights from limits of users and vhosts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from headrace_broker.catalog.event import Event, UserLimitsChanged
from headrace_broker.catalog.setting import (
    BLOCKED_AFTER_MS,
    CHANNEL_FLOW,
    PUBLISH_WEIGHT,
    PUBLISH_WEIGHT_MAX,
)
from headrace_broker.catalog.view import CatalogView
from headrace_broker.flow.account import Ledger


@final
class ClientFlow:
    """Values for clients, read at the moment of use, so that changes count at once.

    A user's limit comes before the vhost's.
    """

    def __init__(self, view: CatalogView, ledger: Ledger) -> None:
        self._view = view
        self._ledger = ledger  # the node's accounts

    def channel_flow(self, user: str, vhost: str) -> bool:
        """Return whether channel.flow is sent to the channels of a user in a vhost."""
        return self._find(CHANNEL_FLOW, user, vhost, 0) == 1

    def blocked_after_ms(self, user: str, vhost: str) -> int:
        """Return after how long a client that is held is told; 0 for never."""
        return self._find(BLOCKED_AFTER_MS, user, vhost, int(self._ledger.limits.blocked_after_ms))

    def weight(self, user: str) -> int:
        """Return a user's weight among publishers that compete, 1 to PUBLISH_WEIGHT_MAX."""
        return _weight(self._view.user_limits(user))

    def on_events(self, events: Iterable[Event]) -> None:
        """Follow the catalog: weights of open accounts change."""
        for event in events:
            if isinstance(event, UserLimitsChanged):
                weight = _weight(event.limits)
                for account in self._ledger.accounts.values():
                    if account.cause.user == event.user:
                        account.weight = weight

    def _find(self, name: str, user: str, vhost: str, otherwise: int) -> int:
        found = self._view.user_limits(user).get(name)
        if found is None:
            found = self._view.vhost_limits(vhost).get(name)
        return otherwise if found is None else found


def _weight(limits: dict[str, int]) -> int:
    # Another version may allow other values.
    return min(max(limits.get(PUBLISH_WEIGHT, 1), 1), PUBLISH_WEIGHT_MAX)
