"""Metrics of `/metrics/detailed`: of single queues, connections and channels.

There are as many series as objects. The families have the names that RabbitMQ gives them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

from headrace_broker.core.queue.state.consumer import ConsumerInfo
from headrace_broker.model.limits import METRIC_SERIES_MAX
from headrace_broker.runtime.contract.connection_info import ConnectionInfo
from headrace_broker.runtime.contract.traffic import ClientTraffic
from headrace_broker.runtime.explain.flow_facts import FlowFacts
from headrace_broker.runtime.metrics.metric import Metric
from headrace_broker.runtime.replica.queue_host import QueueHost

QUEUE: Final = ("vhost", "queue")
CONNECTION: Final = ("vhost", "user", "connection")
CHANNEL: Final = (*CONNECTION, "channel")


class Detail(NamedTuple):
    """A metric of each object."""

    family: str  # by which it is asked for
    metric: Metric
    value: Callable[[Any], float]  # of a `QueueHost`, `ConnectionInfo` or `ClientTraffic`


def _queue(family: str, name: str, text: str, value: Callable[[QueueHost], float]) -> Detail:
    return Detail(family, Metric(f"detailed_queue_{name}", text, QUEUE), value)


def _connection(
    family: str, name: str, text: str, value: Callable[[ConnectionInfo], float]
) -> Detail:
    metric = Metric(f"detailed_connection_{name}", text, CONNECTION)
    return Detail(family, metric, value)


def _channel(name: str, text: str, value: Callable[[ClientTraffic], int]) -> Detail:
    metric = Metric(f"detailed_channel_{name}_total", text, CHANNEL)
    return Detail(CHANNEL_FINE, metric, value)


def _is_busy(consumer: ConsumerInfo) -> bool:
    return consumer.attached and consumer.unsettled_count >= consumer.prefetch


def _busy(host: QueueHost) -> int:
    return sum(map(_is_busy, host.machine.consumers())) if host.machine.consumer_count else 0


COARSE: Final = "queue_coarse_metrics"
COUNT: Final = "queue_consumer_count"
FINE: Final = "queue_metrics"
CONNECTION_COARSE: Final = "connection_coarse_metrics"
CONNECTION_FINE: Final = "connection_metrics"
CHANNEL_FINE: Final = "channel_metrics"

QUEUE_DETAILS: Final = (
    _queue(
        COARSE, "messages_ready", "Messages that wait.", lambda each: int(each.machine.ready_count)
    ),
    _queue(
        COARSE,
        "messages_unacknowledged",
        "Messages at consumers and groups.",
        lambda each: int(each.machine.unsettled_count),
    ),
    _queue(
        COARSE,
        "messages_delayed",
        "Messages that become available later.",
        lambda each: int(each.machine.delayed_count),
    ),
    _queue(
        COARSE,
        "messages_dlx",
        "Kept dead letters: their targets have not confirmed them.",
        lambda each: int(each.machine.dead_count),
    ),
    _queue(
        COARSE, "messages", "All messages that it holds.", lambda each: int(each.machine.held_count)
    ),
    _queue(
        COUNT, "consumers", "Attached consumers.", lambda each: int(each.machine.consumer_count)
    ),
    _queue(FINE, "busy_consumers", "Consumers with a full prefetch.", _busy),
    _queue(
        FINE,
        "messages_bytes",
        "Bytes of its messages' bodies.",
        lambda each: int(each.machine.held_bytes),
    ),
    _queue(FINE, "saturated", "1 while it defers confirms.", lambda each: each.machine.saturated),
    _queue(
        FINE,
        "deferred_confirms",
        "Messages whose confirms are deferred.",
        lambda each: int(each.machine.deferred_count),
    ),
    _queue(
        FINE,
        "arrived_total",
        "Messages that arrived since the queue is led here.",
        lambda each: int(each.moves.arrived),
    ),
    _queue(
        FINE,
        "delivered_total",
        "Deliveries, redeliveries included.",
        lambda each: int(each.moves.delivered),
    ),
    _queue(FINE, "settled_total", "Messages settled.", lambda each: int(each.moves.settled)),
)

CONNECTION_DETAILS: Final = (
    _connection(CONNECTION_COARSE, "channels", "Open channels.", lambda each: each.channels),
    _connection(
        CONNECTION_COARSE,
        "owed_messages",
        "Debt of its account.",
        lambda each: int(each.account.messages) if each.account is not None else 0,
    ),
    _connection(
        CONNECTION_COARSE,
        "owed_bytes",
        "Debt of its account.",
        lambda each: int(each.account.byte_count) if each.account is not None else 0,
    ),
    _connection(
        CONNECTION_FINE,
        "buffered_messages",
        "Buffered publishes.",
        lambda each: each.buffered_messages,
    ),
    _connection(
        CONNECTION_FINE, "buffered_bytes", "The same, in bytes.", lambda each: each.buffered_bytes
    ),
    _connection(
        CONNECTION_FINE, "stopped", "1 while a limit stops it.", lambda each: each.flow.limit > 0
    ),
)

CHANNEL_DETAILS: Final = (
    _channel("published", "Messages that were published.", lambda each: int(each.publish)),
    _channel("confirmed", "Publisher confirms.", lambda each: int(each.confirm)),
    _channel(
        "delivered",
        "Deliveries, `basic.get` included.",
        lambda each: int(each.deliver + each.deliver_no_ack + each.get + each.get_no_ack),
    ),
    _channel("redelivered", "Redeliveries.", lambda each: int(each.redeliver)),
    _channel("acknowledged", "Acknowledgements.", lambda each: int(each.ack)),
)

FAMILIES: Final = tuple(
    dict.fromkeys(each.family for each in (*QUEUE_DETAILS, *CONNECTION_DETAILS, *CHANNEL_DETAILS))
)

# How many objects an answer leaves out for the sake of its bound.
LEFT_OUT: Final = Metric(
    "detailed_objects_left_out", "Objects beyond the bound on series.", ("kind",)
)


class ObjectTable(NamedTuple):
    """Metrics of the same objects."""

    labels: tuple[str, ...]  # names of what tells the objects apart
    keys: Sequence[tuple[str, ...]]  # of the objects
    columns: Iterator[tuple[Metric, list[float]]]  # with values in the order of `keys`, when asked


class ObjectSamples:
    """Reads the queues that a node leads, and its connections."""

    def __init__(self, facts: FlowFacts, series_max: int = METRIC_SERIES_MAX) -> None:
        self._facts = facts
        self._series_max = series_max  # of one answer

    def tables(
        self, families: Collection[str], vhosts: Collection[str] = ()
    ) -> Iterator[ObjectTable]:
        """Return metrics of queues, connections and channels, and how many of these are left out.

        Where there are too many objects the fullest queues and the connections that hold most go
        first, and channels in the order of their connections. `families` are of FAMILIES.
        """
        queues = [each for each in QUEUE_DETAILS if each.family in families]
        connections = [each for each in CONNECTION_DETAILS if each.family in families]
        channels = [each for each in CHANNEL_DETAILS if each.family in families]
        kinds = sum(map(bool, (queues, connections, channels)))
        share = self._series_max // max(kinds, 1)
        left_out: dict[tuple[str, ...], float] = {}
        if queues:
            led = [each for each in self._facts.led() if not vhosts or each.queue.vhost in vhosts]
            hosts = heapq.nlargest(share // len(queues), led, key=_fullness)
            left_out["queue",] = len(led) - len(hosts)
            keys = [(each.queue.vhost, each.queue.name) for each in hosts]
            yield ObjectTable(QUEUE, keys, _columns(queues, hosts))
        open_ = [each for each in self._facts.connections() if not vhosts or each.vhost in vhosts]
        if connections:
            infos = heapq.nlargest(share // len(connections), open_, key=_weight)
            left_out["connection",] = len(open_) - len(infos)
            named = [(each.vhost, each.user, each.name) for each in infos]
            yield ObjectTable(CONNECTION, named, _columns(connections, infos))
        if channels:
            found = _channels(open_, share // len(channels))
            left_out["channel",] = max(sum(each.channels for each in open_) - len(found), 0)
            numbered = [(each.vhost, each.user, each.name, str(at)) for each, at, _ in found]
            yield ObjectTable(CHANNEL, numbered, _columns(channels, [each[2] for each in found]))
        column = (LEFT_OUT, list(left_out.values()))
        yield ObjectTable(LEFT_OUT.labels, list(left_out), iter([column]))


def _columns(details: list[Detail], objects: list[Any]) -> Iterator[tuple[Metric, list[float]]]:
    for detail in details:
        value = detail.value
        yield detail.metric, [float(value(each)) for each in objects]


def _channels(
    infos: list[ConnectionInfo], count_max: int
) -> list[tuple[ConnectionInfo, int, ClientTraffic]]:
    """Return channels with their connections and numbers, those first that hold most."""
    found: list[tuple[ConnectionInfo, int, ClientTraffic]] = []
    for info in heapq.nlargest(count_max, infos, key=_weight):
        if info.control is not None:
            found += [(info, number, passed) for number, passed in info.control.traffic()]
        if len(found) >= count_max:
            break
    return found[:count_max]


def _fullness(host: QueueHost) -> tuple[bool, int, int]:
    machine = host.machine
    return machine.saturated, int(machine.held_bytes), int(machine.held_count)


def _weight(info: ConnectionInfo) -> tuple[int, int]:
    return int(info.buffered_bytes), int(info.account.byte_count) if info.account is not None else 0
