"""`Exchange`, `Queue`, `Binding` and `Policy` in a broker."""

from __future__ import annotations

from typing import Any, Final

from headrace_operator.broker_api import BrokerError
from headrace_operator.declaring.subject import ConflictError, Declaration, Subject, differs
from headrace_operator.specs.kind import BINDING, EXCHANGE, POLICY, QUEUE

_SIZE: Final = "x-quorum-initial-group-size"
_TYPE: Final = "x-queue-type"
REFUSE: Final = "RefuseUnlessEmpty"


async def apply_exchange(subject: Subject) -> dict[str, Any]:
    """Declare an exchange.

    Raises:
        ConflictError: there is another one of this name.
        BrokerError: it is refused.
    """
    spec = subject.spec
    wanted = {
        "type": spec.get("type", "direct"),
        "durable": spec.get("durable", True),
        "auto_delete": spec.get("autoDelete", False),
        "internal": spec.get("internal", False),
        "arguments": spec.get("arguments") or {},
    }
    found = await subject.api.get("exchanges", subject.vhost, subject.name)
    if found is None:
        await subject.api.put(wanted, "exchanges", subject.vhost, subject.name)
    else:
        _check_alike(f"exchange '{subject.name}'", found, wanted)
    return {}


async def delete_exchange(subject: Subject) -> str:
    """Delete an exchange."""
    await subject.api.delete("exchanges", subject.vhost, subject.name)
    return ""


async def apply_queue(subject: Subject) -> dict[str, Any]:
    """Declare a queue, and have it have as many replicas as are wanted.

    Raises:
        ConflictError: there is another one of this name.
        BrokerError: it is refused.
    """
    spec, at = subject.spec, ("queues", subject.vhost, subject.name)
    kind, replicas = spec.get("type", "quorum"), spec.get("replicas")
    given = spec.get("arguments") or {}
    wanted = {"durable": spec.get("durable", True), "auto_delete": spec.get("autoDelete", False)}
    found = await subject.api.get(*at)
    if found is None:
        size = {_SIZE: replicas} if replicas else {}
        arguments = {**size, **given, _TYPE: kind}
        await subject.api.put({**wanted, "arguments": arguments}, *at)
        found = await subject.api.get(*at) or {}
    else:
        what = f"queue '{subject.name}'"
        declared = _declared(found["arguments"], given)
        shown = {**found, "arguments": declared}
        _check_alike(what, shown, {**wanted, "type": kind, "arguments": _declared(given, given)})
        if replicas:
            await _resize(subject, found["members"], replicas)
    return {
        "leader": found.get("leader") or None,
        "members": found.get("members") or [],
        "messages": found.get("messages"),
        "consumers": found.get("consumers"),
    }


def _declared(arguments: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return arguments without those that the operator adds itself."""
    own = {_TYPE, _SIZE} - given.keys()
    return {key: value for key, value in arguments.items() if key not in own and key != _TYPE}


async def _resize(subject: Subject, members: list[str], replicas: int) -> None:
    """Add or remove one replica, if all that there are are settled.

    Raises:
        BrokerError: it is refused.
    """
    if len(members) == replicas:
        return
    at = ("queues", subject.vhost, subject.name, "members")
    view = await subject.api.get(*at)
    if view is None or not view["settled"]:
        return
    rows = await subject.api.rows("cluster", "nodes")
    load = {row["name"]: row["replicas"] for row in rows if _serves(row)}
    if len(members) < replicas:
        free = sorted([name for name in load if name not in members], key=lambda each: load[each])
        if not free:
            text = f"{replicas} replicas are wanted, and {len(members)} nodes serve"
            raise ConflictError(text)
        await subject.api.put(None, *at, free[0])
        return
    spare = [name for name in members if name != view["leader"]]
    away = [name for name in spare if name not in load]
    fullest = sorted(spare, key=lambda each: -load.get(each, 0))
    await subject.api.delete(*at, (away or fullest)[0])


def _serves(row: dict[str, Any]) -> bool:
    return bool(row["running"]) and not row["being_drained"]


async def delete_queue(subject: Subject) -> str:
    """Delete a queue, if it may be; return why not."""
    careful = subject.spec.get("deletionPolicy", REFUSE) == REFUSE
    query = "if-empty=true&if-unused=true" if careful else ""
    try:
        await subject.api.delete("queues", subject.vhost, subject.name, query=query)
    except BrokerError as error:
        if careful and not error.temporary:
            return str(error)
        raise
    return ""


def _check_alike(what: str, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Compare what never changes of a thing.

    Raises:
        ConflictError: it is otherwise.
    """
    for key, value in wanted.items():
        if found.get(key) != value:
            is_that = f"{key} is {found.get(key)!r} and not {value!r}"
            raise ConflictError(f"{what} has been declared otherwise: {is_that}")


async def apply_binding(subject: Subject) -> dict[str, Any]:
    """Bind.

    Raises:
        BrokerError: it is refused.
    """
    if await _binding(subject) is None:
        spec = subject.spec
        body = {"routing_key": spec.get("routingKey", ""), "arguments": spec.get("arguments") or {}}
        await subject.api.post(body, *_ends(subject))
    return {}


async def delete_binding(subject: Subject) -> str:
    """Unbind."""
    found = await _binding(subject)
    if found is not None:
        await subject.api.delete(*_ends(subject), found["properties_key"])
    return ""


def _ends(subject: Subject) -> tuple[str, ...]:
    spec, destination = subject.spec, subject.spec["destination"]
    kind, name = ("q", "queue") if "queue" in destination else ("e", "exchange")
    return ("bindings", subject.vhost, "e", spec["source"], kind, destination[name])


async def _binding(subject: Subject) -> dict[str, Any] | None:
    """Return the binding, None when it is not there."""
    spec = subject.spec
    wanted = (spec.get("routingKey", ""), spec.get("arguments") or {})
    rows = await subject.api.get(*_ends(subject)) or []
    return next((row for row in rows if (row["routing_key"], row["arguments"]) == wanted), None)


async def apply_policy(subject: Subject) -> dict[str, Any]:
    """Set a policy.

    Raises:
        BrokerError: it is refused.
    """
    spec = subject.spec
    wanted = {
        "pattern": spec["pattern"],
        "definition": spec["definition"],
        "priority": spec.get("priority", 0),
        "apply-to": spec.get("applyTo", "all"),
    }
    if differs(await subject.api.get(*_policy(subject)), wanted):
        await subject.api.put(wanted, *_policy(subject))
    return {}


async def delete_policy(subject: Subject) -> str:
    """Delete a policy."""
    await subject.api.delete(*_policy(subject))
    return ""


def _policy(subject: Subject) -> tuple[str, str, str]:
    kind = "operator-policies" if subject.spec.get("operator") else "policies"
    return (kind, subject.vhost, subject.name)


DECLARATIONS: Final = (
    Declaration(EXCHANGE, apply_exchange, delete_exchange),
    Declaration(QUEUE, apply_queue, delete_queue, careful=True),
    Declaration(BINDING, apply_binding, delete_binding),
    Declaration(POLICY, apply_policy, delete_policy),
)
