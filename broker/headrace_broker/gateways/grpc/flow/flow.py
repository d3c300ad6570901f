# ruff: noqa: N802  (names of gRPC methods)
"""The service Flow: stopped publishers, their limits and causes; alarms; limits."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

import grpc

from headrace_broker.catalog.access import check_manages
from headrace_broker.catalog.permission_watch import ANYWHERE
from headrace_broker.gateways.grpc.flow.alarms import AlarmWatching
from headrace_broker.gateways.grpc.flow.calls import FlowCalls, LimitCalls
from headrace_broker.gateways.grpc.flow.watching import Watches
from headrace_broker.gateways.grpc.flow.watching_flow import FlowWatching
from headrace_broker.gateways.grpc.server.call import Admission
from headrace_broker.gateways.grpc.server.errors import RETRY_MS, CallError, Context
from headrace_broker.gateways.grpc.server.lookup import LookupService
from headrace_broker.gateways.grpc.server.unary import unary_of
from headrace_broker.runtime.alarm.alarm_watch import AlarmWatch
from headrace_broker.runtime.explain.flow_watch import FlowWatch, WatchFailedError
from headrace_protos.broker.v1 import flow_pb2 as messages
from headrace_protos.broker.v1.flow_pb2_grpc import FlowServicer, add_FlowServicer_to_server


class FlowService(FlowServicer):
    """Explains flow control to clients."""

    name = messages.DESCRIPTOR.services_by_name["Flow"].full_name

    def __init__(
        self,
        lookup: LookupService,  # looks things up
        admission: Admission,
        flow_watch: FlowWatch,  # has the newest picture of what is stopped
        alarm_watch: AlarmWatch,  # says what is scarce
    ) -> None:
        self.admission = admission  # lets calls in
        self.parts = {kind: kind(lookup) for kind in (FlowCalls, LimitCalls)}
        self._watches = Watches(lookup.view)
        self._flow = FlowWatching(lookup, flow_watch, self._watches)
        self._alarms = AlarmWatching(alarm_watch, self._watches)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register with a server."""
        add_FlowServicer_to_server(self, server)

    async def stop(self, reason: str) -> None:
        """End the streams."""
        self._watches.stop(reason)

    Why = unary_of(FlowCalls, FlowCalls.why)
    Top = unary_of(FlowCalls, FlowCalls.top)

    async def WatchFlow(  # type: ignore[override]  # writes by itself
        self, request: messages.WatchFlowRequest, context: Context
    ) -> None:
        """Stream stopped publishers and queues, and each change."""
        async with self.admission.call(context) as caller:
            judge = partial(self._flow.judge, request.vhost)
            try:
                with self.admission.while_allowed(caller, ANYWHERE, judge):
                    await _write(context, self._flow.stream(caller.who, request))
            except WatchFailedError as error:
                code = grpc.StatusCode.UNAVAILABLE
                raise CallError(code, "WATCH_FAILED", str(error), retry_ms=RETRY_MS) from error

    async def WatchAlarms(  # type: ignore[override]  # writes by itself
        self, request: messages.WatchAlarmsRequest, context: Context
    ) -> None:
        """Stream resources with alarms, and each change."""
        async with self.admission.call(context) as caller:
            with self.admission.while_allowed(caller, ANYWHERE, check_manages):
                await _write(context, self._alarms.stream(caller.who, request))

    ListLimits = unary_of(LimitCalls, LimitCalls.list)
    GetLimit = unary_of(LimitCalls, LimitCalls.get)
    SetLimit = unary_of(LimitCalls, LimitCalls.set)
    ResetLimit = unary_of(LimitCalls, LimitCalls.reset)


async def _write(context: Context, stream: AsyncGenerator[Any, None]) -> None:
    """Write all messages of a stream; the next one is made when the client has room for it."""
    async with aclosing(stream):
        async for message in stream:
            await context.write(message)
