"""All definitions as a file, in RabbitMQ's form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from headrace_broker.catalog.view import CatalogView
from headrace_broker.management.resources.parameters import global_parameters, parameters
from headrace_broker.management.resources.policies import render_policy
from headrace_broker.management.resources.users import render_user
from headrace_broker.management.resources.vhosts import render_vhost
from headrace_broker.model import build_info
from headrace_broker.model.definition import Exchange, Queue

RESERVED_PREFIX = "amq."

Body = dict[str, Any]


def cluster_definitions(view: CatalogView) -> Body:
    """Return the definitions of everything."""
    return {
        **_head(),
        "users": [_user(view, user.name) for user in view.users()],
        "vhosts": [render_vhost(vhost) for vhost in view.vhosts()],
        "permissions": [msgspec.structs.asdict(each) for each in view.permissions()],
        "topic_permissions": [msgspec.structs.asdict(each) for each in view.topic_permissions()],
        "global_parameters": list(global_parameters(view)),
        **_contents(view, None),
    }


def vhost_definitions(view: CatalogView, vhost: str) -> Body:
    """Return the definitions of what a vhost holds, without its name, for another one to take."""
    found = _contents(view, vhost)
    rows = {name: [_without_vhost(row) for row in found[name]] for name in found}
    return {**_head(), **rows}


def _head() -> Body:
    return {
        "product_name": "Headrace",
        "product_version": build_info.VERSION,
        "headrace_version": build_info.VERSION,
        "rabbitmq_version": build_info.RABBITMQ_VERSION,
    }


def _without_vhost(row: Body) -> Body:
    return {name: value for name, value in row.items() if name != "vhost"}


def _user(view: CatalogView, name: str) -> Body:
    user = view.user(name)
    assert user is not None
    row: Body = {**render_user(user, view.user_limits(name))}
    if user.loopback_only:
        row["loopback_only"] = True
    return row


def _contents(view: CatalogView, vhost: str | None) -> dict[str, list[Body]]:
    queues = [queue for queue in view.queues(vhost) if not queue.exclusive]
    known = {(queue.vhost, queue.name) for queue in queues}
    bindings = [
        binding
        for binding in view.bindings(vhost)
        if binding.destination_type != "queue" or (binding.vhost, binding.destination) in known
    ]
    return {
        "parameters": [dict(row) for row in parameters(view, vhost)],
        "policies": [dict(render_policy(policy)) for policy in view.policies(vhost)],
        "exchanges": _exchanges(view.exchanges(vhost)),
        "queues": [_queue(queue) for queue in queues],
        "bindings": [msgspec.structs.asdict(binding) for binding in bindings],
    }


def _exchanges(exchanges: Iterable[Exchange]) -> list[Body]:
    """Return exchanges without those that every vhost has."""
    return [
        msgspec.structs.asdict(each)
        for each in exchanges
        if not each.name.startswith(RESERVED_PREFIX)
    ]


def _queue(queue: Queue) -> Body:
    # What was left to the broker is said, for another cluster's defaults may be other ones.
    arguments = {"x-queue-type": queue.kind, **queue.arguments}
    return {
        "name": queue.name,
        "vhost": queue.vhost,
        "type": queue.kind,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "arguments": arguments,
    }
