"""Permissions that opening a connection and declaring things need, as `catalog.access` decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace_broker.catalog import access
from headrace_broker.catalog.access import EXCHANGE, QUEUE, Caller, entrance_refusal
from headrace_broker.model.definition import Binding
from headrace_broker.model.reply_code import NOT_ALLOWED, AmqpError
from headrace_broker.runtime.security import audit

if TYPE_CHECKING:
    from headrace_broker.gateways.publishing.output_buffer import OutputBuffer
    from headrace_broker.runtime.broker_port import Broker


def check_vhost(broker: Broker, user: str, vhost: str) -> None:
    """Refuse a vhost that is not there, is full, or where the user has no permission.

    Only who sees all vhosts is told that there is none.

    Raises:
        AmqpError: NOT_ALLOWED, which ends the connection.
    """
    who, enters = Caller(user, broker.user_tags(user)), broker.permissions.may_enter(user, vhost)
    refusal = entrance_refusal(who, vhost, broker.vhost_exists(vhost), enters)
    if refusal is not None:
        raise AmqpError(NOT_ALLOWED, refusal.text)
    too_many = broker.client_counts.connection_refusal(user, vhost)
    if too_many:
        raise AmqpError(NOT_ALLOWED, too_many)


def check_any(output: OutputBuffer, kind: str, name: str) -> None:
    """Refuse to tell of a queue or exchange with which the user may do nothing at all.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    access.check_any(output.broker.permissions, output.user, output.vhost, kind, name)


def check_binding(output: OutputBuffer, binding: Binding) -> None:
    """Refuse to bind a queue or exchange to an exchange, or to unbind it.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    try:
        access.check_binding(output.broker.permissions, output.user, binding)
    except AmqpError as error:
        audit.record("request", binding.destination, error.text)
        raise


def check_declared_queue(output: OutputBuffer, name: str, arguments: dict[str, Any]) -> None:
    """Refuse to declare a queue, or one that is new with dead letters for that exchange.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    known = output.broker.queue(output.vhost, name) is not None
    _check_declares(output, QUEUE, name, arguments, known)


def check_declared_exchange(output: OutputBuffer, name: str, arguments: dict[str, Any]) -> None:
    """Refuse to declare an exchange, or one that is new with that alternate exchange.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    known = output.broker.exchange(output.vhost, name) is not None
    _check_declares(output, EXCHANGE, name, arguments, known)


def _check_declares(
    output: OutputBuffer, kind: str, name: str, arguments: dict[str, Any], known: bool
) -> None:
    permissions = output.broker.permissions
    user, vhost = output.user, output.vhost
    try:
        access.check_declares(permissions, user, vhost, kind, name, arguments, known)
    except AmqpError as error:
        audit.record("request", name, error.text)
        raise
