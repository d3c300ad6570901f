"""/api/parameters and /api/global-parameters: other names for limits and operator policies."""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final

import msgspec
from aiohttp import web
from typing_extensions import TypedDict

from headrace_broker.catalog.command import (
    AnyCommand,
    DeletePolicy,
    PutPolicy,
    SetParameter,
    SetVhostLimits,
)
from headrace_broker.catalog.view import CatalogView
from headrace_broker.management.http.access import caller, check_enters
from headrace_broker.management.http.answer import bad_request, done, json_answer, not_found
from headrace_broker.management.http.body import converted, decode
from headrace_broker.management.http.endpoints import Endpoints
from headrace_broker.management.http.listing import listing
from headrace_broker.management.http.route import (
    ADMINISTRATOR,
    POLICYMAKER,
    deleted,
    got,
    listed,
    put,
)
from headrace_broker.management.resources.policies import PolicyBody, render_policy
from headrace_broker.model.definition import Policy
from headrace_broker.model.flow_parameter import PARAMETERS, shown_value, stored_value

VHOST_LIMITS: Final = "vhost-limits"
LIMITS: Final = "limits"  # the only name of that component
OPERATOR_POLICY: Final = "operator_policy"
COMPONENTS: Final = (VHOST_LIMITS, OPERATOR_POLICY)
_COMPONENT: Final = {"component": {"enum": list(COMPONENTS)}}
_NAMES: Final = {"name": {"enum": list(PARAMETERS)}}


class ParameterView(TypedDict):
    """Parameter of a part of the broker in a vhost."""

    vhost: str
    component: str
    name: str
    value: Any


class GlobalParameterView(TypedDict):
    """Parameter of the whole cluster: a limit of flow control."""

    name: str
    value: Any


class ValueBody(msgspec.Struct):
    """Body of PUT /api/parameters/COMPONENT/V/NAME."""

    value: Any


def parameters(view: CatalogView, vhost: str | None = None) -> list[ParameterView]:
    """Return the parameters of a vhost, or of all."""
    found: list[ParameterView] = []
    for each in view.vhosts():
        limits = view.vhost_limits(each.name)
        if limits and vhost in (None, each.name):
            found.append(_row(each.name, VHOST_LIMITS, LIMITS, limits))
    for policy in view.policies(vhost, operator=True):
        value = {
            name: inner
            for name, inner in render_policy(policy).items()
            if name not in ("vhost", "name")
        }
        found.append(_row(policy.vhost, OPERATOR_POLICY, policy.name, value))
    return found


def _row(vhost: str, component: str, name: str, value: Any) -> ParameterView:
    return {"vhost": vhost, "component": component, "name": name, "value": value}


def parameter_command(component: str, vhost: str, name: str, value: Any) -> AnyCommand:
    """Return the command that sets a parameter; ApiError 400 where name or value is wrong."""
    if component == VHOST_LIMITS and name == LIMITS:
        return SetVhostLimits(vhost, converted(value, dict[str, int]), replace=True)
    if component == VHOST_LIMITS:
        raise bad_request(f"name: must be '{LIMITS}' for {VHOST_LIMITS}, not '{name}'")
    if component == OPERATOR_POLICY:
        body = converted(value, PolicyBody)
        told = (body.pattern, body.definition, body.priority, body.apply_to)
        return PutPolicy(Policy(vhost, name, *told, operator=True))
    raise _no_component(component)


def global_parameters(view: CatalogView) -> list[GlobalParameterView]:
    """Return the limits of flow control that are set for the cluster."""
    found = view.parameters()
    return [{"name": name, "value": shown_value(found[name])} for name in sorted(found)]


def global_command(name: str, value: Any) -> AnyCommand:
    """Return the command that sets a global parameter; ApiError 400 as `parameter_command`."""
    if name not in PARAMETERS:
        raise bad_request(f"name: '{name}' is not known; names are {', '.join(PARAMETERS)}")
    stored = stored_value(value)
    if stored is None:
        raise bad_request(f"value: must be {PARAMETERS[name].rule}")
    return SetParameter(name, stored)


def _no_component(component: str) -> Exception:
    return bad_request(f"component: '{component}' is not one of {', '.join(COMPONENTS)}")


class ParameterEndpoints(Endpoints):
    """Answers requests about parameters."""

    async def _rows(self, request: web.Request) -> list[ParameterView]:
        who, view = caller(), self._node.view
        vhost = await self._asked_vhost(request)
        component = request.match_info.get("component")
        return [
            row
            for row in parameters(view, vhost)
            if component in (None, row["component"]) and who.sees(view, row["vhost"])
        ]

    @listed("/api/parameters", "Parameters.", ParameterView, POLICYMAKER)
    @listed("/api/parameters/{component}", "Of a component.", ParameterView, POLICYMAKER)
    @listed(
        "/api/parameters/{component}/{vhost}",
        "Of a component in a vhost.",
        ParameterView,
        POLICYMAKER,
    )
    async def _list(self, request: web.Request) -> web.Response:
        return await listing(request, await self._rows(request), dict, name=itemgetter("name"))

    @got("/api/parameters/{component}/{vhost}/{name}", "A parameter.", ParameterView, POLICYMAKER)
    async def _get(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        for row in await self._rows(request):
            if row["name"] == name:
                return json_answer(row)
        raise not_found(f"parameter '{name}'")

    @put(
        "/api/parameters/{component}/{vhost}/{name}",
        "Set a parameter.",
        ValueBody,
        ADMINISTRATOR,
        values=_COMPONENT,
    )
    async def _put(self, request: web.Request) -> web.Response:
        vhost = await self._known_vhost(request)
        check_enters(caller(), self._node.view, vhost)
        body = await decode(request, ValueBody)
        component, name = request.match_info["component"], request.match_info["name"]
        command = parameter_command(component, vhost, name, body.value)
        known = {(row["component"], row["name"]) for row in parameters(self._node.view, vhost)}
        await self._submit(command)
        return done(created=(component, name) not in known)

    @deleted(
        "/api/parameters/{component}/{vhost}/{name}",
        "Remove a parameter.",
        ADMINISTRATOR,
        values=_COMPONENT,
    )
    async def _delete(self, request: web.Request) -> web.Response:
        vhost = await self._known_vhost(request)
        check_enters(caller(), self._node.view, vhost)
        component, name = request.match_info["component"], request.match_info["name"]
        if component == OPERATOR_POLICY:
            await self._submit(DeletePolicy(vhost, name, operator=True))
        elif component == VHOST_LIMITS and name == LIMITS and self._node.view.vhost_limits(vhost):
            await self._submit(SetVhostLimits(vhost, {}, replace=True))
        elif component in COMPONENTS:
            raise not_found(f"parameter '{name}' of {component} in vhost '{vhost}'")
        else:
            raise _no_component(component)
        return done()

    @listed("/api/global-parameters", "Of the cluster.", GlobalParameterView, ADMINISTRATOR)
    async def _globals(self, request: web.Request) -> web.Response:
        return await listing(
            request, global_parameters(self._node.view), dict, name=itemgetter("name")
        )

    @got("/api/global-parameters/{name}", "One of the cluster.", GlobalParameterView, ADMINISTRATOR)
    async def _global(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        for row in global_parameters(self._node.view):
            if row["name"] == name:
                return json_answer(row)
        raise not_found(f"global parameter '{name}'")

    @put(
        "/api/global-parameters/{name}",
        "Set one of the cluster.",
        ValueBody,
        ADMINISTRATOR,
        values=_NAMES,
    )
    async def _put_global(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        body = await decode(request, ValueBody)
        created = name not in self._node.view.parameters()
        await self._submit(global_command(name, body.value))
        return done(created)

    @deleted(
        "/api/global-parameters/{name}", "Remove one of the cluster.", ADMINISTRATOR, values=_NAMES
    )
    async def _delete_global(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self._node.view.parameters():
            raise not_found(f"global parameter '{name}'")
        await self._submit(SetParameter(name))
        return done()
