"""Connections, channels, log-ins and messages of a node's clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from headrace_broker.core.queue.messages.effect import REASON_EXPIRED, REASON_NAMES
from headrace_broker.runtime.contract.connection_info import AMQP, ConnectionInfo
from headrace_broker.runtime.dead_letter.service import DeadLetterService
from headrace_broker.runtime.metrics.metric import Sample
from headrace_broker.runtime.node.broker import NodeBroker

if TYPE_CHECKING:
    from headrace_broker.flow.intake import Intake
    from headrace_broker.runtime.contract.traffic import Traffic

PROTOCOLS: Final = ("amqp", "amqps", "grpc", "grpcs")


def protocol_of(info: ConnectionInfo) -> str:
    """Return the name of the listener that a connection came through."""
    return ("amqp" if info.protocol == AMQP else "grpc") + ("s" if info.tls is not None else "")


def client_samples(broker: NodeBroker) -> Iterator[Sample]:
    """Return connections, channels and log-ins."""
    infos = broker.connections.values()
    counts = Counter(map(protocol_of, infos))
    for protocol in PROTOCOLS:
        yield Sample("connections", counts[protocol], (protocol,))
    churn = broker.churn
    opened, closed = churn.channels()
    yield Sample("connections_opened_total", churn.connection_created)
    yield Sample("connections_closed_total", churn.connection_closed)
    for limit, count in broker.client_counts.refused_connections.items():
        yield Sample("connections_refused_total", count, (limit,))
    yield Sample("channels", _channels(infos))
    yield Sample("channels_opened_total", opened)
    yield Sample("channels_closed_total", closed)
    yield Sample("channels_refused_total", broker.client_counts.refused_channels)
    yield Sample("inputs_deferred_total", int(broker.effort_turns.deferred))
    yield Sample("calls_waiting", int(broker.calls.turns.waiting))
    yield Sample("calls_refused_total", int(broker.calls.turns.refused))
    yield Sample("loop_held_total", int(broker.loop_watch.held))
    for key, count in broker.login_counts.items():
        yield Sample("logins_total", count, key)


def _channels(infos: Iterable[ConnectionInfo]) -> int:
    return sum(info.channels for info in infos)


def message_samples(
    traffic: Traffic, intake: Intake, dead_letters: DeadLetterService
) -> Iterator[Sample]:
    """Return what became of messages."""
    yield Sample("messages_published_total", int(intake.received))
    yield Sample("messages_routed_total", int(traffic.publish))
    yield Sample("messages_confirmed_total", int(traffic.confirm))
    yield Sample("messages_unroutable_total", int(intake.unroutable))
    yield Sample("messages_returned_total", int(intake.returned))
    yield Sample("messages_delivered_total", int(traffic.deliver))
    yield Sample("messages_redelivered_total", int(traffic.redeliver))
    yield Sample("messages_acknowledged_total", int(traffic.ack))
    tally = traffic.tally
    for reason, name in REASON_NAMES.items():
        yield Sample("messages_dead_lettered_total", tally.lettered[reason], (name,))
        yield Sample("messages_discarded_total", tally.dropped[reason], (name,))
    expired = tally.lettered[REASON_EXPIRED] + tally.dropped[REASON_EXPIRED]
    yield Sample("messages_expired_total", expired)
    yield Sample("dead_letters_sent_total", dead_letters.sent_count)
    yield Sample("dead_letters_lost_total", dead_letters.lost_count)
    yield Sample("dead_letters_held_bytes", dead_letters.held_bytes)
