"""Refuses what a connection's user may not do.

Which permission a method takes, and the texts, are RabbitMQ's (`rabbit_channel`, and its guide on
access control).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace_broker.catalog.permission import CONFIGURE, DEFAULT_EXCHANGE_NAME, READ, WRITE
from headrace_broker.model.reply_code import ACCESS_REFUSED, NOT_ALLOWED, AmqpError

if TYPE_CHECKING:
    from headrace_broker.gateways.amqp.outlet import Outlet
    from headrace_broker.runtime.port import Broker

QUEUE: Final = "queue"
EXCHANGE: Final = "exchange"


def check_vhost(broker: Broker, user: str, vhost: str) -> None:
    """Refuse a vhost that is not there, is full, or where the user has no permission.

    Raises:
        AmqpError: NOT_ALLOWED, which ends the connection.
    """
    if not broker.vhost_exists(vhost):
        raise AmqpError(NOT_ALLOWED, f"vhost '{vhost}' not found")
    if not broker.permissions.may_enter(user, vhost):
        text = f"access to vhost '{vhost}' refused for user '{user}'"
        raise AmqpError(NOT_ALLOWED, text)
    too_many = broker.client_counts.connection_refusal(user, vhost)
    if too_many:
        raise AmqpError(NOT_ALLOWED, too_many)


def check(outlet: Outlet, operation: str, kind: str, name: str) -> None:
    """Refuse an operation on a queue or exchange.

    Args:
        outlet: of the connection whose user asks.
        operation: CONFIGURE, WRITE or READ.
        kind: QUEUE or EXCHANGE.
        name: of the queue or exchange; "" is the default exchange.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    if not outlet.broker.permissions.may(outlet.user, outlet.vhost, operation, name):
        _refuse(outlet, operation, kind, name)


def check_any(outlet: Outlet, kind: str, name: str) -> None:
    """Refuse to tell of a queue or exchange with which the user may do nothing at all.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    may = outlet.broker.permissions.may
    if not any(may(outlet.user, outlet.vhost, each, name) for each in (CONFIGURE, WRITE, READ)):
        _refuse(outlet, CONFIGURE, kind, name)


def check_binding(outlet: Outlet, source: str, kind: str, destination: str) -> None:
    """Refuse to bind a queue or exchange to an exchange, or to unbind it.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    check(outlet, WRITE, kind, destination)
    check(outlet, READ, EXCHANGE, source)


def check_declared_queue(outlet: Outlet, name: str, arguments: dict[str, Any]) -> None:
    """Refuse to declare a queue, or one that is new with dead letters for that exchange.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    check(outlet, CONFIGURE, QUEUE, name)
    target = arguments.get("x-dead-letter-exchange")
    if isinstance(target, str) and outlet.broker.queue(outlet.vhost, name) is None:
        check(outlet, READ, QUEUE, name)
        check(outlet, WRITE, EXCHANGE, target)


def check_declared_exchange(outlet: Outlet, name: str, arguments: dict[str, Any]) -> None:
    """Refuse to declare an exchange, or one that is new with that alternate exchange.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    check(outlet, CONFIGURE, EXCHANGE, name)
    target = arguments.get("alternate-exchange")
    if isinstance(target, str) and outlet.broker.exchange(outlet.vhost, name) is None:
        check(outlet, READ, EXCHANGE, name)
        check(outlet, WRITE, EXCHANGE, target)


def _refuse(outlet: Outlet, operation: str, kind: str, name: str) -> None:
    shown = name or DEFAULT_EXCHANGE_NAME
    what = f"{kind} '{shown}' in vhost '{outlet.vhost}'"
    raise AmqpError(
        ACCESS_REFUSED, f"{operation} access to {what} refused for user '{outlet.user}'"
    )
