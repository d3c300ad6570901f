"""/api/policies and /api/operator-policies."""

from __future__ import annotations

from typing import Any, NotRequired

import msgspec
from aiohttp import web
from typing_extensions import TypedDict

from headrace_broker.catalog.command import DeletePolicy, PutPolicy
from headrace_broker.catalog.proposal import policy_defect
from headrace_broker.management.http.access import (
    Caller,
    administrator,
    caller,
    check_enters,
    check_policy,
    check_sees,
    policymaker,
)
from headrace_broker.management.http.administration import Administration, known_vhost
from headrace_broker.management.http.answer import check, done, json_answer, not_found
from headrace_broker.management.http.body import decode
from headrace_broker.management.http.listing import listing
from headrace_broker.management.http.route import (
    ADMINISTRATOR,
    POLICYMAKER,
    Route,
    deleted,
    got,
    listed,
    put,
)
from headrace_broker.model.definition import APPLY_ALL, Policy


class PolicyBody(msgspec.Struct, rename={"apply_to": "apply-to"}):
    """Body of PUT /api/policies/V/NAME."""

    pattern: str
    definition: dict[str, Any]
    priority: int = 0
    apply_to: str = APPLY_ALL


PolicyView = TypedDict(
    "PolicyView",
    {
        "vhost": str,
        "name": str,
        "pattern": str,
        "apply-to": str,
        "definition": dict[str, Any],
        "priority": int,
        "problem": NotRequired[str],
    },
)


class PolicyEndpoints:
    """Answers requests about policies of one kind.

    Args:
        node: the node.
        operator: of operator policies.
    """

    def __init__(self, node: Administration, operator: bool) -> None:
        self._node = node
        self._operator = operator

    def routes(self) -> list[Route]:
        """Return the route table."""
        changer = ADMINISTRATOR if self._operator else POLICYMAKER
        path = "/api/operator-policies" if self._operator else "/api/policies"
        return [
            listed(path, self._list, "Policies in vhosts that the user sees.", PolicyView),
            listed(path + "/{vhost}", self._list_vhost, "Policies of a vhost.", PolicyView),
            got(path + "/{vhost}/{name}", self._get, "A policy.", PolicyView),
            put(path + "/{vhost}/{name}", self._put, "Set a policy.", PolicyBody, changer),
            deleted(path + "/{vhost}/{name}", self._delete, "Delete a policy.", changer),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        who = caller()
        view = self._node.view
        found = view.policies(operator=self._operator)
        shown = [each for each in found if who.sees(view, each.vhost)]
        return await listing(request, shown, _described)

    async def _list_vhost(self, request: web.Request) -> web.Response:
        vhost = await known_vhost(self._node, request)
        check_sees(caller(), self._node.view, vhost)
        found = self._node.view.policies(vhost, self._operator)
        return await listing(request, found, _described)

    async def _get(self, request: web.Request) -> web.Response:
        vhost = await known_vhost(self._node, request)
        check_sees(caller(), self._node.view, vhost)
        name = request.match_info["name"]
        if self._find(vhost, name) is None:
            await self._node.catch_up()
        policy = self._find(vhost, name)
        if policy is None:
            kind = "operator policy" if self._operator else "policy"
            raise not_found(f"{kind} '{name}' in vhost '{vhost}'")
        return json_answer(_described(policy))

    def _find(self, vhost: str, name: str) -> Policy | None:
        return self._node.view.policy(vhost, name, self._operator)

    async def _changer(self, request: web.Request) -> tuple[Caller, str]:
        """Return caller and vhost, if the one may change policies in the other."""
        who = administrator() if self._operator else policymaker()
        vhost = await known_vhost(self._node, request)
        check_enters(who, self._node.view, vhost)
        return who, vhost

    async def _put(self, request: web.Request) -> web.Response:
        who, vhost = await self._changer(request)
        body = await decode(request, PolicyBody)
        check_policy(who, self._node.view, vhost, body.definition)
        policy = Policy(
            vhost,
            request.match_info["name"],
            body.pattern,
            body.definition,
            body.priority,
            body.apply_to,
            self._operator,
        )
        created = self._find(vhost, policy.name) is None
        check(await self._node.submit(PutPolicy(policy)))
        return done(created)

    async def _delete(self, request: web.Request) -> web.Response:
        _, vhost = await self._changer(request)
        command = DeletePolicy(vhost, request.match_info["name"], self._operator)
        check(await self._node.submit(command))
        return done()


def render_policy(policy: Policy) -> PolicyView:
    """Return a policy as JSON."""
    return {
        "vhost": policy.vhost,
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": policy.definition,
        "priority": policy.priority,
    }


def _described(policy: Policy) -> PolicyView:
    """Return a policy as JSON, and why it applies to nothing if its expression cannot be used."""
    view = render_policy(policy)
    if problem := policy_defect(policy):
        view["problem"] = problem
    return view
