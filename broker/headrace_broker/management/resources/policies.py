"""/api/policies and /api/operator-policies."""

from __future__ import annotations

from typing import Any, NotRequired

import msgspec
from aiohttp import web
from typing_extensions import TypedDict, override

from headrace_broker.catalog.command import DeletePolicy, PutPolicy
from headrace_broker.catalog.proposal import policy_defect
from headrace_broker.management.http.access import caller, check_enters, check_policy
from headrace_broker.management.http.answer import done, json_answer, not_found
from headrace_broker.management.http.body import decode
from headrace_broker.management.http.endpoints import Endpoints
from headrace_broker.management.http.listing import listing
from headrace_broker.management.http.route import (
    ADMINISTRATOR,
    MANAGEMENT,
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


class PolicyEndpoints(Endpoints):
    """Answers requests about policies."""

    _operator = False  # of operator policies
    _path = "/api/policies"
    _changer = POLICYMAKER  # role that is needed to change them

    @override
    def routes(self) -> list[Route]:
        return [
            row._replace(
                path=self._path + row.path,
                role=MANAGEMENT if row.method == "GET" else self._changer,
            )
            for row in self.decorated(PolicyEndpoints)
        ]

    @listed("", "Policies in vhosts that the user sees.", PolicyView)
    @listed("/{vhost}", "Policies of a vhost.", PolicyView)
    async def _list(self, request: web.Request) -> web.Response:
        vhost = await self._asked_vhost(request)
        who, view = caller(), self._node.view
        found = view.policies(vhost, self._operator)
        shown = [each for each in found if who.sees(view, each.vhost)]
        return await listing(request, shown, _described)

    @got("/{vhost}/{name}", "A policy.", PolicyView)
    async def _get(self, request: web.Request) -> web.Response:
        vhost = await self._known_vhost(request)
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

    async def _entered(self, request: web.Request) -> str:
        """Return the vhost of a path, in which the asker may change something."""
        vhost = await self._known_vhost(request)
        check_enters(caller(), self._node.view, vhost)
        return vhost

    @put("/{vhost}/{name}", "Set a policy.", PolicyBody)
    async def _put(self, request: web.Request) -> web.Response:
        vhost = await self._entered(request)
        body = await decode(request, PolicyBody)
        check_policy(caller(), self._node.view, vhost, body.definition)
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
        await self._submit(PutPolicy(policy))
        return done(created)

    @deleted("/{vhost}/{name}", "Delete a policy.")
    async def _delete(self, request: web.Request) -> web.Response:
        vhost = await self._entered(request)
        command = DeletePolicy(vhost, request.match_info["name"], self._operator)
        await self._submit(command)
        return done()


class OperatorPolicyEndpoints(PolicyEndpoints):
    """Answers requests about operator policies."""

    _operator = True
    _path = "/api/operator-policies"
    _changer = ADMINISTRATOR


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
