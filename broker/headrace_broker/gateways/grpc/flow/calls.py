"""Calls about flow control that are answered at once: why, top, limits."""

from __future__ import annotations

from typing import Final

import grpc

from headrace_broker.catalog.access import Caller, check_administers, check_manages, check_monitors
from headrace_broker.catalog.command import SetParameter
from headrace_broker.catalog.viewer import Viewer, viewer_of
from headrace_broker.gateways.grpc.flow.rendering import (
    render_connection,
    render_explanation,
    render_limit,
    render_queue,
)
from headrace_broker.gateways.grpc.server.errors import CallError, bad_field
from headrace_broker.gateways.grpc.server.lookup import LookupService, check_name, done
from headrace_broker.model.flow_parameter import PARAMETERS, parameter_problem, stored_value
from headrace_broker.model.flow_status import Explanation
from headrace_broker.model.limits import FLOW_ROWS_MAX
from headrace_broker.runtime.explain.flow_report import AmbiguousNameError, UnknownNameError
from headrace_protos.broker.v1 import flow_pb2 as messages

ROWS: Final = 50  # of a listing where nothing else is said; a screen of them
SUBJECT_BYTES_MAX: Final = 1024  # of a connection's name; no name is longer


class FlowCalls:
    """Explains and lists."""

    def __init__(self, lookup: LookupService) -> None:
        self._lookup = lookup

    async def why(self, who: Caller, request: messages.WhyRequest) -> messages.WhyResponse:
        """Say why something is slow."""
        check_manages(who)
        kind = request.WhichOneof("subject")
        if kind is None:
            raise bad_field("subject", "must be a connection, a queue or a name")
        subject = getattr(request, kind)
        if not 1 <= len(subject.encode()) <= SUBJECT_BYTES_MAX:
            raise bad_field(kind, f"must have 1 to {SUBJECT_BYTES_MAX} bytes")
        viewer = viewer_of(who, self._lookup.view)
        try:
            found = await self._explain(who, kind, subject, request.vhost, viewer)
        except UnknownNameError as error:
            raise _unknown(kind, str(error)) from None
        except AmbiguousNameError as error:
            raise _ambiguous(kind, str(error)) from None
        return render_explanation(found, self._lookup.view, viewer)

    async def _explain(
        self, who: Caller, kind: str, subject: str, vhost: str, viewer: Viewer
    ) -> Explanation:
        report = self._lookup.node.flow_report
        if kind == "connection":
            return await report.why_connection(subject, viewer)
        if kind == "queue" or vhost:
            await self._lookup.known_vhost(who, vhost)
            self._lookup.check_sees(who, vhost)
        if kind == "queue":
            queue = await self._lookup.known_queue(vhost, subject, "queue")
            return await report.why_queue(queue, viewer)
        return await report.why(subject, vhost, viewer)

    async def top(self, who: Caller, request: messages.TopRequest) -> messages.TopResponse:
        """List the most stopped publishers, and the queues that stop them."""
        check_manages(who)
        connections = _count("connections", request.connections)
        queues = _count("queues", request.queues)
        view = self._lookup.view
        viewer = viewer_of(who, view)
        report = self._lookup.node.flow_report
        top = await report.top(connections, viewer)
        largest = await report.queues(viewer)
        return messages.TopResponse(
            connections=[render_connection(row, view, viewer) for row in top.connections()],
            queues=[render_queue(row) for row in largest.queues()[:queues]],
            missing_nodes=sorted({*top.missing, *largest.missing}),
            left_out=top.left_out,
        )


class LimitCalls:
    """Reads and changes the limits of flow control."""

    def __init__(self, lookup: LookupService) -> None:
        self._lookup = lookup

    async def list(
        self, who: Caller, request: messages.ListLimitsRequest
    ) -> messages.ListLimitsResponse:
        """List the limits."""
        check_monitors(who)
        found = self._lookup.status.flow_limits()
        return messages.ListLimitsResponse(
            limits=[render_limit(name, setting) for name, setting in found.items()]
        )

    async def get(self, who: Caller, request: messages.GetLimitRequest) -> messages.Limit:
        """Return a limit."""
        check_monitors(who)
        return self._render(_known(request.name))

    async def set(self, who: Caller, request: messages.SetLimitRequest) -> messages.Limit:
        """Set a limit for the cluster."""
        check_administers(who)
        name = _known(request.name)
        kind = request.value.WhichOneof("kind")
        if kind is None:
            raise bad_field("value", f"must be {PARAMETERS[name].rule}")
        given = getattr(request.value, kind)
        value = stored_value(given)
        problem = parameter_problem(name, given if value is None else value)
        if problem or value is None:
            raise bad_field("value", problem)
        done(await self._lookup.node.submit(SetParameter(name, value)), "value")
        return self._render(name)

    async def reset(self, who: Caller, request: messages.ResetLimitRequest) -> messages.Limit:
        """Set a limit for the cluster no more."""
        check_administers(who)
        name = _known(request.name)
        done(await self._lookup.node.submit(SetParameter(name)), "name")
        return self._render(name)

    def _render(self, name: str) -> messages.Limit:
        return render_limit(name, self._lookup.status.flow_limits()[name])


def _count(field: str, asked: int) -> int:
    if asked > FLOW_ROWS_MAX:
        raise bad_field(field, f"must be at most {FLOW_ROWS_MAX}, not {asked}")
    return asked or ROWS


def _known(given: str) -> str:
    check_name("name", given)
    name = given.replace("_", "-")
    if name not in PARAMETERS:
        text = f"no limit '{given}'; limits are {', '.join(PARAMETERS)}"
        fields = [("name", f"must be one of {', '.join(PARAMETERS)}")]
        raise CallError(grpc.StatusCode.NOT_FOUND, "NOT_FOUND", text, fields)
    return name


def _unknown(field: str, text: str) -> CallError:
    return CallError(grpc.StatusCode.NOT_FOUND, "NOT_FOUND", text, [(field, text)])


def _ambiguous(field: str, text: str) -> CallError:
    code = grpc.StatusCode.FAILED_PRECONDITION
    return CallError(code, "AMBIGUOUS_NAME", text, [(field, text)])
