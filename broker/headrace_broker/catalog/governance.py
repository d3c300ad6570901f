"""The part of the catalog's machine about vhosts, users, permissions, and policies.

What a policy, a limit or a regular expression may say is not decided here but before a command is
proposed (`catalog.proposal`): settings and rules come and go with versions, and what the machine
answers to an entry it has to answer for ever. What means nothing to a version is kept, and counts
for nothing there.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headrace_broker.catalog import command as commands
from headrace_broker.catalog.result import Exists, NotFound, Ok, Refused, Result
from headrace_broker.catalog.store import CatalogStore
from headrace_broker.catalog.version import SESSIONS
from headrace_broker.model.definition import HASHED_SCRYPT, Exchange, Permission, Vhost
from headrace_broker.model.former_name import current_name
from headrace_broker.model.limits import ADVICE_MAX, NAME_BYTES_MAX

ADVICE_FULL: Final = f"{ADVICE_MAX} pieces of advice are kept, which is the maximum"

# Name, type and whether only other exchanges may feed it: those that RabbitMQ 4 gives a vhost.
DEFAULT_EXCHANGES: Final = (
    ("amq.direct", "direct", False),
    ("amq.fanout", "fanout", False),
    ("amq.headers", "headers", False),
    ("amq.match", "headers", False),
    ("amq.rabbitmq.trace", "topic", True),
    ("amq.topic", "topic", False),
)


def name_problem(kind: str, name: str) -> str:
    """Return why a name cannot be used, "" when it can."""
    byte_count = len(name.encode())
    if 1 <= byte_count <= NAME_BYTES_MAX:
        return ""
    return f"the {kind}'s name has {byte_count} bytes, not 1 to {NAME_BYTES_MAX}"


def no_vhost(name: str) -> NotFound:
    """Return the answer to a command about a vhost that is not there."""
    return NotFound(f"vhost '{name}'")


class Governance(CatalogStore):
    """Applies the commands about vhosts, users, permissions, limits and policies."""

    # Vhosts

    def _declare_vhost(self, command: commands.DeclareVhost) -> Result:
        current = self.vhost(command.name)
        if current is not None:
            return Exists(current)
        problem = name_problem("vhost", command.name)
        if problem:
            return Refused(problem)
        return Ok(self._create_vhost(Vhost(command.name)))

    def _put_vhost(self, command: commands.PutVhost) -> Result:
        wanted = command.vhost
        problem = name_problem("vhost", wanted.name)
        if problem:
            return Refused(problem)
        current = self.vhost(wanted.name)
        if current == wanted:
            return Exists(current)
        if current is not None:
            self.change_vhost(wanted)
            return Ok(wanted)
        self._create_vhost(wanted)
        if self.guarded and self.user(command.creator) is not None:
            self._grant_all(command.creator, wanted.name)
        return Ok(wanted)

    def _create_vhost(self, vhost: Vhost) -> Vhost:
        self.put_vhost(vhost)
        for exchange, kind, internal in DEFAULT_EXCHANGES:
            self.put_exchange(Exchange(vhost.name, exchange, kind, internal=internal))
        return vhost

    def _delete_vhost(self, command: commands.DeleteVhost) -> Result:
        vhost = self.vhost(command.name)
        if vhost is None:
            return no_vhost(command.name)
        self.drop_vhost(vhost)
        return Ok(vhost)

    def _set_vhost_limits(self, command: commands.SetVhostLimits) -> Result:
        if self.vhost(command.vhost) is None:
            return no_vhost(command.vhost)
        before = {} if command.replace else self.vhost_limits(command.vhost)
        self.put_vhost_limits(command.vhost, _changed(before, command.limits))
        return Ok(self.vhost_limits(command.vhost))

    # Users

    def _put_user(self, command: commands.PutUser) -> Result:
        problem = name_problem("user", command.user.name)
        if problem:
            return Refused(problem)
        is_new = self.user(command.user.name) is None
        self.put_user(command.user)
        if command.as_of >= SESSIONS and (is_new or command.end_sessions):
            self.end_sessions(command.user.name)
        return Ok(command.user)

    def _rehash_user(self, command: commands.RehashUser) -> Result:
        user = self.user(command.name)
        if user is None:
            return NotFound(f"user '{command.name}'")
        if user.password_hash != command.current:
            return Exists(user)
        hashed = msgspec.structs.replace(
            user, salt=command.salt, password_hash=command.password_hash, hashing=HASHED_SCRYPT
        )
        self.put_user(hashed)
        return Ok(hashed)

    def _delete_user(self, command: commands.DeleteUser) -> Result:
        user = self.user(command.name)
        if user is None:
            return NotFound(f"user '{command.name}'")
        self.drop_user(command.name)
        return Ok(user)

    def _set_user_limits(self, command: commands.SetUserLimits) -> Result:
        if self.user(command.user) is None:
            return NotFound(f"user '{command.user}'")
        before = {} if command.replace else self.user_limits(command.user)
        self.put_user_limits(command.user, _changed(before, command.limits))
        return Ok(self.user_limits(command.user))

    # Permissions

    def _put_permission(self, command: commands.PutPermission) -> Result:
        wanted = command.permission
        if self.vhost(wanted.vhost) is None:
            return no_vhost(wanted.vhost)
        if self.user(wanted.user) is None:
            return NotFound(f"user '{wanted.user}'")
        self._guard()
        self.put_permission(wanted)
        return Ok(wanted)

    def _guard(self) -> None:
        """Let permissions decide from now on; what everybody could do until now, they may do."""
        if self.guarded:
            return
        self.guarded = True
        for user in self.users():
            for vhost in self.vhosts():
                self._grant_all(user.name, vhost.name)

    def _grant_all(self, user: str, vhost: str) -> None:
        self.put_permission(Permission(user, vhost, ".*", ".*", ".*"))

    def _delete_permission(self, command: commands.DeletePermission) -> Result:
        if self.vhost(command.vhost) is None:
            return no_vhost(command.vhost)
        if self.user(command.user) is None:
            return NotFound(f"user '{command.user}'")
        self._guard()
        permission = self.permission(command.user, command.vhost)
        if permission is not None:
            self.drop_permission(permission)
        return Ok(permission)

    # Topic permissions

    def _put_topic_permission(self, command: commands.PutTopicPermission) -> Result:
        wanted = command.permission
        problem = name_problem("exchange", wanted.exchange)
        if problem:
            return Refused(problem)
        if self.vhost(wanted.vhost) is None:
            return no_vhost(wanted.vhost)
        if self.user(wanted.user) is None:
            return NotFound(f"user '{wanted.user}'")
        if self.topic_permission(wanted.user, wanted.vhost, wanted.exchange) == wanted:
            return Exists(wanted)
        self.put_topic_permission(wanted)
        return Ok(wanted)

    def _delete_topic_permissions(self, command: commands.DeleteTopicPermissions) -> Result:
        if self.vhost(command.vhost) is None:
            return no_vhost(command.vhost)
        if self.user(command.user) is None:
            return NotFound(f"user '{command.user}'")
        doomed = [
            told
            for told in self.topic_permissions(command.vhost)
            if told.user == command.user and command.exchange in ("", told.exchange)
        ]
        for told in doomed:
            self.drop_topic_permission(told)
        return Ok(tuple(doomed))

    # Policies

    def _put_policy(self, command: commands.PutPolicy) -> Result:
        policy = command.policy
        if self.vhost(policy.vhost) is None:
            return no_vhost(policy.vhost)
        problem = name_problem("operator policy" if policy.operator else "policy", policy.name)
        if problem:
            return Refused(problem)
        self.put_policy(policy)
        return Ok(policy)

    def _delete_policy(self, command: commands.DeletePolicy) -> Result:
        policy = self.policy(command.vhost, command.name, command.operator)
        if policy is None:
            kind = "operator policy" if command.operator else "policy"
            return NotFound(f"{kind} '{command.name}' in vhost '{command.vhost}'")
        self.drop_policy(policy)
        return Ok(policy)

    # Parameters

    def _set_parameter(self, command: commands.SetParameter) -> Result:
        name, value = current_name(command.name), command.value
        problem = name_problem("limit", name)
        if problem:
            return Refused(problem)
        if value is not None:
            self.put_parameter(name, value)
        elif name in self.parameters():
            self.drop_parameter(name)
        return Ok(value)

    # Advice

    def _put_advice(self, command: commands.PutAdvice) -> Result:
        for advice in command.items:
            if self.queue(advice.vhost, advice.queue) is None:
                return NotFound(f"queue '{advice.queue}' in vhost '{advice.vhost}'")
        self.advice.lapse(command.at_ms)
        if not self.advice.fits(command.items):
            return Refused(ADVICE_FULL)
        self.advice.put(command.items)
        return Ok(len(command.items))

    def _delete_advice(self, command: commands.DeleteAdvice) -> Result:
        doomed = self.advice.drop(command.vhost, command.queue, command.kind, command.author)
        return Ok(len(doomed)) if doomed else Exists(0)


def _changed(limits: dict[str, int], changes: dict[str, int]) -> dict[str, int]:
    """Return limits with changes made; a negative value removes one."""
    merged = {**limits, **changes}
    return {name: merged[name] for name in sorted(merged) if merged[name] >= 0}
