"""/api/exchanges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from aiohttp import web

from headrace_broker.catalog.access import EXCHANGE, check_new_name
from headrace_broker.catalog.exchange_argument import unknown_exchange_arguments
from headrace_broker.catalog.permission import CONFIGURE
from headrace_broker.catalog.policy import policy_of
from headrace_broker.catalog.view import CatalogView
from headrace_broker.management.http.access import (
    caller,
    check_allowed,
    check_declares,
    check_enters,
)
from headrace_broker.management.http.answer import done, json_answer
from headrace_broker.management.http.body import decode
from headrace_broker.management.http.endpoints import Endpoints
from headrace_broker.management.http.listing import COLUMNS, chosen, columns, listing
from headrace_broker.management.http.query import IF_UNUSED, flag
from headrace_broker.management.http.route import deleted, got, listed, put
from headrace_broker.management.view.figures import (
    AGES,
    ANSWER_SECONDS_MAX,
    Ages,
    asked_ages,
    named,
    summed,
    summed_last,
)
from headrace_broker.management.view.view import ExchangeView
from headrace_broker.model.definition import Exchange
from headrace_broker.model.limits import PAGE_ROWS_MAX
from headrace_broker.model.stats import EXCHANGE_FIGURES, ExchangeStats


class ExchangeBody(msgspec.Struct):
    """Body of PUT /api/exchanges/V/X."""

    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: dict[str, Any] = {}


class ExchangeEndpoints(Endpoints):
    """Answers requests about exchanges."""

    @listed("/api/exchanges", "Exchanges in vhosts that the user sees.", ExchangeView, query=AGES)
    @listed(
        "/api/exchanges/{vhost}",
        "Exchanges in vhosts that the user sees.",
        ExchangeView,
        query=AGES,
    )
    async def _list(self, request: web.Request) -> web.Response:
        view = self._node.view
        found = [
            exchange
            for vhost in await self._asked_vhosts(request)
            for exchange in (Exchange(vhost, "", "direct"), *view.exchanges(vhost))
        ]
        ages = asked_ages(request)

        async def prepare(exchanges: Sequence[Exchange]) -> list[dict[str, Any]]:
            return await self._rendered(exchanges, ages)

        return await listing(request, found, _as_is, prepare=prepare)

    async def _rendered(self, exchanges: Sequence[Exchange], ages: Ages) -> list[dict[str, Any]]:
        """Return exchanges as JSON, with what clients of all nodes that answer publish to them."""
        names = [(each.vhost, each.name) for each in exchanges]
        wanted = names if len(names) <= PAGE_ROWS_MAX else None
        question = ages.question(exchanges=wanted)
        rows, _ = await self._node.stats.ask(question, ANSWER_SECONDS_MAX)
        found: dict[tuple[str, str], list[ExchangeStats]] = {}
        for row in rows:
            if isinstance(row, ExchangeStats):
                found.setdefault((row.vhost, row.name), []).append(row)
        view = self._node.view
        return [
            {**_render(view, each), "message_stats": _moved(found.get(name, []), ages)}
            for each, name in zip(exchanges, names, strict=True)
        ]

    @got("/api/exchanges/{vhost}/{exchange}", "An exchange.", ExchangeView, query=(*AGES, *COLUMNS))
    async def _get(self, request: web.Request) -> web.Response:
        vhost = await self._known_vhost(request)
        exchange = await self._known_exchange(vhost, request.match_info["exchange"])
        [row] = await self._rendered([exchange], asked_ages(request))
        return json_answer(chosen(row, columns(request)))

    @put("/api/exchanges/{vhost}/{exchange}", "Declare an exchange.", ExchangeBody)
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

    @deleted("/api/exchanges/{vhost}/{exchange}", "Delete an exchange.", query=(IF_UNUSED,))
    async def _delete(self, request: web.Request) -> web.Response:
        vhost, name = await self._changeable(request)
        exchange = await self._known_exchange(vhost, name)
        if_unused = flag(request, "if-unused")
        await self._node.topology.delete_exchange(vhost, exchange.name, if_unused)
        return done()

    async def _changeable(self, request: web.Request) -> tuple[str, str]:
        """Return vhost and name of the path, where the asker may declare and delete it."""
        vhost = await self._known_vhost(request)
        name = request.match_info["exchange"]
        who = caller()
        check_enters(who, self._node.view, vhost)
        check_allowed(who, self._node.view, vhost, CONFIGURE, "exchange", name)
        return vhost, name


def _as_is(row: dict[str, Any]) -> dict[str, Any]:
    return row


def _moved(rows: list[ExchangeStats], ages: Ages) -> dict[str, Any]:
    """Return the field `message_stats` of an exchange, from what each node says."""
    last = summed_last(row.last for row in rows)
    return named(EXCHANGE_FIGURES, last, summed(row.samples for row in rows), ages.rates_ms)


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
        "unknown_arguments": unknown_exchange_arguments(exchange.arguments),
        "policy": policy.name if policy is not None else None,
    }
