"""Validation before a proposal: rules that may differ between versions.

The machine applies such a command whatever it says, so that all versions agree on what is there.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.access import ADMINISTRATOR
from headrace_broker.catalog.advice import advice_problem
from headrace_broker.catalog.event import (
    Event,
    PermissionChanged,
    PolicyChanged,
    TopicPermissionChanged,
)
from headrace_broker.catalog.pattern import pattern_problem, standing_problem
from headrace_broker.catalog.permission import expanded
from headrace_broker.catalog.setting import (
    INT32_MAX,
    USER_LIMITS,
    VHOST_LIMITS,
    definition_problem,
    limits_problem,
)
from headrace_broker.model.definition import (
    APPLY_TO,
    QUEUE_CLASSIC,
    QUEUE_QUORUM,
    Permission,
    Policy,
    TopicPermission,
    User,
)
from headrace_broker.model.flow_parameter import parameter_problem
from headrace_broker.model.limits import NAME_BYTES_MAX, TAGS_MAX


def command_problem(command: commands.Command) -> str:
    """Return why a command must not be proposed, naming the field, "" when it may."""
    if isinstance(command, commands.PutPolicy):
        return _policy_problem(command.policy)
    if isinstance(command, commands.PutPermission):
        return _permission_problem(command.permission)
    if isinstance(command, commands.PutTopicPermission):
        return _topic_permission_problem(command.permission)
    if isinstance(command, commands.SetVhostLimits):
        return limits_problem(command.limits, VHOST_LIMITS)
    if isinstance(command, commands.SetUserLimits):
        return limits_problem(command.limits, USER_LIMITS)
    if isinstance(command, commands.PutAdvice):
        return advice_problem(command.items, command.at_ms)
    if isinstance(command, commands.SetParameter):
        return _parameter_problem(command)
    if isinstance(command, commands.PutVhost):
        kind = command.vhost.default_queue_type
        if kind not in ("", QUEUE_QUORUM, QUEUE_CLASSIC):
            return f"default_queue_type: '{kind}' is not '{QUEUE_QUORUM}' or '{QUEUE_CLASSIC}'"
        return _tags_problem(command.vhost.tags)
    if isinstance(command, commands.PutUser):
        return _tags_problem(command.user.tags)
    return ""


def administrator_problem(command: commands.Command, users: Iterable[User]) -> str:
    """Return why a change of a user must not be proposed, "" when it may.

    Nobody could give the tag administrator back once no user has it.
    """
    name = without_administrator(command)
    if not name or {user.name for user in users if ADMINISTRATOR in user.tags} != {name}:
        return ""
    field = "tags" if isinstance(command, commands.PutUser) else "name"
    return f"{field}: '{name}' is the last user with the tag {ADMINISTRATOR}; give it to another"


def without_administrator(command: commands.Command) -> str:
    """Return the user whom a command leaves without the tag administrator, "" for none."""
    if isinstance(command, commands.PutUser):
        return "" if ADMINISTRATOR in command.user.tags else command.user.name
    return command.name if isinstance(command, commands.DeleteUser) else ""


def _tags_problem(tags: tuple[str, ...]) -> str:
    if len(tags) > TAGS_MAX:
        return f"tags: there are {len(tags)}, more than {TAGS_MAX}"
    for tag in tags:
        byte_count = len(tag.encode("utf-8", "surrogatepass"))
        if not 1 <= byte_count <= NAME_BYTES_MAX:
            return f"tags: one has {byte_count} bytes, not 1 to {NAME_BYTES_MAX}"
    return ""


def _policy_problem(policy: Policy) -> str:
    if policy.apply_to not in APPLY_TO:
        choices = ", ".join(f"'{each}'" for each in APPLY_TO)
        return f"apply-to: '{policy.apply_to}' is not one of {choices}"
    if not -INT32_MAX <= policy.priority <= INT32_MAX:
        return f"priority: {policy.priority} is not within {-INT32_MAX} to {INT32_MAX}"
    return pattern_problem("pattern", policy.pattern) or definition_problem(
        policy.definition, policy.operator
    )


def _parameter_problem(command: commands.SetParameter) -> str:
    if command.value is None:
        return ""  # what another version knew may be taken back
    return parameter_problem(command.name, command.value)


def _permission_problem(permission: Permission) -> str:
    return (
        pattern_problem("configure", permission.configure)
        or pattern_problem("write", permission.write)
        or pattern_problem("read", permission.read)
    )


def _topic_permission_problem(told: TopicPermission) -> str:
    return pattern_problem("write", expanded(told.write, told)) or pattern_problem(
        "read", expanded(told.read, told)
    )


def policy_defect(policy: Policy) -> str:
    """Return why a policy of the catalog applies to nothing, "" when its expression can be used."""
    return standing_problem("pattern", policy.pattern)


def permission_defect(told: Permission) -> str:
    """Return why a permission of the catalog allows nothing of an operation, "" when it may."""
    return (
        standing_problem("configure", told.configure)
        or standing_problem("write", told.write)
        or standing_problem("read", told.read)
    )


def topic_permission_defect(told: TopicPermission) -> str:
    """Return why a topic permission allows no key for an operation, "" when it may."""
    return standing_problem("write", expanded(told.write, told)) or standing_problem(
        "read", expanded(told.read, told)
    )


def event_defect(event: Event) -> str:
    """Return the part of a stored policy or permission that has no effect, else ""."""
    if isinstance(event, PolicyChanged) and event.policy is not None:
        kind = "operator policy" if event.operator else "policy"
        what, effect = f"the {kind} '{event.name}'", "it applies to nothing"
        problem = policy_defect(event.policy)
    elif isinstance(event, PermissionChanged) and event.permission is not None:
        what, effect = f"the permission of user '{event.user}'", "nothing is allowed by it"
        problem = permission_defect(event.permission)
    elif isinstance(event, TopicPermissionChanged) and event.permission is not None:
        what = f"the topic permission of user '{event.user}' for exchange '{event.exchange}'"
        effect = "no routing key is allowed by it"
        problem = topic_permission_defect(event.permission)
    else:
        return ""
    return f"{what} in vhost '{event.vhost}': {problem}; {effect}" if problem else ""
