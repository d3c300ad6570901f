"""Who may do what: a user's permission in a vhost, as RabbitMQ reads it.

A catalog from before there were permissions (`CatalogView.guarded` is False) lets everybody do
everything, as its nodes did, until the first permission is set or taken away; then everybody is
given in writing what they had. A new cluster is guarded from the start, and its default user may do
everything in the default vhost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from headrace_broker.catalog.event import Event, PermissionChanged
from headrace_broker.catalog.pattern import matches
from headrace_broker.catalog.view import CatalogView
from headrace_broker.model.limits import PERMISSIONS_CACHED_MAX

CONFIGURE: Final = "configure"
WRITE: Final = "write"
READ: Final = "read"

DEFAULT_EXCHANGE_NAME: Final = "amq.default"  # what the exchange "" is called in permissions


def allowed(view: CatalogView, user: str, vhost: str, operation: str, name: str) -> bool:
    """Return whether a user may do something with the queue or exchange of a name.

    Args:
        view: the catalog.
        user: who asks.
        vhost: where.
        operation: CONFIGURE, WRITE or READ.
        name: of the queue or exchange; "" is the default exchange.
    """
    if not view.guarded:
        return True
    permission = view.permission(user, vhost)
    if permission is None:
        return False
    pattern = {
        CONFIGURE: permission.configure,
        WRITE: permission.write,
        READ: permission.read,
    }[operation]
    # RabbitMQ takes an empty expression as one that fits the empty name only.
    return pattern != "" and matches(pattern, name or DEFAULT_EXCHANGE_NAME)


def may_enter(view: CatalogView, user: str, vhost: str) -> bool:
    """Return whether a user may open a connection to a vhost: with any permission there."""
    return not view.guarded or view.permission(user, vhost) is not None


@final
class Permissions:
    """Answers what users may, from memory where possible.

    Attributes:
        version: counts up when an answer may have become another one.
    """

    def __init__(self, view: CatalogView) -> None:
        self.version = 0
        self._view = view
        self._guarded = view.guarded
        self._answers: dict[tuple[str, str, str, str], bool] = {}

    def on_events(self, events: Iterable[Event]) -> None:
        """Follow changes of the catalog."""
        guarded = self._view.guarded
        changed = any(isinstance(event, PermissionChanged) for event in events)
        if changed or guarded != self._guarded:
            self._guarded = guarded
            self.version += 1
            self._answers = {}

    def may(self, user: str, vhost: str, operation: str, name: str) -> bool:
        """Return what `allowed` does."""
        key = (user, vhost, operation, name)
        answer = self._answers.get(key)
        if answer is None:
            answer = allowed(self._view, user, vhost, operation, name)
            if len(self._answers) >= PERMISSIONS_CACHED_MAX:
                self._answers = {}
            self._answers[key] = answer
        return answer

    def may_enter(self, user: str, vhost: str) -> bool:
        """Return what `may_enter` does."""
        return may_enter(self._view, user, vhost)
