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
    may = output.broker.permissions.may
    try:
        access.check_allowed(may, output.user, output.vhost, operation, kind, name)
    except AmqpError as error:
        if operation == CONFIGURE:
            audit.record("request", name, error.text)
        raise


def check_topic(output: OutputBuffer, exchange: str, routing_key: str) -> None:
    """Refuse to publish with a routing key; see `access.check_topic`.

    Raises:
        AmqpError: ACCESS_REFUSED.
    """
    may_route = output.broker.permissions.may_route
    access.check_topic(may_route, output.user, output.vhost, WRITE, exchange, routing_key)
