"""Things that a request names: found, or answered by 404."""

from __future__ import annotations

from aiohttp import web

from headrace_broker.catalog.permission import DEFAULT_EXCHANGE_NAME
from headrace_broker.management.http.access import caller, check_sees
from headrace_broker.management.http.answer import not_found
from headrace_broker.model.definition import Exchange, Node, Queue, User
from headrace_broker.runtime.administration.administration import NodeAdministration


async def known_node(node: NodeAdministration, name: str) -> Node:
    """Return a node of the cluster by its name.

    Raises:
        ApiError: 404, there is none of that name.
    """
    if node.view.node_named(name) is None:
        await node.catch_up()
    found = node.view.node_named(name)
    if found is None:
        raise not_found(f"node '{name}'")
    return found


async def known_vhost(node: NodeAdministration, request: web.Request) -> str:
    """Return the vhost that a path names.

    Raises:
        AmqpError: ACCESS_REFUSED to who may not know whether it is there.
        ApiError: 404, there is none of that name.
    """
    vhost, who = request.match_info["vhost"], caller()
    if not who.sees(node.view, vhost) or node.view.vhost(vhost) is None:
        await node.catch_up()  # it may have been created through another node a moment ago
    check_sees(who, node.view, vhost)
    if node.view.vhost(vhost) is None:
        raise not_found(f"vhost '{vhost}'")
    return vhost


async def known_user(node: NodeAdministration, request: web.Request) -> User:
    """Return the user that a path names.

    Raises:
        ApiError: 404, there is none of that name.
    """
    name = request.match_info["user"]
    if node.view.user(name) is None:
        await node.catch_up()
    user = node.view.user(name)
    if user is None:
        raise not_found(f"user '{name}'")
    return user


async def known_queue(node: NodeAdministration, vhost: str, name: str) -> Queue:
    """Return a queue.

    Raises:
        ApiError: 404, there is none of that name.
    """
    if node.view.queue(vhost, name) is None:
        await node.catch_up()
    queue = node.view.queue(vhost, name)
    if queue is None:
        raise not_found(f"queue '{name}' in vhost '{vhost}'")
    return queue


def exchange_name(name: str) -> str:
    """Return the name of an exchange that a request names; "amq.default" stands for ""."""
    return "" if name == DEFAULT_EXCHANGE_NAME else name


async def known_exchange(node: NodeAdministration, vhost: str, name: str) -> Exchange:
    """Return an exchange; "" and "amq.default" are the default one.

    Raises:
        ApiError: 404, there is none of that name.
    """
    name = exchange_name(name)
    if not name:
        return Exchange(vhost, "", "direct")
    if node.view.exchange(vhost, name) is None:
        await node.catch_up()
    exchange = node.view.exchange(vhost, name)
    if exchange is None:
        raise not_found(f"exchange '{name}' in vhost '{vhost}'")
    return exchange
