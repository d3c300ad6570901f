"""Commands of the catalog in the audit log, field by field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.result import Exists, Ok, Result
from headrace_broker.runtime.security import audit

_Shown = tuple[str, dict[str, Any]]  # target, details

# What is proposed by nodes themselves, or with each connection that ends, is no change of anybody.
UNRECORDED: Final = frozenset(
    {commands.Barrier, commands.Bootstrap, commands.DeclareNodes, commands.AnnounceNode}
    | {commands.DropTransient, commands.SettleMembers}
)


def record(command: commands.Command, result: Result) -> None:
    """Record what became of a command, but for one that was done already."""
    kind = type(command)
    if kind in UNRECORDED or isinstance(result, Exists):
        return
    outcome = audit.DONE if isinstance(result, Ok) else result.text
    target, details = shown(command)
    audit.record(action_of(kind), target, outcome, **details)


def record_lost(command: commands.Command) -> None:
    """Record a command that was not answered: it may be done later."""
    if type(command) not in UNRECORDED:
        target, details = shown(command)
        audit.record(action_of(type(command)), target, "not answered", **details)


def action_of(kind: type[commands.Command]) -> str:
    """Return what a kind of command is called, as in the log of the catalog."""
    return str(kind.__struct_config__.tag)


def shown(command: commands.Command) -> _Shown:
    """Return target and details of a command, without secrets."""
    describe = _DESCRIBED.get(type(command))
    return describe(command) if describe is not None else ("", {})


def _vhost(command: Any) -> _Shown:
    vhost = command.vhost
    kind = vhost.default_queue_type
    return vhost.name, {"description": vhost.description, "default_queue_type": kind}


def _cluster_version(command: Any) -> _Shown:
    return "", {"to": command.to}


def _named(command: Any) -> _Shown:
    return command.name, {}


def _user(command: Any) -> _Shown:
    user = command.user
    password = "given" if user.password_hash else "none"
    return user.name, {
        "tags": ",".join(user.tags),
        "password": password,
        "end_sessions": command.end_sessions,
    }


def _permission(command: Any) -> _Shown:
    found = command.permission
    rights = {"configure": found.configure, "write": found.write, "read": found.read}
    return found.user, {"vhost": found.vhost} | rights


def _no_permission(command: Any) -> _Shown:
    return command.user, {"vhost": command.vhost}


def _topic_permission(command: Any) -> _Shown:
    found = command.permission
    rights = {"exchange": found.exchange, "write": found.write, "read": found.read}
    return found.user, {"vhost": found.vhost} | rights


def _no_topic_permissions(command: Any) -> _Shown:
    return command.user, {"vhost": command.vhost, "exchange": command.exchange}


def _policy(command: Any) -> _Shown:
    policy = command.policy
    return policy.name, {
        "vhost": policy.vhost,
        "operator": policy.operator,
        "pattern": policy.pattern,
        "apply_to": policy.apply_to,
        "priority": policy.priority,
        "definition": _json(policy.definition),
    }


def _no_policy(command: Any) -> _Shown:
    return command.name, {"vhost": command.vhost, "operator": command.operator}


def _vhost_limits(command: Any) -> _Shown:
    return command.vhost, {"limits": _json(command.limits)}


def _user_limits(command: Any) -> _Shown:
    return command.user, {"limits": _json(command.limits)}


def _parameter(command: Any) -> _Shown:
    return command.name, {"value": command.value}


def _advice(command: Any) -> _Shown:
    queues = dict.fromkeys(f"{each.vhost}/{each.queue}" for each in command.items)
    authors = dict.fromkeys(each.author for each in command.items)
    return ",".join(queues), {"items": len(command.items), "author": ",".join(authors)}


def _no_advice(command: Any) -> _Shown:
    more = {"kind": command.kind, "author": command.author}
    return command.queue, {"vhost": command.vhost} | more


def _exchange(command: Any) -> _Shown:
    found = command.exchange
    return found.name, {
        "vhost": found.vhost,
        "type": found.type,
        "arguments": _json(found.arguments),
    }


def _queue(command: Any) -> _Shown:
    return command.name, {
        "vhost": command.vhost,
        "type": command.kind,
        "exclusive": command.exclusive,
        "arguments": _json(command.arguments),
    }


def _no_queue(command: Any) -> _Shown:
    return command.name, {"vhost": command.vhost}


def _members(command: Any) -> _Shown:
    moved = {"add": _list(command.add), "remove": _list(command.remove)}
    return command.name, {"vhost": command.vhost} | moved


def _node(command: Any) -> _Shown:
    return str(command.node.id), {"name": command.node.name, "address": command.node.address}


def _no_node(command: Any) -> _Shown:
    return str(command.node), {}


def _maintenance(command: Any) -> _Shown:
    return str(command.node), {"on": command.on}


def _list(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes))


def _binding(command: Any) -> _Shown:
    found = command.binding
    return found.destination, {
        "vhost": found.vhost,
        "source": found.source,
        "destination_type": found.destination_type,
        "routing_key": found.routing_key,
        "arguments": _json(found.arguments),
    }


def _json(value: Any) -> str:
    """Return a value as JSON, "" for an empty one; what JSON has not is said by Python."""
    return msgspec.json.encode(value, enc_hook=str).decode() if value else ""


_DESCRIBED: Final[dict[type[commands.Command], Callable[[Any], _Shown]]] = {
    commands.DeclareVhost: _named,
    commands.PutVhost: _vhost,
    commands.DeleteVhost: _named,
    commands.PutUser: _user,
    commands.RehashUser: _named,
    commands.DeleteUser: _named,
    commands.PutPermission: _permission,
    commands.DeletePermission: _no_permission,
    commands.PutTopicPermission: _topic_permission,
    commands.DeleteTopicPermissions: _no_topic_permissions,
    commands.PutPolicy: _policy,
    commands.DeletePolicy: _no_policy,
    commands.SetVhostLimits: _vhost_limits,
    commands.SetUserLimits: _user_limits,
    commands.SetParameter: _parameter,
    commands.PutAdvice: _advice,
    commands.DeleteAdvice: _no_advice,
    commands.DeclareExchange: _exchange,
    commands.DeleteExchange: _no_queue,
    commands.DeclareQueue: _queue,
    commands.DeleteQueue: _no_queue,
    commands.SetMembers: _members,
    commands.AdmitNode: _node,
    commands.ForgetNode: _no_node,
    commands.SetMaintenance: _maintenance,
    commands.RaiseClusterVersion: _cluster_version,
    commands.Bind: _binding,
    commands.Unbind: _binding,
}
