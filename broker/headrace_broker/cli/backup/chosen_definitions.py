"""Which definitions of a backup are restored: all, or what some queues need."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

Definitions = dict[str, Any]


def of_queues(definitions: Definitions, queues: Collection[tuple[str, str]]) -> Definitions:
    """Return queues, with their virtual hosts, and the exchanges and bindings that lead to them.

    Nothing of it changes what is there: users, permissions, policies and limits are left out.
    """
    vhosts = {vhost for vhost, _ in queues}
    wanted = {(vhost, "queue", name) for vhost, name in queues}
    bindings: list[Any] = []
    left = list(definitions.get("bindings", []))
    while True:
        leading = [each for each in left if _destination(each) in wanted]
        if not leading:
            break
        bindings += leading
        left = [each for each in left if _destination(each) not in wanted]
        wanted |= {(each["vhost"], "exchange", each["source"]) for each in leading}
    return {
        "vhosts": [each for each in definitions.get("vhosts", []) if each["name"] in vhosts],
        "queues": [
            each
            for each in definitions.get("queues", [])
            if (each["vhost"], "queue", each["name"]) in wanted
        ],
        "exchanges": [
            each
            for each in definitions.get("exchanges", [])
            if (each["vhost"], "exchange", each["name"]) in wanted
        ],
        "bindings": bindings,
    }


def _destination(binding: Any) -> tuple[str, str, str]:
    return binding["vhost"], binding["destination_type"], binding["destination"]
