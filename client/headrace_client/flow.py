"""Questions about flow control, and its limits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import grpc

from headrace_client.flow_value import (
    CLEAR,
    RUNNING,
    Alarm,
    Explanation,
    FlowChange,
    Limit,
    Top,
    read_alarm,
    read_limit,
)
from headrace_client.message_value import read_value
from headrace_client.service_calls import ServiceCalls
from headrace_client.watch import Watch
from headrace_protos.broker.v1 import flow_pb2 as pb
from headrace_protos.broker.v1.flow_pb2_grpc import FlowStub

if TYPE_CHECKING:
    from headrace_protos.broker.v1.flow_pb2_grpc import FlowAsyncStub
else:
    FlowAsyncStub = Any  # it exists in the types alone


class Flow(ServiceCalls[FlowAsyncStub]):
    """Flow control; `Client.flow`. For users with a tag, as `management`.

    Everything raises HeadraceError.
    """

    _service = FlowStub

    async def why(
        self, name: str = "", *, connection: str = "", queue: str = "", vhost: str | None = None
    ) -> Explanation:
        """Say why a connection or queue is slow, and who causes it.

        Args:
            name: of a queue or a connection, whichever there is.
            connection: its name, its id, its client's name for it, or how one of these begins.
            queue: its name.
            vhost: of the queue, None for the client's.
        """
        if sum(map(bool, (name, connection, queue))) != 1:
            raise ValueError("name, connection, queue: exactly one of them must be given")
        where = "" if connection else self._where(vhost)
        request = pb.WhyRequest(vhost=where)
        if connection:
            request.connection = connection
        elif queue:
            request.queue = queue
        else:
            request.name = name
        return read_value(Explanation, await self._call(lambda stub: stub.Why, request))

    async def top(self, *, connections: int = 0, queues: int = 0) -> Top:
        """List the most stopped publishers and their limits; at most so many, 0 for some 50."""
        request = pb.TopRequest(connections=connections, queues=queues)
        answer = await self._call(lambda stub: stub.Top, request)
        return read_value(Top, answer)

    # Watches

    def watch(
        self, *, vhost: str = "", queue: str = "", connections: bool = True, queues: bool = True
    ) -> Watch[FlowChange]:
        """Yield stopped publishers and queues, and then each change, for ever.

        Args:
            vhost: "" for all.
            queue: "" for all; of connections, those that it stops. Needs a vhost.
            connections: they are wanted.
            queues: they are wanted.
        """
        request = pb.WatchFlowRequest(
            vhost=vhost, queue=queue, without_connections=not connections, without_queues=not queues
        )

        def call(channel: grpc.aio.Channel) -> Any:
            return FlowStub(channel).WatchFlow(request, metadata=self._link.metadata)

        return Watch(
            self._link,
            "watch of flow control",
            call,
            read=lambda answer: (read_value(FlowChange, each) for each in answer.changes),
            is_over=lambda change: change.state == RUNNING,
            ended=lambda change: replace(change, state=RUNNING, limit="", text="", causes=()),
            same=lambda one, other: one.mark == other.mark,
        )

    def watch_alarms(self) -> Watch[Alarm]:
        """Yield resources with alarms on each node, and then each change, for ever."""

        def call(channel: grpc.aio.Channel) -> Any:
            request = pb.WatchAlarmsRequest()
            return FlowStub(channel).WatchAlarms(request, metadata=self._link.metadata)

        return Watch(
            self._link,
            "watch of alarms",
            call,
            read=lambda answer: map(read_alarm, answer.alarms),
            is_over=lambda alarm: alarm.stage == CLEAR,
            ended=lambda alarm: replace(alarm, stage=CLEAR, reason=""),
            same=lambda one, other: one.stage == other.stage,
        )

    # Limits

    async def limits(self) -> dict[str, Limit]:
        """Return the limits of flow control by name."""
        answer = await self._call(lambda stub: stub.ListLimits, pb.ListLimitsRequest())
        return {limit.name: read_limit(limit) for limit in answer.limits}

    async def limit(self, name: str) -> Limit:
        """Return a limit."""
        request = pb.GetLimitRequest(name=name)
        return read_limit(await self._call(lambda stub: stub.GetLimit, request))

    async def set_limit(self, name: str, value: int | float) -> Limit:
        """Set a limit for the cluster: a whole number, or a fraction of memory as a float."""
        given = pb.LimitValue()
        if isinstance(value, float):
            given.fraction = value
        else:
            given.number = value
        request = pb.SetLimitRequest(name=name, value=given)
        return read_limit(await self._call(lambda stub: stub.SetLimit, request))

    async def reset_limit(self, name: str) -> Limit:
        """Set a limit back to what the nodes' configuration says."""
        request = pb.ResetLimitRequest(name=name)
        return read_limit(await self._call(lambda stub: stub.ResetLimit, request))
