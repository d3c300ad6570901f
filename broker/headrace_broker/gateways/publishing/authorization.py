"""Permissions of a publisher's user, as `catalog.access` decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace_broker.catalog import access
from headrace_broker.catalog.permission import CONFIGURE, WRITE
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.runtime.security import audit

if TYPE_CHECKING:
    from headrace_broker.gateways.publishing.output_buffer import OutputBuffer


def check(output: OutputBuffer, operation: str, kind: str, name: str) -> None:
    """Refuse an operation on a queue or exchange; see `access.check_allowed`.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    permissions = output.broker.permissions
    try:
        access.check_allowed(permissions, output.user, output.vhost, operation, kind, name)
    except AmqpError as error:
        if operation == CONFIGURE:
            audit.record("request", name, error.text)
        raise


def check_topic(output: OutputBuffer, exchange: str, routing_key: str) -> None:
    """Refuse to publish with a routing key; see `access.check_topic`.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    permissions = output.broker.permissions
    access.check_topic(permissions, output.user, output.vhost, WRITE, exchange, routing_key)
