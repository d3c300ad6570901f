"""Operations of the rest of the node on a consume stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace_broker.gateways.grpc.messaging.consume_stream import ConsumeStream
from headrace_broker.gateways.grpc.messaging.stream_control import forced
from headrace_broker.gateways.grpc.server.errors import CallError
from headrace_broker.model.status import ChannelStatus, ConsumerStatus
from headrace_broker.runtime.clients.flow_state import activity_status, state_name
from headrace_broker.runtime.contract.json_value import json_table
from headrace_broker.runtime.contract.port import ConnectionControl, ConnectionInfo
from headrace_broker.runtime.contract.traffic import ClientTraffic
from headrace_protos.broker.v1.messaging_pb2 import ConsumeOpen


class ConsumeControl(ConnectionControl):
    """The handle of one stream while it is open; it is listed with one channel and consumer."""

    def __init__(
        self,
        info: ConnectionInfo,
        stream: ConsumeStream,
        opening: ConsumeOpen,
        tag: str,
        queue: str,
        arguments: dict[str, Any],
        end: Callable[[CallError], None],
    ) -> None:
        self._info = info
        self._stream = stream
        self._opening = opening
        self._tag = tag
        self._queue = queue
        self._arguments = arguments
        self._end = end

    def shut_down(self, reason: str) -> None:
        """See `ConnectionControl`."""
        self._end(forced(reason))

    def traffic(self) -> list[tuple[int, ClientTraffic]]:
        """See `ConnectionControl`."""
        return [(1, self._stream.traffic)]

    def limits_changed(self) -> None:
        """See `ConnectionControl`; a consumer waits for none."""

    def channels(self, now_us: int) -> list[Any]:
        """See `ConnectionControl`."""
        consumer = ConsumerStatus(
            self._tag,
            self._queue,
            not self._opening.no_ack,
            self._opening.exclusive,
            int(self._stream.prefetch),
            json_table(self._arguments),
        )
        return [
            ChannelStatus(
                number=1,
                prefetch_count=0,
                global_prefetch_count=0,
                confirm=False,
                messages_unacknowledged=int(self._stream.ids.unsettled.count),
                messages_unconfirmed=0,
                consumers=(consumer,) if self._stream.is_attached else (),
                state=state_name(self._info.state, self._info.flow, now_us),
                flow=activity_status(self._info.flow, now_us),
            )
        ]
