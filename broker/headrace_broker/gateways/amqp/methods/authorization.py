"""Asks `catalog.access` what a connection's user may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace_broker.catalog import access
from headrace_broker.catalog.access import EXCHANGE, QUEUE, stranger_text
from headrace_broker.catalog.permission import CONFIGURE, WRITE
from headrace_broker.model.definition import Binding
from headrace_broker.model.reply_code import NOT_ALLOWED, AmqpError
from headrace_broker.runtime import audit

if TYPE_CHECKING:
    from headrace_broker.gateways.amqp.outlet import Outlet
    from headrace_broker.runtime.port import Broker


def check_vhost(broker: Broker, user: str, vhost: str) -> None:
    """Refuse a vhost that is not there, is full, or where the user has no permission.

    Raises:
        AmqpError: NOT_ALLOWED, which ends the connection.
    """
    if not broker.vhost_exists(vhost):
        raise AmqpError(NOT_ALLOWED, f"vhost '{vhost}' not found")
    if not broker.permissions.may_enter(user, vhost):
        raise AmqpError(NOT_ALLOWED, stranger_text(user, vhost))
    too_many = broker.client_counts.connection_refusal(user, vhost)
    if too_many:
        raise AmqpError(NOT_ALLOWED, too_many)


def check(outlet: Outlet, operation: str, kind: str, name: str) -> None:
    """Refuse an operation on a queue or exchange; see `access.check_allowed`.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    may = outlet.broker.permissions.may
    try:
        access.check_allowed(may, outlet.user, outlet.vhost, operation, kind, name)
    except AmqpError as error:
        if operation == CONFIGURE:
            audit.record("request", name, error.text)
        raise


def check_any(outlet: Outlet, kind: str, name: str) -> None:
    """Refuse to tell of a queue or exchange with which the user may do nothing at all.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    access.check_any(outlet.broker.permissions.may, outlet.user, outlet.vhost, kind, name)


def check_topic(outlet: Outlet, exchange: str, routing_key: str) -> None:
    """Refuse to publish with a routing key; see `access.check_topic`.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    may_route = outlet.broker.permissions.may_route
    access.check_topic(may_route, outlet.user, outlet.vhost, WRITE, exchange, routing_key)


def check_binding(outlet: Outlet, binding: Binding) -> None:
    """Refuse to bind a queue or exchange to an exchange, or to unbind it.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    permissions = outlet.broker.permissions
    try:
        access.check_binding(
            permissions.may, permissions.may_route, permissions.may_chain, outlet.user, binding
        )
    except AmqpError as error:
        audit.record("request", binding.destination, error.text)
        raise


def check_declared_queue(outlet: Outlet, name: str, arguments: dict[str, Any]) -> None:
    """Refuse to declare a queue, or one that is new with dead letters for that exchange.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    known = outlet.broker.queue(outlet.vhost, name) is not None
    _check_declares(outlet, QUEUE, name, arguments, known)


def check_declared_exchange(outlet: Outlet, name: str, arguments: dict[str, Any]) -> None:
    """Refuse to declare an exchange, or one that is new with that alternate exchange.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    known = outlet.broker.exchange(outlet.vhost, name) is not None
    _check_declares(outlet, EXCHANGE, name, arguments, known)


def _check_declares(
    outlet: Outlet, kind: str, name: str, arguments: dict[str, Any], known: bool
) -> None:
    may, may_forward = outlet.broker.permissions.may, outlet.broker.permissions.may_forward
    user, vhost = outlet.user, outlet.vhost
    try:
        access.check_declares(may, may_forward, user, vhost, kind, name, arguments, known)
    except AmqpError as error:
        audit.record("request", name, error.text)
        raise
