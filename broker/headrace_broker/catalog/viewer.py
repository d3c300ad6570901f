"""Rows of flow control for one asker, without the names that are not for them.

Users see their own connections, and queues of vhosts that they may look at; who monitors sees all.
Where a permission is gone since, one's own connection still counts, and names neither its vhost
nor a queue there. Figures stay: they are the connection's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from headrace_broker.catalog.access import Caller
from headrace_broker.catalog.view import CatalogView
from headrace_broker.model.flow_status import (
    AccountStatus,
    ActivityStatus,
    BalanceStatus,
    BroughtStatus,
    ConnectionFlow,
)

HIDDEN: Final = ""  # what stands for names that the asker may not know


class Viewer(NamedTuple):
    """A requesting user, and the names that they may see."""

    user: str  # their name
    monitors: bool  # they may see everything
    sees_vhost: Callable[[str], bool]  # whether they may look at a vhost

    def knows(self, user: str) -> bool:
        """Return whether they may see the connections of a user."""
        return self.monitors or user == self.user

    def hides(self, view: CatalogView, group: int) -> bool:
        """Return whether there is a queue whose name is hidden from the user."""
        queue = view.queue_by_group(group) if group else None
        return queue is not None and not self.sees_vhost(queue.vhost)


EVERYBODY: Final = Viewer("", True, lambda vhost: True)


def viewer_of(who: Caller, view: CatalogView) -> Viewer:
    """Return what a caller may see of flow control."""
    return Viewer(who.name, who.monitors, lambda vhost: who.sees(view, vhost))


def shown_vhost(vhost: str, viewer: Viewer) -> str:
    """Return the name of a vhost, HIDDEN for one that may not be viewed."""
    return vhost if viewer.monitors or viewer.sees_vhost(vhost) else HIDDEN


def shown_activity(flow: ActivityStatus, view: CatalogView, viewer: Viewer) -> ActivityStatus:
    """Return what stops a connection, without queues that may not be known."""
    if viewer.monitors:
        return flow
    by_limit = {
        name: (*each[:3], 0 if viewer.hides(view, each[3]) else each[3])
        for name, each in flow.by_limit.items()
    }
    group = 0 if viewer.hides(view, flow.group) else flow.group
    return msgspec.structs.replace(flow, group=group, by_limit=by_limit)


def shown_connection(row: ConnectionFlow, view: CatalogView, viewer: Viewer) -> ConnectionFlow:
    """Return a connection that may be known, without names that may not."""
    if viewer.monitors:
        return row
    vhost, flow = shown_vhost(row.vhost, viewer), shown_activity(row.flow, view, viewer)
    return msgspec.structs.replace(row, vhost=vhost, flow=flow)


def shown_account(account: AccountStatus, view: CatalogView, viewer: Viewer) -> AccountStatus:
    """Return an account without another user's identity and hidden names."""
    if viewer.monitors:
        return account
    balances = tuple(_shown_balance(balance, view, viewer) for balance in account.balances)
    if viewer.knows(account.user) or not account.user:
        vhost = shown_vhost(account.vhost, viewer)
        return msgspec.structs.replace(account, vhost=vhost, balances=balances)
    who = dict.fromkeys(("account", "name", "node", "user", "vhost", "user_provided_name"), HIDDEN)
    return msgspec.structs.replace(account, balances=balances, **who)


def shown_brought(row: BroughtStatus, viewer: Viewer) -> BroughtStatus:
    """Return visible arrivals at a queue, without another user's identity."""
    if viewer.knows(row.user) or not row.user:
        return row
    who = dict.fromkeys(("account", "name", "node", "user", "user_provided_name"), HIDDEN)
    return msgspec.structs.replace(row, **who)


def _shown_balance(balance: BalanceStatus, view: CatalogView, viewer: Viewer) -> BalanceStatus:
    if not viewer.hides(view, balance.group):
        return balance
    return msgspec.structs.replace(balance, group=0, exchanges=())
