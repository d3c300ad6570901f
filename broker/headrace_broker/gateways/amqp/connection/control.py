"""Operations of the rest of the node on a client connection."""

from __future__ import annotations

from typing import Any, final

from typing_extensions import override

from headrace_broker.codecs.frame_parser import FrameParser
from headrace_broker.gateways.amqp.channel.channel import Channel
from headrace_broker.gateways.amqp.channel.channel_port import ChannelOwner
from headrace_broker.gateways.amqp.connection.channels import Channels
from headrace_broker.gateways.amqp.messages.consumer import Consumer
from headrace_broker.gateways.publishing.admission_control import AdmissionControl
from headrace_broker.model.client_limits import ClientLimits
from headrace_broker.model.limits import PREFETCH_UNLIMITED
from headrace_broker.model.reply_code import CONNECTION_FORCED, AmqpError
from headrace_broker.model.status import ChannelStatus, ConsumerStatus
from headrace_broker.runtime.clients.flow_state import activity_status, state_name
from headrace_broker.runtime.contract.json_value import json_table
from headrace_broker.runtime.contract.port import ConnectionControl, ConnectionInfo
from headrace_broker.runtime.contract.traffic import ClientTraffic


@final
class Control(ConnectionControl):
    """The handle of one connection while it is open."""

    def __init__(
        self,
        channels: Channels,
        owner: ChannelOwner,
        info: ConnectionInfo,
        admission: AdmissionControl,
        parser: FrameParser,
        limits: ClientLimits,
    ) -> None:
        self._admission = admission
        self._parser = parser
        self._limits = limits
        self._channels = channels
        self._owner = owner
        self._info = info

    @override
    def shut_down(self, reason: str) -> None:
        self._owner.fail(AmqpError(CONNECTION_FORCED, reason), 0)

    @override
    def limits_changed(self) -> None:
        self._parser.body_bytes_max = self._limits.message_bytes_max
        self._parser.partial_bytes_max = self._limits.partial_bytes_max
        self._admission.wake()

    @override
    def traffic(self) -> list[tuple[int, ClientTraffic]]:
        channels = self._channels.open_channels()
        return [(int(each.number), each.links.traffic) for each in channels]

    @override
    def channels(self, now_us: int) -> list[Any]:
        state = self._info.state
        return [_channel_status(each, state, now_us) for each in self._channels.open_channels()]


def _channel_status(channel: Channel, state: str, now_us: int) -> ChannelStatus:
    return ChannelStatus(
        int(channel.number),
        int(channel.prefetch),
        int(channel.deliveries.limit),
        channel.confirms.enabled,
        int(channel.deliveries.unsettled.count),
        int(channel.confirms.outstanding_count),
        tuple([_consumer_status(consumer) for consumer in channel.consumers.values()]),
        state_name(state, channel.flow, now_us),
        activity_status(channel.flow, now_us),
        credit_left=int(channel.admission.credit.left),
    )


def _consumer_status(consumer: Consumer) -> ConsumerStatus:
    attachment = consumer.attachment
    prefetch = int(attachment.prefetch) if attachment is not None else 0
    return ConsumerStatus(
        consumer.tag,
        consumer.link.client.queue.name,
        not consumer.no_ack,
        attachment is not None and attachment.exclusive,
        0 if consumer.no_ack or prefetch == PREFETCH_UNLIMITED else prefetch,
        json_table(consumer.arguments),
    )
