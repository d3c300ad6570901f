"""/api/flow/limits: the limits of flow control, for the whole cluster."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from aiohttp import web
from typing_extensions import TypedDict

from headrace_broker.catalog.command import SetParameter
from headrace_broker.management.http.access import administrator, monitor
from headrace_broker.management.http.administration import Administration
from headrace_broker.management.http.answer import bad_request, check, done, json_answer, not_found
from headrace_broker.management.http.body import decode
from headrace_broker.management.http.listing import listing
from headrace_broker.management.http.route import (
    ADMINISTRATOR,
    MONITORING,
    Route,
    deleted,
    got,
    listed,
    put,
)
from headrace_broker.management.http.status_source import StatusSource
from headrace_broker.model.flow_parameter import (
    PARAMETERS,
    parameter_problem,
    shown_value,
    stored_value,
)
from headrace_broker.runtime.intake.flow_settings import CLUSTER, Setting

ALTERNATIVE: Final = {name.replace("-", "_"): name for name in PARAMETERS}


class ParameterBody(msgspec.Struct):
    """Body of PUT /api/flow/limits/NAME."""

    value: Any


class LimitView(TypedDict):
    """A limit of flow control."""

    name: str
    value: Any
    default: Any
    unit: str
    description: str
    rule: str
    source: str
    set: bool


class FlowLimitEndpoints:
    """Answers requests about limits of flow control."""

    def __init__(self, node: Administration, source: StatusSource) -> None:
        self._node = node
        self._source = source

    def routes(self) -> list[Route]:
        """Return the route table."""
        return [
            listed(
                "/api/flow/limits", self._list, "Limits of flow control.", LimitView, MONITORING
            ),
            got(
                "/api/flow/limits/{limit}",
                self._get,
                "A limit of flow control.",
                LimitView,
                MONITORING,
            ),
            put(
                "/api/flow/limits/{limit}",
                self._put,
                "Set a limit for all nodes.",
                ParameterBody,
                ADMINISTRATOR,
            ),
            deleted(
                "/api/flow/limits/{limit}",
                self._delete,
                "Let each node have the limit of its configuration.",
                ADMINISTRATOR,
            ),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        monitor()
        found = self._source.flow_limits()
        rows = [_render(name, setting) for name, setting in found.items()]
        return await listing(request, rows, dict, name=lambda row: row["name"])

    async def _get(self, request: web.Request) -> web.Response:
        monitor()
        name = _name(request)
        return json_answer(_render(name, self._source.flow_limits()[name]))

    async def _put(self, request: web.Request) -> web.Response:
        administrator()
        name = _name(request)
        given = (await decode(request, ParameterBody)).value
        value = stored_value(given)
        problem = parameter_problem(name, given if value is None else value)
        if problem or value is None:
            raise bad_request(problem)
        check(await self._node.submit(SetParameter(name, value)))
        return done()

    async def _delete(self, request: web.Request) -> web.Response:
        administrator()
        check(await self._node.submit(SetParameter(_name(request))))
        return done()


def _name(request: web.Request) -> str:
    given = request.match_info["limit"]
    name = ALTERNATIVE.get(given, given)
    if name not in PARAMETERS:
        raise not_found(f"limit '{given}'; limits are {', '.join(PARAMETERS)}")
    return name


def _render(name: str, setting: Setting) -> LimitView:
    parameter = PARAMETERS[name]
    return {
        "name": name,
        "value": shown_value(setting.value),
        "default": shown_value(setting.otherwise),
        "unit": parameter.unit,
        "description": parameter.reason,
        "rule": parameter.rule,
        "source": setting.source,
        "set": setting.source == CLUSTER,
    }
