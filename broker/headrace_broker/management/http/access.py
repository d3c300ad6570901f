"""Asks `catalog.access` what users of the API may see and do.

Each check raises AmqpError, ACCESS_REFUSED, which becomes a 403.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

from headrace_broker.catalog import access
from headrace_broker.catalog.access import QUEUE, TAGS, Caller
from headrace_broker.catalog.permission import WRITE, Rights
from headrace_broker.catalog.view import CatalogView
from headrace_broker.management.http.answer import bad_request
from headrace_broker.model.definition import Binding, Queue

__all__ = ["TAGS", "Caller"]

# Set for each request, in its own task, before its handler runs.
CALLER: Final[ContextVar[Caller]] = ContextVar("CALLER")
# Likewise: the token of the log-in at the page that has let it in, "" where that was a password or
# certificate.
PAGE_TOKEN: Final[ContextVar[str]] = ContextVar("PAGE_TOKEN")


def caller() -> Caller:
    """Return the calling user."""
    return CALLER.get()


def check_enters(found: Caller, view: CatalogView, vhost: str) -> None:
    """Refuse changes in a vhost without permission there."""
    access.check_enters(view, found.name, vhost)


def check_allowed(
    found: Caller, view: CatalogView, vhost: str, operation: str, kind: str, name: str
) -> None:
    """Refuse what a permission is needed for; see `access.check_allowed`."""
    access.check_allowed(Rights(view), found.name, vhost, operation, kind, name)


def check_declares(
    found: Caller, view: CatalogView, vhost: str, kind: str, name: str, arguments: dict[str, Any]
) -> None:
    """Refuse to declare a queue or exchange; see `access.check_declares`."""
    known = view.queue(vhost, name) if kind == QUEUE else view.exchange(vhost, name)
    access.check_declares(Rights(view), found.name, vhost, kind, name, arguments, known is not None)


def check_ends(
    found: Caller, view: CatalogView, vhost: str, source: str, kind: str, destination: str
) -> None:
    """Refuse to add or remove any binding between two ends."""
    access.check_enters(view, found.name, vhost)
    access.check_ends(Rights(view), found.name, vhost, source, kind, destination)


def check_binding(found: Caller, view: CatalogView, binding: Binding) -> None:
    """Refuse to add or remove a binding."""
    access.check_binding(Rights(view), found.name, binding)


def check_policy(found: Caller, view: CatalogView, vhost: str, definition: dict[str, Any]) -> None:
    """Refuse a policy; see `access.check_policy`."""
    access.check_policy(Rights(view), found, vhost, definition)


def check_topic(
    found: Caller, view: CatalogView, vhost: str, exchange: str, routing_key: str
) -> None:
    """Refuse to publish with a routing key; see `access.check_topic`."""
    access.check_topic(Rights(view), found.name, vhost, WRITE, exchange, routing_key)


def check_not_exclusive(queue: Queue) -> None:
    """Refuse, by ApiError 400, what only the owner of an exclusive queue may do."""
    if queue.exclusive:
        raise bad_request(
            f"queue '{queue.name}' in vhost '{queue.vhost}' is exclusive: only its connection "
            "may do that"
        )
