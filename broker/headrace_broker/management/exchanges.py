"""/api/exchanges."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from headrace_broker.catalog.access import EXCHANGE, check_new_name
from headrace_broker.catalog.effective import policy_of
from headrace_broker.catalog.permission import CONFIGURE
from headrace_broker.catalog.view import CatalogView
from headrace_broker.management.access import (
    caller,
    check_allowed,
    check_declares,
    check_enters,
    check_sees,
)
from headrace_broker.management.administration import (
    Administration,
    known_exchange,
    known_vhost,
)
from headrace_broker.management.answer import done, json_answer
from headrace_broker.management.body import decode
from headrace_broker.management.listing import listing
from headrace_broker.management.query import IF_UNUSED, flag
from headrace_broker.management.route import Route, deleted, got, listed, put
from headrace_broker.model.definition import Exchange


class ExchangeBody(msgspec.Struct):
    """Body of PUT /api/exchanges/V/X."""

    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = {}


class ExchangeEndpoints:
    """Answers requests about exchanges."""

    def __init__(self, node: Administration) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        """Return what is answered."""
        return [
            listed(
                "/api/exchanges",
                self._list,
                "Exchanges in vhosts that the user sees.",
                dict[str, Any],
            ),
            listed(
                "/api/exchanges/{vhost}",
                self._list,
                "Exchanges in vhosts that the user sees.",
                dict[str, Any],
            ),
            got("/api/exchanges/{vhost}/{exchange}", self._get, "An exchange.", dict[str, Any]),
            put(
                "/api/exchanges/{vhost}/{exchange}", self._put, "Declare an exchange.", ExchangeBody
            ),
            deleted(
                "/api/exchanges/{vhost}/{exchange}",
                self._delete,
                "Delete an exchange.",
                query=(IF_UNUSED,),
            ),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        who = caller()
        view = self._node.view
        if "vhost" in request.match_info:
            vhosts = [await known_vhost(self._node, request)]
            check_sees(who, view, vhosts[0])
        else:
            vhosts = [vhost.name for vhost in view.vhosts() if who.sees(view, vhost.name)]
        found = [
            exchange
            for vhost in vhosts
            for exchange in (Exchange(vhost, "", "direct"), *view.exchanges(vhost))
        ]
        return await listing(request, found, self._rendered)

    def _rendered(self, exchange: Exchange) -> dict[str, Any]:
        return _render(self._node.view, exchange)

    async def _get(self, request: web.Request) -> web.Response:
        vhost = await known_vhost(self._node, request)
        check_sees(caller(), self._node.view, vhost)
        exchange = await known_exchange(self._node, vhost, request.match_info["exchange"])
        return json_answer(_render(self._node.view, exchange))

    async def _put(self, request: web.Request) -> web.Response:
        vhost, name = await self._changeable(request)
        body = await decode(request, ExchangeBody)
        view = self._node.view
        check_declares(caller(), view, vhost, "exchange", name, body.arguments)
        created = view.exchange(vhost, name) is None
        if created:
            check_new_name(EXCHANGE, name)
        await self._node.topology.declare_exchange(
            Exchange(
                vhost,
                name,
                body.type,
                body.durable,
                body.auto_delete,
                body.internal,
                body.arguments,
            )
        )
        return done(created)

    async def _delete(self, request: web.Request) -> web.Response:
        vhost, name = await self._changeable(request)
        exchange = await known_exchange(self._node, vhost, name)
        if_unused = flag(request, "if-unused")
        await self._node.topology.delete_exchange(vhost, exchange.name, if_unused)
        return done()

    async def _changeable(self, request: web.Request) -> tuple[str, str]:
        """Return vhost and name of the path, where the asker may declare and delete it."""
        vhost = await known_vhost(self._node, request)
        name = request.match_info["exchange"]
        who = caller()
        check_enters(who, self._node.view, vhost)
        check_allowed(who, self._node.view, vhost, CONFIGURE, "exchange", name)
        return vhost, name


def _render(view: CatalogView, exchange: Exchange) -> dict[str, Any]:
    policy = policy_of(view, exchange) if exchange.name else None
    return {
        "vhost": exchange.vhost,
        "name": exchange.name,
        "type": exchange.type,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": exchange.arguments,
        "policy": policy.name if policy is not None else None,
    }
