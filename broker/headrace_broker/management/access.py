"""What users of the API may see and do.

Source: RabbitMQ's management tags: management (own connections, vhosts that one may enter),
policymaker (and policies there), monitoring (and everything to look at), administrator (all).
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from headrace_broker.catalog.permission import CONFIGURE, READ, WRITE, allowed, may_enter
from headrace_broker.catalog.view import CatalogView
from headrace_broker.management.answer import bad_request, forbidden
from headrace_broker.model.definition import Queue

ADMINISTRATOR: Final = "administrator"
MONITORING: Final = "monitoring"
POLICYMAKER: Final = "policymaker"
MANAGEMENT: Final = "management"
TAGS: Final = frozenset({ADMINISTRATOR, MONITORING, POLICYMAKER, MANAGEMENT})

# Arguments that name where a queue or exchange sends messages on.
_SENDS_ON: Final = {"queue": "x-dead-letter-exchange", "exchange": "alternate-exchange"}


class Caller(NamedTuple):
    """Who asks."""

    name: str
    tags: tuple[str, ...]

    @property
    def administers(self) -> bool:
        """Whether all is allowed that needs no permission in a vhost."""
        return ADMINISTRATOR in self.tags

    @property
    def monitors(self) -> bool:
        """Whether all may be looked at."""
        return self.administers or MONITORING in self.tags

    @property
    def makes_policies(self) -> bool:
        """Whether policies may be changed, in vhosts that may be entered."""
        return self.administers or POLICYMAKER in self.tags

    def sees(self, view: CatalogView, vhost: str) -> bool:
        """Return whether a vhost may be looked at."""
        return self.monitors or may_enter(view, self.name, vhost)


# Set for each request, in its own task, before its handler runs.
CALLER: Final[ContextVar[Caller]] = ContextVar("CALLER")


def caller() -> Caller:
    """Return who asks."""
    return CALLER.get()


def administrator() -> Caller:
    """Return who asks.

    Raises:
        ApiError: 403, it is no administrator.
    """
    found = caller()
    if not found.administers:
        raise forbidden("tags: this is for users with the tag 'administrator'")
    return found


def monitor() -> Caller:
    """Return who asks.

    Raises:
        ApiError: 403, it may not look at everything.
    """
    found = caller()
    if not found.monitors:
        raise forbidden("tags: this is for users with the tag 'monitoring' or 'administrator'")
    return found


def policymaker() -> Caller:
    """Return who asks.

    Raises:
        ApiError: 403, it may not make policies.
    """
    found = caller()
    if not found.makes_policies:
        raise forbidden("tags: this is for users with the tag 'policymaker' or 'administrator'")
    return found


def check_sees(found: Caller, view: CatalogView, vhost: str) -> None:
    """Refuse a look at a vhost.

    Raises:
        ApiError: 403.
    """
    if not found.sees(view, vhost):
        raise _stranger(found, vhost)


def check_enters(found: Caller, view: CatalogView, vhost: str) -> None:
    """Refuse changes in a vhost to who has no permission there.

    Raises:
        ApiError: 403.
    """
    if not may_enter(view, found.name, vhost):
        raise _stranger(found, vhost)


def check_allowed(
    found: Caller, view: CatalogView, vhost: str, operation: str, kind: str, name: str
) -> None:
    """Refuse what a permission is needed for.

    Args:
        found: who asks.
        view: the catalog.
        vhost: where.
        operation: CONFIGURE, WRITE or READ of `catalog.permission`.
        kind: "queue" or "exchange".
        name: of the queue or exchange.

    Raises:
        ApiError: 403.
    """
    if not allowed(view, found.name, vhost, operation, name):
        raise forbidden(
            f"{operation} access to {kind} '{name}' in vhost '{vhost}' refused for user "
            f"'{found.name}'"
        )


def check_declares(
    found: Caller, view: CatalogView, vhost: str, kind: str, name: str, arguments: dict[str, Any]
) -> None:
    """Refuse to declare a queue or exchange, or one that is new and sends messages on.

    A new one needs a permission to publish to its exchange for dead letters, or its alternate one,
    and to read itself, as over AMQP.

    Args:
        found: who asks.
        view: the catalog.
        vhost: where.
        kind: "queue" or "exchange".
        name: of the queue or exchange.
        arguments: as declared.

    Raises:
        ApiError: 403.
    """
    check_allowed(found, view, vhost, CONFIGURE, kind, name)
    known = view.queue(vhost, name) if kind == "queue" else view.exchange(vhost, name)
    target = arguments.get(_SENDS_ON[kind])
    if isinstance(target, str) and known is None:
        check_allowed(found, view, vhost, READ, kind, name)
        check_allowed(found, view, vhost, WRITE, "exchange", target)


def check_not_exclusive(queue: Queue) -> None:
    """Refuse what only the connection that an exclusive queue belongs to may do.

    Raises:
        ApiError: 400.
    """
    if queue.exclusive:
        raise bad_request(
            f"queue '{queue.name}' in vhost '{queue.vhost}' is exclusive: only its connection "
            "may do that"
        )


def _stranger(found: Caller, vhost: str) -> Exception:
    return forbidden(f"access to vhost '{vhost}' refused for user '{found.name}'")
