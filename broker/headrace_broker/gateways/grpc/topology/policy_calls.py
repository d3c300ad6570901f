"""Calls about policies and operator policies."""

from __future__ import annotations

from headrace_broker.catalog.access import (
    Caller,
    check_administers,
    check_makes_policies,
    check_manages,
    check_policy,
)
from headrace_broker.catalog.command import DeletePolicy, PutPolicy
from headrace_broker.gateways.grpc.server.lookup import LookupService, check_name, done, missing
from headrace_broker.gateways.grpc.server.page import Pager
from headrace_broker.gateways.grpc.values.argument_table import read_table, written_table
from headrace_broker.model.definition import APPLY_ALL, Policy
from headrace_protos.broker.v1 import topology_pb2 as messages


class PolicyCalls:
    """Declares, deletes and describes policies."""

    def __init__(self, lookup: LookupService) -> None:
        self._lookup = lookup
        self._pager: Pager[Policy] = Pager("policies", lambda each: (each.vhost, each.name))

    async def declare(
        self, who: Caller, request: messages.DeclarePolicyRequest
    ) -> messages.DeclarePolicyResponse:
        """Create a policy, or change one."""
        wanted = request.policy
        vhost = await self._changeable(who, wanted.vhost, wanted.operator, "policy.vhost")
        check_name("policy.name", wanted.name)
        policy = Policy(
            vhost,
            wanted.name,
            wanted.pattern,
            read_table(wanted.definition, "policy.definition"),
            wanted.priority,
            wanted.apply_to or APPLY_ALL,
            wanted.operator,
        )
        lookup = self._lookup
        check_policy(lookup.rights, who, vhost, policy.definition)
        current = lookup.view.policy(vhost, policy.name, policy.operator)
        if policy != current:
            done(await self._lookup.node.submit(PutPolicy(policy)), "policy", "policy.")
        return messages.DeclarePolicyResponse(created=current is None)

    async def delete(
        self, who: Caller, request: messages.DeletePolicyRequest
    ) -> messages.DeleteResponse:
        """Delete a policy; one that is not there is no error."""
        vhost = await self._changeable(who, request.vhost, request.operator, "vhost")
        check_name("name", request.name)
        if await self._find(vhost, request.name, request.operator) is None:
            return messages.DeleteResponse(deleted=False)
        command = DeletePolicy(vhost, request.name, request.operator)
        done(await self._lookup.node.submit(command), "name")
        return messages.DeleteResponse(deleted=True)

    async def describe(
        self, who: Caller, request: messages.DescribePolicyRequest
    ) -> messages.Policy:
        """Return everything about a policy."""
        check_manages(who)
        vhost = await self._lookup.known_vhost(who, request.vhost)
        self._lookup.check_sees(who, vhost)
        check_name("name", request.name)
        policy = await self._find(vhost, request.name, request.operator)
        if policy is None:
            kind = "operator policy" if request.operator else "policy"
            raise missing(f"{kind} '{request.name}' in vhost '{vhost}'", "name")
        return _render(policy)

    async def list(
        self, who: Caller, request: messages.ListPoliciesRequest
    ) -> messages.ListPoliciesResponse:
        """List policies, or operator policies."""
        check_manages(who)
        vhosts = frozenset(await self._lookup.seen_vhosts(who, request.vhost))
        found = self._lookup.view.policies(operator=request.operator)
        rows = [policy for policy in found if policy.vhost in vhosts]
        policies, token = await self._pager.page(request.page, rows, _render)
        return messages.ListPoliciesResponse(policies=policies, next_token=token)

    async def _changeable(self, who: Caller, vhost: str, operator: bool, field: str) -> str:
        """Return a vhost in which the caller may change policies."""
        if operator:
            check_administers(who)
        else:
            check_makes_policies(who)
        return await self._lookup.enter(who, vhost, field)

    async def _find(self, vhost: str, name: str, operator: bool) -> Policy | None:
        if self._lookup.view.policy(vhost, name, operator) is None:
            await self._lookup.node.catch_up()
        return self._lookup.view.policy(vhost, name, operator)


def _render(policy: Policy) -> messages.Policy:
    return messages.Policy(
        vhost=policy.vhost,
        name=policy.name,
        pattern=policy.pattern,
        definition=written_table(policy.definition),
        priority=policy.priority,
        apply_to=policy.apply_to,
        operator=policy.operator,
    )
