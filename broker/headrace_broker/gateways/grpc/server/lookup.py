"""Common part of administrative calls: caller, vhost, and the catalog's answer."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

from headrace_broker.catalog.access import Caller, check_enters, check_sees
from headrace_broker.catalog.permission import Rights
from headrace_broker.catalog.result import Exists, NotFound, Ok, Refused, Result
from headrace_broker.catalog.view import CatalogView
from headrace_broker.gateways.grpc.server.errors import bad_field
from headrace_broker.model.definition import Exchange, Queue
from headrace_broker.model.limits import NAME_BYTES_MAX
from headrace_broker.model.reply_code import NOT_FOUND, AmqpError
from headrace_broker.runtime.administration.administration import NodeAdministration
from headrace_broker.runtime.administration.status import NodeStatusSource
from headrace_broker.runtime.cluster.topology import refusal

DEFAULT_EXCHANGE_ALIAS: Final = "amq.default"

_NAMED_FIELD: Final = re.compile(r"([a-z][a-z_-]*): (.*)", re.DOTALL)


class LookupService:
    """Look-ups of objects for a caller."""

    def __init__(self, node: NodeAdministration, status: NodeStatusSource) -> None:
        self.node = node  # access to its state and operations
        self.status = status  # what the node tells of itself
        self.view: CatalogView = node.view
        self.rights = Rights(node.view)

    async def known_vhost(self, caller: Caller, name: str, field: str = "vhost") -> str:
        """Return the name of a vhost that is there.

        Raises:
            CallError: INVALID_ARGUMENT.
            AmqpError: ACCESS_REFUSED to who may not know whether it is there; NOT_FOUND.
        """
        check_name(field, name)
        if not caller.sees(self.view, name) or self.view.vhost(name) is None:
            await self.node.catch_up()  # it may have been created through another node a moment ago
        check_sees(caller, self.view, name)
        if self.view.vhost(name) is None:
            raise missing(f"vhost '{name}'", field)
        return name

    async def enter(self, caller: Caller, vhost: str, field: str = "vhost") -> str:
        """Return a vhost in which the caller may work.

        Raises:
            CallError: INVALID_ARGUMENT.
            AmqpError: ACCESS_REFUSED, NOT_FOUND.
        """
        found = await self.known_vhost(caller, vhost, field)
        check_enters(self.view, caller.name, found)
        return found

    async def find_queue(self, vhost: str, name: str) -> Queue | None:
        """Return a queue, None when there is none of that name."""
        if self.view.queue(vhost, name) is None:
            await self.node.catch_up()
        return self.view.queue(vhost, name)

    async def known_queue(self, vhost: str, name: str, field: str = "name") -> Queue:
        """Return a queue.

        Raises:
            AmqpError: NOT_FOUND.
        """
        queue = await self.find_queue(vhost, name)
        if queue is None:
            raise missing(f"queue '{name}' in vhost '{vhost}'", field)
        return queue

    async def find_exchange(self, vhost: str, name: str) -> Exchange | None:
        """Return an exchange, None when there is none of that name; "" is the default one."""
        if name in ("", DEFAULT_EXCHANGE_ALIAS):
            return Exchange(vhost, "", "direct")
        if self.view.exchange(vhost, name) is None:
            await self.node.catch_up()
        return self.view.exchange(vhost, name)

    async def known_exchange(self, vhost: str, name: str, field: str = "name") -> Exchange:
        """Return an exchange; "" is the default one.

        Raises:
            AmqpError: NOT_FOUND.
        """
        exchange = await self.find_exchange(vhost, name)
        if exchange is None:
            raise missing(f"exchange '{name}' in vhost '{vhost}'", field)
        return exchange

    async def seen_vhosts(self, caller: Caller, vhost: str) -> Collection[str]:
        """Return the vhosts of a listing: the named one, or all visible ones.

        Raises:
            CallError: INVALID_ARGUMENT.
            AmqpError: ACCESS_REFUSED, NOT_FOUND.
        """
        if not vhost:
            return [each.name for each in self.view.vhosts() if caller.sees(self.view, each.name)]
        return [await self.known_vhost(caller, vhost)]

    def check_sees(self, caller: Caller, vhost: str) -> None:
        """Refuse a look at a vhost.

        Raises:
            AmqpError: ACCESS_REFUSED.
        """
        check_sees(caller, self.view, vhost)


def check_name(field: str, name: str, low: int = 1) -> None:
    """Refuse a name that is too long, or that must not be empty.

    Raises:
        CallError: INVALID_ARGUMENT.
    """
    byte_count = len(name.encode())
    if not low <= byte_count <= NAME_BYTES_MAX:
        raise bad_field(field, f"must have {low} to {NAME_BYTES_MAX} bytes, not {byte_count}")


def missing(what: str, field: str) -> AmqpError:
    """Return the refusal of a request about something that is not there."""
    return AmqpError(NOT_FOUND, f"no {what}", field)


def done(result: Result, field: str, within: str = "") -> Any:
    """Return what the catalog says that it did.

    Args:
        result: its answer.
        field: of the request that is refused, where the refusal names none itself.
        within: what is put before a field that the refusal names.

    Raises:
        CallError: INVALID_ARGUMENT, the request broke a rule.
        AmqpError: it did nothing for another reason.
    """
    if isinstance(result, Ok):
        return result.value
    if isinstance(result, Exists):
        return result.current
    if isinstance(result, NotFound):
        raise missing(result.what, field)
    if isinstance(result, Refused):
        named = _NAMED_FIELD.fullmatch(result.reason)
        if named is not None:
            raise bad_field(within + named[1].replace("-", "_"), named[2])
        raise bad_field(field, result.reason)
    raise refusal(result)
