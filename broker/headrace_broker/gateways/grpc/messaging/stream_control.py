"""Operations of the rest of the node on a publish stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from headrace_broker.gateways.grpc.messaging.publish_stream import PublishStream
from headrace_broker.gateways.grpc.server.errors import CallError
from headrace_broker.model.limits import CLOSE_SECONDS_MAX
from headrace_broker.model.status import ChannelStatus
from headrace_broker.runtime.clients.flow_state import activity_status, state_name
from headrace_broker.runtime.contract.port import ConnectionControl, ConnectionInfo
from headrace_broker.runtime.contract.traffic import ClientTraffic


def forced(reason: str) -> CallError:
    """Return the end of a call that the broker wants to end."""
    return CallError(grpc.StatusCode.ABORTED, "CONNECTION_FORCED", reason)


def cut_off_later(task: asyncio.Task[Any] | None) -> asyncio.TimerHandle:
    """Cancel the task of an ending call, if its client does not read."""
    assert task is not None, "a call has a task"
    return asyncio.get_running_loop().call_later(CLOSE_SECONDS_MAX, task.cancel)


class StreamControl(ConnectionControl):
    """The handle of one stream while it is open; it is listed with one channel."""

    def __init__(
        self, info: ConnectionInfo, stream: PublishStream, end: Callable[[CallError], None]
    ) -> None:
        self._info = info
        self._stream = stream
        self._end = end

    def shut_down(self, reason: str) -> None:
        """See `ConnectionControl`."""
        self._end(forced(reason))

    def traffic(self) -> list[tuple[int, ClientTraffic]]:
        """See `ConnectionControl`."""
        return [(1, self._stream.links.traffic)]

    def limits_changed(self) -> None:
        """See `ConnectionControl`."""
        self._stream.output.admission.wake()

    def channels(self, now_us: int) -> list[Any]:
        """See `ConnectionControl`."""
        flow = self._stream.flow
        return [
            ChannelStatus(
                number=1,
                prefetch_count=0,
                global_prefetch_count=0,
                confirm=self._stream.confirms.wanted,
                messages_unacknowledged=0,
                messages_unconfirmed=self._stream.confirms.outstanding_count,
                state=state_name(self._info.state, flow, now_us),
                flow=activity_status(flow, now_us),
            )
        ]
