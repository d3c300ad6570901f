"""Access control of the API: asks `catalog.access`, and turns refusals into a 403."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

from headrace_broker.catalog import access
from headrace_broker.catalog.access import (
    QUEUE,
    TAGS,
    Caller,
    judge,
    judge_chains,
    judge_forwards,
    judge_routes,
)
from headrace_broker.catalog.permission import WRITE
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


def administrator() -> Caller:
    """Return the calling user, an administrator.

    Raises:
        AmqpError: ACCESS_REFUSED, it is no administrator.
    """
    found = caller()
    access.check_administers(found)
    return found


def monitor() -> Caller:
    """Return the calling user, who may monitor.

    Raises:
        AmqpError: ACCESS_REFUSED, it may not look at everything.
    """
    found = caller()
    access.check_monitors(found)
    return found


def policymaker() -> Caller:
    """Return the calling user, who may make policies.

    Raises:
        AmqpError: ACCESS_REFUSED, it may not make policies.
    """
    found = caller()
    access.check_makes_policies(found)
    return found


def check_sees(found: Caller, view: CatalogView, vhost: str) -> None:
    """Refuse a look at a vhost.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    access.check_sees(found, view, vhost)


def check_enters(found: Caller, view: CatalogView, vhost: str) -> None:
    """Refuse changes in a vhost without permission there.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    access.check_enters(view, found.name, vhost)


def check_allowed(
    found: Caller, view: CatalogView, vhost: str, operation: str, kind: str, name: str
) -> None:
    """Refuse what a permission is needed for; see `access.check_allowed`.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    access.check_allowed(judge(view), found.name, vhost, operation, kind, name)


def check_declares(
    found: Caller, view: CatalogView, vhost: str, kind: str, name: str, arguments: dict[str, Any]
) -> None:
    """Refuse to declare a queue or exchange; see `access.check_declares`.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    known = view.queue(vhost, name) if kind == QUEUE else view.exchange(vhost, name)
    judges = (judge(view), judge_forwards(view))
    access.check_declares(*judges, found.name, vhost, kind, name, arguments, known is not None)


def check_ends(
    found: Caller, view: CatalogView, vhost: str, source: str, kind: str, destination: str
) -> None:
    """Refuse to add or remove any binding between two ends.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    access.check_enters(view, found.name, vhost)
    access.check_ends(judge(view), found.name, vhost, source, kind, destination)


def check_binding(found: Caller, view: CatalogView, binding: Binding) -> None:
    """Refuse to add or remove a binding.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    judges = (judge(view), judge_routes(view), judge_chains(view))
    access.check_binding(*judges, found.name, binding)


def check_policy(found: Caller, view: CatalogView, vhost: str, definition: dict[str, Any]) -> None:
    """Refuse a policy; see `access.check_policy`.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    access.check_policy(judge(view), judge_forwards(view), found, vhost, definition)


def check_topic(
    found: Caller, view: CatalogView, vhost: str, exchange: str, routing_key: str
) -> None:
    """Refuse to publish with a routing key; see `access.check_topic`.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    access.check_topic(judge_routes(view), found.name, vhost, WRITE, exchange, routing_key)


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
